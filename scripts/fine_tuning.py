"""Measures fine-tuning and forgetting on Multi30k (Elliott et al. 2016), for docs/fine_tuning.md.

    python scripts/fine_tuning.py multi30k/ runs/tuning                    scores on the test text
    python scripts/fine_tuning.py multi30k/ runs/tuning --split valid      scores on the validation text

The first folder has train, val and test_2016_flickr, each as .en and .de, plain or .gz. One topic, sport, is
taken out of all three: the captions whose English side has one of the words in TOPIC. Then:

  1. RUN/general     a tiny model, trained on the captions without the topic
  2. RUN/marian      this model, exported by nmt-export format=marian
  3. RUN/imported    the export, imported by nmt-import format=marian
  4. RUN/SPLIT/*     trainings that start from it, on the topic: see VARIANTS

Every run is scored on the topic and on the other captions, before and after. The table goes to standard
output, all else to standard error. Finished steps are skipped: run the same command again to resume.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nmt.runtime.files import parse_json, read_text, replaced

TOPIC = (
    "football soccer baseball basketball tennis rugby hockey volleyball golf golfer cricket lacrosse "
    "softball ball player players team teams goalie pitcher batter referee quarterback game match court "
    "athlete athletes sport sports race racing runner runners gymnast wrestler wrestlers boxer boxers boxing "
    "karate racket stadium"
)
"""The words of the topic."""

LANGUAGES = ("en", "de")
SPLITS = {"train": "train", "valid": "val", "test": "test_2016_flickr"}
"""Name of each split here → name of its files in Multi30k."""

VARIANTS: Mapping[str, Sequence[str]] = {
    "tuned": (),
    "mixed": ("data.train.corpora.general.weight=0.1",),
    "l2": ("training.l2_to_start=0.03",),
    "frozen": ("training.freeze=[encoder,embeddings]",),
}
"""Name of each training on the topic → its options."""

Pair = tuple[str, str]
Texts = dict[tuple[str, str], list[Pair]]
"""(`topic` or `general`, split) → pairs."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs all steps and prints the table."""
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").partition("\n")[0], formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="folder of Multi30k")
    parser.add_argument("run", type=Path, help="folder of the runs")
    parser.add_argument("--split", choices=("valid", "test"), default="test", help="text to score")
    parser.add_argument("--json", type=Path, help="also write the scores to this file")
    parser.add_argument("options", nargs="*", metavar="key=value", help="options of all trainings")
    given = parser.parse_intermixed_args(arguments)
    names = [f"{name}.{language}" for name in SPLITS.values() for language in LANGUAGES]
    missing = [name for name in names if _found(given.folder / name) is None]
    if missing:
        parser.error(
            f"{given.folder}: needs {', '.join(SPLITS.values())}, each as .en and .de or .en.gz and .de.gz"
        )

    text = given.run / "text"
    write_texts(split_by_topic(read_corpus(given.folder)), text)
    start = general_model(given.run, text, given.options)
    for name, options in VARIANTS.items():
        tune(given.run / given.split / name, start, text, given.split, [*options, *given.options])
    scores = collected(given.run / given.split)
    print(table(scores, given.split))
    if given.json is not None:
        with replaced(given.json) as temporary:
            temporary.write_text(
                json.dumps({"split": given.split, "scores": scores}, indent=2) + "\n", "utf-8"
            )
    return 0


def read_corpus(folder: Path) -> dict[str, list[Pair]]:
    """Returns the pairs of each split of Multi30k."""
    corpus = {}
    for split, name in SPLITS.items():
        sides = [_lines(folder / f"{name}.{language}") for language in LANGUAGES]
        corpus[split] = list(zip(*sides, strict=True))
    return corpus


def split_by_topic(corpus: Mapping[str, Sequence[Pair]]) -> Texts:
    """Separates the captions of the topic from the others.

    Multi30k has few captions of one topic for validation and test. So of every eight pairs of the topic in
    the training text, one is moved to the validation text and one to the test text.
    """
    texts: Texts = {(part, split): [] for part in ("topic", "general") for split in SPLITS}
    for split, pairs in corpus.items():
        for pair in pairs:
            texts["topic" if is_of_topic(pair[0]) else "general", split].append(pair)
    found = texts["topic", "train"]
    texts["topic", "test"] += found[0::8]
    texts["topic", "valid"] += found[4::8]
    texts["topic", "train"] = [pair for number, pair in enumerate(found) if number % 4]
    return texts


def is_of_topic(source: str) -> bool:
    """Returns whether an English caption has a word of the topic."""
    return bool(_WORDS.search(source))


_WORDS = re.compile(rf"\b({'|'.join(TOPIC.split())})\b", re.IGNORECASE)


def write_texts(texts: Texts, folder: Path) -> None:
    """Writes each text as two files, such as `topic.train.en`, and prints their sizes to standard error."""
    folder.mkdir(parents=True, exist_ok=True)
    for (part, split), pairs in texts.items():
        print(f"{part} {split}: {len(pairs):,} pairs", file=sys.stderr)
        for side, language in enumerate(LANGUAGES):
            content = "".join(f"{pair[side]}\n" for pair in pairs)
            (folder / f"{part}.{split}.{language}").write_bytes(content.encode())


