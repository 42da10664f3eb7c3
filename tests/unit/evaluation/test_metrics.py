"""The registry of metrics: chrF++, a custom metric, its direction, and its significance test."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from nmt.config import EvaluationConfig
from nmt.errors import UserError
from nmt.evaluation.metrics import METRICS, Metric, Text, metrics_for
from nmt.evaluation.report import Report
from nmt.evaluation.scores import Scores, compare, score, score_groups

SOURCES = ["a b", "c d e", "f", "g h"]
HYPOTHESES = ["a", "c d", "f f f", ""]
REFERENCES = ["a b", "c d e", "f", "g h"]


class WordsLost(Metric):
    """The mean difference between the word counts of source and hypothesis; lower is better."""

    key, name, higher_is_better, digits, needs_sources = "words_lost", "lost", False, 3, True

    def score(self, hypotheses: Text, references: Sequence[Text], sources: Text) -> float:
        pairs = list(zip(hypotheses, sources, strict=True))
        return sum(abs(len(ours.split()) - len(source.split())) for ours, source in pairs) / len(pairs)


class WordsLostFast(WordsLost):
    """The same metric with sentence scores."""

    key = "words_lost_fast"

    def sentence_scores(self, hypotheses: Text, references: Sequence[Text], sources: Text) -> list[float]:
        pairs = zip(hypotheses, sources, strict=True)
        return [self.score([ours], references, [source]) for ours, source in pairs]


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for kind in (WordsLost, WordsLostFast):
        monkeypatch.setitem(METRICS, kind.key, kind)
    yield


def test_the_register() -> None:
    names = {key: (kind.name, kind.higher_is_better) for key, kind in METRICS.items()}
    assert names == {
        "bleu": ("BLEU", True),
        "chrf": ("chrF2", True),
        "chrfpp": ("chrF2++", True),
        "ter": ("TER", False),
        "comet": ("COMET", True),
        "words_lost": ("lost", False),
        "words_lost_fast": ("lost", False),
    }


def test_an_unknown_key_is_an_error_with_the_choices() -> None:
    with pytest.raises(UserError) as caught:
        metrics_for("de", EvaluationConfig(metrics=["bleu", "blue"]))
    assert str(caught.value) == (
        "evaluation.metrics=[bleu,blue]: there is no metric blue. Choose from bleu, chrf, chrfpp, ter, "
        "comet, words_lost, words_lost_fast."
    )
    with pytest.raises(UserError, match=r"^evaluation.metrics=\[\]: is empty\."):
        EvaluationConfig(metrics=[])


def test_chrf_plus_plus_is_sacrebleus_own() -> None:
    from sacrebleu.metrics.chrf import CHRF

    hypotheses = ["the cat sat on the mat", "a dog", "hello world again ."]
    references = ["the cat sat on a mat", "a dog", "hello world again."]
    twin = CHRF(word_order=2)
    expected = twin.corpus_score(hypotheses, [references]).score
    found = score(hypotheses, [references], metrics_for("de", EvaluationConfig(metrics=["chrfpp"])))
    assert found.as_dict() == {
        "chrfpp": expected,
        "signatures": {"chrfpp": str(twin.get_signature())},
        "sentences": 3,
    }
    assert expected == pytest.approx(CHRFPP, abs=1e-9)
    assert "|nc:6|nw:2|" in found.signatures["chrfpp"]


CHRFPP = 86.32581382344797


def test_a_metric_sees_the_sources() -> None:
    metrics = metrics_for("de", EvaluationConfig(metrics=["words_lost", "bleu"]))
    found = score(HYPOTHESES, [REFERENCES], metrics, sources=SOURCES)
    assert list(found.as_dict()) == ["words_lost", "bleu", "signatures", "sentences"]
    assert (found["words_lost"], found.signatures["words_lost"]) == (1.5, "nrefs:1")
    groups = score_groups(HYPOTHESES, [REFERENCES], ["x", "x", "y", "x"], metrics, sources=SOURCES)
    assert {label: scores["words_lost"] for label, scores in groups.items()} == {"x": 4 / 3, "y": 2.0}


def test_a_score_that_is_not_a_number_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WordsLost, "score", lambda *given: float("nan"))
    metrics = metrics_for("de", keys=["words_lost"])
    assert score(HYPOTHESES, [REFERENCES], metrics, sources=SOURCES)["words_lost"] is None


def test_the_table_of_other_metrics() -> None:
    values = {"bleu": 27.339, "chrf": 56.124, "chrfpp": 55.0, "words_lost": 1.5}
    found = Scores(values, dict.fromkeys(values, "s"), 4)
    assert Report("t", found, {"x": found}).table() == TABLE
    one = Report("t", Scores({"words_lost": 1.5}, {"words_lost": "s"}, 4)).table()
    assert "Lower lost is better.\n" in one
    unknown = Report("t", Scores({"gone": 1.5}, {"gone": "s"}, 4)).table()
    assert "gone|s\n" in unknown and "better" not in unknown


TABLE = """\
t

                  sentences     BLEU    chrF2  chrF2++     lost
