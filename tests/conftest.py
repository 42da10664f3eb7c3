"""What every test runs under: hypothesis without deadlines, few threads, an own cache folder."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "nmt",
    deadline=None,  # shared machines: a slow example is no failure
    derandomize=True,
    max_examples=50,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("nmt")


def pytest_configure() -> None:
    """Undoes what a shell does to background jobs: they ignore Ctrl-C, and so would our children."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of the test's own; nothing is read from or left in the user's."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("NMT_CACHE", os.fspath(folder))
    return folder
