"""The report: literal tables, and the JSON."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from nmt.evaluation.report import Report
from nmt.evaluation.scores import Comparison, Difference, Scores

SIGNATURES = {
    "bleu": "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0",
    "chrf": "nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:2.6.0",
    "ter": "nrefs:1|case:lc|tok:tercom|norm:no|punct:yes|asian:no|version:2.6.0",
}
WHOLE = Scores({"bleu": 27.339, "chrf": 56.124, "ter": 160.5}, SIGNATURES, 3003)
NEWS = Scores({"bleu": 30.0, "chrf": 60.0, "ter": 58.0}, SIGNATURES, 2000)
TED = Scores({"bleu": 9.5, "chrf": 40.25, "ter": 90.0}, SIGNATURES, 1003)
COMPARISON = Comparison(
    {
        "bleu": Difference(baseline=26.5, delta=0.839, p_value=0.012, interval=0.55, baseline_interval=0.5),
        "chrf": Difference(baseline=56.5, delta=-0.376, p_value=0.34, interval=0.4, baseline_interval=0.45),
        "ter": Difference(baseline=160.5, delta=0.0, p_value=1.0, interval=1.25, baseline_interval=1.5),
    },
    signatures=SIGNATURES,
    resamples=1000,
    seed="12345",
)


@pytest.mark.parametrize(
    ("trials", "p_value", "shown"),
    [(None, 1 / 1001, "≤ 0.001"), (None, 2 / 1001, "0.002"), (10_000, 1 / 10_001, "≤ 0.0001")],
)
def test_the_smallest_p_value_is_a_limit(trials: int | None, p_value: float, shown: str) -> None:
    difference = Difference(26.5, 0.8, p_value, 0.5, 0.5)
    compared = replace(COMPARISON, differences={"bleu": difference, "ter": None}, trials=trials)
    assert (compared.shown_p_value("bleu"), compared.shown_p_value("ter")) == (shown, "-")


PLAIN = """\
runs/base on wmt14 (test), en-de

                  sentences     BLEU    chrF2      TER
hypotheses             3003    27.34    56.12   160.50

Higher BLEU and chrF2 are better, and lower TER.
BLEU|nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0
chrF2|nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:2.6.0
TER|nrefs:1|case:lc|tok:tercom|norm:no|punct:yes|asian:no|version:2.6.0
"""

FULL = """\
ours.de on reference.de

                  sentences     BLEU    chrF2      TER
all                    3003    27.34    56.12   160.50
  95% interval                 ±0.55    ±0.40    ±1.25
  news                 2000    30.00    60.00    58.00
  (no label)           1003     9.50    40.25    90.00
baseline               3003    26.50    56.50   160.50
  95% interval                 ±0.50    ±0.45    ±1.50
difference                     +0.84    -0.38    +0.00
  p-value                      0.012    0.340    1.000

Higher BLEU and chrF2 are better, and lower TER. The p-value is the probability
of such a difference between two equally good systems, by paired bootstrap
resampling (1000 resamples, seed 12345).
BLEU|nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0
chrF2|nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:2.6.0
TER|nrefs:1|case:lc|tok:tercom|norm:no|punct:yes|asian:no|version:2.6.0
"""


def test_plain_table() -> None:
    assert Report("runs/base on wmt14 (test), en-de", WHOLE).table() == PLAIN


def test_table_with_groups_and_baseline() -> None:
    report = Report("ours.de on reference.de", WHOLE, {"news": NEWS, "": TED}, COMPARISON)
    assert report.table() == FULL


def test_labels_can_not_control_a_terminal() -> None:
    table = Report("\u202et", WHOLE, {"\x1b[31mred\t\u202e": NEWS}).table()
    assert table.startswith("\\u202et\n")
    row = next(line for line in table.splitlines() if "red" in line)
    assert row == "  \\x1b[31mred\\t\\u202e         2000    30.00    60.00    58.00"


def test_long_labels_leave_the_numbers_in_80_columns() -> None:
    table = Report("t", WHOLE, {"parliamentary proceedings " * 4: NEWS, "x": TED}).table()
    assert max(map(len, table.splitlines())) == 80
    rows = [line for line in table.splitlines() if line.startswith("  ")]
    assert rows[1] == "  parliamentary proceedings parliamenta...       2000    30.00    60.00    58.00"
    assert rows[2].endswith("       1003     9.50    40.25    90.00")


def test_json_keeps_the_shape_of_results_json() -> None:
    assert Report("t", WHOLE).as_dict() == {"title": "t", **WHOLE.as_dict()}


def test_json_with_everything() -> None:
    report = Report("t", WHOLE, {"news": NEWS}, COMPARISON, {"split": "test"}).as_dict()
    assert json.loads(json.dumps(report)) == report
    assert report["groups"] == {"news": NEWS.as_dict()}
    assert report["baseline"]["bleu"] == {
        "baseline": 26.5,
        "delta": 0.839,
        "p_value": 0.012,
        "interval": 0.55,
        "baseline_interval": 0.5,
    }
    assert report["split"] == "test"


def test_a_p_value_of_few_sentences_comes_with_a_warning() -> None:
    few = Scores({"bleu": 1.0, "chrf": 1.0, "ter": 1.0}, SIGNATURES, 99)
    assert "With fewer than 100 sentences" in " ".join(Report("t", few, {}, COMPARISON).table().split())
    assert "fewer than" not in Report("t", few).table()


def test_a_report_without_ter() -> None:
    whole, group = (replace(scores, values={**scores.values, "ter": None}) for scores in (WHOLE, TED))
    comparison = replace(COMPARISON, differences={**COMPARISON.differences, "ter": None})
    report = Report("title", whole, {"news": NEWS, "ted": group}, comparison)
    lines = report.table().splitlines()
    assert sum(line.endswith("        -") for line in lines) == 7  # all, ted, baseline and their differences
    assert "TER is omitted: a line has more than 1,000 words." in " ".join(lines)
    assert f"TER|{SIGNATURES['ter']}" in lines
    kept = json.loads(json.dumps(report.as_dict()))
    assert kept["ter"] is kept["groups"]["ted"]["ter"] is kept["baseline"]["ter"] is None
    assert kept["groups"]["news"]["ter"] == 58.0


BEFORE = """\
after

                  sentences     BLEU    chrF2      TER
