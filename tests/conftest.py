"""What every test runs under: hypothesis without deadlines, seeds, an own cache, GPUs for those that ask."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from nmt.runtime import STOP_SIGNALS, short_spins

short_spins()  # before torch is imported: the processes of a parallel test run share the cores

import torch  # noqa: E402

settings.register_profile(
    "nmt",
    deadline=None,  # shared machines: a slow example is no failure
    derandomize=True,
    max_examples=50,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("nmt")


def pytest_configure() -> None:
    """Undoes what shells and nohup do to background jobs: they ignore signals, and so would our children."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for signum in (signal.SIGHUP, signal.SIGQUIT):
        if signal.getsignal(signum) is signal.SIG_IGN:
            signal.signal(signum, signal.SIG_DFL)


GPUS = torch.cuda.is_available, torch.cuda.device_count, os.environ.get("CUDA_VISIBLE_DEVICES")


@pytest.fixture(scope="session", autouse=True)
def no_gpus() -> Iterator[None]:
    """Tests are about a CPU unless they are marked `gpu`; so are the processes that they start."""
    if torch.cuda.is_available():
        torch.cuda.init()  # this process sees what there is once and for all
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.cuda, "is_available", lambda: False)
        patch.setattr(torch.cuda, "device_count", lambda: 0)
        patch.setenv("CUDA_VISIBLE_DEVICES", "")
        yield


@pytest.fixture(autouse=True)
def same_numbers() -> None:
    """Tests draw the same random numbers whatever ran before them."""
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def process_as_before() -> Iterator[None]:
    """Undoes the log and the signal handlers of a command that a test runs in this process.

    Otherwise later tests capture log records twice, and a handler that has raised once stays silent for them.
    """
    log = logging.getLogger("nmt")
    propagate, level, outputs = log.propagate, log.level, list(log.handlers)
    handlers = {signum: signal.getsignal(signum) for signum in STOP_SIGNALS}
    yield
    for signum, handler in handlers.items():
        signal.signal(signum, handler)
    log.propagate, log.handlers[:] = propagate, outputs
    log.setLevel(level)


@pytest.fixture(autouse=True)
def gpus_where_marked(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shows GPUs to tests marked `gpu`."""
    if request.node.get_closest_marker("gpu") is None:
        return
    is_available, device_count, visible = GPUS
    monkeypatch.setattr(torch.cuda, "is_available", is_available)
    monkeypatch.setattr(torch.cuda, "device_count", device_count)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of the test's own; nothing is read from or left in the user's."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("NMT_CACHE", os.fspath(folder))
    return folder