all                       4    27.34    56.12    55.00    1.500
  x                       4    27.34    56.12    55.00    1.500

Higher BLEU, chrF2 and chrF2++ are better, and lower lost.
BLEU|s
chrF2|s
chrF2++|s
lost|s
"""


def test_scores_from_a_file() -> None:
    values = {"bleu": 1.5, "mine": None, "signatures": {"bleu": "b", "mine": "m"}, "sentences": 4}
    assert Scores.from_dict(values) == Scores({"bleu": 1.5, "mine": None}, values["signatures"], 4)
    for wrong in ({"bleu": "1"}, {"signatures": []}, {"sentences": "4"}):
        with pytest.raises(TypeError):
            Scores.from_dict({**values, **wrong})
    with pytest.raises(KeyError):
        Scores.from_dict({"bleu": 1.5})


@pytest.mark.parametrize("key", ["words_lost", "words_lost_fast"])
def test_a_difference_that_is_not_finite_is_omitted(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        WordsLost, "score", lambda self, hypotheses, *texts: 10**400 if "a" in hypotheses else 1
    )
    found = compare(
        ["a", "b"], ["c", "d"], [["e", "f"]], metrics_for("de", keys=[key]), 10, sources=["g", "h"]
    )
    assert found[key] is None and found.signatures == {}


def test_a_wrong_number_of_sentence_scores_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WordsLostFast, "sentence_scores", lambda *texts: [1.0])
    metrics = metrics_for("de", keys=["words_lost_fast"])
    with pytest.raises(
        UserError, match="metric words_lost_fast: has 1 scores of 2 sentences. Correct the metric."
    ):
        compare(["a", "b"], ["c", "d"], [["e", "f"]], metrics, 10, sources=["g", "h"])


class TestPairedBootstrap:
    """The paired bootstrap against sacreBLEU's samples and arithmetic."""

    SOURCES = ["a b c"] * 40
    GOOD = ["a b" if row % 4 == 0 else "a b c" for row in range(40)]
    BAD = ["a b" if row % 2 else "a b c" for row in range(40)]

    @pytest.mark.parametrize("key", ["words_lost", "words_lost_fast"])
    def test_rescored_sets_and_sentence_scores_agree(self, key: str) -> None:
        metrics = metrics_for("de", keys=[key])
        found = compare(self.GOOD, self.BAD, [self.SOURCES], metrics, 60, sources=self.SOURCES)
        draws = np.random.default_rng(12345).choice(40, size=(60, 40), replace=True)
        ours, theirs = (
            np.array([line == "a b" for line in text], float)[draws].mean(1) for text in (self.GOOD, self.BAD)
        )
        leads = np.abs(ours - theirs)
        difference = found[key]
        assert difference is not None
        assert (difference.baseline, difference.delta) == (0.5, -0.25)
        assert difference.p_value == (np.sum(leads - leads.mean() > 0.25) + 1) / 61
        assert difference.interval == pytest.approx(0.5 * (np.sort(ours)[-2] - np.sort(ours)[1]))
        assert difference.baseline_interval == pytest.approx(0.5 * (np.sort(theirs)[-2] - np.sort(theirs)[1]))
        assert found.signatures == {key: "nrefs:1|bs:60|seed:12345"}
        assert (found.resamples, found.seed) == (60, "12345")

    def test_it_agrees_with_sacrebleu(self) -> None:
        """On a metric of sacreBLEU, which has a faster test."""
        references = [f"sentence {row} is a little longer than the others" for row in range(20)]
        good = [
            line.replace("little", "bit") if row % 4 == 0 else line for row, line in enumerate(references)
        ]
        bad = [line.replace("longer", "short") if row % 2 else line for row, line in enumerate(references)]
        metric = metrics_for("en")["bleu"]
        expected, signature = metric.paired_test(good, bad, [references], [], 30)
        found, generic = Metric.paired_test(metric, good, bad, [references], [], 30)
        for field in ("baseline", "delta", "p_value", "interval", "baseline_interval"):
            assert getattr(found, field) == pytest.approx(getattr(expected, field), abs=1e-4), field
        assert set(generic.split("|")) == set(signature.split("|"))

        expected_p, signature = metric.randomised_test(good, bad, [references], [], 40)
        found_p, generic = Metric.randomised_test(metric, good, bad, [references], [], 40)
        assert found_p == expected_p == 7 / 41
        assert set(generic.split("|")) == set(signature.split("|")) >= {"ar:40", "seed:12345"}
        assert Metric.interval(metric, bad, [references], [], 30) == pytest.approx(
            metric.interval(bad, [references], [], 30), abs=1e-4
        )

    @pytest.mark.parametrize("trials", [None, 10])
    def test_a_system_does_not_differ_from_itself(self, trials: int | None) -> None:
        metrics = metrics_for("de", keys=["words_lost", "bleu"])
        texts = self.BAD, self.BAD, [self.SOURCES]
        compared = compare(*texts, metrics, 10, sources=self.SOURCES, trials=trials)
        for found in compared.differences.values():
            assert found is not None
            assert (found.delta, found.p_value) == (0.0, 1.0)
