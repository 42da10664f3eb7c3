"""Model cards: README.md of model folders and exports, with the YAML header that Hugging Face's hub reads.

A card has recorded facts only: the options of the model and its `results.json`. These may come from a
stranger. So their text is written as code, in which Markdown and HTML have no effect.

See huggingface.co/docs/hub/model-cards.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeGuard

import yaml

from nmt.config import TrainConfig
from nmt.config.schema import text_option
from nmt.config.storage import to_plain
from nmt.data.subwords.tokenizer import Tokenizer
from nmt.languages import language_of
from nmt.model import model_class
from nmt.runtime.hub import is_hub_name
from nmt.runtime.streams import printable

CARD = "README.md"
"""The file name of a card."""
_ORIGINS = (
    "run_dir",
    "resume",
    "resume_from",
    "prepare_only",
    "find_rate",
    "cleaned_pairs",
    "name",
    "licence",
    "data.cache_dir",
)
"""Options that do not describe the model."""
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
    """The model that a card describes, with the content of its `results.json`."""

    config: TrainConfig
    tokenizer: Tokenizer
    results: Mapping[str, Any] = field(repr=False)


def bundle_card(subject: Subject, place: str = ".") -> str:
    """Returns the card of a model folder.

    `place` is `model_dir` in its examples: the folder of the card, or `hf://owner/name`.
    """
    codes = subject.config.data.source_lang, subject.config.data.target_lang
    source, target = (re.sub("[^A-Za-z0-9_-]", "", code) for code in codes)  # the endings of file names
    usage = (
        f"```bash\nnmt-translate model_dir={place} input=news.{source} output=news.{target}\n"
        f"nmt-eval model_dir={place} source=news.{source} references=reference.{target}\n```\n\n"
        f'In Python:\n\n```python\nimport nmt\n\nmodel = nmt.load("{place}")\n'
        'print(model.translate("A sentence."))\n```'
    )
    return _card(subject, "nmt", f"{_model(subject)}.", f"## Usage\n\n{usage}")


def export_card(subject: Subject, report: Mapping[str, Any], library: str, usage: str) -> str:
    """Returns the card of an export.

    Args:
        subject: the model.
        report: the content of `export.json`.
        library: the name of the engine on the hub.
        usage: a paragraph and an example: how a program translates with the export.
    """
    origin = f" of {code(report['model'])}" if "model" in report else ""
    text = (
        f"Exported by nmt {report['nmt']} to {report['format']}, {report['quantization']}{origin}. "
        f"{_model(subject)}."
    )
    parts = f"## Usage\n\n{usage.rstrip()}", f"## Comparison with the model\n\n{_comparison(report)}"
    return _card(subject, library, text, *parts)


def _card(subject: Subject, library: str, text: str, *parts: str) -> str:
    data = subject.config.data
    title = f"# Translation from {code(data.source_lang)} to {code(data.target_lang)}"
    fields = yaml.safe_dump(header(subject, library), sort_keys=False, allow_unicode=True)
    return "\n\n".join([f"---\n{fields}---", title, text, *parts, *_sections(subject)]) + "\n"


def _model(subject: Subject) -> str:
    config, tokenizer = subject.config.model, subject.tokenizer
    sizes = f"{tokenizer.source.size:,} source and {tokenizer.target.size:,} target pieces"
    parameters = section(subject.results, "training").get("parameters")
    count = f", {parameters:,} parameters" if is_count(parameters) else ""
    heads = "" if "heads" in model_class(config).unused else f", {config.heads} heads"
    if heads and not config.splits_d_model:
        heads += " with keys of width {} and values of width {}".format(*config.head_widths)
    return (
        f"The model: {code(config.architecture)} with {config.encoder_layers} encoder and "
        f"{config.decoder_layers} decoder layers, d_model {config.d_model}{heads}{count}, {sizes}. "
        f"Text is normalised by these rules of SentencePiece: the source by {code(tokenizer.source.rule)}, "
        f"the target by {code(tokenizer.target.rule)}"
    )


def _comparison(report: Mapping[str, Any]) -> str:
    exact = report["exact"]
    text = (
        f"On {exact['sentences']:,} sentences ({code(report['compared_on'])}) the float32 export reads the "
        f"same pieces as the model. The log-probabilities of {exact['tokens']:,} tokens differ by at most "
        f"{exact['largest_difference']:.1e}. Greedy search writes the same text, except at "
        f"{exact['near_ties']:,} positions where two pieces are equally probable up to rounding."
    )
    if "bleu" in report:
        text += (
            f"\n\nWith {report['quantization']}, BLEU of greedy search on these sentences is "
            f"{report['bleu']:.2f}; that of the model is {report['bleu_of_the_model']:.2f}."
        )
    return text


def _sections(subject: Subject) -> Iterator[str]:
    config = subject.config
    pairs = config.data.language_pairs()
    if len(pairs) > 1:
        yield "Pairs of languages: " + ", ".join(f"{code(a)} to {code(b)}" for a, b in pairs) + "."
    if symbols := list(subject.tokenizer.source_symbols):
        listed = ", ".join(map(code, symbols))
        yield f"A source may begin with one of these tags, as its first word: {listed}."
    rows = _table("Split | Sentences | Metric | Score | Signature", _score_rows(subject.results))
    yield f"## Scores\n\n{rows}" if rows else "## Scores\n\nNone are recorded."
    if data := _data(subject.results):
        yield f"## Data\n\n{data}"
    yield f"## Training\n\n{_training(subject)}"
    yield f"## Limits\n\n{_limits(config)}"
    licence = code(config.licence) if config.licence else "The author has not stated one."
    yield f"## Licence\n\n{licence}"


def _score_rows(results: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    for score in scores(results):
        count = "" if score.sentences is None else f"{score.sentences:,}"
        data = f"{score.split} {code(score.name)}" if score.name else score.split
        yield data, count, code(score.metric), f"{score.value:.2f}", code(score.signature)


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
    parts = [_table("Split | Pairs | Data | SHA-256", rows)]
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
        f"`config.yaml` of the model has all options:\n\n{_block(options, 'yaml')}"
    )
    return "\n\n".join(parts)


def _limits(config: TrainConfig) -> str:
    decoding = config.decoding
    return (
        f"A source has at most {decoding.max_source_tokens:,} pieces; nmt divides or cuts a longer one and "
        "warns. "
        f"A translation has at most {decoding.max_length_offset:,} pieces more than "
        f"{decoding.max_length_factor:g} times those of its source. The model translates sentences like "
        "those that it was trained on. Its quality on other text is not known, except for the scores above. "
        "A translation may be wrong even if it reads well."
    )


def _changed(config: TrainConfig) -> dict[str, Any]:
    """Returns the options that differ from the built-in defaults, in sections; of paths the last part."""

    def differences(options: Any, defaults: Any, prefix: str) -> dict[str, Any]:
        changed = {}
        for name, value in options.items():
            key, default = f"{prefix}{name}", defaults.get(name)
            if key in _ORIGINS or value == default:
                continue
            if isinstance(value, dict) and value:
                inner = differences(value, default if isinstance(default, dict) else {}, f"{key}.")
                if inner:
                    changed[name] = inner
            else:
                changed[name] = _without_folder(key, value)
        return changed

    return differences(to_plain(config), to_plain(TrainConfig()), "")


def _without_folder(key: str, value: Any) -> Any:
    option = text_option(TrainConfig, key)
    if option is None or option.names not in ("file", "folder", "command") or value is None:
        return value
    if isinstance(value, list):
        return [_without_folder(key, part) for part in value]
    text = str(value)
    if is_hub_name(text) or (key.endswith("hub.path") and HUB_ID.fullmatch(text)):
        return text
    path = text.split()[0] if option.names == "command" else text.rstrip("/")
    return path.rpartition("/")[2]


def code(text: Any) -> str:
    """Returns a value as code in Markdown."""
    shown = line(text) or " "
    fence = "`" * (_longest_ticks(shown) + 1)
    space = " " if shown.startswith("`") or shown.endswith("`") else ""
    return f"{fence}{space}{shown}{space}{fence}"


def _block(text: str, language: str) -> str:
    fence = "`" * max(3, _longest_ticks(text) + 1)
    return f"{fence}{language}\n{text}{fence}"


def _table(head: str, rows: Iterable[tuple[str, ...]]) -> str:
    """Returns a table; empty if it has no rows. A vertical bar in a cell needs a backslash, also in code."""
    lines = [" | ".join(cell.replace("|", "\\|") for cell in row) for row in rows]
    rule = " | ".join("---" for _ in head.split(" | "))
    return "\n".join(f"| {row} |" for row in (head, rule, *lines)) if lines else ""


def _longest_ticks(text: str) -> int:
    return max(map(len, re.findall("`+", text)), default=0)


# The recorded facts, and the header


class Score(NamedTuple):
    """A score on held-out data, `test` or `valid`; `sentences` is None if it is not recorded.

    The `name` of a single set without a name is empty.
    """

    split: str
    name: str
    sentences: int | None
    metric: str
    value: float
    signature: str


def scores(results: Mapping[str, Any]) -> Iterator[Score]:
    """Yields the scores that are numbers, those of the test set first."""
    for split in ("test", "valid"):
        for name, facts in _named_parts(section(results, split), "sets").items():
            count = facts.get("sentences")
            for key, signature in section(facts, "signatures").items():
                value = facts.get(key)
                if is_finite(value):
                    sentences = count if is_count(count) else None
                    yield Score(split, name, sentences, str(key), float(value), str(signature))


def corpora(results: Mapping[str, Any], split: str) -> dict[str, Mapping[str, Any]]:
    """Returns the facts of each corpus or set of a split, by name; the name of the only one is empty."""
    return _named_parts(section(section(results, "data"), split), "corpora" if split == "train" else "sets")


def _named_parts(facts: Mapping[str, Any], key: str) -> dict[str, Mapping[str, Any]]:
    """Returns the sections under `key` by name, or without these the facts themselves, with an empty name."""
    if several := section(facts, key):
        return {str(name): part for name, part in several.items() if isinstance(part, Mapping)}
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
    languages = [language_of(code) for pair in config.data.language_pairs() for code in pair if code]
    tags = dict.fromkeys(language.tag.replace("_", "-") for language in languages)
    bases = dict.fromkeys(
        language.language or re.split("[-_]", language.tag)[0].lower() for language in languages
    )
    fields: dict[str, Any] = {"language": list(bases)}
    if any(tag not in bases for tag in tags):  # the hub takes only the base of a code as a language
        fields["language_bcp47"] = list(tags)
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
    """Returns the scores in the form of the hub: an entry for each split, or for each of its sets."""
    data, entries = subject.config.data, []
    for split, name in dict.fromkeys((score.split, score.name) for score in scores):
        facts = corpora(subject.results, split).get(name, {})
        hub = facts.get("hub")
        languages = facts.get("source_lang", data.source_lang), facts.get("target_lang", data.target_lang)
        title = line(f"Translation {languages[0]}-{languages[1]}")
        entries.append(
            {
                "task": {"type": "translation", "name": title},
                "dataset": {
                    "type": hub if isinstance(hub, str) and HUB_ID.fullmatch(hub) else "text",
                    "name": line(name or facts.get("corpus") or f"{data.name} {split}"),
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
                    if (score.split, score.name) == (split, name)
                ],
            }
        )
    return entries


_LONGEST = 200  # characters of a name or a value


def line(text: Any) -> str:
    """Returns a value as a line of limited length without control characters."""
    whole = printable(" ".join(str(text).split()))
    return whole if len(whole) <= _LONGEST else f"{whole[:_LONGEST]}…"
