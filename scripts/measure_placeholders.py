"""Measures what a URL, a tag pair or a variable in a line does to the translation of the rest.

    python scripts/measure_placeholders.py runs/mine --text val.en val.de

The model must have been trained with `data.placeholders=true`. Every line gets a string, at a place that is
the same in each run: a URL after its last word, a pair of tags around a word of four letters or more, a
variable before a word, or all three. In the translations the strings are counted and removed. BLEU of what is
left is compared with that of the lines without strings.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import sacrebleu

import nmt
from nmt.runtime.streams import log_to_stderr

_WORD = re.compile(r"[^\W\d_]+")


@dataclass(frozen=True)
class Row:
    """The result for one kind of strings.

    Attributes:
        kind: see `KINDS`.
        strings: number of strings in all lines.
        once: how many of them their translation has exactly once.
        in_order: how many pairs of tags have the opening tag before the closing one.
        bleu: of the translations without the strings.
        lost: BLEU of the lines without strings, minus `bleu`.
    """

    kind: str
    strings: int
    once: int
    in_order: int
    bleu: float
    lost: float


def with_url(line: str, number: int, chance: random.Random) -> tuple[str, list[str]]:
    """Puts a URL after the last word, before the punctuation at the end."""
    url = f"https://example.org/{number}?page={chance.randint(1, 99)}"
    end = len(line.rstrip(" .!?"))
    return f"{line[:end]} {url}{line[end:]}", [url]


def with_tags(line: str, number: int, chance: random.Random) -> tuple[str, list[str]]:
    """Puts a pair of tags around a word of four letters or more, if there is one."""
    words = [match.span() for match in _WORD.finditer(line) if len(match[0]) >= 4]
    if not words:
        return line, []
    begin, end = chance.choice(words)
    opening, closing = chance.choice([("<b>", "</b>"), ("<i>", "</i>"), (f'<a href="/{number}">', "</a>")])
    return f"{line[:begin]}{opening}{line[begin:end]}{closing}{line[end:]}", [opening, closing]


def with_variable(line: str, number: int, chance: random.Random) -> tuple[str, list[str]]:
    """Puts a variable before a word, but not before the first one."""
    words = [match.start() for match in _WORD.finditer(line)][1:]
    variable = chance.choice([f"{{name_{number}}}", f"${{value{number}}}", f"{{{{count{number}}}}}"])
    if not words:
        return line, []
    begin = chance.choice(words)
    return f"{line[:begin]}{variable} {line[begin:]}", [variable]


def with_all(line: str, number: int, chance: random.Random) -> tuple[str, list[str]]:
    """Puts in all three; a later one never splits an earlier one."""
    line, tags = with_tags(line, number, chance)
    line, urls = with_url(line, number, chance)
    # A variable before the first word of the line, which no tag contains.
    variable = f"{{name_{number}}}"
    return f"{variable} {line}", [*tags, *urls, variable]


KINDS: Mapping[str, Callable[[str, int, random.Random], tuple[str, list[str]]]] = {
    "URL": with_url,
    "tag pair": with_tags,
    "variable": with_variable,
    "all three": with_all,
}
"""name → the function that puts strings into a line; it returns the line and its strings."""


def without(translation: str, strings: Sequence[str]) -> str:
    """Removes strings from a translation, and the spaces that belong to them."""
    for string in strings:
        translation = re.sub(rf"\s*{re.escape(string)}(?=[.,!?;:]|$)", "", translation).replace(string, "")
    return " ".join(translation.split())


def measured(model: nmt.Model, lines: Sequence[str], references: Sequence[str], seed: int) -> list[Row]:
    """Translates the lines without strings, and with those of each kind."""
    plain = sacrebleu.corpus_bleu(model.translate(lines, progress=True), [references]).score
    rows = [Row("none", 0, 0, 0, round(plain, 2), 0.0)]
    for kind, put in KINDS.items():
        chance = random.Random(seed)
        given = [put(line, number, chance) for number, line in enumerate(lines, 1)]
        found = model.translate([line for line, _ in given], progress=True)
        pairs = [*zip(found, (strings for _, strings in given), strict=True)]
        once = sum(text.count(string) == 1 for text, strings in pairs for string in strings)
        tags = [
            (text.find(strings[0]), text.find(strings[1]))
            for text, strings in pairs
            if len(strings) > 1 and strings[0].startswith("<")
        ]
        rest = sacrebleu.corpus_bleu([without(*pair) for pair in pairs], [references]).score
        rows.append(
            Row(
                kind=kind,
                strings=sum(len(strings) for _, strings in given),
                once=once,
                in_order=sum(0 <= opening < closing for opening, closing in tags),
                bleu=round(rest, 2),
                lost=round(plain - rest, 2),
            )
        )
    return rows


def table(rows: Sequence[Row]) -> str:
    """Returns the rows as text."""
    lines = [f"{'strings':<12}{'number':>8}{'once':>8}{'in order':>10}{'BLEU':>8}{'lost':>7}"]
    lines += [
        f"{row.kind:<12}{row.strings:>8,}{row.once:>8,}{row.in_order:>10,}{row.bleu:>8.2f}{row.lost:>7.2f}"
        for row in rows
    ]
    return "\n".join(lines)


def main() -> None:
    """Measures, prints the table, and writes the rows."""
    parser = argparse.ArgumentParser(description="Measures URLs, tags and variables.")
    parser.add_argument("model", type=Path)
    parser.add_argument("--text", type=Path, nargs=2, required=True, metavar=("SOURCE", "REFERENCE"))
    parser.add_argument("--seed", type=int, default=1, help="of the places")
    parser.add_argument("--json", type=Path, help="file for the rows")
    arguments = parser.parse_args()
    log_to_stderr()
    lines, references = (path.read_text(encoding="utf-8").splitlines() for path in arguments.text)
    rows = measured(nmt.load(arguments.model), lines, references, arguments.seed)
    print(table(rows))
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")


if __name__ == "__main__":
    main()
