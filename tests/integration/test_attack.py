"""The table of attacks in `tests/attack`: a few cases in the fast tests, a third in the slow ones.

`python tests/attack` runs the whole table in half an hour; see its `--help`.
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS))

from attack.table import all_cases, part  # noqa: E402

PARTS = 131
"""Case number n is in part n % PARTS. Neighbouring cases are similar, so a part has some of every kind."""

FAST = 0
SLOW = range(1, PARTS, 3)
BATCHES = [list(SLOW[first : first + 4]) for first in range(0, len(SLOW), 4)]
"""The parts that one process runs; its imports take seconds, so it runs several."""


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the common starting point of all cases, which the first process creates."""
    return tmp_path_factory.mktemp("attack") / "prepared"


def test_the_table_has_cases_of_all_commands() -> None:
    counts = Counter(case.command for case in all_cases())
    assert counts.total() >= 300
    assert set(counts) == {"nmt-train", "nmt-translate", "nmt-eval", "nmt-export"}
    assert counts.pop("nmt-export") >= 20 and min(counts.values()) >= 100
    slow = [number for batch in BATCHES for number in batch]
    assert len(part(all_cases(), PARTS, slow)) >= 300 and FAST not in slow


@pytest.mark.parametrize("parts", [[FAST], *BATCHES], ids=str)
def test_each_part_is_of_all_commands(parts: list[int]) -> None:
    assert len({case.command for case in part(all_cases(), PARTS, parts)} - {"nmt-export"}) == 3


@pytest.mark.slow
def test_some_cases(prepared: Path) -> None:
    attack(prepared, [FAST])


@pytest.mark.slow
@pytest.mark.parametrize("batch", BATCHES, ids=lambda batch: f"{batch[0]}-{batch[-1]}")
def test_a_third_of_the_cases(batch: list[int], prepared: Path) -> None:
    attack(prepared, batch)


def attack(prepared: Path, parts: list[int]) -> None:
    """Runs parts of the table in a separate process, which forks for each case: pytest has threads."""
    chosen = ["--every", str(PARTS), "--first", ",".join(map(str, parts)), "--prepared", str(prepared)]
    result = subprocess.run(
        [sys.executable, str(TESTS / "attack"), *chosen], capture_output=True, text=True, timeout=1200
    )
    assert result.returncode == 0, f"{result.stdout}\n{result.stderr[-3000:]}"
