"""Charts in SVG: histograms and curves. The style sheet of the page sets their colours."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

_WIDTH, _HEIGHT = 440, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 12, 10, 38  # margins for the labels of the axes


def histogram(
    edges: Sequence[float], counts: Sequence[int], colour: str, *, logarithmic: bool = False
) -> str:
    """Draws a histogram.

    Args:
        edges: (n + 1,) in ascending order; bar i is the bin from edge i to edge i + 1.
        counts: (n,) counts of the bins.
        colour: CSS class of the bars.
        logarithmic: whether the horizontal axis is logarithmic, with a label at each power of two.
    """
    # The last bin of lengths may be much wider than the others, but all bars are drawn with the same width.
    step = (_WIDTH - _LEFT - _RIGHT) / len(counts)
    top = max(*counts, 1)
    up = _scale(0, top, _HEIGHT - _BOTTOM, _TOP)
    parts = [_rule_at(up(value), _short(value)) for value in _round_ticks(top)]
    for index, count in enumerate(counts):
        low, high = edges[index], edges[index + 1]
        words = f"{low:g} to {high:g}: {count:,}" if logarithmic else f"{low:g} to {high - 1:g}: {count:,}"
        x, y = _LEFT + index * step, up(count)
        parts.append(
            f'<rect class="bar {colour}" x="{x + 0.5:.1f}" y="{y:.1f}" width="{max(step - 1, 1):.1f}" '
            f'height="{_HEIGHT - _BOTTOM - y:.1f}"><title>{words}</title></rect>'
        )
    every = 4 if logarithmic else max(1, math.ceil(len(counts) / 8))
    parts += [
        _label(_LEFT + index * step, f"{_fraction(edges[index]) if logarithmic else f'{edges[index]:g}'}")
        for index in range(0, len(edges), every)
    ]
    return _svg(parts)


def curves(series: dict[str, Sequence[Sequence[float]]]) -> str:
    """Draws curves with two logarithmic axes.

    Args:
        series: CSS class of each curve → its points (x, y), with coordinates of at least 1.
    """
    points = [point for line in series.values() for point in line]
    decades = [math.ceil(math.log10(max(*(point[axis] for point in points), 10))) for axis in (0, 1)]
    across = _scale(0, decades[0], _LEFT, _WIDTH - _RIGHT)
    up = _scale(0, decades[1], _HEIGHT - _BOTTOM, _TOP)
    parts = [_rule_at(up(decade), _short(10**decade)) for decade in range(decades[1] + 1)]
    parts += [_label(across(decade), _short(10**decade)) for decade in range(decades[0] + 1)]
    for name, line in series.items():
        path = " ".join(f"{across(math.log10(x)):.1f},{up(math.log10(y)):.1f}" for x, y in line)
        parts.append(f'<polyline class="curve {name}" points="{path}"/>')
    return _svg(parts)


def _svg(parts: Sequence[str]) -> str:
    return f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">{"".join(parts)}</svg>'


def _rule_at(y: float, words: str) -> str:
    """Returns a horizontal grid line with a label to its left."""
    return (
        f'<path class="axis" d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}"/>'
        f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{words}</text>'
    )


def _label(x: float, words: str) -> str:
    """Returns a label below the chart."""
    return f'<text x="{x:.1f}" y="{_HEIGHT - _BOTTOM + 17}" text-anchor="middle">{words}</text>'


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
