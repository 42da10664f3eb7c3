"""The data report as one self-contained HTML page, rendered from `templates/page.html`, with its charts."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from nmt.copying.strings import WORD_START
from nmt.runtime.charts import histogram, logarithmic_lines
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
                **{
                    name: histogram(
                        side["lengths"]["edges"], side["lengths"]["counts"], name, f"{name} lengths"
                    )
                    for name, side in (("source", source), ("target", target))
                },
                "ratios": histogram(
                    ratios["edges"], ratios["counts"], "both", "length ratios", logarithmic=True
                ),
                "frequencies": logarithmic_lines(
                    {"source": source["frequencies"], "target": target["frequencies"]},
                    "frequencies of pieces by rank",
                ),
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
