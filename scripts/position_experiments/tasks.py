"""Trainings on the tasks, and their tests at lengths of 5 to 80 symbols."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nmt.config.model import ENCODINGS
from position_experiments import symbols
from position_experiments.experiment import Experiment, Place, Result, train
from position_experiments.probes import permutation

USABLE = tuple(name for name in ENCODINGS if name not in ("integer", "normalised", "binary"))
"""The encodings without the naive ones."""
SEEDS = (1, 2, 3)
MIXED = (
    ("sinusoidal", "none"),
    ("none", "sinusoidal"),
    ("sinusoidal", "rotary"),
    ("rotary", "sinusoidal"),
    ("rotary", "none"),
    ("none", "rotary"),
)
"""Encodings of the encoder and the decoder."""
BASES = (100, 20_000)
"""Bases of the sinusoids that are compared with the paper's, 10,000."""

MODEL = (
    "model=tiny",
    "model.encoder_layers=2",
    "model.decoder_layers=2",
    "model.d_model=64",
    "model.d_ff=256",
    "model.heads=4",
    "model.dropout=0",
)
TRAINING = (
    "data.max_tokens=1000",
    "training.micro_batches=1",
    "training.devices=1",
    "training.precision=fp32",
    "training.max_updates=1000",
    "training.validate_every=500",
    "training.checkpoint_every=500",
    "training.validate_metrics=[]",
    "training.criterion=loss",
    "training.averaging.kind=none",
    "training.label_smoothing=0",
    "training.schedule.name=linear",
    "training.schedule.peak=2e-3",
    "training.schedule.warmup_updates=200",
    "decoding.beam_size=1",
    "evaluation.metrics=[bleu]",
)


def experiments() -> list[Experiment]:
    """Returns the experiments of the parts `tasks`, `bases`, `mixed` and `concatenated`."""
    found = [
        task_experiment("tasks", task, seed, (encoding, encoding))
        for seed in SEEDS
        for encoding in ENCODINGS
        for task in symbols.TASKS
    ]
    found += [
        task_experiment(
            "bases",
            task,
            seed,
            ("sinusoidal", "sinusoidal"),
            [f"model.positions.options.base={base}"],
            title=f"base {base}",
        )
        for seed in SEEDS
        for base in BASES
        for task in ("copy", "sort")
    ]
    found += [
        task_experiment("mixed", task, seed, pair)
        for seed in SEEDS[:2]
        for pair in MIXED
        for task in ("copy", "reverse")
    ]
    found += [
        task_experiment(
            "concatenated",
            "copy",
            seed,
            (encoding, encoding),
            ["data.concatenate=0.5", f"data.cleaning.max_pieces={2 * symbols.LONGEST + 2}"],
        )
        for seed in SEEDS[:2]
        for encoding in USABLE
    ]
    return found


def task_experiment(
    part: str,
    task: str,
    seed: int,
    pair: tuple[str, str],
    more: Sequence[str] = (),
    *,
    minutes: float = 0.8,
    title: str = "",
) -> Experiment:
    """Returns the experiment that trains on a task and tests the model.

    Args:
        part: of the study.
        task: a key of `symbols.TASKS`.
        seed: of the training.
        pair: the encodings of the encoder and the decoder.
        more: options of the training.
        minutes: estimate.
        title: distinguishes experiments that have the same encodings.
    """
    encoder, decoder = pair
    encoding = title or (encoder if encoder == decoder else f"{encoder}+{decoder}")
    options = [f"model/positions={encoder}", f"seed={seed}", *more]
    if decoder != encoder:
        options.append(f"model.positions.decoder={decoder}")

    def measure(place: Place) -> Result:
        data = symbols.write(place.data(task), task)
        train(place.run, [*MODEL, *data, *TRAINING, *options], threads=1)
        return {"by_length": by_length(place.run / "model", task), "permutation": permutation(place.run)}

    facts = {
        "task": task,
        "seed": seed,
        "encoder": encoder,
        "decoder": decoder,
        "title": title,
        "options": list(more),
    }
    name = f"{part}-{task}-{encoding}-{seed}".replace(" ", "_")
    return Experiment(name, part, measure, minutes, facts)


def by_length(model: Path, task: str, *, longest: int = 80) -> dict[str, dict[str, dict[str, float]]]:
    """Translates the test sentences greedily, with a free length and with that of the reference.

    Args:
        model: a model folder.
        task: the task that it was trained on.
        longest: symbols of the longest sentences to translate.

    Returns:
        Symbols of the sentences, as text → `free` and `forced` → the figures of `symbols.accuracies`.
    """
    import nmt
    from position_experiments.fixed_length import register

    register()
    loaded = nmt.load(model, threads=1)
    found = {}
    for length, (sources, targets) in symbols.test_sentences(task).items():
        if length > longest:
            break
        forced = {"fixed_length": {"pieces": length + 1}}  # a sentence begins with the piece for a space
        search: dict[str, Any] = {"beam_size": 1, "max_length_offset": length + 20}
        found[str(length)] = {
            "free": symbols.accuracies(loaded.translate(sources, **search), targets),
            "forced": symbols.accuracies(loaded.translate(sources, **search, processors=forced), targets),
        }
    return found
