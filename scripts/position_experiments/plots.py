"""Plots of the study."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from nmt.config.model import ENCODINGS
from position_experiments import layers, symbols
from position_experiments.figures import save_figure
from position_experiments.results import Record, accuracy, chosen, over, score

STYLES = ("-", "--", "-.", ":")


def draw_all(records: Sequence[Record], folder: Path, font: str | None = None) -> None:
    """Draws every plot that has records; with a font with Korean letters, in Korean."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, (part, draw) in PLOTS.items():
        if chosen(records, part=part):
            save_figure(partial(draw, records), folder / f"{name}.png", font)


def extrapolation(records: Sequence[Record]) -> Figure:
    """Symbols that are right against the length, with free and forced length, for each task."""
    figure, axes = plt.subplots(2, 3, figsize=(15, 8), sharex=True, sharey=True, layout="constrained")
    for row, kind in enumerate(("free", "forced")):
        for column, task in enumerate(symbols.TASKS):
            axis = axes[row, column]
            for number, encoding in enumerate(ENCODINGS):
                those = chosen(records, part="tasks", task=task, encoder=encoding)
                if not those:
                    continue
                spreads = [over(those, accuracy((n,), "symbols", kind)) for n in symbols.TEST_LENGTHS]
                means = [spread.mean for spread in spreads if spread]
                axis.plot(symbols.TEST_LENGTHS, means, STYLES[number // 3], marker=".", label=encoding)
                low, high = ([end(spread.values) for spread in spreads if spread] for end in (min, max))
                axis.fill_between(symbols.TEST_LENGTHS, low, high, alpha=0.1)
            axis.axvline(symbols.LONGEST, color="grey", linewidth=0.7, linestyle="--")
            length = "length of the reference" if kind == "forced" else "free length"
            axis.set(title=f"{task}, {length}", xlabel="symbols", ylabel="symbols that are right, %")
    axes[0, 0].legend(fontsize=8)
    return figure


def captions(records: Sequence[Record]) -> Figure:
    """BLEU and ratio of lengths against the length of the source."""
    buckets = ("1-8", "9-11", "12-14", "15-17", "18-", "joined 2", "joined 3", "joined 4")
    figure, axes = plt.subplots(1, 3, figsize=(17, 5), layout="constrained")
    for axis, (title, key, kind) in zip(
        axes,
        (
            ("BLEU, free length", "bleu", "free"),
            ("BLEU, length of the reference", "bleu", "forced"),
            ("length / length of the reference", "length_ratio", "free"),
        ),
        strict=True,
    ):
        for number, encoding in enumerate(ENCODINGS):
            those = chosen(records, part="captions", encoder=encoding, options=[])
            if those:
                means = [spread.mean for name in buckets if (spread := over(those, score(name, key, kind)))]
                axis.plot(buckets, means, STYLES[number // 3], marker=".", label=encoding)
        axis.axvline(2.5, color="grey", linewidth=0.7, linestyle="--")
        axis.set(title=title, xlabel="English words of the source (trained on 14 or fewer)")
        axis.tick_params(axis="x", rotation=30)
    axes[0].legend(fontsize=8)
    return figure


def table_1(records: Sequence[Record]) -> Figure:
    """Time and memory of one layer against the length."""
    figure, axes = plt.subplots(1, 3, figsize=(17, 5), layout="constrained")
    panels = (("seconds", 64), ("seconds", 512), ("memory_bytes", 512))
    for axis, (key, width) in zip(axes, panels, strict=True):
        for kind in layers.KINDS:
            for each in chosen(records, part="layers", kind=kind, width=width):
                rows = [row for row in each["rows"] if row[key] > 0]
                axis.plot([row["length"] for row in rows], [row[key] for row in rows], marker=".", label=kind)
        axis.set(title=f"{key.replace('_', ' ')}, d = {width}", xlabel="n", xscale="log", yscale="log")
    axes[0].legend()
    return figure


def probe(records: Sequence[Record]) -> Figure:
    """R² of the linear probe by layer."""
    figure, axis = plt.subplots(figsize=(7, 4.5), layout="constrained")
    for each in chosen(records, part="probe"):
        values = [max(0.0, layer["r2"]) for layer in each["probe"]]
        name = f"{each['encoder']}, {'with' if each['residual'] else 'without'} residual connections"
        axis.plot(range(len(values)), values, "-" if each["residual"] else "--", marker="o", label=name)
    axis.set(
        title="position in the hidden states, linear probe",
        xlabel="layer (0: the embeddings)",
        ylabel="R²",
        ylim=(-0.05, 1.05),
    )
    axis.legend(fontsize=8)
    return figure


PLOTS: dict[str, tuple[str, Callable[[Sequence[Record]], Figure]]] = {
    "study_tasks": ("tasks", extrapolation),
    "study_captions": ("captions", captions),
    "study_layers": ("layers", table_1),
    "study_probe": ("probe", probe),
}
"""Name of each plot → the part of the study that it needs, and the function that draws it."""
