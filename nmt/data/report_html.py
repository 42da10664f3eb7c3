"""The data report as one page that needs nothing else: tiles, charts in SVG, and the rules' table."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape
from typing import Any

from nmt.data.cleaning import visible

_WIDTH, _HEIGHT = 440, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 12, 10, 38  # room for the axes' labels

_STYLE = """
:root { color-scheme: light dark; --paper: #f6f7f9; --card: #fff; --ink: #1d2430; --faint: #667085;
  --line: #e2e6ec; --source: #3567c4; --target: #d1762b; --gone: #b9404d; }
@media (prefers-color-scheme: dark) { :root { --paper: #14171c; --card: #1d2129; --ink: #e6e9ee;
  --faint: #98a2b3; --line: #323945; --source: #7ba4f0; --target: #eba265; --gone: #ee8891; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1000px; padding: 28px 20px 60px; background: var(--paper);
  color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
h1 { margin: 0; font-size: 26px; } h2 { margin: 34px 0 10px; font-size: 18px; }
p { margin: 4px 0 0; color: var(--faint); }
.grid { display: grid; gap: 14px; grid-template-columns: repeat(auto-fit, minmax(min(100%, 440px), 1fr)); }
.tiles { display: grid; gap: 14px; margin-top: 20px;
  grid-template-columns: repeat(auto-fit, minmax(170px, 1fr)); }
.tile, figure, .table { margin: 0; padding: 14px 16px; background: var(--card); border: 1px solid var(--line);
  border-radius: 10px; }
.tile b { display: block; font-size: 22px; font-variant-numeric: tabular-nums; }
.tile span, figcaption span { color: var(--faint); font-size: 13px; }
figcaption { margin-bottom: 6px; font-weight: 600; } figcaption span { display: block; font-weight: 400; }
svg { display: block; width: 100%; height: auto; } svg text { fill: var(--faint); font-size: 11px; }
.axis { stroke: var(--line); fill: none; } .bar:hover { opacity: .7; }
.source { fill: var(--source); } .target { fill: var(--target); } .both { fill: var(--faint); }
.curve { fill: none; stroke-width: 2; } .curve.source { stroke: var(--source); fill: none; }
.curve.target { stroke: var(--target); fill: none; stroke-dasharray: 5 3; }
.table { overflow-x: auto; } table { width: 100%; border-collapse: collapse; }
th { text-align: left; font-size: 13px; color: var(--faint); font-weight: 500; }
th, td { padding: 6px 10px 6px 0; vertical-align: top; } .rule > td { border-top: 1px solid var(--line); }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.share { width: 130px; } .share i { display: block; height: 8px; margin-top: 8px; min-width: 2px;
  border-radius: 4px; background: var(--gone); }
.example td { width: 50%; padding: 2px 14px 2px 0; font-size: 13px; overflow-wrap: anywhere; }
summary { cursor: pointer; color: var(--faint); font-size: 13px; } code { color: var(--faint); }
"""


def page(report: dict[str, Any]) -> str:
    """The page.

    Args:
        report: what `nmt.data.report.data_report` returns.
    """
    source, target = report["source"], report["target"]
    title = f"{report['name']} ({source['lang']}–{target['lang']})"
    charts = [
        _figure(
            f"Source lengths ({side['lang']})" if key == "source" else f"Target lengths ({side['lang']})",
            f"pieces a sentence; {side['mean_length']:.1f} in the mean, {side['max_length']:,} at most",
            histogram(side["lengths"]["edges"], side["lengths"]["counts"], key),
        )
        for key, side in (("source", source), ("target", target))
    ]
    charts.append(
        _figure(
            "Length ratio",
            "target pieces over source pieces; the bars at the ends hold what is beyond",
            histogram(report["ratios"]["edges"], report["ratios"]["counts"], "both", logarithmic=True),
        )
    )
    charts.append(
        _figure(
            "How often pieces occur",
            f"count by rank, both logarithmic; source {_used(source)}, target (dashed) {_used(target)}",
            curves({"source": source["frequencies"], "target": target["frequencies"]}),
        )
    )
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>Data: {_text(title)}</title>",
            f"<style>{_STYLE}</style></head><body>",
            f"<h1>{_text(title)}</h1>",
            f"<p>training pairs of {_text(report['corpus'])}, cleaned and cut into pieces</p>",
            _tiles(report),
            "<h2>What is there</h2>",
            f'<div class="grid">{"".join(charts)}</div>',
            "<h2>What was dropped, and why</h2>",
            _rules(report),
            "</body></html>",
            "",
        ]
    )


def histogram(
    edges: Sequence[float], counts: Sequence[int], colour: str, *, logarithmic: bool = False
) -> str:
    """Bars as SVG.

    Args:
        edges: (n + 1,) ascending; bar i stands between edges i and i + 1.
        counts: (n,) heights.
        colour: class of the bars.
        logarithmic: whether the horizontal axis is, with a mark at each power of two.
    """
    # The last bin of lengths may be far wider than the others: every bar is drawn as wide as the first.
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
    """Lines as SVG, both axes logarithmic.

    Args:
        series: class of the line → its points (x, y), all of them 1 or more.
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


def _tiles(report: dict[str, Any]) -> str:
    source, target = report["source"], report["target"]
    tiles = [
        (
            f"{report['kept']:,}",
            f"pairs kept of {report['pairs']:,} ({_percent(report['kept'], report['pairs'])})",
        ),
        (
            f"{source['tokens'] + target['tokens']:,}",
            f"pieces; {source['tokens']:,} source, {target['tokens']:,} target",
        ),
        (f"{report['duplicates']:,}", f"duplicates dropped, and {report['near_duplicates']:,} near ones"),
        (f"{report['leaked']:,}", "pairs dropped for standing in validation or test"),
        (
            _percent(source["byte_pieces"] + target["byte_pieces"], source["tokens"] + target["tokens"]),
            f"of the pieces are bytes: {source['byte_share']:.2%} source, {target['byte_share']:.2%} target",
        ),
    ]
    cells = (
        f'<div class="tile"><b>{_text(value)}</b><span>{_text(words)}</span></div>' for value, words in tiles
    )
    return f'<div class="tiles">{"".join(cells)}</div>'


def _rules(report: dict[str, Any]) -> str:
    if not report["rules"]:
        return '<div class="table">Nothing.</div>'
    largest = max(rule["dropped"] for rule in report["rules"])
    rows = []
    for rule in report["rules"]:
        width = 100 * rule["dropped"] / largest
        rows.append(
            f'<tr class="rule"><td>{_text(rule["words"])} <code>{_text(rule["name"])}</code></td>'
            f'<td class="number">{rule["dropped"]:,}</td>'
            f'<td class="number">{_percent(rule["dropped"], report["pairs"])}</td>'
            f'<td class="share"><i style="width:{width:.0f}%"></i></td></tr>'
        )
        if rule["examples"]:
            rows.append(f'<tr><td colspan="4">{_examples(report, rule["examples"])}</td></tr>')
    heads = ("", "pairs of which …"), ("number", "dropped"), ("number", "of all"), ("", "")
    head = "".join(f'<th class="{kind}">{words}</th>' for kind, words in heads)
    return f'<div class="table"><table><tr>{head}</tr>{"".join(rows)}</table></div>'


def _examples(report: dict[str, Any], examples: Sequence[Sequence[str]]) -> str:
    # Of several languages nobody knows which one an example is in.
    languages = ["" if "," in report[side]["lang"] else report[side]["lang"] for side in ("source", "target")]
    rows = "".join(
        '<tr class="example">'
        + "".join(
            f'<td dir="auto" lang="{_text(lang)}">{_text(visible(side)) or "<code>(empty)</code>"}</td>'
            for lang, side in zip(languages, pair, strict=True)
        )
        + "</tr>"
        for pair in examples
    )
    return f"<details open><summary>examples</summary><table>{rows}</table></details>"


def _figure(title: str, words: str, chart: str) -> str:
    return f"<figure><figcaption>{_text(title)}<span>{_text(words)}</span></figcaption>{chart}</figure>"


def _svg(parts: Sequence[str]) -> str:
    return f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">{"".join(parts)}</svg>'


def _rule_at(y: float, words: str) -> str:
    """A line across the chart with its label to the left."""
    return (
        f'<path class="axis" d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}"/>'
        f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{words}</text>'
    )


def _label(x: float, words: str) -> str:
    """A label under the chart."""
    return f'<text x="{x:.1f}" y="{_HEIGHT - _BOTTOM + 17}" text-anchor="middle">{words}</text>'


def _scale(low: float, high: float, begin: float, end: float) -> Callable[[float], float]:
    return lambda value: begin + (value - low) / (high - low) * (end - begin)


def _round_ticks(top: float) -> list[int]:
    """Some four round numbers from 0 to `top`."""
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


def _used(side: dict[str, Any]) -> str:
    return f"uses {side['pieces_used']:,} of {side['vocab_size']:,}"


def _percent(part: float, whole: float) -> str:
    return f"{part / max(whole, 1):.2%}"


def _text(words: str) -> str:
    return escape(words)
