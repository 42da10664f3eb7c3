"""Model cards: README.md of model folders and exports, with the YAML header that Hugging Face's hub reads.

A card has recorded facts only: the options of the model and its `results.json`. These may come from a
stranger. So their text is written as code, in which Markdown and HTML have no effect.

See huggingface.co/docs/hub/model-cards.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from nmt.config import TrainConfig
from nmt.config.paths import text_option
from nmt.config.storage import to_plain
from nmt.data.subwords.tokenizer import Tokenizer
from nmt.runtime import is_hub_name, printable

CARD = "README.md"
"""The file name of a card."""

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
_HUB_ID = re.compile(r"(?:[A-Za-z0-9][\w.-]*/)?[A-Za-z0-9][\w.-]*", re.ASCII)
_SPLITS = ("train", "valid", "test")
_LONGEST = 200  # characters of a name or a value
_ORIGINS = ("run_dir", "resume", "resume_from", "prepare_only", "name", "licence", "data.cache_dir")
"""Options that do not describe the model."""


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


def bundle_card(subject: Subject, place: str = ".") -> str:
    """Returns the card of a model folder.

    Args:
        subject: the model.
        place: `model_dir` in its examples: the folder of the card, or `hf://owner/name`.
    """
    source, target = (_file_ending(subject, side) for side in ("source", "target"))
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
    origin = f" of {_code(report['model'])}" if "model" in report else ""
    text = (
        f"Exported by nmt {report['nmt']} to {report['format']}, {report['quantization']}{origin}. "
        f"{_model(subject)}."
    )
    parts = f"## Usage\n\n{usage.rstrip()}", f"## Comparison with the model\n\n{_comparison(report)}"
    return _card(subject, library, text, *parts)


def _card(subject: Subject, library: str, text: str, *parts: str) -> str:
    data = subject.config.data
    title = f"# Translation from {_code(data.source_lang)} to {_code(data.target_lang)}"
    header = yaml.safe_dump(_header(subject, library), sort_keys=False, allow_unicode=True)
    sections = [f"---\n{header}---", title, text, *parts, *_sections(subject)]
    return "\n\n".join(section for section in sections if section) + "\n"


def _sections(subject: Subject) -> Iterator[str]:
    config = subject.config
    pairs = _pairs(config)
    if len(pairs) > 1:
        yield "Pairs of languages: " + ", ".join(f"{_code(a)} to {_code(b)}" for a, b in pairs) + "."
    if symbols := list(subject.tokenizer.source_symbols):
        listed = ", ".join(map(_code, symbols))
        yield f"A source may begin with one of these tags, as a word of its own: {listed}."
    scores = _table("Split | Sentences | Metric | Score | Signature", _scores(subject.results))
    yield f"## Scores\n\n{scores}" if scores else "## Scores\n\nNone are recorded."
    if data := _data(subject.results):
        yield f"## Data\n\n{data}"
    yield f"## Training\n\n{_training(subject)}"
    yield f"## Limits\n\n{_limits(config)}"
    licence = _code(config.licence) if config.licence else "The author has not stated one."
    yield f"## Licence\n\n{licence}"


def _header(subject: Subject, library: str) -> dict[str, Any]:
    config, results = subject.config, subject.results
    codes = list(dict.fromkeys(code for pair in _pairs(config) for code in pair if code))
    bases = dict.fromkeys(re.split("[-_]", code)[0].lower() for code in codes)
    header: dict[str, Any] = {"language": list(bases)}
    if any(code not in bases for code in codes):  # the hub takes only the base of a code as a language
        header["language_bcp47"] = [code.replace("_", "-") for code in codes]
    if config.licence:
        known = config.licence.lower() in _LICENCES
        header["license"] = config.licence.lower() if known else "other"
        if not known:
            header["license_name"] = config.licence
    header |= {"library_name": library, "pipeline_tag": "translation", "tags": ["translation", "nmt"]}
    hubs = [facts.get("hub") for split in _SPLITS for facts in _corpora(results, split).values()]
    if names := list(dict.fromkeys(one for one in hubs if isinstance(one, str) and _HUB_ID.fullmatch(one))):
        header["datasets"] = names
    found = [*_scores(results, plain=True)]
    if found:
        header["metrics"] = list(dict.fromkeys(row[2] for row in found))
        header["model-index"] = [{"name": config.name, "results": _index(subject, found)}]
    return header


def _index(subject: Subject, scores: list[tuple[str, ...]]) -> list[dict[str, Any]]:
    """Returns the scores in the form of the hub: an entry for each split."""
    data, entries = subject.config.data, []
    for split in dict.fromkeys(row[0] for row in scores):
        facts = next(iter(_corpora(subject.results, split).values()), {})
        hub = facts.get("hub")
        title = f"Translation {data.source_lang}-{data.target_lang}"
        entries.append(
            {
                "task": {"type": "translation", "name": title},
                "dataset": {
                    "type": hub if isinstance(hub, str) and _HUB_ID.fullmatch(hub) else "text",
                    "name": _line(facts.get("corpus") or f"{data.name} {split}"),
                    "split": split,
                },
                "metrics": [
                    {"type": key, "value": float(value), "name": key, "args": {"signature": signature}}
                    for name, _, key, value, signature in scores
                    if name == split
                ],
            }
        )
    return entries


def _model(subject: Subject) -> str:
    config, tokenizer = subject.config.model, subject.tokenizer
    sizes = f"{tokenizer.source_vocab_size:,} source and {tokenizer.target_vocab_size:,} target pieces"
    parameters = _section(subject.results, "training").get("parameters")
    count = f", {parameters:,} parameters" if _is_count(parameters) else ""
    return (
        f"The model: {_code(config.architecture)} with {config.encoder_layers} encoder and "
        f"{config.decoder_layers} decoder layers, d_model {config.d_model}, {config.heads} heads{count}, "
        f"{sizes}"
    )


def _comparison(report: Mapping[str, Any]) -> str:
    exact = report["exact"]
    text = (
        f"On {exact['sentences']:,} sentences ({_code(report['compared_on'])}) the float32 export reads the "
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


def _scores(results: Mapping[str, Any], plain: bool = False) -> Iterator[tuple[str, ...]]:
    """Yields split, sentences, metric, score and signature; as they are with `plain`, else for a table."""
    form = _line if plain else _code
    for split in ("test", "valid"):
        scores = _section(results, split)
        sentences = scores.get("sentences")
        for key, signature in _section(scores, "signatures").items():
            value = scores.get(key)
            if isinstance(value, int | float) and math.isfinite(value):
                count = f"{sentences:,}" if _is_count(sentences) else ""
                yield split, count, form(key), f"{value:.2f}", form(signature)


def _data(results: Mapping[str, Any]) -> str:
    rows = []
    for split in _SPLITS:
        for name, facts in _corpora(results, split).items():
            what = f"{split} {_code(name)}" if name else split
            pairs = _num_pairs(results, split, facts)
            if isinstance(facts.get("hub"), str):
                data = " ".join(str(facts[key]) for key in ("hub", "config", "split") if facts.get(key))
                rows.append((what, pairs, _code(data), f"revision {_code(facts.get('revision'))}"))
            elif isinstance(facts.get("sacrebleu"), str):
                rows.append((what, pairs, _code(facts["sacrebleu"]), "sacreBLEU"))
            for side in ("source", "target", "files"):
                files = facts.get(side)
                for file in files if isinstance(files, list) else ():
                    if isinstance(file, Mapping):
                        rows.append((what, pairs, _code(file.get("name")), _code(file.get("sha256"))))
    parts = [_table("Split | Pairs | Data | SHA-256", rows)]
    cleaning = _section(_section(results, "data"), "cleaning")
    read, retained = cleaning.get("pairs"), cleaning.get("kept")
    if _is_count(read) and _is_count(retained):
        dropped = [
            f"{count:,} by {_code(rule)}"
            for rule, count in _section(cleaning, "dropped").items()
            if _is_count(count)
        ]
        text = f"Cleaning retained {retained:,} of {read:,} training pairs"
        parts.append(f"{text}; it dropped {', '.join(dropped)}." if dropped else f"{text}.")
    return "\n\n".join(part for part in parts if part)


def _num_pairs(results: Mapping[str, Any], split: str, facts: Mapping[str, Any]) -> str:
    """Returns the number of pairs of a corpus before cleaning; empty if it is not recorded."""
    whole = _section(_section(results, "data"), "cleaning") if split == "train" else {}
    read = _section(facts, "cleaning") or whole
    found = facts.get("num_pairs"), facts.get("sentences"), read.get("pairs")
    return next((f"{count:,}" for count in found if _is_count(count)), "")


def _training(subject: Subject) -> str:
    facts, origin = (_section(subject.results, name) for name in ("training", "import"))
    parts = []
    if origin:  # of nmt-import
        name = str(origin.get("model"))
        if not is_hub_name(name):
            name = name.rstrip("/").rpartition("/")[2]
        parts.append(
            f"Imported by nmt {_code(origin.get('nmt'))} from {_code(name)}, a model of the format "
            f"{_code(origin.get('format'))}. How it was trained is not recorded."
        )
    counts = [facts.get(key) for key in ("updates", "target_tokens")]
    minutes = facts.get("minutes")
    if all(map(_is_count, counts)) and isinstance(minutes, int | float) and math.isfinite(minutes):
        text = (
            f"{counts[0]:,} updates, {counts[1]:,} target tokens, {minutes:,.1f} minutes, validation included"
        )
        if "device" in facts:  # models of earlier versions lack it
            text += (
                f". The machine at the end of training: {_code(facts['device'])}, "
                f"{_code(facts.get('cores'))} CPU cores, processes: {_code(facts.get('processes'))}, "
                f"precision {_code(facts.get('precision'))}, torch {_code(facts.get('torch'))}, nmt "
                f"{_code(facts.get('nmt'))}"
            )
        parts.append(f"{text}.")
    options = yaml.safe_dump(_changed(subject.config), sort_keys=False, allow_unicode=True, width=10_000)
    fence = "`" * max(3, _longest_ticks(options) + 1)
    parts.append(
        "The options of `nmt-train` that differ from the built-in defaults, files without their folders; "
        f"`config.yaml` of the model has all options:\n\n{fence}yaml\n{options}{fence}"
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
    if is_hub_name(text) or (key.endswith("hub.path") and _HUB_ID.fullmatch(text)):
        return text
    return (
        text.split()[0].rpartition("/")[2]
        if option.names == "command"
        else text.rstrip("/").rpartition("/")[2]
    )


def _pairs(config: TrainConfig) -> list[tuple[str | None, str | None]]:
    """Returns the pairs of languages that the model was trained on, each once."""
    data = config.data
    corpora = data.train.corpora.values()
    pairs = [(one.source_lang or data.source_lang, one.target_lang or data.target_lang) for one in corpora]
    return list(dict.fromkeys([(data.source_lang, data.target_lang), *pairs]))


def _file_ending(subject: Subject, side: str) -> str:
    return re.sub("[^A-Za-z0-9_-]", "", str(getattr(subject.config.data, f"{side}_lang")))


def _corpora(results: Mapping[str, Any], split: str) -> dict[str, Mapping[str, Any]]:
    """Returns the facts of each corpus of a split, by name; the name of the only one is empty."""
    facts = _section(_section(results, "data"), split)
    several = _section(facts, "corpora")
    if several:
        return {str(name): one for name, one in several.items() if isinstance(one, Mapping)}
    return {"": facts} if facts else {}


def _section(values: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = values.get(name)
    return found if isinstance(found, Mapping) else {}


def _is_count(value: Any) -> bool:
    return type(value) is int


def _table(head: str, rows: Iterable[tuple[str, ...]]) -> str:
    """Returns a table; empty if it has no rows. A vertical bar in a cell needs a backslash, also in code."""
    lines = [" | ".join(cell.replace("|", "\\|") for cell in row) for row in rows]
    rule = " | ".join("---" for _ in head.split(" | "))
    return "\n".join(f"| {line} |" for line in (head, rule, *lines)) if lines else ""


def _line(text: Any) -> str:
    """Returns a value as one line of limited length without control characters."""
    line = printable(" ".join(str(text).split()))
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…"


def _code(text: Any) -> str:
    """Returns a value as code in Markdown."""
    line = _line(text) or " "
    fence = "`" * (_longest_ticks(line) + 1)
    space = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{fence}{space}{line}{space}{fence}"


def _longest_ticks(text: str) -> int:
    return max(map(len, re.findall("`+", text)), default=0)
