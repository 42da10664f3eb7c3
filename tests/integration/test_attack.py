"""The table of attacks in `tests/attack`: some of it in the fast tests, a third in the slow ones.

`python tests/attack --help` runs it by hand, with random cases beside it.
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

PARTS = 97
"""The case with the number n is in part n % PARTS; neighbours are alike, so a part has some of every kind."""

FAST = 0
SLOW = range(1, PARTS, 3)
"""A third of the table: the whole takes 25 minutes on two slow cores. `python tests/attack` runs it."""

BATCHES = [list(SLOW[first : first + 8]) for first in range(0, len(SLOW), 8)]
"""Parts that one process runs; it imports for seconds before its first case."""


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the first process that runs cases keeps what all start from."""
    return tmp_path_factory.mktemp("attack") / "prepared"


def test_the_table_has_cases_of_all_commands() -> None:
    counts = Counter(case.command for case in all_cases())
    assert counts.total() >= 300
    assert set(counts) == {"nmt-train", "nmt-translate", "nmt-eval"}
    assert min(counts.values()) >= 100
    numbers = [FAST, *(number for batch in BATCHES for number in batch)]
    assert len(numbers) == len(set(numbers)) == 1 + len(SLOW) and set(numbers) <= set(range(PARTS))


def test_the_fast_part_is_of_all_commands() -> None:
    assert len({case.command for case in part(all_cases(), PARTS, [FAST])}) == 3


def test_some_cases(prepared: Path) -> None:
    attack(prepared, [FAST])


@pytest.mark.slow
@pytest.mark.parametrize("batch", BATCHES, ids=lambda batch: f"{batch[0]}-{batch[-1]}")
def test_the_other_cases(batch: list[int], prepared: Path) -> None:
    attack(prepared, batch)


def attack(prepared: Path, parts: list[int]) -> None:
    """Runs parts of the table in a process of their own, which forks for each case: pytest has threads."""
    chosen = ["--every", str(PARTS), "--first", ",".join(map(str, parts)), "--prepared", str(prepared)]
    result = subprocess.run(
        [sys.executable, str(TESTS / "attack"), *chosen], capture_output=True, text=True, timeout=1200
    )
    assert result.returncode == 0, f"{result.stdout}\n{result.stderr[-3000:]}"
