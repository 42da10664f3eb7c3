"""Charts with bars or curves, as SVG: their geometry. `templates/chart.svg` draws them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from nmt.runtime.pages import templates_of


class Tick(NamedTuple):
    """A label of an axis, at x on the horizontal axis or at y on the vertical axis."""

    position: float
    label: str


class Bar(NamedTuple):
    """A bar of a histogram: its CSS class, which sets the colour, its place, and the text of its tooltip."""

    name: str
    x: float
    y: float
    width: float
    height: float
    title: str


class Curve(NamedTuple):
    """A curve: its CSS class, which sets the colour, and the points (x, y) of its line."""

    name: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Chart:
    """A chart with bars or curves. All coordinates are in pixels, with the origin at the top left.

    Attributes:
        width, height: size of the chart.
        left, right, top, bottom: edges of the plot area; the margins around the area contain the labels.
        vertical_ticks: labels left of the plot area, each with a grid line.
        horizontal_ticks: labels below the plot area.
        bars: the bars, if it is a histogram.
        curves: the curves, if it is a chart of curves.
    """

    width, height = 440, 220
    left, right, top, bottom = 52, 428, 10, 182
    vertical_ticks: Sequence[Tick]
    horizontal_ticks: Sequence[Tick]
    bars: Sequence[Bar] = ()
    curves: Sequence[Curve] = ()


def scale(low: float, high: float, begin: float, end: float) -> Callable[[float], float]:
    """Returns the function that maps `low` to `begin` and `high` to `end`, and all between in proportion."""
    return lambda value: begin + (value - low) / (high - low) * (end - begin)


def svg_file(chart: Chart, style: str, caption: str) -> str:
    """Returns a chart as the text of an SVG file; `style` is the style sheet of its classes."""
    template = templates_of("nmt.runtime").get_template("chart.svg")
    return str(template.make_module().draw(chart, style, caption)).strip() + "\n"  # type: ignore[attr-defined]
