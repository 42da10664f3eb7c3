"""The facts of a card: the options of a model and its recorded results."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeGuard

from nmt.config import TrainConfig
from nmt.data.subwords.tokenizer import Tokenizer

HUB_ID = re.compile(r"(?:[A-Za-z0-9][\w.-]*/)?[A-Za-z0-9][\w.-]*", re.ASCII)
"""Matches the name of a data set on the hub."""
SPLITS = ("train", "valid", "test")


@dataclass(frozen=True)
class Subject:
    """The model that a card describes.

    Attributes:
        config: the options that it was trained with.
        tokenizer: its vocabulary.
        results: the content of its `results.json`.
    """

    config: TrainConfig
    tokenizer: Tokenizer
    results: Mapping[str, Any] = field(repr=False)


class Score(NamedTuple):
    """A score on held-out data.

    Attributes:
        split: `test` or `valid`.
        sentences: the number of sentences; None: it is not recorded.
        metric: the key of the metric.
        value: the score.
        signature: the signature of the metric.
    """

    split: str
    sentences: int | None
    metric: str
    value: float
    signature: str


def scores(results: Mapping[str, Any]) -> Iterator[Score]:
    """Yields the scores that are numbers, those of the test set first."""
    for split in ("test", "valid"):
        found = section(results, split)
        count = found.get("sentences")
        for key, signature in section(found, "signatures").items():
            value = found.get(key)
            if is_finite(value):
                sentences = count if is_count(count) else None
                yield Score(split, sentences, str(key), float(value), str(signature))


def language_pairs(config: TrainConfig) -> list[tuple[str | None, str | None]]:
    """Returns the pairs of languages that the model was trained on, each once."""
    data = config.data
    pairs = [
        (one.source_lang or data.source_lang, one.target_lang or data.target_lang)
        for one in data.train.corpora.values()
    ]
    return list(dict.fromkeys([(data.source_lang, data.target_lang), *pairs]))


def corpora(results: Mapping[str, Any], split: str) -> dict[str, Mapping[str, Any]]:
    """Returns the facts of each corpus of a split, by name; the name of the only one is empty."""
    facts = section(section(results, "data"), split)
    several = section(facts, "corpora")
    if several:
        return {str(name): one for name, one in several.items() if isinstance(one, Mapping)}
    return {"": facts} if facts else {}


def num_pairs(results: Mapping[str, Any], split: str, facts: Mapping[str, Any]) -> str:
    """Returns the number of pairs of a corpus before cleaning; empty if it is not recorded."""
    whole = section(section(results, "data"), "cleaning") if split == "train" else {}
    read = section(facts, "cleaning") or whole
    found = facts.get("num_pairs"), facts.get("sentences"), read.get("pairs")
    return next((f"{count:,}" for count in found if is_count(count)), "")


def section(values: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Returns a section of recorded results; empty if it is missing or not a section."""
    found = values.get(name)
    return found if isinstance(found, Mapping) else {}


def is_count(value: Any) -> bool:
    """Returns whether a value is an integer, and not a boolean."""
    return type(value) is int


def is_finite(value: Any) -> TypeGuard[int | float]:
    """Returns whether a value is a finite number that fits into a float; a recorded integer may be larger."""
    return isinstance(value, int | float) and abs(value) <= sys.float_info.max
