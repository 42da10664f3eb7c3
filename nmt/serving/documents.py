"""Files of clients: the formats that are translated, and the translated files until they are fetched."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from starlette.exceptions import HTTPException

from nmt.config.serving import LimitsConfig
from nmt.serving.bodies import UploadedFile
from nmt.serving.html import HtmlText
from nmt.serving.refusals import Refusal, missing
from nmt.serving.requests import Lines, Text, TranslateRequest, read_texts

FORMATS: Mapping[str, Callable[[str], Lines]] = {
    ".txt": Text.of,
    ".srt": Text.of,
    ".html": HtmlText.of,
    ".htm": HtmlText.of,
}
"""The end of a name → the division of such a text into lines. Another format is one more row."""
_SECONDS = 600.0  # for which a file is retained


@dataclass(frozen=True)
class FileRequest:
    """A file to translate: its name, and its text as the only one of a request."""

    name: str
    request: TranslateRequest


def read_file(fields: Mapping[str, Any], limits: LimitsConfig) -> FileRequest:
    """Returns a checked request to translate the field `file` of a multipart form.

    Raises:
        HTTPException: the file is missing, has another format or is not UTF-8 (400), or is too long (413).
    """
    file = fields.get("file")
    if not isinstance(file, UploadedFile):
        raise missing("file")
    if not file.name:
        raise Refusal(400, "Invalid request: empty file", "file: has no name.")
    name = PurePath(file.name.replace("\\", "/")).name
    ending = PurePath(name).suffix.lower()
    if ending not in FORMATS:
        hint = f"file: its name must end in one of {', '.join(FORMATS)}."
        raise Refusal(400, "Invalid request: file format not supported", hint)
    try:
        text = file.content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise HTTPException(400, "file: is not valid UTF-8.") from None
    is_html = FORMATS[ending] is HtmlText.of
    return FileRequest(name, read_texts([text], FORMATS[ending], fields, limits, markup=is_html))


class TranslatedFiles:
    """Translated files in memory, until they are old or too many; `max_bytes` is the most that they have."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes, self._num_bytes = max_bytes, 0
        self._files: dict[str, tuple[float, str, bytes]] = {}  # the oldest first

    def add(self, name: str, text: str) -> str:
        """Adds a file, and returns the key with which clients fetch it."""
        content = text.encode()
        self._num_bytes += len(content)
        key = secrets.token_urlsafe(16)
        self._files[key] = time.monotonic(), name, content
        self._drop()
        return key

    def get(self, key: str) -> tuple[str, bytes] | None:
        """Returns name and content of a file; None if it is unknown or was dropped."""
        self._drop()
        file = self._files.get(key)
        return None if file is None else file[1:]

    def _drop(self) -> None:
        for key, (since, _, content) in [*self._files.items()]:
            if self._num_bytes <= self._max_bytes and time.monotonic() < since + _SECONDS:
                return
            del self._files[key]
            self._num_bytes -= len(content)
