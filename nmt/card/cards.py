"""The cards of model folders and of exports."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import yaml

from nmt.card.facts import (
    HUB_ID,
    SPLITS,
    Subject,
    corpora,
    header,
    is_count,
    is_finite,
    line,
    num_pairs,
    scores,
    section,
)
from nmt.config import TrainConfig
from nmt.config.schema import text_option
from nmt.config.storage import to_plain
from nmt.model import model_class
from nmt.runtime import is_hub_name

CARD = "README.md"
"""The file name of a card."""
_ORIGINS = ("run_dir", "resume", "resume_from", "prepare_only", "name", "licence", "data.cache_dir")
"""Options that do not describe the model."""


def bundle_card(subject: Subject, place: str = ".") -> str:
    """Returns the card of a model folder.

    `place` is `model_dir` in its examples: the folder of the card, or `hf://owner/name`.
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
    sizes = f"{tokenizer.source_vocab_size:,} source and {tokenizer.target_vocab_size:,} target pieces"
    parameters = section(subject.results, "training").get("parameters")
    count = f", {parameters:,} parameters" if is_count(parameters) else ""
    heads = "" if "heads" in model_class(config).unused else f", {config.heads} heads"
    return (
        f"The model: {code(config.architecture)} with {config.encoder_layers} encoder and "
        f"{config.decoder_layers} decoder layers, d_model {config.d_model}{heads}{count}, {sizes}"
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


def _file_ending(subject: Subject, side: str) -> str:
    return re.sub("[^A-Za-z0-9_-]", "", str(getattr(subject.config.data, f"{side}_lang")))


def _sections(subject: Subject) -> Iterator[str]:
    """Yields the sections, and the paragraphs before them."""
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
        yield score.split, count, code(score.metric), f"{score.value:.2f}", code(score.signature)


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
        f"A source has at most {decoding.max_source_tokens:,} pieces; nmt cuts a longer one and warns. "
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
