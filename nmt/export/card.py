"""The model card of an export: README.md with the YAML header that Hugging Face's hub reads.

See huggingface.co/docs/hub/model-cards.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from nmt.bundle import Bundle


def card(bundle: Bundle, result: Mapping[str, Any], library: str, usage: str, licence: str | None) -> str:
    """Returns the card of an export.

    Args:
        bundle: the model.
        result: the content of `export.json`.
        library: see `Exporter.library`.
        usage: from `Exporter.usage`.
        licence: an identifier, such as `apache-2.0`; None: not stated.
    """
    data, model = bundle.config.data, bundle.config.model
    header: dict[str, Any] = {
        "language": list(dict.fromkeys(one for one in (data.source_lang, data.target_lang) if one)),
        "pipeline_tag": "translation",
        "library_name": library,
        "tags": ["translation", "nmt"],
    }
    if licence is not None:
        header["license"] = licence
    sections = [
        f"---\n{yaml.safe_dump(header, sort_keys=False, allow_unicode=True)}---",
        f"# Translation from {data.source_lang} to {data.target_lang}",
        f"Trained with nmt {result['nmt']} and exported to {result['format']}, {result['quantization']}: "
        f"{model.encoder_layers} encoder and {model.decoder_layers} decoder layers, d_model {model.d_model}, "
        f"{model.heads} heads, {bundle.tokenizer.target_vocab_size:,} target pieces.",
        f"## Usage\n\n{usage.rstrip()}",
        f"## Comparison with the model\n\n{_comparison(result)}",
    ]
    if symbols := list(bundle.tokenizer.source_symbols):
        listed = ", ".join(f"`{one}`" for one in symbols)
        sections.insert(4, f"A source may begin with one of these tags, as a piece of its own: {listed}.")
    if scores := _scores(bundle.results):
        sections.append(f"## Scores of the model\n\n{scores}")
    if facts := _data(bundle.results):
        sections.append(f"## Data and training\n\n{facts}")
    sections.append(
        "## Limits\n\nThe model translates sentences like those that it was trained on. Its translations may "
        "be wrong, also where they read well."
    )
    return "\n\n".join(sections) + "\n"


def _comparison(result: Mapping[str, Any]) -> str:
    exact = result["exact"]
    text = (
        f"On {exact['sentences']:,} sentences ({result['compared_on']}) the float32 export reads the same "
        f"pieces as the model. The log-probabilities of {exact['tokens']:,} tokens differ by at most "
        f"{exact['largest_difference']:.1e}. Greedy search writes the same text, except at "
        f"{exact['near_ties']:,} positions where two pieces are equally probable up to rounding."
    )
    if "bleu" in result:
        text += (
            f"\n\nWith {result['quantization']}, BLEU of greedy search on these sentences is "
            f"{result['bleu']:.2f}; that of the model is {result['bleu_of_the_model']:.2f}."
        )
    return text


def _scores(results: Mapping[str, Any]) -> str:
    rows = []
    for split in ("test", "valid"):
        scores = results.get(split, {})
        signatures = scores.get("signatures", {})
        for key, signature in signatures.items() if isinstance(signatures, dict) else ():
            escaped = str(signature).replace("|", "\\|")
            if isinstance(value := scores.get(key), int | float):
                rows.append(f"| {split} | {key} | {value:.2f} | `{escaped}` |")
    return "\n".join(["| Split | Metric | Score | Signature |", "|---|---|---|---|", *rows]) if rows else ""


def _data(results: Mapping[str, Any]) -> str:
    rows = []
    for split in ("train", "valid", "test"):
        facts = results.get("data", {}).get(split, {})
        for side in ("source", "target"):
            files = facts.get(side)
            for file in files if isinstance(files, list) else ():
                rows.append(f"| {split} | {side} | {file.get('name')} | `{file.get('sha256')}` |")
    table = "\n".join(["| Split | Side | File | SHA-256 |", "|---|---|---|---|", *rows]) if rows else ""
    cleaning = results.get("data", {}).get("cleaning", {})
    if "pairs" in cleaning and "kept" in cleaning:
        dropped = ", ".join(f"{count:,} by {rule}" for rule, count in cleaning.get("dropped", {}).items())
        table += f"\n\nCleaning kept {cleaning['kept']:,} of {cleaning['pairs']:,} training pairs"
        table += f"; it dropped {dropped}." if dropped else "."
    training = results.get("training", {})
    if {"updates", "minutes", "target_tokens"} <= training.keys():
        table += (
            f"\n\nTraining: {training['updates']:,} updates, {training['target_tokens']:,} target tokens, "
            f"{training['minutes']:.0f} minutes."
        )
    return table.strip()
