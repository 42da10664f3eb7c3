"""The data report as one self-contained HTML page: tiles, charts, samples, and the table of rules."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import Any

from nmt.data.cleaning.cleaner import visible
from nmt.data.preparation.charts import curves, histogram

_SPACE = "▁"  # the space in SentencePiece

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
.spaced { margin-top: 12px; }
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
.share { width: 32%; min-width: 110px; padding: 6px 0 6px 12px; }
.share i { display: block; height: 8px; margin-top: 8px; border-radius: 4px; background: var(--line); }
.share b { display: block; height: 8px; min-width: 3px; border-radius: 4px; background: var(--gone); }
.example td { width: 50%; padding: 2px 14px 2px 0; font-size: 13px; overflow-wrap: anywhere; }
.kept > td { width: 50%; padding: 5px 18px 6px 0; line-height: 1.75; overflow-wrap: anywhere; }
.kept + .kept > td { border-top: 1px solid var(--line); }
.kept u { margin-right: 2px; text-decoration: none; border-bottom: 2px solid var(--line); }
.kept .source u { border-color: var(--source); } .kept .target u { border-color: var(--target); }
.pieces span { display: inline-block; margin: 0 6px 7px 0; padding: 1px 8px; font-size: 13px;
  border: 1px solid var(--line); border-radius: 6px; overflow-wrap: anywhere; }
.pieces small { margin-left: 5px; color: var(--faint); font-variant-numeric: tabular-nums; }
summary { cursor: pointer; color: var(--faint); font-size: 13px; }
@media (max-width: 560px) { .share { display: none; } }
code { color: var(--faint); font-size: 12.5px; overflow-wrap: anywhere; }
"""


def page(report: dict[str, Any]) -> str:
    """Returns the page.

    Args:
        report: the result of `nmt.data.preparation.report.data_report`.
    """
    source, target = report["source"], report["target"]
    title = f"{report['name']} ({source['lang']}–{target['lang']})"
    charts = [
        _figure(
            f"Source lengths ({side['lang']})" if key == "source" else f"Target lengths ({side['lang']})",
            f"pieces per sentence; mean {side['mean_length']:.1f}, maximum {side['max_length']:,}",
            histogram(side["lengths"]["edges"], side["lengths"]["counts"], key),
        )
        for key, side in (("source", source), ("target", target))
    ]
    charts.append(
        _figure(
            "Length ratio",
            "target pieces / source pieces; the outer bars include all values beyond them",
            histogram(report["ratios"]["edges"], report["ratios"]["counts"], "both", logarithmic=True),
        )
    )
    charts.append(
        _figure(
            "Frequencies of pieces",
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
            f"<p>training pairs of {_text(report['corpus'])}, cleaned and segmented into pieces</p>",
            _tiles(report),
            "<h2>Lengths and frequencies</h2>",
            f'<div class="grid">{"".join(charts)}</div>',
            "<h2>Dropped pairs</h2>",
            _rules(report),
            "<h2>Sample of the retained pairs</h2>",
            _sample(report),
            *_vocabularies(report["vocabularies"]),
            "</body></html>",
            "",
        ]
    )


