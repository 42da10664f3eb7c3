"""The sections that all cards have: scores, data, training, limits and licence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from nmt.card.facts import (
    HUB_ID,
    SPLITS,
    Subject,
    corpora,
    is_count,
    is_finite,
    language_pairs,
    num_pairs,
    scores,
    section,
)
from nmt.card.markdown import block, code, table
from nmt.config import TrainConfig
from nmt.config.schema import text_option
from nmt.config.storage import to_plain
from nmt.runtime import is_hub_name

_ORIGINS = ("run_dir", "resume", "resume_from", "prepare_only", "name", "licence", "data.cache_dir")
"""Options that do not describe the model."""


def sections(subject: Subject) -> Iterator[str]:
    """Yields the sections, and the paragraphs before them."""
    config = subject.config
    pairs = language_pairs(config)
    if len(pairs) > 1:
        yield "Pairs of languages: " + ", ".join(f"{code(a)} to {code(b)}" for a, b in pairs) + "."
    if symbols := list(subject.tokenizer.source_symbols):
        listed = ", ".join(map(code, symbols))
        yield f"A source may begin with one of these tags, as its first word: {listed}."
    rows = table("Split | Sentences | Metric | Score | Signature", _score_rows(subject.results))
    yield f"## Scores\n\n{rows}" if rows else "## Scores\n\nNone are recorded."
    if data := _data(subject.results):
        yield f"## Data\n\n{data}"
    yield f"## Training\n\n{_training(subject)}"
    yield f"## Limits\n\n{_limits(config)}"
    licence = code(config.licence) if config.licence else "The author has not stated one."
    yield f"## Licence\n\n{licence}"


def _score_rows(results: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    for one in scores(results):
        count = "" if one.sentences is None else f"{one.sentences:,}"
        yield one.split, count, code(one.metric), f"{one.value:.2f}", code(one.signature)


def _data(results: Mapping[str, Any]) -> str:
    rows = []
    for split in SPLITS:
        for name, facts in corpora(results, split).items():
            what = f"{split} {code(name)}" if name else split
            pairs = num_pairs(results, split, facts)
            if isinstance(facts.get("hub"), str):
                data = " ".join(str(facts[key]) for key in ("hub", "config", "split") if facts.get(key))
                rows.append((what, pairs, code(data), f"revision {code(facts.get('revision'))}"))
            elif isinstance(facts.get("sacrebleu"), str):
                rows.append((what, pairs, code(facts["sacrebleu"]), "sacreBLEU"))
            for side in ("source", "target", "files"):
                files = facts.get(side)
                for file in files if isinstance(files, list) else ():
                    if isinstance(file, Mapping):
                        rows.append((what, pairs, code(file.get("name")), code(file.get("sha256"))))
    parts = [table("Split | Pairs | Data | SHA-256", rows)]
    cleaning = section(section(results, "data"), "cleaning")
    read, retained = cleaning.get("pairs"), cleaning.get("kept")
    if is_count(read) and is_count(retained):
        dropped = [
            f"{count:,} by {code(rule)}"
            for rule, count in section(cleaning, "dropped").items()
            if is_count(count)
        ]
        text = f"Cleaning retained {retained:,} of {read:,} training pairs"
        parts.append(f"{text}; it dropped {', '.join(dropped)}." if dropped else f"{text}.")
    return "\n\n".join(part for part in parts if part)


def _training(subject: Subject) -> str:
    facts, origin = (section(subject.results, name) for name in ("training", "import"))
    parts = []
    if origin:  # of nmt-import
        name = str(origin.get("model"))
        if not is_hub_name(name):
            name = name.rstrip("/").rpartition("/")[2]
        parts.append(
            f"Imported by nmt {code(origin.get('nmt'))} from {code(name)}, a model of the format "
            f"{code(origin.get('format'))}. How it was trained is not recorded."
        )
    counts = [facts.get(key) for key in ("updates", "target_tokens")]
    minutes = facts.get("minutes")
    if all(map(is_count, counts)) and is_finite(minutes):
        text = (
            f"{counts[0]:,} updates, {counts[1]:,} target tokens, {minutes:,.1f} minutes, validation included"
        )
        if "device" in facts:  # models of earlier versions lack it
            text += (
                f". The machine at the end of training: {code(facts['device'])}, "
                f"{code(facts.get('cores'))} CPU cores, processes: {code(facts.get('processes'))}, "
                f"precision {code(facts.get('precision'))}, torch {code(facts.get('torch'))}, nmt "
                f"{code(facts.get('nmt'))}"
            )
        parts.append(f"{text}.")
    options = yaml.safe_dump(_changed(subject.config), sort_keys=False, allow_unicode=True, width=10_000)
    parts.append(
        "The options of `nmt-train` that differ from the built-in defaults, files without their folders; "
        f"`config.yaml` of the model has all options:\n\n{block(options, 'yaml')}"
    )
    return "\n\n".join(parts)


def _limits(config: TrainConfig) -> str:
    decoding = config.decoding
    return (
        f"A source has at most {decoding.max_source_tokens:,} pieces; nmt cuts a longer one and warns. "
        f"A translation has at most {decoding.max_length_offset:,} pieces more than "
        f"{decoding.max_length_factor:g} times those of its source. The model translates sentences like "
        "those that it was trained on. Its quality on other text is not known, except for the scores above. "
        "A translation may be wrong even if it reads well."
    )


def _changed(config: TrainConfig) -> dict[str, Any]:
    """Returns the options that differ from the built-in defaults, in sections; of paths the last part."""

    def differences(there: Any, here: Any, prefix: str) -> dict[str, Any]:
        found = {}
        for name, value in here.items():
            key, default = f"{prefix}{name}", there.get(name)
            if key in _ORIGINS or value == default:
                continue
            if isinstance(value, dict) and value:
                inner = differences(default if isinstance(default, dict) else {}, value, f"{key}.")
                if inner:
                    found[name] = inner
            else:
                found[name] = _without_folder(key, value)
        return found

    return differences(to_plain(TrainConfig()), to_plain(config), "")


def _without_folder(key: str, value: Any) -> Any:
    option = text_option(TrainConfig, key)
    if option is None or option.names not in ("file", "folder", "command") or value is None:
        return value
    if isinstance(value, list):
        return [_without_folder(key, one) for one in value]
    text = str(value)
    if is_hub_name(text) or (key.endswith("hub.path") and HUB_ID.fullmatch(text)):
        return text
    return (
        text.split()[0].rpartition("/")[2]
        if option.names == "command"
        else text.rstrip("/").rpartition("/")[2]
    )
