"""Requests of translations, checked, and the answers to them: LibreTranslate's fields, and those of nmt."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from starlette.exceptions import HTTPException

from nmt.config.serving import LimitsConfig
from nmt.copying.strings import TAG
from nmt.decoding.translation import problems
from nmt.documents.html import read_html
from nmt.documents.text import Document, Text
from nmt.serving.refusals import Refusal, missing
from nmt.serving.served_models import SearchOptions

if TYPE_CHECKING:
    from nmt.decoding.translation import ScoredText, Translation

AUTO = "auto"
"""The source language of a request that leaves the choice to the server."""
_TRUE, _FALSE = ("true", "1", "yes", "on"), ("false", "0", "no", "off", "")
_MOST_TERMS, _LONGEST_TERM = 1000, 200
_SAMPLE = 1000  # characters from which a language is detected
_SAMPLE_LINES = 50


@dataclass(frozen=True)
class TranslateRequest:
    """A request of translations; the answer has the score of every line if `scores` is set.

    Attributes:
        texts: one or more texts, or none if the client gave an empty list.
        is_list: whether the client gave a list, so that the answer has lists, too.
        source: code of the source language; None or `auto`: any.
        target: code of the target language; None: any.
        num_characters: of all texts, as the client gave them.
        sample: the beginning of the texts, for the detection of their language.
        pairs: of a request of attention, each line with its translation; None: that of the model.
    """

    texts: Sequence[Document]
    is_list: bool
    source: str | None
    target: str | None
    options: SearchOptions
    scores: bool
    num_characters: int = 0
    sample: str = ""
    pairs: tuple[tuple[str, str | None], ...] = ()

    @property
    def lines(self) -> list[str]:
        """The lines of all texts."""
        return [line for text in self.texts for line in text.lines]


def read_request(fields: Mapping[str, Any], limits: LimitsConfig) -> TranslateRequest:
    """Returns a checked request. Unknown fields are ignored, as LibreTranslate does.

    Raises:
        HTTPException: a field is missing or wrong (400), or a text is too long (413). The message names the
            field.
    """
    value = fields.get("q")
    if value is None:
        raise missing("q")
    texts = _texts("q", value, limits)
    form = (text_of(fields, "format") or "text").lower()
    if form not in ("text", "html"):
        raise Refusal(400, f"{form[:40]} format is not supported", "format: use text or html.")
    reader = read_html if form == "html" else Text.of
    return read_texts(texts, reader, fields, limits, is_list=isinstance(value, list), markup=form == "html")


def read_pairs(fields: Mapping[str, Any], limits: LimitsConfig) -> TranslateRequest:
    """Returns a checked request of attention: the lines of `q`, each with that of `translation`.

    Raises:
        HTTPException: as for `read_request`, or `translation` is wrong (400).
    """
    request = read_request({**fields, "attention": True, "format": "text"}, limits)
    given = fields.get("translation")
    if given is None:
        return replace(request, pairs=tuple((line, None) for line in request.lines))
    texts = _texts("translation", given, limits)
    targets = [line for text in texts for line in Text.of(text).lines]
    if len(targets) != len(request.lines):
        raise HTTPException(
            400,
            f"translation: the number of lines is {len(targets):,}, and that of q {len(request.lines):,}. "
            "Give one for each.",
        )
    characters = request.num_characters + sum(map(len, texts))
    if characters > limits.attention_characters:
        raise _too_long_for_attention("q and translation have", characters, limits)
    return replace(request, pairs=tuple(zip(request.lines, targets, strict=True)))


def _texts(name: str, value: Any, limits: LimitsConfig) -> list[str]:
    """Returns the texts of a field, one or a list."""
    values = value if isinstance(value, list) else [value]
    if len(values) > limits.sentences:
        raise HTTPException(
            413, f"{name}: has {len(values):,} texts, and at most {limits.sentences:,} lines are allowed."
        )
    return [_unicode(name, text) for text in values]


def read_text(fields: Mapping[str, Any]) -> str:
    """Returns the beginning of the field `q`, a text or a list of texts, whose language is to be detected.

    Raises:
        HTTPException: the field is missing or wrong (400).
    """
    value = fields.get("q")
    if not value:
        raise missing("q")
    texts = value[:_SAMPLE_LINES] if isinstance(value, list) else [value]
    return sample_of([Text.of(_unicode("q", text)) for text in texts])


def read_texts(
    texts: Sequence[str],
    reader: Callable[[str], Document],
    fields: Mapping[str, Any],
    limits: LimitsConfig,
    *,
    is_list: bool = False,
    markup: bool = False,
) -> TranslateRequest:
    """Returns a checked request for texts, which `reader` divides into lines; see `read_request`."""
    characters = sum(map(len, texts))
    _check_characters(characters, limits)
    split = [reader(text) for text in texts]
    return request_of(split, characters, fields, limits, is_list=is_list, markup=markup)


def request_of(
    split: Sequence[Document],
    characters: int,
    fields: Mapping[str, Any],
    limits: LimitsConfig,
    *,
    is_list: bool = False,
    markup: bool = False,
) -> TranslateRequest:
    """Returns a checked request for texts in lines, with their number of characters; see `read_request`."""
    _check_characters(characters, limits)
    lines = sum(len(text.lines) for text in split)
    if lines > limits.sentences:
        raise HTTPException(413, f"q: has {lines:,} lines, and at most {limits.sentences:,} are allowed.")
    attention = _truth(fields, "attention")
    if attention and characters > limits.attention_characters:
        raise _too_long_for_attention("q has", characters, limits)
    penalty = _number(fields, "length_penalty", 0, 10)
    return TranslateRequest(
        texts=split,
        is_list=is_list,
        source=text_of(fields, "source"),
        target=text_of(fields, "target"),
        options=SearchOptions(
            beam_size=_integer(fields, "beam_size", 1, limits.beam_size),
            length_penalty=penalty,
            nbest=1 + _alternatives(fields, limits.alternatives),
            attention=attention,
            markup=markup,
            terms=_terms(fields.get("terminology")),
        ),
        scores=_truth(fields, "scores"),
        num_characters=characters,
        sample=sample_of(split),
    )


def _too_long_for_attention(subject: str, characters: int, limits: LimitsConfig) -> HTTPException:
    return HTTPException(
        413,
        f"attention: {subject} {characters:,} characters, and at most {limits.attention_characters:,} are "
        "allowed with attention.",
    )


def _check_characters(characters: int, limits: LimitsConfig) -> None:
    if characters > limits.characters:
        raise Refusal(
            413,
            f"Invalid request: request ({characters}) exceeds text limit ({limits.characters})",
            f"q: has {characters:,} characters, and at most {limits.characters:,} are allowed.",
        )


def sample_of(texts: Sequence[Document]) -> str:
    """Returns the beginning of texts, without the marks of their tags."""
    lines = itertools.islice((line for text in texts for line in text.lines), _SAMPLE_LINES)
    return TAG.sub("", " ".join(line[:_SAMPLE] for line in lines))[:_SAMPLE]


def _alternatives(fields: Mapping[str, Any], most: int) -> int:
    """Returns the number of further translations; a negative one is 0, as in LibreTranslate."""
    start = "Invalid request: alternatives parameter"
    try:
        number = _integer(fields, "alternatives", -math.inf, math.inf) or 0
    except HTTPException:
        raise Refusal(400, f"{start} is not a number", "alternatives: must be a whole number.") from None
    if number > most:
        raise Refusal(400, f"{start} must be <= {most}", f"alternatives: at most {most} are allowed.")
    return max(number, 0)


def _terms(value: Any) -> tuple[tuple[str, str], ...]:
    """Returns the terms of a request: an object of source terms and target terms, which a form has as JSON.

    Raises:
        HTTPException: the field has another form, or too many terms (400).
    """
    wrong = HTTPException(400, 'terminology: must be an object, such as {"source term": "target term"}.')
    if isinstance(value, str):
        if not value:
            return ()
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise wrong from None
    if value is None:
        return ()
    if not isinstance(value, dict):
        raise wrong
    if len(value) > _MOST_TERMS:
        raise HTTPException(
            400, f"terminology: has {len(value):,} terms. At most {_MOST_TERMS:,} are allowed."
        )
    terms = []
    for source, target in value.items():
        source, target = _unicode("terminology", source).strip(), _unicode("terminology", target).strip()
        if not source or not target or "\n" in target or max(len(source), len(target)) > _LONGEST_TERM:
            raise HTTPException(
                400,
                "terminology: a term must be one line with at most "
                f"{_LONGEST_TERM} characters, and must not be blank.",
            )
        terms.append((source, target))
    return tuple(sorted(terms))


def _unicode(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise HTTPException(400, f"{name}: must be text or a list of texts, not {_kind(value)}.")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise HTTPException(
            400, f"{name}: is not valid Unicode: it contains half of a surrogate pair."
        ) from None
    return value


def text_of(fields: Mapping[str, Any], name: str) -> str | None:
    """Returns a field that is text, or None if it is missing or empty. Raises `HTTPException` (400)."""
    value = fields.get(name)
    if value is None or value == "":
        return None
    if not isinstance(value, str):
        raise HTTPException(400, f"{name}: must be text, not {_kind(value)}.")
    return _unicode(name, value)


def is_auto(source: str | None) -> bool:
    """Returns whether a source language is left to the server."""
    return source is not None and source.lower() == AUTO


def _truth(fields: Mapping[str, Any], name: str) -> bool:
    """Returns a field that is true or false; a form has it as text."""
    value = fields.get(name)
    if value is None or isinstance(value, bool):
        return bool(value)
    if isinstance(value, str) and value.lower() in _TRUE + _FALSE:
        return value.lower() in _TRUE
    raise HTTPException(400, f"{name}: must be true or false.")


def _number(fields: Mapping[str, Any], name: str, low: float, high: float) -> float | None:
    """Returns a field that is a number; a form has it as text."""
    value = fields.get(name)
    if value is None or value == "":
        return None
    try:
        if isinstance(value, bool) or not isinstance(value, int | float | str) or len(str(value)) > 40:
            raise ValueError
        number = float(value)
    except ValueError:
        raise HTTPException(400, f"{name}: must be a number.") from None
    if not low <= number <= high:
        raise HTTPException(400, f"{name}: must be between {low:g} and {high:g}.")
    return number


def _integer(fields: Mapping[str, Any], name: str, low: float, high: float) -> int | None:
    number = _number(fields, name, low, high)
    if number is None:
        return None
    if not number.is_integer():  # nor infinite
        raise HTTPException(400, f"{name}: must be a whole number.")
    return int(number)


def _kind(value: Any) -> str:
    names = {bool: "true or false", int: "a number", float: "a number", dict: "an object", list: "a list"}
    return names.get(type(value), "null" if value is None else "a file")


def answer(
    request: TranslateRequest,
    results: Sequence[Translation],
    detection: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Returns the JSON object for the client, from the translation of each line of all texts, in order.

    `detection` is the detected language, if the client has asked for it by `source=auto`.
    """
    remaining = iter(results)
    texts = [(text, [next(remaining) for _ in text.lines]) for text in request.texts]
    attention = request.options.attention
    fields: dict[str, list[Any]] = {"translatedText": [_ranked(text, lines, 0) for text, lines in texts]}
    if request.options.nbest > 1:
        # Best first: the second of each line, the third, and so on.
        fields["alternatives"] = [
            [
                _ranked(text, lines, rank)
                for rank in range(1, max((len(line.hypotheses) for line in lines), default=1))
            ]
            for text, lines in texts
        ]
    if request.scores or attention:
        fields["lines"] = [[_line(line, attention) for line in lines] for _, lines in texts]
    warnings = [
        [problem for number, line in enumerate(lines, 1) for problem in problems(line, number)]
        for _, lines in texts
    ]
    if detection is not None:
        fields["detectedLanguage"] = [detection] * len(texts)
    if any(warnings):
        fields["warnings"] = warnings
    return {name: values if request.is_list else values[0] for name, values in fields.items()}


def _ranked(text: Document, lines: Sequence[Translation], rank: int) -> str:
    """Returns the translation of a text with this rank; a line with fewer translations has its best one."""
    return text.joined([line.hypotheses[rank if rank < len(line.hypotheses) else 0].text for line in lines])


def _line(translation: Translation, attention: bool) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "translations": [_hypothesis(hypothesis, attention) for hypothesis in translation.hypotheses]
    }
    if translation.parts:
        fields["parts"] = [
            {"source": part.source, "text": part.text, "score": round(part.score, 5)}
            for part in translation.parts
        ]
    if attention:
        fields["pieces"] = list(translation.source_pieces)
    return fields


def _hypothesis(hypothesis: ScoredText, attention: bool) -> dict[str, Any]:
    fields: dict[str, Any] = {"text": hypothesis.text, "score": round(hypothesis.score, 5)}
    if attention:
        rows = [] if hypothesis.attention is None else hypothesis.attention.tolist()
        fields["pieces"] = list(hypothesis.pieces)
        fields["attention"] = [[round(weight, 3) for weight in row] for row in rows]
    return fields
