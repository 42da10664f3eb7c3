"""Minimum Bayes risk decoding."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from toys import CopyModel, WordTokenizer, translator_of

from nmt.config import DecodingConfig, EvaluationConfig, TrainConfig
from nmt.decoding.candidates import Utility, best_candidates, expected_utilities
from nmt.decoding.translator import Translator
from nmt.errors import UserError
from nmt.evaluation.metrics import METRICS
from nmt.evaluation.task import configured_utility


def overlap(hypotheses: Sequence[str], references: Sequence[str], sources: Sequence[str]) -> list[float]:
    """The number of characters of the hypothesis that are in the reference; not symmetric."""
    return [
        sum(character in reference for character in hypothesis) + len(source) / 100
        for hypothesis, reference, source in zip(hypotheses, references, sources, strict=True)
    ]


TEXTS = st.lists(st.text("abc", max_size=3), min_size=1, max_size=5)


@given(st.lists(st.tuples(TEXTS, st.text("xy", max_size=2)), max_size=4))
def test_equal_to_the_naive_mean(sentences: list[tuple[list[str], str]]) -> None:
    candidates, sources = [texts for texts, _ in sentences], [source for _, source in sentences]
    found = expected_utilities(candidates, sources, Utility(overlap))
    naive = [
        [
            sum(overlap([hypothesis], [reference], [source])[0] for reference in texts) / len(texts)
            for hypothesis in texts
        ]
        for texts, source in sentences
    ]
    assert len(found) == len(naive)
    for one, other in zip(found, naive, strict=True):
        assert one == pytest.approx(other)
    for values, best in zip(found, best_candidates(found), strict=True):
        assert values[best] == max(values) and best == values.index(max(values))


def test_each_pair_of_different_texts_is_compared_once() -> None:
    calls: list[int] = []

    def counted(*texts: Sequence[str]) -> list[float]:
        calls.append(len(texts[0]))
        return overlap(*texts)

    found = expected_utilities([["ab", "b", "ab"], ["c"]], ["x", "y"], Utility(counted))
    assert calls == [5]
    assert found == [[pytest.approx(5 / 3 + 0.01), pytest.approx(1.01), pytest.approx(5 / 3 + 0.01)], [1.01]]
    assert expected_utilities([], [], Utility(counted)) == [] and calls == [5]


def test_metrics_as_utilities() -> None:
    hypotheses, references = ["a big dog", "a cat", "a cat"], ["a big dog", "a dog", ""]
    for key, kind in METRICS.items():
        if key == "comet":
            continue
        utility = configured_utility(DecodingConfig(samples=2, mbr=key), "de")
        assert utility is not None and utility.one_by_one
        values = utility.score(hypotheses, references, ["", "", ""])
        assert values[0] > values[1] > values[2], kind
    bleu = configured_utility(DecodingConfig(samples=2, mbr="bleu"), "de")
    assert bleu is not None and bleu.score(["a dog"], ["a dog"], [""]) == [pytest.approx(100.0)]
    assert configured_utility(DecodingConfig(), "de") is None


def test_a_utility_that_is_not_finite_is_the_lowest(monkeypatch: pytest.MonkeyPatch) -> None:
    values = iter([float("nan"), 2, 10**400, 1.0])
    monkeypatch.setattr(
        METRICS["chrf"], "sentence_utilities", lambda *texts: [next(values) for _ in texts[1]]
    )
    utility = configured_utility(DecodingConfig(samples=2, mbr="chrf"), "de")
    assert utility is not None
    assert utility.score(["a", "b", "c"], ["a", "a", "a"], ["", "", ""]) == [-math.inf, 2.0, -math.inf]
    with pytest.raises(UserError, match="metric chrf: has 1 scores of 2 sentences."):
        monkeypatch.setattr(METRICS["chrf"], "sentence_utilities", lambda *texts: [1.0])
        utility.score(["a", "b"], ["a", "a"], ["", ""])


def test_wrong_options() -> None:
    with pytest.raises(UserError, match=r"decoding.mbr=chrf: has one candidate to choose from."):
        DecodingConfig(mbr="chrf")
    with pytest.raises(UserError, match=r"decoding.mbr=\[chrff\]"):
        configured_utility(DecodingConfig(mbr="chrff", samples=4), "de")
    with pytest.raises(UserError, match="evaluation.comet.command: not set"):
        configured_utility(DecodingConfig(mbr="comet", samples=4), "de", EvaluationConfig())
    with pytest.raises(UserError, match="decoding.mbr=chrf: is not available in training."):
        TrainConfig(decoding=DecodingConfig(samples=4, mbr="chrf"))


def translator(utility: Utility | None, **options: Any) -> Translator:
    tokenizer = WordTokenizer()
    tokenizer.encode_source(["one two three four five"])
    model, config = CopyModel(12), DecodingConfig(**options)
    return translator_of([model], tokenizer, config, utility=utility)  # type: ignore[arg-type, list-item]


@pytest.mark.parametrize("options", [{"samples": 6}, {"nbest": 3, "beam_size": 3}])
@pytest.mark.parametrize("workers", [1, 2])
def test_the_translator_returns_the_best_candidate(options: dict[str, int], workers: int) -> None:
    lines = ["one two", "", "five four three", *["two one"] * 40]
    plain = translator(None, workers=workers, **options).translate(lines)
    utility = Utility(overlap)
    found = translator(utility, mbr="mine", workers=workers, **options).translate(lines)
    assert len(found) == len(lines)
    for line, all_of, one in zip(lines, plain, found, strict=True):
        texts = [hypothesis.text for hypothesis in all_of.hypotheses]
        if not line:
            assert one == all_of
            continue
        [expected] = expected_utilities([texts], [line], utility)
        [best] = best_candidates([expected])
        [chosen] = one.hypotheses
        assert (chosen.text, chosen.score) == (texts[best], pytest.approx(expected[best]))
        assert one.num_tokens == len(chosen.text.split()) + 1
