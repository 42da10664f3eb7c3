"""Pages of reports: the skeleton with its sections, and hostile text that remains text."""

from __future__ import annotations

import json
import re

import pytest

from nmt.evaluation.tables import Table
from nmt.reports.page import Page, Section
from nmt.runtime.charts import grouped_bars, lines, round_ticks

HOSTILE = """</script><script>alert(1)</script>'"&\u202e""" + "x" * 10_000


def test_hostile_text_remains_text() -> None:
    table = Table([HOSTILE, "a"], [[f"  {HOSTILE}", HOSTILE], [HOSTILE]], [HOSTILE])
    sections = [
        Section("first", HOSTILE, "summary", {"sentences": [HOSTILE], "tiles": [(HOSTILE, HOSTILE)]}),
        Section("second", "Two", "tables", {"tables": [(HOSTILE, table)]}),
    ]
    page = Page(HOSTILE, sections, {"text": HOSTILE}).html()
    assert "alert(1)</script>" not in page and "\u202e" not in page.split('<script type="application')[0]
    assert page.count("<script") == page.count("</script>") == 2
    data = re.search(r'id="data">(.*?)</script>', page, re.DOTALL)
    assert data and json.loads(data[1]) == {"text": HOSTILE}
    assert (
        re.findall(r'<a href="#(\w+)">', page)
        == ["first", "second"]
        == re.findall(r'<section id="(\w+)"', page)
    )
    assert not re.search(r'(?:src|href)="(?!#|data:,)', page)


def test_charts_are_inside_their_area() -> None:
    bars = grouped_bars(["1-5", "6-10"], {"s1": [10, None], "s2": [-5, 20]}, "BLEU", pale=[1])
    assert [bar.title for bar in bars.bars] == ["1-5: 10", "1-5: -5", "6-10: 20"]
    assert [bar.name for bar in bars.bars] == ["s1", "s2", "s2 pale"]
    top = grouped_bars(["a"], {"s1": [53.6]}, "BLEU")
    assert (top.vertical_ticks[-1], top.bars[0].y > top.top) == ((top.top, "60"), True)
    assert bars.bars[2].height == pytest.approx(4 * bars.bars[1].height)
    chart = lines({"s1": [(0, 3.5), (1000, 2.5)], "s2": [(500, 3.0)]}, "loss", markers=True)
    assert chart.curves[0].points == [(chart.left, chart.top), (chart.right, chart.bottom)]
    assert chart.curves[0].titles == ["0: 3.5", "1k: 2.5"]
    assert [tick.label for tick in chart.horizontal_ticks] == ["0", "200", "400", "600", "800", "1k"]
    assert lines({"s1": [(1, 2)]}, "one point").curves[0].points[0][0] == (chart.left + chart.right) / 2


def test_round_ticks() -> None:
    assert round_ticks(0, 937, 1) == [0, 200, 400, 600, 800]
    assert round_ticks(0, 3, 1) == [0, 1, 2, 3]
    assert round_ticks(-0.7, 0.4) == [-0.5, -0.25, 0, 0.25]
    assert round_ticks(-0.7, 0.4, outside=True) == [-0.75, -0.5, -0.25, 0, 0.25, 0.5]
    assert round_ticks(0, 1000, outside=True) == [0, 200, 400, 600, 800, 1000]
