"""The strings that the measurement of placeholders puts into lines, and takes out of translations."""

from __future__ import annotations

import random

import pytest
from measure_placeholders import KINDS, measured, table, without

LINES = ["A dog runs.", "Two small children play in the snow!", "No", "", "«Ein», zwei – drei"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_line_without_its_strings_is_the_line(kind: str) -> None:
    for number, line in enumerate(LINES, 1):
        for seed in range(5):
            given, strings = KINDS[kind](line, number, random.Random(seed))
            assert all(given.count(string) == 1 for string in strings)
            assert without(given, strings) == line


def test_literal_lines() -> None:
    assert without("Ein <b>Hund</b> läuft {x} https://a.b/c.", ["<b>", "</b>", "{x}", "https://a.b/c"]) == (
        "Ein Hund läuft."
    )
    assert KINDS["URL"]("A dog runs.", 3, random.Random(1)) == (
        "A dog runs https://example.org/3?page=18.",
        ["https://example.org/3?page=18"],
    )
    assert KINDS["tag pair"]("No", 1, random.Random(1)) == ("No", [])


class Copying:
    """Translates as a model that loses the strings of the last line."""

    def translate(self, lines: list[str], progress: bool) -> list[str]:
        return [*lines[:-1], "drei"]


def test_counts() -> None:
    model, lines = Copying(), ["one two three four five", "the dog runs over the grass", "dies sind drei"]
    none, url, tags, variable, all_three = measured(model, lines, [*lines[:2], "drei"], seed=1)  # type: ignore[arg-type]
    assert (none.strings, none.once, none.lost) == (0, 0, 0.0)
    assert (url.strings, url.once) == (3, 2)
    assert (tags.strings, tags.once, tags.in_order) == (6, 4, 2)
    assert (variable.strings, variable.once) == (3, 2)
    assert (all_three.strings, all_three.once, all_three.in_order) == (12, 8, 2)
    assert {row.lost for row in (url, tags, variable, all_three)} == {0.0}
    assert table([url]).splitlines()[1].split() == ["URL", "3", "2", "0", "100.00", "0.00"]