def _tiles(report: dict[str, Any]) -> str:
    source, target = report["source"], report["target"]
    tiles = [
        (
            f"{report['kept']:,}",
            f"pairs retained of {report['pairs']:,} ({_percent(report['kept'], report['pairs'])})",
        ),
        (
            f"{source['tokens'] + target['tokens']:,}",
            f"pieces; {source['tokens']:,} source, {target['tokens']:,} target",
        ),
        (
            f"{report['duplicates']:,}",
            f"duplicates dropped, and {report['near_duplicates']:,} near-duplicates",
        ),
        (f"{report['leaked']:,}", "pairs dropped because a side occurs in validation or test"),
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
        return '<div class="table">No pairs were dropped.</div>'
    rows = []
    for rule in report["rules"]:
        share = 100 * rule["dropped"] / max(report["pairs"], 1)
        setting = f"<code>{_text(rule['option'])}</code>" if rule["option"] else "<code>always</code>"
        rows.append(
            f'<tr class="rule"><td>{_text(rule["words"])}<div>{setting}</div></td>'
            f'<td class="number">{rule["dropped"]:,}</td>'
            f'<td class="number">{_text(_percent(rule["dropped"], report["pairs"]))}</td>'
            f'<td class="share"><i><b style="width:{share:.2f}%"></b></i></td></tr>'
        )
        if rule["examples"]:
            rows.append(f'<tr><td colspan="4">{_examples(report, rule["examples"])}</td></tr>')
    heads = (
        ("", "reason, and the option that sets it"),
        ("number", "dropped"),
        ("number", "share"),
        ("share", f"of all {report['pairs']:,} pairs"),
    )
    head = "".join(f'<th class="{kind}">{words}</th>' for kind, words in heads)
    return f'<div class="table"><table><tr>{head}</tr>{"".join(rows)}</table></div>'


def _examples(report: dict[str, Any], examples: Sequence[Sequence[str]]) -> str:
    languages = _languages(report)
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


def _languages(report: dict[str, Any]) -> list[str]:
    # With several languages, the language of an example is unknown.
    return ["" if "," in report[side]["lang"] else report[side]["lang"] for side in ("source", "target")]


def _sample(report: dict[str, Any]) -> str:
    """Returns the sample of retained pairs, with each piece underlined."""
    rows, corpus = [], ""
    several = len({pair["corpus"] for pair in report["sample"]}) > 1
    for pair in report["sample"]:
        if several and pair["corpus"] != corpus:
            corpus = pair["corpus"]
            rows.append(f'<tr><th colspan="2">{_text(corpus)}</th></tr>')
        cells = (
            f'<td class="{side}" dir="auto" lang="{_text(lang)}">{_underlined(pair[side])}</td>'
            for side, lang in zip(("source", "target"), _languages(report), strict=True)
        )
        rows.append(f'<tr class="kept">{"".join(cells)}</tr>')
    words = "a uniform sample, as the model reads it; each underlined part is one piece"
    return f'<div class="table"><p>{words}</p><table>{"".join(rows)}</table></div>'


def _underlined(pieces: Sequence[str]) -> str:
    parts = []
    for piece in pieces:
        text = piece.removeprefix(_SPACE)
        if text != piece:
            parts.append(" ")
        parts.append(f"<u>{_text(visible(text)) or '&nbsp;'}</u>")
    return "".join(parts).strip()


def _vocabularies(vocabularies: dict[str, Any]) -> Iterator[str]:
    titles = {"both": "The vocabulary", "source": "Source vocabulary", "target": "Target vocabulary"}
    kinds = {
        "most_frequent": "Most frequent",
        "middle": "Middle ranks",
        "rarest": "Least frequent",
        "longest": "Longest",
    }
    for side, found in vocabularies.items():
        yield f"<h2>{titles[side]}</h2>"
        yield (
            f"<p>{found['size']:,} pieces; {found['unused']:,} do not occur (special pieces and bytes not "
            f"counted); {_SPACE} is a space, the number is the count of the piece</p>"
        )
        cards = "".join(
            f'<figure class="pieces"><figcaption>{words}</figcaption>'
            + "".join(
                f"<span>{_text(visible(piece))}<small>{count:,}</small></span>"
                for piece, count in found[kind]
            )
            + "</figure>"
            for kind, words in kinds.items()
        )
        yield f'<div class="grid spaced">{cards}</div>'


def _figure(title: str, words: str, chart: str) -> str:
    return f"<figure><figcaption>{_text(title)}<span>{_text(words)}</span></figcaption>{chart}</figure>"


def _used(side: dict[str, Any]) -> str:
    return f"uses {side['pieces_used']:,} of {side['vocab_size']:,}"


def _percent(part: float, whole: float) -> str:
    share = part / max(whole, 1)
    return "<0.01%" if 0 < share < 0.00005 else f"{share:.2%}"


def _text(words: str) -> str:
    return escape(words)
