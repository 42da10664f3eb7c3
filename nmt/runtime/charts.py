"""Charts with bars or curves, as SVG: their geometry. `templates/chart.svg` draws them."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
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
    """A curve: its CSS class, which sets colour and dashes, the points (x, y) of its line, their tooltips.

    Points without tooltips have no markers.
    """

    name: str
    points: Sequence[tuple[float, float]]
    titles: Sequence[str] = ()


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
        label: what the chart shows, for readers who do not see it.
    """

    width, height = 440, 220
    left, right, top, bottom = 52, 428, 10, 182
    vertical_ticks: Sequence[Tick]
    horizontal_ticks: Sequence[Tick]
    bars: Sequence[Bar] = ()
    curves: Sequence[Curve] = ()
    label: str = ""


def histogram(
    edges: Sequence[float], counts: Sequence[int], name: str, label: str = "", *, logarithmic: bool = False
) -> Chart:
    """Lays out a histogram; bar i is the bin from edge i to edge i + 1 of (n + 1,) ascending edges.

    A logarithmic horizontal axis has a label at each power of two; `name` is the CSS class of the bars.
    """
    # The last bin of lengths may be much wider than the others, but all bars are drawn with the same width.
    step = (Chart.right - Chart.left) / len(counts)
    ticks = round_ticks(0, max(*counts, 1), 1, outside=True)
    up = scale(0, ticks[-1], Chart.bottom, Chart.top)
    bars = []
    for index, count in enumerate(counts):
        low, high = edges[index], edges[index + 1]
        title = f"{low:g} to {high:g}: {count:,}" if logarithmic else f"{low:g} to {high - 1:g}: {count:,}"
        x, y = Chart.left + index * step, up(count)
        bars.append(Bar(name, x + 0.5, y, max(step - 1, 1), Chart.bottom - y, title))
    every = 4 if logarithmic else max(1, math.ceil(len(counts) / 8))
    return Chart(
        vertical_ticks=[Tick(up(value), short(value)) for value in ticks],
        horizontal_ticks=[
            Tick(Chart.left + index * step, _fraction(edges[index]) if logarithmic else f"{edges[index]:g}")
            for index in range(0, len(edges), every)
        ],
        bars=bars,
        label=label,
    )


def grouped_bars(
    labels: Sequence[str],
    series: Mapping[str, Sequence[float | None]],
    label: str,
    pale: Collection[int] = (),
) -> Chart:
    """Lays out bars that begin at 0: for each label one bar of each series, CSS class → values.

    A value of None has no bar. A tooltip is `label: value`. Bars of the labels at the places `pale` have that
    class too.
    """
    known = [0.0, *(value for values in series.values() for value in values if value is not None)]
    ticks = round_ticks(min(known), max(*known, 1e-9), outside=True)
    up = scale(ticks[0], ticks[-1], Chart.bottom, Chart.top)
    step = (Chart.right - Chart.left) / max(len(labels), 1)
    width = min(0.8 * step / max(len(series), 1), 40)
    bars = []
    for place, (name, values) in enumerate(series.items()):
        for index, (title, value) in enumerate(zip(labels, values, strict=True)):
            if value is not None:
                x = Chart.left + (index + 0.5) * step + (place - len(series) / 2) * width
                top, bottom = sorted((up(value), up(0)))
                kind = f"{name} pale" if index in pale else name
                bars.append(Bar(kind, x + 1, top, width - 2, bottom - top, f"{title}: {value:.4g}"))
    return Chart(
        vertical_ticks=[Tick(up(value), short(value)) for value in ticks],
        horizontal_ticks=[
            Tick(Chart.left + (index + 0.5) * step, title) for index, title in enumerate(labels)
        ],
        bars=bars,
        label=label,
    )


def lines(series: Mapping[str, Sequence[tuple[float, float]]], label: str, *, markers: bool = False) -> Chart:
    """Lays out curves, CSS class → finite points (x, y), with two linear axes that include all points.

    With `markers`, each point has a tooltip `x: y`.
    """
    points = [point for line in series.values() for point in line]
    (left, right), (low, high) = (_span(point[axis] for point in points) for axis in (0, 1))
    across, up = scale(left, right, Chart.left, Chart.right), scale(low, high, Chart.bottom, Chart.top)
    return Chart(
        vertical_ticks=[Tick(up(value), short(value)) for value in round_ticks(low, high)],
        horizontal_ticks=[Tick(across(value), short(value)) for value in round_ticks(left, right)],
        curves=[
            Curve(
                name,
                [(across(x), up(y)) for x, y in line],
                [f"{short(x)}: {y:.4g}" for x, y in line] if markers else (),
            )
            for name, line in series.items()
        ],
        label=label,
    )


def logarithmic_lines(series: Mapping[str, Sequence[Sequence[float]]], label: str = "") -> Chart:
    """Lays out curves, CSS class → points (x, y) of at least 1, with two logarithmic axes."""
    points = [point for line in series.values() for point in line]
    decades = [math.ceil(math.log10(max(*(point[axis] for point in points), 10))) for axis in (0, 1)]
    across = scale(0, decades[0], Chart.left, Chart.right)
    up = scale(0, decades[1], Chart.bottom, Chart.top)
    return Chart(
        vertical_ticks=[Tick(up(decade), short(10**decade)) for decade in range(decades[1] + 1)],
        horizontal_ticks=[Tick(across(decade), short(10**decade)) for decade in range(decades[0] + 1)],
        curves=[
            Curve(name, [(across(math.log10(x)), up(math.log10(y))) for x, y in line])
            for name, line in series.items()
        ],
        label=label,
    )


def round_ticks(low: float, high: float, least: float = 0, *, outside: bool = False) -> list[float]:
    """Returns two to six round numbers from `low` to `high`, at a distance of at least `least`.

    With `outside`, the first and the last number enclose the two.
    """
    wanted = max((high - low) / 5, least)
    unit = 10.0 ** math.floor(math.log10(wanted))
    step = next(step for step in (unit, 2 * unit, 2.5 * unit, 5 * unit, 10 * unit) if step >= wanted * 0.999)
    first, last = low / step, high / step
    if outside:
        first, last = math.floor(first + 1e-9), math.ceil(last - 1e-9)
    return [number * step for number in range(math.ceil(first), math.floor(last) + 1)]


def short(value: float) -> str:
    """Returns a number with a unit: 12k, 3.5M."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{unit}"
    return f"{value:.6g}"


def _span(values: Iterable[float]) -> tuple[float, float]:
    """Returns the lowest and highest value, further apart if they are equal."""
    known = [*values] or [0.0]
    low, high = min(known), max(known)
    return (low, high) if low < high else (low - (abs(low) / 2 or 1), high + (abs(high) / 2 or 1))


def _fraction(value: float) -> str:
    return f"{value:g}" if value >= 1 else f"1/{round(1 / value)}"


def scale(low: float, high: float, begin: float, end: float) -> Callable[[float], float]:
    """Returns the function that maps `low` to `begin` and `high` to `end`, and all between in proportion."""
    return lambda value: begin + (value - low) / (high - low) * (end - begin)


def svg_file(chart: Chart, style: str, caption: str) -> str:
    """Returns a chart as the text of an SVG file; `style` is the style sheet of its classes."""
    template = templates_of("nmt.runtime").get_template("chart.svg")
    return str(template.make_module().draw(chart, style, caption)).strip() + "\n"  # type: ignore[attr-defined]
