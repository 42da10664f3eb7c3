"""The toy corpus and a training on it, shared by the tests of the commands."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import Toy
from toy import write_toy


@pytest.fixture(scope="session")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Toy:
    """The corpus, shared by all tests: none writes to it but into run folders of its own."""
    folder = write_toy(tmp_path_factory.mktemp("toy"), train=400, held_out=20)
    return Toy(folder, tmp_path_factory.mktemp("toy-cache"))


@pytest.fixture(scope="session")
def trained(toy: Toy) -> Path:
    """The run folder of a finished training, shared by all tests."""
    result = toy.run("nmt-train", *toy.small("run_dir=trained"))
    assert result.returncode == 0, result.stderr.decode()
    return toy.folder / "trained"
