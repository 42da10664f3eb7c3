"""Malformed rows: dropped and counted up to `data.max_malformed`, an error above it."""

from __future__ import annotations

from nmt.errors import UserError
from nmt.runtime.streams import log

BROKEN = "\udc80"
"""Stands for a line that is not UTF-8. No text that was decoded has this half of a character."""
NOT_UTF8 = "is not valid UTF-8"
"""What is wrong with a line that can't be decoded."""
_NUM_EXAMPLES = 3
_SUGGESTED = 0.001


class MalformedRow(UserError):
    """A row that is not a pair. The message begins with its place: file and line."""


class Malformed:
    """The malformed rows that one reading of a corpus has dropped.

    Attributes:
        count: their number.
        examples: what is wrong with the first of them.
        fix: the end of a message about a row that may not be dropped.
    """

    def __init__(self, limit: float = 0.0, fix: str = "") -> None:
        self._limit, self.fix = limit, fix
        self.count = 0
        self.examples: list[str] = []

    @property
    def allowed(self) -> bool:
        """Whether malformed rows are dropped at all."""
        return self._limit > 0.0

    @property
    def first(self) -> str:
        """What is wrong with the first malformed rows, as the end of a message; empty if there are none."""
        return f" The first: {'; '.join(self.examples)}" if self.examples else ""

    def drop(self, message: str) -> None:
        """Counts a dropped row. Raises `MalformedRow` if none may be dropped."""
        if not self.allowed:
            raise MalformedRow(f"{message}{self.fix}")
        self.count += 1
        if len(self.examples) < _NUM_EXAMPLES:
            self.examples.append(message)

    def check(self, name: str, num_pairs: int) -> None:
        """Checks, once all rows of a corpus have been read, that not too many of them were dropped.

        Raises:
            UserError: their share is above the limit.
        """
        total = num_pairs + self.count
        if total and self.count / total > self._limit:  # a product would round 0.29 * 100 to less than 29
            raise UserError(
                f"data.max_malformed={self._limit:g}: {self.count:,} of {total:,} rows of {name} are "
                f"malformed, a share of {self.count / total:.2g}. Correct the file or allow more.{self.first}"
            )

    def warn(self, key: str) -> None:
        """Logs how many rows were dropped, with the first ones."""
        if self.count:
            examples = "".join(f"\n  {example}" for example in self.examples)
            log.warning("%s: %s malformed rows are dropped. The first:%s", key, f"{self.count:,}", examples)


def for_split(limit: float, labels: str | None = None) -> Malformed:
    """Returns the count for one reading of a split with `data.max_malformed=limit`.

    `labels`: the option with a label for each of its rows, so that none may be dropped.
    """
    if labels is not None:
        return Malformed(0.0, f" {labels} has a label for each row, so data.max_malformed has no effect.")
    return Malformed(limit, f" Or give data.max_malformed={_SUGGESTED} to drop up to 1 in 1,000 such rows.")
