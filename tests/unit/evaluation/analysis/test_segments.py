"""Single sentences: the worst, the most different, and the calibration of the model's score."""

from __future__ import annotations

import pytest

from nmt.evaluation.analysis.model_signs import ModelFacts
from nmt.evaluation.analysis.result import analyse
from nmt.evaluation.analysis.segments import Calibration, chosen_segments, sentence_chrf
from nmt.evaluation.analysis.signs import Texts, counts_of
from nmt.evaluation.metrics import metrics_for

REFERENCES = ["das alte Haus am Fluss", "Ja", "eine sehr lange Reise nach Hamburg", "der Hund schläft"]
TEXTS = Texts([REFERENCES], ["s"] * 4, "en", "de")
OURS = ["das alte Haus am Fluss", "no", "x x x x x x x", "der Hund schläft tief"]
THEIRS = ["das Haus", "no", "eine sehr lange Reise nach Hamburg", "der Hund schläft"]


def test_worst_and_most_different_sentences() -> None:
    chrf = [sentence_chrf(system, TEXTS) for system in (OURS, THEIRS)]
    assert [round(value, 1) for value in chrf[0]] == [100.0, 0.0, 0.0, 93.4]
    signs = [counts_of(TEXTS, system) for system in (OURS, THEIRS)]
    worst, won, lost, examples = chosen_segments(TEXTS, [OURS, THEIRS], chrf, signs, [1, 3])
    assert (signs[0]["loops"].rows, examples) == ([2], [])
    shown = chosen_segments(TEXTS, [REFERENCES], [[100.0] * 4], signs[:1], [0])[-1]
    assert [one.row for one in shown] == [0, 2]
    rows = [[segment.row for segment in part] for part in (worst, won, lost)]
    assert rows == [[2, 1, 3], [0], [2, 3]]  # a long sentence before a short one with the same chrF
    assert worst[0].as_dict() == {
        "line": 3, "source": "s", "references": ["eine sehr lange Reise nach Hamburg"],
        "hypothesis": "x x x x x x x", "chrf": 0.0, "signs": ["loops"],
        "baseline": "eine sehr lange Reise nach Hamburg", "baseline_chrf": 100.0,
        "baseline_signs": [],
    }  # fmt: skip


def test_the_weights_choose_and_the_values_order() -> None:
    """Of 11 sentences, the one whose loss by the root of its length is least is left out."""
    texts = Texts([["a" * 100, *["b"] * 10]])
    worst = chosen_segments(texts, [["c"] * 11], [[70.0, 0.0, *range(1, 10)]], [{}])[0]
    assert [(one.row, one.chrf) for one in worst] == [*((n, float(n - 1)) for n in range(1, 10)), (0, 70.0)]


def test_examples_are_limited_by_sign_and_by_characters() -> None:
    for length, expected in ((1, 50), (20_000, 8)):  # 300,000 characters of two texts
        lines = [f"{'1' * length} a a a a"] * 100
        texts = Texts([["1" * length] * 100])
        shown = chosen_segments(texts, [lines], [[100.0] * 100], [counts_of(texts, lines)])[-1]
        assert len(shown) == expected


def test_the_best_of_several_references_counts() -> None:
    assert sentence_chrf(["b c"], Texts([["a"], ["b c"]])) == [100.0]


SCORES = [-0.1 * row for row in range(19)] + [-9.0]


def test_calibration() -> None:
    found = Calibration.of(SCORES, [*range(20, 0, -1)], [None, *SCORES[1:]])
    assert found.correlation == pytest.approx(1.0)
    bins = [(round(low, 2), round(high, 2), chrf, number) for low, high, chrf, number in found.bins]
    assert bins == [(-9.0, -1.0, 5.5, 10), (-0.9, 0.0, 15.5, 10)]
    assert found.as_dict()["low_lines"] == [20]
    assert Calibration.of(SCORES, [1.0] * 20, []).correlation is None
    assert Calibration.of([-1.0, -1.0, -2.0], [3.0, 1.0, 2.0], []).correlation == pytest.approx(0.0)


def test_the_analysis_of_a_model_and_a_baseline() -> None:
    metrics = metrics_for("de", keys=["chrf"])
    found = analyse(
        OURS, TEXTS, metrics, baseline=THEIRS, model=ModelFacts([-0.1, -2.0, -3.0, -0.2])
    ).as_dict()
    assert found["sentence_chrf"][1][2:] == [100.0, 100.0]
    assert found["calibration"]["correlation"] == pytest.approx(0.9486833)
    assert [[segment["line"] for segment in found[name]] for name in ("won", "lost")] == [[1], [3, 4]]
    assert analyse(OURS, TEXTS, metrics).as_dict()["calibration"] is None
