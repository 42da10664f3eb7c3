"""The recorded facts of a model, and the YAML header of its card, which the hub reads."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeGuard

from nmt.config import TrainConfig
from nmt.data.subwords.tokenizer import Tokenizer
from nmt.runtime import printable

HUB_ID = re.compile(r"(?:[A-Za-z0-9][\w.-]*/)?[A-Za-z0-9][\w.-]*", re.ASCII)
"""Matches the name of a data set on the hub."""
SPLITS = ("train", "valid", "test")
_LICENCES = frozenset(
    (
        "apache-2.0 mit openrail bigscience-openrail-m creativeml-openrail-m openrail++ afl-3.0 artistic-2.0 "
        "bsl-1.0 bsd bsd-2-clause bsd-3-clause bsd-3-clause-clear c-uda cc cc0-1.0 cc-by-2.0 cc-by-2.5 "
        "cc-by-3.0 cc-by-4.0 cc-by-sa-3.0 cc-by-sa-4.0 cc-by-nc-2.0 cc-by-nc-3.0 cc-by-nc-4.0 cc-by-nd-4.0 "
        "cc-by-nc-nd-3.0 cc-by-nc-nd-4.0 cc-by-nc-sa-2.0 cc-by-nc-sa-3.0 cc-by-nc-sa-4.0 ecl-2.0 epl-1.0 "
        "epl-2.0 eupl-1.1 eupl-1.2 agpl-3.0 gfdl gpl gpl-2.0 gpl-3.0 lgpl lgpl-2.1 lgpl-3.0 isc lppl-1.3c "
        "ms-pl mpl-2.0 odc-by odbl ofl-1.1 osl-3.0 postgresql ncsa unlicense zlib pddl wtfpl unknown other"
    ).split()
)
"""The identifiers that the hub knows. It refuses others; these are written as `other` and a name."""


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
        facts = section(results, split)
        count = facts.get("sentences")
        for key, signature in section(facts, "signatures").items():
            value = facts.get(key)
            if is_finite(value):
                sentences = count if is_count(count) else None
                yield Score(split, sentences, str(key), float(value), str(signature))


def corpora(results: Mapping[str, Any], split: str) -> dict[str, Mapping[str, Any]]:
    """Returns the facts of each corpus of a split, by name; the name of the only one is empty."""
    facts = section(section(results, "data"), split)
    several = section(facts, "corpora")
    if several:
        return {str(name): corpus for name, corpus in several.items() if isinstance(corpus, Mapping)}
    return {"": facts} if facts else {}


def num_pairs(results: Mapping[str, Any], split: str, facts: Mapping[str, Any]) -> str:
    """Returns the number of pairs of a corpus before cleaning; empty if it is not recorded."""
    whole = section(section(results, "data"), "cleaning") if split == "train" else {}
    read = section(facts, "cleaning") or whole
    counts = facts.get("num_pairs"), facts.get("sentences"), read.get("pairs")
    return next((f"{count:,}" for count in counts if is_count(count)), "")


def section(values: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Returns a section of recorded results; empty if it is missing or not a section."""
    value = values.get(name)
    return value if isinstance(value, Mapping) else {}


def is_count(value: Any) -> bool:
    """Returns whether a value is an integer, and not a boolean."""
    return type(value) is int


def is_finite(value: Any) -> TypeGuard[int | float]:
    """Returns whether a value is a finite number that fits into a float; a recorded integer may be larger."""
    return isinstance(value, int | float) and abs(value) <= sys.float_info.max


def header(subject: Subject, library: str) -> dict[str, Any]:
    """Returns the header of a card; `library` is the name of the engine on the hub."""
    config, results = subject.config, subject.results
    codes = list(dict.fromkeys(code for pair in config.data.language_pairs() for code in pair if code))
    bases = dict.fromkeys(re.split("[-_]", code)[0].lower() for code in codes)
    fields: dict[str, Any] = {"language": list(bases)}
    if any(code not in bases for code in codes):  # the hub takes only the base of a code as a language
        fields["language_bcp47"] = [code.replace("_", "-") for code in codes]
    if config.licence:
        known = config.licence.lower() in _LICENCES
        fields["license"] = config.licence.lower() if known else "other"
        if not known:
            fields["license_name"] = config.licence
    fields |= {"library_name": library, "pipeline_tag": "translation", "tags": ["translation", "nmt"]}
    hubs = [facts.get("hub") for split in SPLITS for facts in corpora(results, split).values()]
    if names := list(dict.fromkeys(hub for hub in hubs if isinstance(hub, str) and HUB_ID.fullmatch(hub))):
        fields["datasets"] = names
    recorded = [*scores(results)]
    if recorded:
        fields["metrics"] = list(dict.fromkeys(line(score.metric) for score in recorded))
        fields["model-index"] = [{"name": config.name, "results": _index(subject, recorded)}]
    return fields


def _index(subject: Subject, scores: list[Score]) -> list[dict[str, Any]]:
    """Returns the scores in the form of the hub: an entry for each split."""
    data, entries = subject.config.data, []
    for split in dict.fromkeys(score.split for score in scores):
        facts = next(iter(corpora(subject.results, split).values()), {})
        hub = facts.get("hub")
        title = f"Translation {data.source_lang}-{data.target_lang}"
        entries.append(
            {
                "task": {"type": "translation", "name": title},
                "dataset": {
                    "type": hub if isinstance(hub, str) and HUB_ID.fullmatch(hub) else "text",
                    "name": line(facts.get("corpus") or f"{data.name} {split}"),
                    "split": split,
                },
                "metrics": [
                    {
                        "type": line(score.metric),
                        "value": round(score.value, 2),
                        "name": line(score.metric),
                        "args": {"signature": line(score.signature)},
                    }
                    for score in scores
                    if score.split == split
                ],
            }
        )
    return entries


_LONGEST = 200  # characters of a name or a value


def line(text: Any) -> str:
    """Returns a value as score line of limited length without control characters."""
    whole = printable(" ".join(str(text).split()))
    return whole if len(whole) <= _LONGEST else f"{whole[:_LONGEST]}…"
