"""`find_rate=true`: a learning rate range test (Smith 2017), which suggests the highest learning rate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import closing
from itertools import accumulate
from typing import NamedTuple

from nmt.config import TrainConfig
from nmt.data.preparation.prepare import Prepared
from nmt.errors import UserError
from nmt.runtime.charts import Chart, Curve, Tick, scale, svg_file
from nmt.runtime.files import make_folder, write_text
from nmt.runtime.seeds import mix
from nmt.runtime.streams import progress
from nmt.training.batch_size import probe_memory, training_parts
from nmt.training.processes.ranks import Ranks
from nmt.training.state.progress import Progress
from nmt.training.state.run_folder import RunFolder
from nmt.training.trainer import open_stream
from nmt.training.update.training_step import Counters

_LOWEST, _HIGHEST, _UPDATES = 1e-5, 1.0, 300
_DECAY = 0.9
"""Decay of the running mean of the loss."""
_FEWEST = 30
"""Updates before the loss may count as diverged."""
_RISE, _LEAST_RISE = 0.2, 0.5
"""The loss has diverged when this part of its fall is lost, and this much at least."""
_LEAST_FALL = 0.2
"""A smaller fall of the loss may be chance."""
_PART = 0.1
"""The suggested rate, as a part of that with the lowest mean loss."""


class Point(NamedTuple):
    """An update: its learning rate, and its loss per target token."""

    rate: float
    loss: float


def find_rate(config: TrainConfig, prepared: Prepared, folder: RunFolder, ranks: Ranks) -> str:
    """Measures the loss at rising learning rates; writes the curve to `find_rate.svg` in the folder.

    Returns:
        The text that `nmt-train` prints: the option that sets the suggested rate.

    Raises:
        UserError: the loss does not fall at any rate, or the batches do not fit into memory.
    """
    points = measured(config, prepared, ranks)
    rate = suggested(points)
    if rate is None:
        raise UserError(
            "find_rate: the loss does not fall at any learning rate. Check the data; a model that start_from "
            "gives may know them already."
        )
    make_folder(folder.path)
    write_text(folder.path / "find_rate.svg", picture(points, rate))
    rates = f"{points[0].rate:.0e} to {points[-1].rate:.0e}"
    return (
        f"learning rates from {rates} in {len(points)} updates: {folder.path / 'find_rate.svg'}\n"
        f"{option(config, rate)}"
    )


def measured(config: TrainConfig, prepared: Prepared, ranks: Ranks) -> list[Point]:
    """Trains a new model while the learning rate rises exponentially, until the loss diverges.

    All micro-batches of an update are computed in this process.

    Raises:
        UserError: the batches do not fit into memory.
    """
    run, options = Progress.start(config.training.precision), config.training
    step, _ = training_parts(config, prepared, ranks)
    probe_memory(step, prepared.train, config, run.loss_scale)
    points: list[Point] = []
    stream = open_stream(config, prepared, run, ranks, step.parallel.whole.longest)
    with closing(stream), progress(total=_UPDATES, unit="updates", description="range test") as bar:
        while len(points) < _UPDATES and not has_diverged(points):
            step.begin(run.loss_scale, run.update + 1)
            for number in range(options.micro_batches):
                batch, _ = next(stream)
                assert batch is not None, "one process has all micro-batches"
                step.add(batch, number, seed=mix(config.seed, run.update, number))
            rate = _LOWEST * (_HIGHEST / _LOWEST) ** (len(points) / (_UPDATES - 1))
            sums, _, finite = step.apply(rate, stop=False, seconds=0.0).read()
            run.advance()
            if run.adapt_loss_scale(options.precision, finite):
                continue  # an overflow of fp16, once more with another scale
            if not finite:
                break
            totals = Counters(*sums)
            points.append(Point(rate, totals.loss / totals.tokens))
            bar.update(1)
    return points


def smoothed(points: Sequence[Point]) -> list[float]:
    """Returns the running mean of the losses, without bias towards 0 (Kingma and Ba 2015, section 3)."""
    sums = accumulate(
        (point.loss for point in points), lambda mean, loss: _DECAY * mean + (1 - _DECAY) * loss, initial=0.0
    )
    return [mean / (1 - _DECAY**number) for number, mean in enumerate(sums) if number]


def has_diverged(points: Sequence[Point]) -> bool:
    """Returns whether the mean loss has risen far above its lowest value."""
    means = smoothed(points)
    if len(means) < _FEWEST:
        return False
    return means[-1] > min(means) + max(_LEAST_RISE, _RISE * (means[0] - min(means)))


def suggested(points: Sequence[Point]) -> float | None:
    """Returns a tenth of the rate with the lowest mean loss; None if the loss does not fall."""
    means = smoothed(points)
    lowest = means.index(min(means)) if means else 0
    if not lowest or means[0] - means[lowest] < _LEAST_FALL:
        return None
    return _PART * points[lowest].rate


def option(config: TrainConfig, rate: float) -> str:
    """Returns the option that makes `rate` the highest learning rate, as an override."""
    schedule = config.training.schedule
    if schedule.name != "noam":
        return f"training.schedule.peak={rate:.1e}"
    root = math.sqrt(config.model.d_model * max(1, schedule.warmup_updates))
    return (
        f"training.schedule.scale={rate * root:.2g}"  # equation 3 of Vaswani et al. 2017, after the warm-up
    )


_STYLE = (
    "svg{background:#fff}text{font:11px sans-serif;fill:#222}.axis{stroke:#ddd}.curve{fill:none}"
    ".each{stroke:#bbb}.mean{stroke:#06c;stroke-width:2}.chosen{stroke:#b30;stroke-dasharray:5 3}"
    "@media(prefers-color-scheme:dark){svg{background:#111}text{fill:#eee}.axis{stroke:#333}.each{stroke:#666}"
    ".mean{stroke:#6af}.chosen{stroke:#f97}}"
)


def picture(points: Sequence[Point], rate: float) -> str:
    """Returns the curve as the text of an SVG file, with a line at the suggested rate."""
    means = smoothed(points)
    low, high = math.floor(min(means)), math.ceil(max(means))
    first, last = math.log10(points[0].rate), math.log10(points[-1].rate)
    across, up = scale(first, last, Chart.left, Chart.right), scale(low, high, Chart.bottom, Chart.top)

    def place(rate: float, loss: float) -> tuple[float, float]:
        return across(math.log10(rate)), up(max(low, min(loss, high)))

    decades = [10.0**power for power in range(math.ceil(first), math.floor(last) + 1)]
    chart = Chart(
        vertical_ticks=[Tick(place(rate, loss)[1], str(loss)) for loss in range(low, high + 1)],
        horizontal_ticks=[Tick(place(decade, low)[0], f"{decade:.0e}") for decade in decades],
        curves=[
            Curve("each", [place(*point) for point in points]),
            Curve("mean", [place(point.rate, mean) for point, mean in zip(points, means, strict=True)]),
            Curve("chosen", [place(rate, low), place(rate, high)]),
        ],
    )
    return svg_file(
        chart, _STYLE, f"Loss by learning rate: each update, and their mean; suggested {rate:.1e}"
    )
