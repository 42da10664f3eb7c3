"""`nmt-train find_rate=true`: the line that it prints, and what it leaves in the folder."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from commands import Toy


@pytest.mark.slow
def test_the_command_leaves_nothing_to_resume(toy: Toy, tmp_path: Path) -> None:
    options = toy.small(f"run_dir={tmp_path / 'run'}", "recipe=none", "training.schedule.name=constant")
    told = toy.done("nmt-train", *options, "find_rate=true").stdout.decode()
    assert re.search(r"^training\.schedule\.peak=\d\.\de-\d\d$", told, re.M)
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["find_rate.svg"]
    toy.done("nmt-train", *options, "resume=never")
    assert (tmp_path / "run" / "find_rate.svg").exists()


def test_two_processes_and_the_option_that_excludes_it(toy: Toy, tmp_path: Path) -> None:
    assert toy.refused("nmt-train", *toy.small("find_rate=true", "prepare_only=true")).startswith(
        "find_rate=true:"
    )
