"""The cards of model folders and of exports."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import yaml

from nmt.card.facts import Subject, is_count, section
from nmt.card.header import header
from nmt.card.markdown import code
from nmt.card.sections import sections
from nmt.model import model_class

CARD = "README.md"
"""The file name of a card."""


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
    return "\n\n".join([f"---\n{fields}---", title, text, *parts, *sections(subject)]) + "\n"


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
