"""Trainings on Multi30k (English to German): without its longest captions, and of two attention variants."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import sacrebleu

from nmt.data.corpora.text import read_lines
from nmt.runtime.files import replaced
from position_experiments.experiment import Experiment, Place, Result, train
from position_experiments.probes import position_probe
from position_experiments.tasks import USABLE

SECOND_SEED = ("sinusoidal", "rotary", "alibi")
CONCATENATED = ("sinusoidal", "learned", "rotary", "alibi")

LONGEST_WORDS = 14
"""English words of the longest caption in training: 79 % of the captions are not longer."""
BUCKETS = {
    "1-8": (1, 8),
    "9-11": (9, 11),
    "12-14": (12, 14),
    "15-17": (15, 17),
    "18-": (18, 10_000),
    "15-": (15, 10_000),
}
"""English words of the validation captions whose scores are reported together; 15 or more: 23 % of them."""
JOINED = (2, 3, 4)
"""Numbers of captions that are joined for much longer sources."""

OPTIONS = (
    "experiment=multi30k",
    "data=local",
    "data.source_lang=en",
    "data.target_lang=de",
    "data.tokenizer.segmentation=bpe",
    "data.tokenizer.vocab_size=8000",
    "training.micro_batches=1",
    "training.devices=1",
    "training.precision=fp32",
    "training.max_updates=3000",
    "training.rdrop=0",
    "training.validate_every=1000",
    "training.checkpoint_every=1000",
    "training.criterion=loss",
    "training.averaging.kind=none",
    "evaluation.metrics=[bleu]",
)


def experiments() -> list[Experiment]:
    """Returns the experiments of the parts `captions` and `captions-attention`."""
    found = [_short_captions(name, 1) for name in USABLE]
    found += [_short_captions(name, 2) for name in SECOND_SEED]
    found += [
        _short_captions(name, 1, ["data.concatenate=0.3", "data.cleaning.max_pieces=64"], "concatenated")
        for name in CONCATENATED
    ]
    found += [
        _all_captions("scaled, 4 heads", []),
        _all_captions("not scaled, 4 heads", ["model.attention=dot"]),
        _all_captions("scaled, 1 head", ["model.heads=1"]),
    ]
    return found


def files(place: Place) -> list[str]:
    """Writes the captions as text, also those of up to `LONGEST_WORDS` alone; returns the options of data."""
    assert place.multi30k is not None, "position_study.py checks it"
    folder = place.data("captions")
    if not (folder / "short.de").exists():
        folder.mkdir(parents=True, exist_ok=True)
        pairs = {split: list(_pairs(place.multi30k, split)) for split in ("train", "val")}
        pairs["short"] = [pair for pair in pairs["train"] if len(pair[0].split()) <= LONGEST_WORDS]
        for split in ("train", "val", "short"):
            for side, ending in enumerate(("en", "de")):
                with replaced(folder / f"{split}.{ending}") as temporary:
                    temporary.write_text(
                        "".join(f"{pair[side]}\n" for pair in pairs[split]), encoding="utf-8"
                    )
    return [
        f"data.valid.{side}={folder / f'val.{end}'}" for side, end in (("source", "en"), ("target", "de"))
    ]


def training_files(place: Place, split: str) -> list[str]:
    """Returns the options that train on `train` or `short`."""
    folder = place.data("captions")
    return [
        f"data.train.{side}={folder / f'{split}.{end}'}" for side, end in (("source", "en"), ("target", "de"))
    ]


def _pairs(folder: Path, split: str) -> Iterator[tuple[str, str]]:
    return zip(*(read_lines(folder / f"{split}.{ending}.gz") for ending in ("en", "de")), strict=True)


def _short_captions(encoding: str, seed: int, more: Sequence[str] = (), kind: str = "") -> Experiment:
    options = [f"model/positions={encoding}", f"seed={seed}", *more]

    def measure(place: Place) -> Result:
        data = [*files(place), *training_files(place, "short")]
        train(place.run, [*OPTIONS, *data, *options], threads=1)
        sources, references = validation(place)
        found = {"by_length": scores_by_length(place.run / "model", sources, references)}
        return found | {"probe": position_probe(place.run, sources)}

    facts = {"encoder": encoding, "decoder": encoding, "seed": seed, "options": list(more)}
    return Experiment(f"captions{kind and '-'}{kind}-{encoding}-{seed}", "captions", measure, 12, facts)


def _all_captions(title: str, options: Sequence[str]) -> Experiment:
    def measure(place: Place) -> Result:
        data = [*files(place), *training_files(place, "train")]
        train(place.run, [*OPTIONS, *data, *options, "seed=1"], threads=1)
        sources, references = validation(place)
        return {"by_length": scores_by_length(place.run / "model", sources, references)}

    name = title.replace(", ", "-").replace(" ", "_")
    facts = {"title": title, "seed": 1, "options": list(options)}
    return Experiment(f"captions-attention-{name}", "captions-attention", measure, 10, facts)


def validation(place: Place) -> tuple[list[str], list[str]]:
    """Returns the sources and references of the validation set."""
    folder = place.data("captions")
    return list(read_lines(folder / "val.en")), list(read_lines(folder / "val.de"))


def scores_by_length(
    model: Path, sources: Sequence[str], references: Sequence[str], *, threads: int = 1
) -> dict[str, dict[str, dict[str, float]]]:
    """Scores translations of captions by their length, and of several captions joined into one line.

    Returns:
        Bucket → `free` and `forced` (the length in pieces is that of the reference) → BLEU, chrF and the
        ratio of the lengths. `all` is the whole set.
    """
    import nmt
    from position_experiments.fixed_length import register

    register()
    loaded = nmt.load(model, threads=threads)
    encode = loaded._loaded.bundles[0].tokenizer.encode_target
    tests = {"all": (list(sources), list(references))}
    for name, (low, high) in BUCKETS.items():
        rows = [row for row, source in enumerate(sources) if low <= len(source.split()) <= high]
        tests[name] = ([sources[row] for row in rows], [references[row] for row in rows])
    for count in JOINED:
        ends = range(0, len(sources) - count + 1, count)
        tests[f"joined {count}"] = (
            [" ".join(sources[row : row + count]) for row in ends],
            [" ".join(references[row : row + count]) for row in ends],
        )
    found = {}
    for name, (inputs, targets) in tests.items():
        free = loaded.translate(inputs, beam_size=4)
        forced = [""] * len(inputs)
        pieces = list(map(len, encode(targets)))
        for length in set(pieces):
            rows = [row for row, size in enumerate(pieces) if size == length]
            processors = {"fixed_length": {"pieces": length}}
            translations = loaded.translate(
                [inputs[row] for row in rows], beam_size=4, max_length_offset=200, processors=processors
            )
            for row, text in zip(rows, translations, strict=True):
                forced[row] = text
        found[name] = {"free": _scores(free, targets), "forced": _scores(forced, targets)}
    return found


def _scores(hypotheses: Sequence[str], references: Sequence[str]) -> dict[str, float]:
    bleu = sacrebleu.corpus_bleu(hypotheses, [references])
    return {
        "bleu": bleu.score,
        "chrf": sacrebleu.corpus_chrf(hypotheses, [references]).score,
        "length_ratio": bleu.sys_len / bleu.ref_len,
    }
