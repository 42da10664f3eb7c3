"""Errors of requests, in the words of LibreTranslate where it has the same error."""

from __future__ import annotations

from starlette.exceptions import HTTPException


class Refusal(HTTPException):
    """An error whose message clients of LibreTranslate know; `hint` names the remedy in another field."""

    def __init__(self, status: int, message: str, hint: str) -> None:
        super().__init__(status, message)
        self.hint = hint


def missing(name: str, hint: str = "") -> Refusal:
    """Returns the error of a request without a field that it needs."""
    return Refusal(400, f"Invalid request: missing {name} parameter", hint)
