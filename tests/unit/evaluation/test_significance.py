"""Significance: identical, better and worse systems, and agreement with sacreBLEU."""

from __future__ import annotations

import json

import pytest
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.significance import PairedTest

from nmt.errors import UserError
from nmt.evaluation.metrics import metrics_for
from nmt.evaluation.scores import compare, score

REFERENCES = [f"sentence number {number} is a little longer than the others ." for number in range(40)]
GOOD = [line.replace("little", "bit") if row % 4 == 0 else line for row, line in enumerate(REFERENCES)]
BAD = [
    line.replace("longer than", "shorter like") if row % 2 else line for row, line in enumerate(REFERENCES)
]


def test_a_system_does_not_differ_from_itself() -> None:
    found = compare(GOOD, GOOD, REFERENCES, metrics_for("en"), resamples=50)
    for difference in (found["bleu"], found["chrf"], found["ter"]):
        assert (difference.delta, difference.p_value) == (0.0, 1.0)
        assert difference.interval == difference.baseline_interval


def test_a_clearly_better_system_is_told_so() -> None:
    found = compare(GOOD, BAD, REFERENCES, metrics_for("en"), resamples=100)
    ours, theirs = score(GOOD, REFERENCES, metrics_for("en")), score(BAD, REFERENCES, metrics_for("en"))
    assert found["bleu"].baseline == theirs["bleu"]
    assert found["bleu"].delta == ours["bleu"] - theirs["bleu"] > 0
    assert found["ter"].delta == ours["ter"] - theirs["ter"] < 0
    assert found["bleu"].p_value == pytest.approx(1 / 101)  # none of the 100 resamples is that far away
    assert found["bleu"].interval > 0


def test_the_sides_are_not_swapped() -> None:
    there = compare(GOOD, BAD, REFERENCES, metrics_for("en"), resamples=50)
    back = compare(BAD, GOOD, REFERENCES, metrics_for("en"), resamples=50)
    assert there["bleu"].delta == -back["bleu"].delta
    assert there["bleu"].p_value == back["bleu"].p_value


def test_numbers_are_sacrebleus_own() -> None:
    found = compare(GOOD, BAD, REFERENCES, metrics_for("en"), resamples=50)
    systems = [("baseline", BAD), ("system", GOOD)]
    signatures, results = PairedTest(
        systems, {"BLEU": BLEU(force=True)}, [REFERENCES], test_type="bs", n_samples=50
    )()
    baseline, system = results["BLEU"]
    assert found["bleu"].p_value == system.p_value
    assert found["bleu"].interval == float(system.ci)
    assert found["bleu"].baseline_interval == float(baseline.ci)
    assert found.signatures["bleu"] == str(signatures["BLEU"])


def test_seed_and_resamples_are_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    found = compare(GOOD, BAD, REFERENCES, metrics_for("en"), resamples=20)
    assert (found.resamples, found.seed) == (20, "12345")
    assert "bs:20|seed:12345" in found.signatures["ter"]
    assert json.loads(json.dumps(found.as_dict())) == found.as_dict()
    monkeypatch.setenv("SACREBLEU_SEED", "7")
    assert compare(GOOD, BAD, REFERENCES, metrics_for("en"), resamples=20).seed == "7"


def test_the_same_question_gets_the_same_answer() -> None:
    assert compare(GOOD, BAD, REFERENCES, metrics_for("en"), 20) == compare(
        GOOD, BAD, REFERENCES, metrics_for("en"), 20
    )


def test_texts_must_match() -> None:
    with pytest.raises(UserError, match=r"hypotheses has 40, baseline has 39, references has 40\."):
        compare(GOOD, BAD[:-1], REFERENCES, metrics_for("en"))


def test_without_ter_where_a_line_is_too_long_for_it() -> None:
    """The long line may be in any of the three texts."""
    long = [" ".join(["word"] * 1001), *REFERENCES[1:]]
    for texts in ([long, BAD, REFERENCES], [GOOD, long, REFERENCES], [GOOD, BAD, long]):
        found = compare(*texts, metrics_for("en"), resamples=10)
        assert found["ter"] is None
        assert found["bleu"].p_value > 0
        assert set(found.signatures) == {"bleu", "chrf"}
        assert json.loads(json.dumps(found.as_dict()))["ter"] is None
