"""The answer to a request of translations: LibreTranslate's fields, and those of nmt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from nmt.decoding.translation import problems
from nmt.serving.requests import Text, TranslateRequest

if TYPE_CHECKING:
    from nmt.decoding.translation import ScoredText, Translation


def answer(request: TranslateRequest, results: Sequence[Translation]) -> dict[str, Any]:
    """Returns the JSON object for the client.

    Args:
        request: the request.
        results: the translation of each line of all its texts, in order.
    """
    of_texts: list[Sequence[Translation]] = []
    begin = 0
    for text in request.texts:
        of_texts.append(results[begin : begin + len(text.lines)])
        begin += len(text.lines)
    pairs = [*zip(request.texts, of_texts, strict=True)]
    fields: dict[str, list[Any]] = {"translatedText": [_best(text, found) for text, found in pairs]}
    if request.options.nbest > 1:
        fields["alternatives"] = [_alternatives(text, found) for text, found in pairs]
    if request.scores or request.options.attention:
        fields["lines"] = [[_line(one, request.options.attention) for one in found] for found in of_texts]
    warnings = [_warnings(found) for found in of_texts]
    if any(warnings):
        fields["warnings"] = warnings
    return {name: values if request.is_list else values[0] for name, values in fields.items()}


def _best(text: Text, found: Sequence[Translation]) -> str:
    return text.joined([one.hypotheses[0].text for one in found])


def _alternatives(text: Text, found: Sequence[Translation]) -> list[str]:
    """Returns the further translations of a text, best first: the second of each line, the third, and so on.

    A line that has fewer translations has its best one instead.
    """
    most = max(len(one.hypotheses) for one in found)
    return [
        text.joined([one.hypotheses[rank if rank < len(one.hypotheses) else 0].text for one in found])
        for rank in range(1, most)
    ]


def _line(translation: Translation, attention: bool) -> dict[str, Any]:
    found: dict[str, Any] = {"translations": [_hypothesis(one, attention) for one in translation.hypotheses]}
    if attention:
        found["pieces"] = list(translation.source_pieces)
    return found


def _hypothesis(hypothesis: ScoredText, attention: bool) -> dict[str, Any]:
    found: dict[str, Any] = {"text": hypothesis.text, "score": round(hypothesis.score, 5)}
    if attention:
        weights = hypothesis.attention
        found["pieces"] = list(hypothesis.pieces)
        found["attention"] = (
            [] if weights is None else [[round(one, 3) for one in row] for row in weights.tolist()]
        )
    return found


def _warnings(found: Sequence[Translation]) -> list[str]:
    return [problem for number, one in enumerate(found, 1) for problem in problems(one, number)]
