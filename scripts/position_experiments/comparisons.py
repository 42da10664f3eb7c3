"""Attention variants on the copying task, recurrence against the Transformer, and probes of the position."""

from __future__ import annotations

import json
from pathlib import Path

from position_experiments import symbols
from position_experiments.captions import OPTIONS, files, scores_by_length, training_files, validation
from position_experiments.experiment import Experiment, Place, Result, train
from position_experiments.probes import attention_saturation, position_probe
from position_experiments.tasks import MODEL, TRAINING, by_length, task_experiment

KEY_WIDTHS = (16, 32, 64, 128, 256)
WIDE = ("model.d_model=256", "model.d_ff=256", "training.max_updates=600")
MINUTES = 20
"""Training time of each model in the comparison of recurrence with attention."""
RNN = ("model=rnn", "model.d_model=256", "model.dropout=0.3")


def attention_experiments() -> list[Experiment]:
    """Returns the experiments of the part `attention`."""
    found = []
    for score in ("scaled_dot", "dot"):
        for width in KEY_WIDTHS:
            options = [*WIDE, f"model.attention={score}", f"model.heads={256 // width}"]
            found.append(_saturation(f"{score}-{width}", options, {"score": score, "key_width": width}, 2.1))
    for title, options in {
        "8 heads": ["model.heads=8"],
        "1 head": ["model.heads=1"],
        "additive": ["model.attention=additive"],
    }.items():
        for task in ("copy", "reverse", "sort"):
            found.append(
                task_experiment("attention", task, 1, ("sinusoidal",) * 2, options, minutes=1.5, title=title)
            )
    return found


def _saturation(name: str, options: list[str], facts: dict[str, object], minutes: float) -> Experiment:
    def measure(place: Place) -> Result:
        data = symbols.write(place.data("copy"), "copy")
        train(place.run, [*MODEL, *data, *TRAINING, *options, "seed=1"], threads=1)
        sources, _ = symbols.test_sentences("copy")[symbols.LONGEST]
        return {
            "saturation": attention_saturation(place.run, sources),
            "by_length": by_length(place.run / "model", "copy", longest=symbols.LONGEST),
            "losses": losses(place.run),
        }

    return Experiment(f"attention-{name}", "attention", measure, minutes, facts)


def recurrence_experiments() -> list[Experiment]:
    """Returns the experiments of the part `recurrence`: equal parameters, equal time, all cores."""

    def run(title: str, options: list[str]) -> Experiment:
        def measure(place: Place) -> Result:
            data = [*files(place), *training_files(place, "train")]
            limits = ["training.max_updates=100000", f"training.max_minutes={MINUTES}", "seed=1"]
            schedule = [
                "training.schedule.name=inverse_sqrt",
                "training.averaging.kind=auto",
                "training.criterion=bleu",
                "training.validate_every=400",
                "training.checkpoint_every=200",
            ]
            train(place.run, [*OPTIONS, *data, *limits, *schedule, *options], threads=2)
            results = json.loads((place.run / "results.json").read_text(encoding="utf-8"))
            sources, references = validation(place)
            return {
                "training": results["training"],
                "by_length": scores_by_length(place.run / "model", sources, references, threads=2),
                "losses": losses(place.run),
            }

        facts = {"title": title, "options": options}
        return Experiment(f"recurrence-{title}", "recurrence", measure, MINUTES + 2, facts, alone=True)

    return [
        run("tiny", ["training.schedule.peak=4e-3"]),
        run("rnn", [*RNN, "training.schedule.peak=2e-3"]),
    ]


def probe_experiments() -> list[Experiment]:
    """Returns the experiments of the part `probe`: four layers with and without residual connections."""
    found = []
    for residual in (True, False):
        for encoding in ("sinusoidal", "none"):

            def measure(place: Place, residual: bool = residual, encoding: str = encoding) -> Result:
                data = symbols.write(place.data("copy"), "copy")
                options = [
                    f"model.residual={str(residual).lower()}",
                    f"model/positions={encoding}",
                    "model.encoder_layers=4",
                    "seed=1",
                ]
                train(place.run, [*MODEL, *data, *TRAINING, *options], threads=1)
                tests = symbols.test_sentences("copy")
                sources = [text for length in (15, 20) for text in tests[length][0]]
                return {
                    "probe": position_probe(place.run, sources),
                    "by_length": by_length(place.run / "model", "copy", longest=symbols.LONGEST),
                }

            name = f"probe-{'with' if residual else 'without'}_residual-{encoding}"
            facts = {"residual": residual, "encoder": encoding}
            found.append(Experiment(name, "probe", measure, 0.8, facts))
    return found


def losses(run: Path) -> list[dict[str, float]]:
    """Returns the update, loss, perplexity and BLEU of each validation, from `metrics.jsonl`."""
    found = []
    for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        if record["kind"] == "valid":
            found.append({key: record[key] for key in ("update", "loss", "ppl", "bleu") if key in record})
    return found
