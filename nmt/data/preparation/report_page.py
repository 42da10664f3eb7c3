"""The data report as one self-contained HTML page, rendered from `templates/page.html`, with its charts.

`templates/chart.svg` draws the charts; here is their geometry.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from nmt.copying.strings import WORD_START
from nmt.runtime.pages import templates_of
from nmt.runtime.streams import visible

if TYPE_CHECKING:
    from jinja2 import Environment


def page(report: dict[str, Any]) -> str:
    """Returns the page of a report; `report` is the result of `nmt.data.preparation.report.data_report`."""
    source, target, ratios = report["source"], report["target"], report["ratios"]
    languages = [side["lang"] for side in (source, target)]
    return (
        _environment()
        .get_template("page.html")
        .render(
            report=report,
            title=f"{report['name']} ({source['lang']}–{target['lang']})",
            # With several languages, the language of an example is unknown.
            languages=["" if "," in language else language for language in languages],
            several_corpora=len({pair["corpus"] for pair in report["sample"]}) > 1,
            charts={
                "source": histogram(source["lengths"]["edges"], source["lengths"]["counts"], "source"),
                "target": histogram(target["lengths"]["edges"], target["lengths"]["counts"], "target"),
                "ratios": histogram(ratios["edges"], ratios["counts"], "both", logarithmic=True),
                "frequencies": curves({"source": source["frequencies"], "target": target["frequencies"]}),
            },
            space=WORD_START,
        )
    )


def svg_file(chart: Chart, style: str, caption: str) -> str:
    """Returns a chart as the text of an SVG file; `style` is the style sheet of its classes."""
    svg = str(
        _environment().from_string('{% from "chart.svg" import draw %}{{ draw(chart) }}').render(chart=chart)
    )
    below = f'<text x="{Chart.left}" y="{Chart.height - 4}">{caption}</text>\n</svg>'
    head = '<svg xmlns="http://www.w3.org/2000/svg" '
    return (
        svg.strip()
        .replace("<svg ", head, 1)
        .replace(">", f"><style>{style}</style>", 1)
        .replace("</svg>", below)
        + "\n"
    )


@cache
def _environment() -> Environment:
    environment = templates_of("nmt.data.preparation")
    environment.filters.update(thousands="{:,}".format, percent=_percent, px="{:.1f}".format, visible=visible)
    return environment


def _percent(part: float, whole: float) -> str:
    share = part / max(whole, 1)
    return "<0.01%" if 0 < share < 0.00005 else f"{share:.2%}"


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


def histogram(
    edges: Sequence[float], counts: Sequence[int], name: str, *, logarithmic: bool = False
) -> Chart:
    """Lays out a histogram; bar i is the bin from edge i to edge i + 1 of (n + 1,) ascending edges.

    A logarithmic horizontal axis has a label at each power of two; `name` is the CSS class of the bars.
    """
    # The last bin of lengths may be much wider than the others, but all bars are drawn with the same width.
    step = (Chart.right - Chart.left) / len(counts)
    top = max(*counts, 1)
    up = _scale(0, top, Chart.bottom, Chart.top)
    bars = []
    for index, count in enumerate(counts):
        low, high = edges[index], edges[index + 1]
        title = f"{low:g} to {high:g}: {count:,}" if logarithmic else f"{low:g} to {high - 1:g}: {count:,}"
        x, y = Chart.left + index * step, up(count)
        bars.append(Bar(name, x + 0.5, y, max(step - 1, 1), Chart.bottom - y, title))
    every = 4 if logarithmic else max(1, math.ceil(len(counts) / 8))
    return Chart(
        vertical_ticks=[Tick(up(value), _short(value)) for value in _round_ticks(top)],
        horizontal_ticks=[
            Tick(Chart.left + index * step, _fraction(edges[index]) if logarithmic else f"{edges[index]:g}")
            for index in range(0, len(edges), every)
        ],
        bars=bars,
    )


def curves(series: dict[str, Sequence[Sequence[float]]]) -> Chart:
    """Lays out curves, CSS class → points (x, y) of at least 1, with two logarithmic axes."""
    points = [point for line in series.values() for point in line]
    decades = [math.ceil(math.log10(max(*(point[axis] for point in points), 10))) for axis in (0, 1)]
    across = _scale(0, decades[0], Chart.left, Chart.right)
    up = _scale(0, decades[1], Chart.bottom, Chart.top)
    return Chart(
        vertical_ticks=[Tick(up(decade), _short(10**decade)) for decade in range(decades[1] + 1)],
        horizontal_ticks=[Tick(across(decade), _short(10**decade)) for decade in range(decades[0] + 1)],
        curves=[
            Curve(name, [(across(math.log10(x)), up(math.log10(y))) for x, y in line])
            for name, line in series.items()
        ],
    )


def _scale(low: float, high: float, begin: float, end: float) -> Callable[[float], float]:
    return lambda value: begin + (value - low) / (high - low) * (end - begin)


def _round_ticks(top: float) -> list[int]:
    """Returns about four round numbers from 0 to `top`."""
    unit = 10 ** math.floor(math.log10(top))
    step = next(step for step in (unit // 4, unit // 2, unit, 2 * unit) if step and top / step <= 5)
    return list(range(0, int(top) + 1, int(step)))


def _short(value: float) -> str:
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{unit}"
    return f"{value:g}"


def _fraction(value: float) -> str:
    return f"{value:g}" if value >= 1 else f"1/{round(1 / value)}"