all                    3003    27.34    58.12    62.00
  before                       27.00    58.20    62.00
  difference                   +0.34    -0.08    +0.00
  news                 2000    30.00    60.00    58.00
    before                     29.50        -    57.00
    difference                 +0.50        -    +1.00
  ted                  1003     9.50    40.25    90.00
"""


def test_the_scores_before_stand_below_those_of_the_same_text() -> None:
    old = replace(WHOLE, values={"bleu": 27.0, "chrf": 58.2, "ter": 62.0})
    old_news = replace(NEWS, values={"bleu": 29.5, "chrf": None, "ter": 57.0})
    new = replace(WHOLE, values={"bleu": 27.34, "chrf": 58.12, "ter": 62.0})
    before = Report("before", old, {"news": old_news})
    table = Report("after", new, {"news": NEWS, "ted": TED}, before=before).table()
    assert table.startswith(BEFORE)
    assert "before: the model in start_from." in " ".join(table.split())


SETS = """\
runs/base on both (test), 2 sets

                  sentences     BLEU    chrF2      TER
news                   2000    30.00    60.00    58.00
  before                       20.00    50.00        -
  difference                  +10.00   +10.00        -
  short                1003     9.50    40.25    90.00
mean                   1003     9.50    40.25    90.00
mean                   3003    19.75    50.12    74.00
  before                       20.00    50.00        -
  difference                   -0.25    +0.12        -

Higher BLEU and chrF2 are better, and lower TER. before: the model in
start_from.
BLEU|nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0 (news)
BLEU|tok:ja-mecab (news, short)
BLEU|tok:zh (mean)
chrF2|nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:2.6.0
TER|nrefs:1|case:lc|tok:tercom|norm:no|punct:yes|asian:no|version:2.6.0
"""


def test_named_sets_have_rows_and_signatures_and_their_mean() -> None:
    japanese, chinese = (
        replace(TED, signatures=SIGNATURES | {"bleu": f"tok:{name}"}) for name in ("ja-mecab", "zh")
    )
    old = Scores({"bleu": 20.0, "chrf": 50.0, "ter": None}, SIGNATURES, 2000)
    news = Report("news", NEWS, {"short": japanese})
    sets = {"news": news, "mean": Report("mean", chinese)}  # a set may have any name
    report = Report.of_sets("runs/base on both (test), 2 sets", sets)
    before = Report.of_sets("", {"news": Report("news", old)})
    results = report.results()
    assert json.loads(json.dumps(results)) == {
        **{"bleu": 19.75, "chrf": 50.125, "ter": 74.0, "signatures": {}, "sentences": 3003},
        "sets": {
            "news": NEWS.as_dict() | {"groups": {"short": japanese.as_dict()}},
            "mean": chinese.as_dict(),
        },
    }
    assert Report.from_results(report.title, results, before.results()).table() == SETS


def test_a_single_named_set_has_no_row_of_a_mean() -> None:
    table = Report.of_sets("t", {"news": Report("news", NEWS)}).table().splitlines()
    assert [line.split()[0] for line in table[2:5] if line] == ["sentences", "news"]


def test_a_mean_lacks_a_score_that_a_set_lacks() -> None:
    lacking = replace(TED, values={**TED.values, "ter": None})
    assert Report.of_sets("", {"a": Report("a", NEWS), "b": Report("b", lacking)}).scores["ter"] is None


def test_a_set_without_a_name_is_the_report() -> None:
    assert Report.of_sets("t", {"": Report("", NEWS)}) == Report("t", NEWS)
