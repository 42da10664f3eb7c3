"""The tasks on random symbols: copy, reverse and sort (section 1 of the study).

A sentence is a string of letters and digits without spaces; each is one piece. Reverse and copy need the
order of the source; sort does not, and serves as a control.
"""

from __future__ import annotations

import random
import string
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from nmt.runtime.files import replaced

SYMBOLS = string.ascii_lowercase + string.digits
LONGEST = 20
"""Symbols of the longest sentence in training."""
TEST_LENGTHS = (5, 10, 15, 20, 22, 25, 30, 40, 60, 80)
TEST_SENTENCES = 50
"""Sentences per length in the test."""
_TRAIN, _VALID = 50_000, 200

TASKS: Mapping[str, Callable[[str], str]] = {
    "copy": lambda text: text,
    "reverse": lambda text: text[::-1],
    "sort": lambda text: "".join(sorted(text)),
}


def write(folder: Path, task: str) -> list[str]:
    """Writes the training and validation text of a task, if missing; returns the options of the data."""
    if not (folder / "valid.target").exists():
        folder.mkdir(parents=True, exist_ok=True)
        chance = random.Random(f"{task} training")
        for split, count in (("train", _TRAIN), ("valid", _VALID)):
            sources = [_text(chance, chance.randint(1, LONGEST)) for _ in range(count)]
            for side, lines in (("source", sources), ("target", [TASKS[task](line) for line in sources])):
                path = folder / f"{split}.{side}"
                with replaced(path) as temporary:  # another experiment may write the same file now
                    temporary.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return [
        "recipe=none",
        "data=local",
        "data.source_lang=xx",
        "data.target_lang=yy",
        *(
            f"data.{split}.{side}={folder / f'{split}.{side}'}"
            for split in ("train", "valid")
            for side in ("source", "target")
        ),
        "data.tokenizer.vocab_size=330",
        f"data.tokenizer.user_symbols=[{','.join(repr(symbol) for symbol in SYMBOLS)}]",
        "data.tokenizer.normalization=identity",
        "data.cleaning.drop_identical=false",
        "data.cleaning.drop_duplicates=false",
        "data.cleaning.drop_leaked=false",
    ]


def test_sentences(task: str) -> dict[int, tuple[list[str], list[str]]]:
    """Returns sources and targets by length; the same in every experiment."""
    chance = random.Random(f"{task} test")
    found = {}
    for length in TEST_LENGTHS:
        sources = [_text(chance, length) for _ in range(TEST_SENTENCES)]
        found[length] = (sources, [TASKS[task](line) for line in sources])
    return found


def accuracies(hypotheses: Sequence[str], references: Sequence[str]) -> dict[str, float]:
    """Returns the share of symbols and of sentences that are right, and the ratio of the lengths.

    A symbol is right if the reference has the same symbol at its place.
    """
    right = sum(
        hypothesis == reference
        for pair in zip(hypotheses, references, strict=True)
        for hypothesis, reference in zip(*pair, strict=False)
    )
    total = sum(map(len, references))
    exact = sum(map(str.__eq__, hypotheses, references))
    return {
        "symbols": right / total,
        "sentences": exact / len(references),
        "length_ratio": sum(map(len, hypotheses)) / total,
    }


def _text(chance: random.Random, length: int) -> str:
    return "".join(chance.choices(SYMBOLS, k=length))
