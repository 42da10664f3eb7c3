"""The toy corpora of the goldens, and the options of their trainings."""

from __future__ import annotations

import random
from pathlib import Path

from golden_parts.workshop import CASES

WORDS = [first + second for first in "bdfgklmn" for second in "aeiou"]
STRINGS = ["https://a.b/c?d=1&e", "www.x.de", "x@b.cd", "<b>", "</b>", "<a href='x y'>"]
STRINGS += ["{name}", "${v}", "%s", "%(n)d"]

SMALL: dict[str, str] = dict(CASES["small"])
"""Options of a training of a second."""


def files(prefix: str = "small", splits: str = "train valid test") -> dict[str, str]:
    """Returns the options that select text files of both sides."""
    sides = {"source": "src", "target": "tgt"}
    options = {
        f"data.{split}.{side}": f"{prefix}.{split}.{ending}"
        for split in splits.split()
        for side, ending in sides.items()
    }
    return {"data.source_lang": "xx", "data.target_lang": "yy", **options}


def as_arguments(options: dict[str, str]) -> list[str]:
    """Returns options as words of a command line."""
    return [f"{key}={value}" for key, value in options.items()]


def small(**more: str) -> list[str]:
    """Returns the command line of a small training; in the names of `more`, `__` stands for a dot."""
    changed = {key.replace("__", "."): value for key, value in more.items()}
    return ["train", "data=local", *as_arguments(files() | SMALL | changed)]


def write_corpora(folder: Path) -> None:
    """Writes the corpora: a target has the words of its source, and their letters, in reverse order.

    `small` has 300 pairs, `large` 3,000. Of `strings`, the same as `large`, every fifth pair has strings to
    copy. `other` is a second corpus for mixtures.
    """
    for prefix, train, held_out, seed in (
        ("small", 300, 20, 0),
        ("large", 3000, 40, 1),
        ("other", 200, 10, 2),
    ):
        chance = random.Random(seed)
        for split, count in (("train", train), ("valid", held_out), ("test", held_out)):
            pairs = []
            for _ in range(count):
                words = chance.choices(WORDS, k=chance.randint(2, 7))
                pairs.append((" ".join(words), " ".join(word[::-1] for word in reversed(words))))
            write_pairs(folder, f"{prefix}.{split}", pairs)
            if prefix == "large" and split == "train":
                for number in range(0, count, 5):
                    strings = chance.sample(STRINGS, 2)
                    source, target = pairs[number]
                    pairs[number] = (f"{' '.join(strings)} {source}", f"{' '.join(strings[::-1])} {target}")
                write_pairs(folder, "strings.train", pairs)
            if prefix == "small":
                rows = "".join(f"{source}\t{target}\n" for source, target in pairs)
                (folder / f"small.{split}.tsv").write_text(f"source\ttarget\n{rows}", encoding="utf-8")


def write_pairs(folder: Path, name: str, pairs: list[tuple[str, str]]) -> None:
    """Writes text files of both sides."""
    for side, ending in enumerate(("src", "tgt")):
        text = "".join(f"{pair[side]}\n" for pair in pairs)
        (folder / f"{name}.{ending}").write_text(text, encoding="utf-8")
