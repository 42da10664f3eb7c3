"""Prints every number of docs/transformer.md: one sentence pair of the bundled corpus in a small model.

    python scripts/transformer_steps.py                     prints the numbers, as lines of JSON
    python scripts/transformer_steps.py runs/quickstart     prints those of a model that you trained
    python scripts/transformer_steps.py --check             says whether the pages and pictures are up to date
    python scripts/transformer_steps.py --write             brings their tables and pictures up to date
    python scripts/transformer_steps.py --train FOLDER      trains the model of the page again, in minutes

The model is in data/small_model, in fp16. What is computed from it is equal on every machine.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
from page_tables import Table, with_tables
from transformer_page import example as steps
from transformer_page import experiments, searching
from transformer_page.example import Example
from transformer_page.pictures import pictures

import nmt
from nmt.bundle import Bundle, load_bundle, save_bundle
from nmt.errors import UserError

ROOT = Path(__file__).resolve().parents[1]
MODEL = ROOT / "data" / "small_model"
PAGES = (ROOT / "docs" / "transformer.md", ROOT / "docs" / "transformer.ko.md")
IMAGES = ROOT / "docs" / "images" / "transformer"
STUDY = ROOT / "docs" / "position_study.jsonl"
CORPUS = ROOT / "data" / "quickstart"

PAIR = "Paul has to close the suitcases.", "Paul muss die Koffer schließen."
LONGER = "We have to wear a dress on Saturday.", "Wir müssen am Samstag ein Kleid tragen."
"""Two pairs of the test set."""
QUERY = 3
"""The place of the source piece whose vectors are shown."""

OPTIONS = (
    "experiment=quickstart model=tiny model.encoder_layers=2 model.decoder_layers=2 model.d_model=32 "
    "model.d_ff=64 model.heads=2 model.dropout=0.0 data.tokenizer.vocab_size=1000 "
    "data.tokenizer.normalization=identity "
    "training.max_updates=3000 training.schedule.warmup_updates=300 training.schedule.peak=6e-3 "
    "training.validate_every=1000 training.log_every=100 training.devices=1 training.threads=1"
).split()
"""The training of the model of the page: post-norm as in the paper, 1/16 of its width."""


class Numbers(NamedTuple):
    """What the pages show.

    Attributes:
        tables: by name.
        facts: numbers of the prose by name.
    """

    tables: dict[str, Table]
    facts: dict[str, str]


def main() -> None:
    """Prints, checks or writes."""
    parser = argparse.ArgumentParser(description="Prints every number of docs/transformer.md.")
    parser.add_argument("model", nargs="?", type=Path, default=MODEL, help="a model folder or a finished run")
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--check", action="store_true", help="only say whether the pages are up to date")
    group.add_argument("--write", action="store_true", help="bring tables and pictures up to date")
    group.add_argument("--train", type=Path, metavar="FOLDER", help="train the model of the page there")
    arguments = parser.parse_args()
    try:
        if arguments.train:
            train(arguments.train)
        elif arguments.check or arguments.write:
            update(write=arguments.write)
        else:
            for line in lines(numbers(arguments.model)):
                print(line)
    except UserError as error:
        sys.exit(str(error))


def numbers(folder: Path) -> Numbers:
    """Computes the numbers of a model.

    Raises:
        UserError: see `load_bundle` and `Example.of`.
    """
    bundle = load_bundle(folder)
    example, longer = examples(bundle)
    with torch.no_grad():
        tables = {name: table(example) for name, table in _TABLES.items()}
        tables["causal-mask"] = experiments.causal_mask(example, longer)
        tables["key-mask"] = experiments.key_mask(example, longer)
        tables["scaling"] = experiments.scaling()
        facts = {
            **model_facts(bundle, example),
            **steps.head_facts(example),
            **steps.norm_facts(example),
            **steps.feed_forward_facts(example),
            **steps.loss_facts(example),
            **steps.parallel_facts(example),
            **experiments.padding_facts(example, longer, corpus("test")[1]),
            **experiments.study_facts(STUDY),
        }
    tables["chains"] = experiments.chains(example)
    facts |= experiments.chain_facts(tables["chains"])
    return Numbers(tables, facts)


def examples(bundle: Bundle) -> tuple[Example, Example]:
    """The pair whose numbers are shown, and a longer one."""
    return Example.of(bundle, *PAIR, QUERY), Example.of(bundle, *LONGER, QUERY)


_TABLES: dict[str, Callable[[Example], Table]] = {
    "source": steps.source_pieces,
    "target": steps.target_pieces,
    "embedding": steps.embedding,
    "projections": steps.projections,
    "scores": steps.scores,
    "sublayer": steps.sublayer,
    "causal-scores": steps.causal_scores,
    "causal-weights": steps.causal_weights,
    "forcing": steps.forcing,
    "uses": steps.uses,
    "cross-attention": steps.cross_attention,
    "losses": steps.losses,
    "beam": searching.beam_steps,
    "translations": searching.translations,
}


def model_facts(bundle: Bundle, example: Example) -> dict[str, str]:
    """The size of the model, its score, and the square root of its width."""
    config, test = example.model.config, bundle.results.get("test", {})
    size = sum(path.stat().st_size for path in bundle.folder.iterdir())
    return {
        "d_model": str(config.d_model),
        "d_ff": str(config.d_ff),
        "width of a head": str(config.head_widths[0]),
        "weights": f"{example.model.num_parameters:,}",
        "kilobytes": steps.shown(size / 1000, 0),
        "BLEU": steps.shown(test.get("bleu", 0.0), 1),
        "square root of d_model": steps.shown(config.d_model**0.5, 3),
    }


def corpus(split: str) -> tuple[list[str], list[str]]:
    """The sources and targets of a split of the bundled corpus."""
    sides = (CORPUS / f"{split}.{language}.gz" for language in ("en", "de"))
    source, target = (gzip.decompress(path.read_bytes()).decode("utf-8").splitlines() for path in sides)
    return source, target


def lines(values: Numbers) -> Iterator[str]:
    """The numbers as lines of JSON."""
    dump = partial(json.dumps, ensure_ascii=False)
    for name, table in values.tables.items():
        for row in table.rows:
            yield dump({"table": name, "row": list(row)})
    for name, value in values.facts.items():
        yield dump({"name": name, "value": value})


def contents(values: Numbers) -> dict[Path, str]:
    """The pages and pictures as they should be."""
    pages = {
        page: with_tables(page.read_text(encoding="utf-8"), values.tables.__getitem__)
        for page in PAGES
        if page.exists()
    }
    with torch.no_grad():
        drawn = pictures(*examples(load_bundle(MODEL)))
    return {**pages, **{IMAGES / name: image for name, image in drawn.items()}}


def update(*, write: bool) -> None:
    """Writes what is out of date, or exits with status 1 and names it."""
    for path, wanted in contents(numbers(MODEL)).items():
        if path.exists() and path.read_text(encoding="utf-8") == wanted:
            continue
        if not write:
            sys.exit(f"{path}: is out of date. Run python scripts/transformer_steps.py --write.")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(wanted, encoding="utf-8")


def train(folder: Path) -> None:
    """Trains the model of the page, and writes it in fp16 to data/small_model."""
    nmt.train([*OPTIONS, f"run_dir={folder}"])
    store(load_bundle(folder))


def store(bundle: Bundle) -> None:
    """Writes a model in fp16 to data/small_model."""
    config = replace(bundle.config, run_dir="runs/small_model")
    weights = {name: weight.half() for name, weight in bundle.model.state_dict().items()}
    save_bundle(MODEL, config, weights, bundle.tokenizer, {"test": bundle.results["test"]})


if __name__ == "__main__":
    main()
