"""The description of the server in the format of OpenAPI 3.1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nmt import __version__
from nmt.config.serving import LimitsConfig

_ERRORS = {
    400: "A field is missing or wrong; the message names it.",
    403: "The API key is missing or wrong.",
    408: "The request did not arrive in time.",
    413: "The body or the texts are too large.",
    415: "The body is neither JSON nor a form.",
    500: "The translation failed.",
    503: "The queue is full, or the server is stopping. Retry-After has the seconds to wait.",
    504: "The translation took too long.",
}


def description(
    languages: Sequence[Mapping[str, Any]], limits: LimitsConfig, *, needs_key: bool
) -> dict[str, Any]:
    """Returns the description of a server.

    Args:
        languages: as `/languages` lists them.
        limits: of the server.
        needs_key: whether requests need a key.
    """
    sources = [one["code"] for one in languages if one["targets"]]
    targets = sorted({code for one in languages for code in one["targets"]})
    request = _object(_request_fields(sources, targets, limits), ["q", *(["api_key"] if needs_key else [])])
    answers = {
        "200": {"description": "The translation.", "content": _json_of(_answer_schema())},
        **{
            str(status): {
                "description": words,
                "content": _json_of(_object({"error": _string("The reason.")})),
            }
            for status, words in _ERRORS.items()
        },
    }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "nmt-serve",
            "version": __version__,
            "description": "Translates text with models of nmt. The requests and answers are those of "
            "LibreTranslate; the fields scores, attention, beam_size and length_penalty are added.",
        },
        "paths": {
            "/translate": {
                "post": {
                    "summary": "Translates a text, or a list of texts, line by line.",
                    "requestBody": {
                        "required": True,
                        "content": {
                            "application/json": {"schema": request},
                            "application/x-www-form-urlencoded": {"schema": request},
                        },
                    },
                    "responses": answers,
                }
            },
            "/languages": _get("The languages: code, name, and codes of targets.", {"type": "array"}),
            "/frontend/settings": _get("What the page needs to know of the server.", {"type": "object"}),
            "/health": _get("`ready`, or `draining` with the status 503.", {"type": "object"}),
            "/metrics": _get("Figures in the text format of Prometheus.", None),
            "/openapi.json": _get("This description.", {"type": "object"}),
        },
    }


def _request_fields(
    sources: Sequence[str], targets: Sequence[str], limits: LimitsConfig
) -> dict[str, Mapping[str, Any]]:
    text = {"type": "string"}
    return {
        "q": {
            "description": f"The text, or a list of texts. At most {limits.characters:,} characters and "
            f"{limits.sentences:,} lines.",
            "oneOf": [text, {"type": "array", "items": text}],
        },
        "source": _string(
            "Language of the text. It may be left out, or be auto, if the target language leaves no choice.",
            enum=["auto", *sources],
        ),
        "target": _string(
            "Language of the translation. Not needed if only one model matches.", enum=[*targets]
        ),
        "format": _string("Format of the text.", enum=["text"]),
        "alternatives": {
            "type": "integer",
            "minimum": 0,
            "maximum": limits.alternatives,
            "description": "Number of further translations.",
        },
        "api_key": _string("The key, if the server needs one."),
        "scores": {"type": "boolean", "description": "Whether `lines` is in the answer, with scores."},
        "attention": {
            "type": "boolean",
            "description": "Whether `lines` is in the answer, with scores, pieces and attention. At most "
            f"{limits.attention_characters:,} characters.",
        },
        "beam_size": {
            "type": "integer",
            "minimum": 1,
            "maximum": limits.beam_size,
            "description": "Hypotheses per line in the beam; at least one more than `alternatives`.",
        },
        "length_penalty": {
            "type": "number",
            "minimum": 0,
            "maximum": 10,
            "description": "Scores are divided by ((5 + tokens) / 6) to this power.",
        },
    }


def _answer_schema() -> dict[str, Any]:
    pieces = {
        "type": "array",
        "items": {"type": "string"},
        "description": "Tokens, the end of the line last.",
    }
    weights = {"type": "array", "items": {"type": "array", "items": {"type": "number"}}}
    translation = _object(
        {
            "text": _string("The translation of the line."),
            "score": {"type": "number", "description": "Log-probability divided by the length penalty."},
            "pieces": pieces,
            "attention": {
                **weights,
                "description": "For each piece the weights of the pieces of the source.",
            },
        }
    )
    line = _object({"translations": {"type": "array", "items": translation}, "pieces": pieces})
    return _object(
        {
            "translatedText": _string("The translation; a list if `q` is a list, and so for all fields."),
            "alternatives": {"type": "array", "items": {"type": "string"}, "description": "Best first."},
            "lines": {"type": "array", "items": line, "description": "With `scores` or `attention`."},
            "warnings": {
                "type": "array",
                "items": {"type": "string"},
                "description": "Problems, such as a line that is too long and was cut.",
            },
        }
    )


def _object(properties: Mapping[str, Any], required: Sequence[str] = ()) -> dict[str, Any]:
    return {"type": "object", "properties": dict(properties), "required": [*required]}


def _string(words: str, **more: Any) -> dict[str, Any]:
    return {"type": "string", "description": words, **more}


def _json_of(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _get(summary: str, schema: Mapping[str, Any] | None) -> dict[str, Any]:
    content = {"text/plain": {}} if schema is None else _json_of(schema)
    return {"get": {"summary": summary, "responses": {"200": {"description": summary, "content": content}}}}