def general_model(run: Path, text: Path, options: Sequence[str]) -> Path:
    """Trains the general model, exports it to Marian and imports it; returns the imported model."""
    _train(
        run / "general",
        "experiment=multi30k",
        *_DATA,
        *_corpus("data.train", text, "general.train"),
        *_corpus("data.valid", text, "general.valid"),
        "data.test.split=null",
        "model.norm=post",  # Marian has post-norm only
        "model.dropout=0.2",
        "training.rdrop=0",  # twice the updates in the same time
        "training.schedule.peak=3e-3",
        "training.max_updates=2400",
        "training.validate_every=400",
        "training.checkpoint_every=200",
        *options,
    )
    if not (run / "marian").exists():
        _run("nmt-export", f"model_dir={run / 'general'}", "format=marian", f"output={run / 'marian'}")
    if not (run / "imported").exists():
        _run("nmt-import", "format=marian", f"model={run / 'marian'}", f"output={run / 'imported'}")
    return run / "imported"


def tune(run: Path, start: Path, text: Path, split: str, options: Sequence[str]) -> None:
    """Trains the model in `start` on the topic; validates on the topic; scores both parts of `split`."""
    files = {
        language: ",".join(str(text / f"{part}.{split}.{language}") for part in ("topic", "general"))
        for language in LANGUAGES
    }
    mixed = any(option.startswith("data.train.corpora.general.") for option in options)
    parts = ("topic", "general") if mixed else ("topic",)
    corpora = [_corpus(f"data.train.corpora.{part}", text, f"{part}.train") for part in parts]
    _train(
        run,
        f"start_from={start}",
        "data=local",
        *_DATA,
        *(option for corpus in corpora for option in corpus),
        *_corpus("data.valid", text, "topic.valid"),
        f"data.test.source=[{files['en']}]",
        f"data.test.target=[{files['de']}]",
        "data.test.names=[topic,general]",
        "data.max_tokens=2048",
        "model.dropout=0.2",
        "training.schedule.name=linear",
        "training.schedule.peak=5e-4",
        "training.schedule.warmup_updates=30",
        "training.max_updates=300",
        "training.validate_every=50",
        "training.checkpoint_every=50",
        "decoding.beam_size=5",
        *options,
    )


def collected(folder: Path) -> dict[str, dict[str, Any]]:
    """Returns the scores of all models: name → part → metric → score."""
    scores: dict[str, dict[str, Any]] = {}
    for name in VARIANTS:
        results = parse_json(read_text(folder / name / "results.json", 1 << 24))
        scores.setdefault("before", _parts(results["before"]["test"]))
        scores[name] = _parts(results["test"])
    return scores


def table(scores: Mapping[str, Mapping[str, Any]], split: str) -> str:
    """Returns the BLEU and chrF2 of each model on both parts, with their differences from `before`."""
    lines = [
        f"| {split} | Topic BLEU | | chrF2 | General BLEU | | chrF2 |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for name, parts in scores.items():
        cells = []
        for part in ("topic", "general"):
            bleu, chrf = (parts[part][metric] for metric in ("bleu", "chrf"))
            difference = "" if name == "before" else f"{bleu - scores['before'][part]['bleu']:+.2f}"
            cells += [f"{bleu:.2f}", difference, f"{chrf:.2f}"]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


_DATA = ("data.source_lang=en", "data.target_lang=de", "data.hub.path=null")


def _corpus(key: str, text: Path, name: str) -> list[str]:
    hub = [] if ".corpora." in key else [f"{key}.split=null"]
    files = zip(("source", "target"), LANGUAGES, strict=True)
    return [*hub, *(f"{key}.{side}={text / name}.{language}" for side, language in files)]


def _train(run: Path, *options: str) -> None:
    _run("nmt-train", f"run_dir={run}", *options)


def _run(*command: str) -> None:
    """Runs a command of nmt; only its messages are shown. Ends the program if it fails."""
    print(f"$ {shlex.join(command)}", file=sys.stderr, flush=True)
    done = subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
    if done.returncode:
        raise SystemExit(done.returncode)


def _parts(results: Mapping[str, Any]) -> dict[str, Any]:
    return {part: results["groups"][part] for part in ("topic", "general")}


def _found(path: Path) -> Path | None:
    compressed = path.with_name(f"{path.name}.gz")
    return next((each for each in (path, compressed) if each.is_file()), None)


def _lines(path: Path) -> list[str]:
    found = _found(path)
    assert found is not None, "the caller checks that all files are there"
    content = found.read_bytes()
    text = (gzip.decompress(content) if found.suffix == ".gz" else content).decode()
    return text.removesuffix("\n").split("\n")


if __name__ == "__main__":
    sys.exit(main())
