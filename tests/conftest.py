"""The settings of all tests: hypothesis without deadlines, seeds, a separate cache, GPUs on request."""

from __future__ import annotations

import gc
import logging
import os
import signal
import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from nmt.runtime.machine import short_spins
from nmt.runtime.signals import STOP_SIGNALS

short_spins()  # before torch is imported: the processes of a parallel test run share the cores

import torch  # noqa: E402

settings.register_profile(
    "nmt",
    deadline=None,  # on a shared machine a slow example is not a failure
    derandomize=True,
    max_examples=50,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("nmt")


def pytest_configure() -> None:
    """Restores signals that shells and nohup ignore in background jobs; child processes inherit them."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for signum in (signal.SIGHUP, signal.SIGQUIT):
        if signal.getsignal(signum) is signal.SIG_IGN:
            signal.signal(signum, signal.SIG_DFL)


def pytest_collection_finish() -> None:
    """Excludes all that is imported from garbage collections, which take half a second of each training."""
    gc.collect()
    gc.freeze()


GPUS = torch.cuda.is_available, torch.cuda.device_count, os.environ.get("CUDA_VISIBLE_DEVICES")


@pytest.fixture(scope="session", autouse=True)
def no_gpus() -> Iterator[None]:
    """Hides GPUs from tests that are not marked `gpu`, and from the processes that they start."""
    if torch.cuda.is_available():
        torch.cuda.init()  # fixes the GPUs that this process sees, before they are hidden
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.cuda, "is_available", lambda: False)
        patch.setattr(torch.cuda, "device_count", lambda: 0)
        patch.setenv("CUDA_VISIBLE_DEVICES", "")
        yield


@pytest.fixture(autouse=True)
def same_numbers() -> None:
    """Seeds torch, so that a test does not depend on the tests before it; on the CPU, which is fast."""
    torch.default_generator.manual_seed(0)


@pytest.fixture(autouse=True)
def process_as_before() -> Iterator[None]:
    """Restores the log and the signal handlers after a test that runs a command in this process.

    Otherwise later tests capture log records twice, and a signal handler that raises only once stays silent.
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


@pytest.fixture(scope="session", autouse=True)
def cache_of_shared_fixtures(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Gives fixtures that several tests share an empty cache folder, for the same reason as `own_cache`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NMT_CACHE", os.fspath(tmp_path_factory.mktemp("shared-cache")))
        yield


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder in which every user may create files; the folders of pytest are those of one user."""
    with tempfile.TemporaryDirectory(prefix="nmt-open-") as name:
        os.chmod(name, 0o1777)
        yield Path(name)


@pytest.fixture(scope="session")
def caches(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Paths of new folders, for `own_cache`; to number each, pytest would list those of all earlier tests."""
    folder = tmp_path_factory.mktemp("caches")
    return (folder / str(number) for number in count())


@pytest.fixture(autouse=True)
def own_cache(caches: Iterator[Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    """Gives each test an empty cache folder, so that the cache of the user is neither read nor written."""
    folder = next(caches)
    folder.mkdir()
    monkeypatch.setenv("NMT_CACHE", os.fspath(folder))
    return folder
