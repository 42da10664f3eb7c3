"""The data report as one self-contained HTML page, rendered from `templates/page.html`."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from nmt.copying.strings import WORD_START
from nmt.data.cleaning.cleaner import visible
from nmt.data.preparation.charts import curves, histogram

if TYPE_CHECKING:
    from jinja2 import Environment


def page(report: dict[str, Any]) -> str:
    """Returns the page.

    Args:
        report: the result of `nmt.data.preparation.report.data_report`.
    """
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
    """Returns the environment of the templates. Jinja2 is imported here, as few commands need it."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("nmt.data.preparation"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(thousands=_thousands, percent=_percent, px=_px, visible=visible)
    return environment


def _thousands(count: int) -> str:
    """Returns a count with separators between groups of three digits."""
    return f"{count:,}"


def _percent(part: float, whole: float) -> str:
    share = part / max(whole, 1)
    return "<0.01%" if 0 < share < 0.00005 else f"{share:.2%}"


def _px(coordinate: float) -> str:
    """Returns a coordinate in a chart, in pixels."""
    return f"{coordinate:.1f}"
