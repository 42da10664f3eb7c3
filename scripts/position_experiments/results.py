"""The results of the experiments: read from a study or from the documentation, selected and averaged."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Record = Mapping[str, Any]

FILE = "position_study.jsonl"
"""The file in the folder of the documentation that has all results, one per line."""


def read_study(folder: Path) -> list[Record]:
    """Reads the results of a study, in the order of their names."""
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("results/*.json"))]


def read_results(path: Path) -> list[Record]:
    """Reads a file with one result per line."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def write_results(path: Path, records: Iterable[Record]) -> None:
    """Writes a file with one result per line."""
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records), encoding="utf-8")


@dataclass(frozen=True)
class Spread:
    """The mean of a figure over seeds, with the lowest and the highest."""

    values: Sequence[float]

    @property
    def mean(self) -> float:
        """The mean."""
        return sum(self.values) / len(self.values)

    def text(self, digits: int = 0) -> str:
        """Formats the mean, and the lowest and highest if they differ when rounded."""
        low, high = (f"{value:.{digits}f}" for value in (min(self.values), max(self.values)))
        return f"{self.mean:.{digits}f}" if low == high else f"{self.mean:.{digits}f} ({low}–{high})"


def chosen(records: Iterable[Record], **facts: Any) -> list[Record]:
    """Returns the records that have these facts."""
    return [each for each in records if all(each.get(key) == value for key, value in facts.items())]


def over(records: Sequence[Record], figure: Callable[[Record], float]) -> Spread | None:
    """Returns a figure over several records; None without records."""
    return Spread([figure(record) for record in records]) if records else None


def accuracy(lengths: Sequence[int], key: str = "sentences", kind: str = "free") -> Callable[[Record], float]:
    """Returns a function: record of a task → percentage at these lengths, each with as many sentences."""
    return lambda record: (
        100 * sum(record["by_length"][str(length)][kind][key] for length in lengths) / len(lengths)
    )


def score(bucket: str, key: str = "bleu", kind: str = "free") -> Callable[[Record], float]:
    """Returns a function: record of a training on Multi30k → a score of a bucket."""
    return lambda record: float(record["by_length"][bucket][kind][key])
