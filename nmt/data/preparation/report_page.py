"""The data report as one self-contained HTML page, rendered from `templates/page.html`, with its charts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from nmt.copying.strings import WORD_START
from nmt.runtime.charts import Bar, Chart, Curve, Tick, scale
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


@cache
def _environment() -> Environment:
    environment = templates_of("nmt.data.preparation")
    environment.filters.update(thousands="{:,}".format, percent=_percent, visible=visible)
    return environment


def _percent(part: float, whole: float) -> str:
    share = part / max(whole, 1)
    return "<0.01%" if 0 < share < 0.00005 else f"{share:.2%}"


def histogram(
    edges: Sequence[float], counts: Sequence[int], name: str, *, logarithmic: bool = False
) -> Chart:
    """Lays out a histogram; bar i is the bin from edge i to edge i + 1 of (n + 1,) ascending edges.

    A logarithmic horizontal axis has a label at each power of two; `name` is the CSS class of the bars.
    """
    # The last bin of lengths may be much wider than the others, but all bars are drawn with the same width.
    step = (Chart.right - Chart.left) / len(counts)
    top = max(*counts, 1)
    up = scale(0, top, Chart.bottom, Chart.top)
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
    across = scale(0, decades[0], Chart.left, Chart.right)
    up = scale(0, decades[1], Chart.bottom, Chart.top)
    return Chart(
        vertical_ticks=[Tick(up(decade), _short(10**decade)) for decade in range(decades[1] + 1)],
        horizontal_ticks=[Tick(across(decade), _short(10**decade)) for decade in range(decades[0] + 1)],
        curves=[
            Curve(name, [(across(math.log10(x)), up(math.log10(y))) for x, y in line])
            for name, line in series.items()
        ],
    )


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
