"""A search (`hydra/sweeper=optuna`): its options and the values to search, from the command line."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hydra.core.override_parser.types import IntervalSweep

from nmt.config.plain_yaml import plain_value
from nmt.config.schema import text_option, walk
from nmt.config.storage import typed_options
from nmt.config.sweeper import PRUNERS, SAMPLERS, SweeperConfig
from nmt.errors import UserError
from nmt.options.arguments import Arguments
from nmt.options.overrides import parsed, settings_of

_DIGITS = 4  # significant digits of a searched number


@dataclass(frozen=True)
class Dimension:
    """An option that is searched.

    Attributes:
        key: the option as on the command line.
        choices: its values as on the command line; empty for an interval.
        low, high: the ends of an interval, both included.
        log: whether the logarithm of the number is uniform.
        whole: whether it is a whole number.
    """

    key: str
    choices: Sequence[str] = ()
    low: float = 0.0
    high: float = 0.0
    log: bool = False
    whole: bool = False

    def ends(self) -> Sequence[str]:
        """Returns all choices, or the ends of the interval, as on the command line."""
        return self.choices or [self.written(self.low), self.written(self.high)]

    def written(self, value: float) -> str:
        """Returns a number of the interval as on the command line, with four significant digits."""
        if self.whole:
            return str(int(value))
        return str(min(self.high, max(self.low, float(f"{value:.{_DIGITS}g}"))))


@dataclass(frozen=True)
class Search:
    """A search.

    Attributes:
        options: the options of the search itself.
        sampler, pruner: their names.
        items: the words of the command line, in order, with a `Dimension` in place of those to search.
    """

    options: SweeperConfig
    sampler: str
    pruner: str
    items: Sequence[str | Dimension]

    @property
    def dimensions(self) -> list[Dimension]:
        """The options that are searched."""
        return [item for item in self.items if isinstance(item, Dimension)]

    def words(self, values: Mapping[str, str]) -> list[str]:
        """Returns the command line of a trial; `values` are those of the searched options."""
        return [item if isinstance(item, str) else f"{item.key}={values[item.key]}" for item in self.items]

    def corners(self) -> Iterator[list[str]]:
        """Yields command lines in which each choice, and each end of an interval, occurs."""
        first = {dimension.key: dimension.ends()[0] for dimension in self.dimensions}
        yield self.words(first)
        for dimension in self.dimensions:
            for value in dimension.ends()[1:]:
                yield self.words({**first, dimension.key: value})


def read_search(schema: type[Any], arguments: Arguments) -> Search:
    """Reads the words of a command line.

    Raises:
        UserError: an option of the search is unknown or wrong, or there is nothing to search.
    """
    names = {"hydra/sweeper": "", "hydra/sweeper/sampler": "tpe", "hydra/sweeper/pruner": "median"}
    given: dict[str, Any] = {}
    for word in arguments.sweeper:
        key, _, value = word.partition("=")
        *sections, name = key.removeprefix("hydra.sweeper.").split(".")
        if key in names:
            names[key] = value
        elif key.startswith("hydra.sweeper.") and not sections:
            given[name] = plain_value(value)
        elif sections in (["sampler"], ["pruner"]):
            given.setdefault(sections[0], {})[name] = plain_value(value)
        else:
            raise UserError(f"{key}: there is no such option. The names are {', '.join(names)}.")
    for key, known in zip(names, (("optuna",), SAMPLERS, PRUNERS), strict=True):
        if names[key] not in known:
            shown = f"{key}={names[key]}" if names[key] else f"{arguments.sweeper[0]}: {key}"
            raise UserError(f"{shown}: must be {' or '.join(known)}.")
    if not arguments.sweep:
        raise UserError("hydra/sweeper=optuna: is a sweep. Add -m.")
    options = typed_options(SweeperConfig, given, "hydra.sweeper", "hydra/sweeper=optuna")
    items = [_item(schema, word) for word in arguments.overrides]
    search = Search(options, names["hydra/sweeper/sampler"], names["hydra/sweeper/pruner"], items)
    if not search.dimensions:
        raise UserError(
            "hydra/sweeper=optuna: nothing to search. Give several values, key=choice(a,b), or an interval, "
            "'key=interval(0.1,0.3)'."
        )
    keys = [item.key if isinstance(item, Dimension) else item.partition("=")[0] for item in items]
    for dimension in search.dimensions:
        if keys.count(dimension.key) > 1 or dimension.key == "run_dir":
            problem = "can't be searched" if dimension.key == "run_dir" else "is given twice"
            raise UserError(f"{dimension.key}: {problem}. Give it once, with one value.")
    return search


def _item(schema: type[Any], word: str) -> str | Dimension:
    key, _, value = word.partition("=")
    if "interval(" in value and text_option(schema, key) is None:
        swept = parsed(word, f"value={value}").value()
        if isinstance(swept, IntervalSweep):
            low, high, log = swept.start, swept.end, "log" in swept.tags
            if low is None or high is None or not (-math.inf < low < high < math.inf) or (log and low <= 0):
                needs = "two finite numbers, the lower one first" + (" and above 0" if log else "")
                raise UserError(f"{word}: the interval needs {needs}.")
            kinds = {name: kind for name, _, kind in walk(schema)}
            whole = isinstance(low, int) or kinds.get(key) is int
            return Dimension(key, low=low, high=high, log=log, whole=whole)
    values = [setting.written for setting in settings_of(schema, word, sweep=True)]
    return Dimension(key, values) if len(values) > 1 else word
