"""Signs that the model shows: unaligned words against the references, and improbable translations."""

from __future__ import annotations

import pytest

from nmt.decoding.translation import ScoredText, TranslatedPart, Translation
from nmt.evaluation.analysis.model_signs import ModelFacts, shown_unaligned, token_scores, unaligned_shares
from nmt.evaluation.analysis.result import analyse
from nmt.evaluation.analysis.signs import Texts


def test_shares_of_unaligned_words() -> None:
    lines = ["a b c d e", "a b c d", "", "a b c d e f g h"]
    links = [((0, 0), (4, 2)), (), (), tuple((0, word) for word in range(8))]
    assert unaligned_shares(lines, links) == [pytest.approx(0.6), None, None, 0.0]


@pytest.mark.parametrize(
    "references, limit",  # the outliers of Iglewicz and Hoaglin: 0.2 + 0.1 * 3.5 / 0.6745, at least a half
    [([0.0] * 9, 0.5), ([0.1, 0.2, 0.3, None], 0.7189), ([0.5, 0.9], 1.7378), ([None], 0.5)],
)
def test_the_limit_depends_on_the_references(references: list[float | None], limit: float) -> None:
    lines = [None, limit - 1e-3, limit + 1e-3]
    assert shown_unaligned(lines, references)[0] == [None, False, True]


def test_unrelated_translations_are_a_fault_of_the_system_that_wrote_them() -> None:
    references = [f"der alte Hund schläft {row}" for row in range(40)]
    related, unrelated = [0.1] * 40, [0.8] * 20 + [0.1] * 20
    model = ModelFacts([-1.0] * 40, [-0.1] * 39 + [-7.0], [related, unrelated, [0.6, *[0.1] * 39]])
    found = analyse(references, Texts([references]), {}, baseline=references, model=model)
    assert (found.faults, found.signs["unaligned"].references) == ([], 1)
    assert found.baseline_signs["unaligned"].is_fault
    assert found.calibration is not None and found.calibration.low == [39]
    assert "unaligned" not in analyse(references, Texts([references]), {}).signs


def test_scores_per_token_are_without_the_length_penalty() -> None:
    def translated(score: float, num_tokens: int, parts: int = 0) -> Translation:
        part = TranslatedPart("a", "b", score)
        return Translation((ScoredText("b", score),), num_tokens=num_tokens, parts=(part,) * parts)

    lines = [translated(-4.0, 7), translated(-4.0, 7, parts=2), translated(0.0, 0)]
    assert token_scores(lines, 1.0) == [pytest.approx(-4 * 2 / 7), None, None]
    assert token_scores(lines[:1], 0.0) == [pytest.approx(-4 / 7)]
