"""Random choices that are the same with every Python: only Random.random() and ordered sequences."""

from collections.abc import Sequence
from random import Random
from typing import TypeVar

_T = TypeVar("_T")


class Dice:
    """A seeded source of choices."""

    def __init__(self, seed: int) -> None:
        """Creates the source from an integer seed."""
        self._random = Random(seed)

    def chance(self, probability: float) -> bool:
        """Returns True with this probability."""
        return self._random.random() < probability

    def pick(self, items: Sequence[_T]) -> _T:
        """Returns one of the items."""
        return items[int(self._random.random() * len(items))]

    def weighted(self, *choices: tuple[float, _T]) -> _T:
        """Returns one of the (weight, item) choices; weights need not sum to one."""
        point = self._random.random() * sum(weight for weight, _ in choices)
        for weight, item in choices:
            point -= weight
            if point < 0:
                return item
        return choices[-1][1]

    def shuffled(self, items: Sequence[_T]) -> list[_T]:
        """Returns the items in random order."""
        keyed = [(self._random.random(), position) for position in range(len(items))]
        return [items[position] for _, position in sorted(keyed)]
