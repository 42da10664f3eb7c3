"""Fixtures: the toy corpus and a training on it, shared by the tests of commands; log and threads."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import torch
from commands import Toy
from process_state import state
from toy import write_toy

from nmt.runtime.streams import log
from nmt.training.figures import meter


@pytest.fixture(scope="session")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Toy:
    """The toy corpus, shared by all tests; a test writes only to separate run folders in it."""
    folder = write_toy(tmp_path_factory.mktemp("toy"), train=400, held_out=20)
    return Toy(folder, tmp_path_factory.mktemp("toy-cache"))


@pytest.fixture(scope="session")
def trained(toy: Toy) -> Path:
    """The run folder of a finished training, shared by all tests."""
    result = toy.run("nmt-train", *toy.small("run_dir=trained"), fresh=True)
    assert result.returncode == 0, result.stderr.decode()
    return toy.folder / "trained"


@pytest.fixture(scope="session")
def expected(toy: Toy, trained: Path) -> dict[str, str]:
    """The translations of nmt-translate."""
    lines = [*(toy.folder / "train.src").read_text().split("\n")[:200], "Hello, wörld! 你好", ""]
    text = "".join(f"{line}\n" for line in lines)
    found = toy.run("nmt-translate", f"model_dir={trained}", text=text).stdout.decode().split("\n")[:-1]
    return dict(zip(lines, found, strict=True))


@pytest.fixture(scope="session", autouse=True)
def one_ceiling() -> Iterator[None]:
    """Measures the speed of the machine once: it takes as long as the training of a test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(meter, "measured_ceiling", cache(meter.measured_ceiling))
        yield


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The toy corpus for trainings in this process; no test changes it."""
    return write_toy(tmp_path_factory.mktemp("data"), train=500, held_out=8)


@pytest.fixture
def there(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> Toy:
    """The toy corpus; its folder is the working directory, its cache is that of the commands."""
    monkeypatch.chdir(toy.folder)
    monkeypatch.setenv("NMT_CACHE", str(toy.cache))
    return toy


@pytest.fixture
def unchanged() -> Iterator[None]:
    """Checks that a test does not change the process state; starts from settings that no call chooses."""
    torch.set_num_threads(2)
    torch.set_default_dtype(torch.float64)
    before = state()
    yield
    try:
        assert state() == before
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.fixture(scope="session")
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache folder, empty at first."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def own_cache(shared_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Gives all tests one cache folder: the data that they share are prepared once."""
    monkeypatch.setenv("NMT_CACHE", os.fspath(shared_cache))
    return shared_cache


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> pytest.LogCaptureFixture:
    """The log records of the program, from level INFO upwards."""
    monkeypatch.setattr(log, "propagate", True)
    caplog.set_level(logging.INFO, "nmt")
    return caplog


@pytest.fixture(autouse=True)
def same_threads() -> Iterator[None]:
    """Restores the number of threads of torch, which a training in this process sets."""
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)
