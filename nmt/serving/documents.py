"""Files of clients: the formats that are translated, and the translated files until they are fetched."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from starlette.exceptions import HTTPException

from nmt.config import TranslateConfig
from nmt.config.serving import LimitsConfig
from nmt.documents.files import FILE_FORMATS, SUFFIXES, OpenFile, format_of_file, head_text, open_file
from nmt.documents.pair import Pair, TooManyLines
from nmt.documents.text import Text
from nmt.errors import UserError
from nmt.serving.bodies import UploadedFile
from nmt.serving.refusals import Refusal, missing
from nmt.serving.requests import TranslateRequest, is_auto, request_of, text_of

_SECONDS = 600.0  # for which a file is retained


@dataclass(frozen=True)
class FileRequest:
    """A file to translate: its name, and its lines as the only text of a request."""

    name: str
    file: OpenFile
    request: TranslateRequest


def read_file(fields: Mapping[str, Any], limits: LimitsConfig, target: str) -> FileRequest:
    """Returns a checked request to translate the field `file` of a multipart form.

    `target` is the target language if the form has none.

    Raises:
        HTTPException: the file is missing, has another format or is malformed (400), or is too long (413).
    """
    upload = fields.get("file")
    if not isinstance(upload, UploadedFile):
        raise missing("file")
    if not upload.name:
        raise Refusal(400, "Invalid request: empty file", "file: has no name.")
    name = PurePath(upload.name.replace("\\", "/")).name
    form = format_of_file(name, lambda: head_text(upload.content))
    if form is None:
        hint = f"file: its name must end in one of {', '.join(SUFFIXES)}."
        raise Refusal(400, "Invalid request: file format not supported", hint)
    source, is_table = text_of(fields, "source"), form in ("tsv", "csv")
    languages = Pair(
        None if source is None or is_auto(source) else source,
        text_of(fields, "target") or target,
        limits.sentences,
    )
    column = text_of(fields, "column") if is_table else None
    key = (text_of(fields, "key") if form in ("jsonl", "json") else None) or "text"
    if is_table and column is None:
        raise missing("column", "column: the number or the name of the column to translate.")
    try:
        config = TranslateConfig("", format=form, column=column, key=key)
        file = open_file(upload.content, name, config, languages)
    except TooManyLines as error:
        raise HTTPException(413, f"file: {error}") from None
    except UserError as error:
        raise HTTPException(400, str(error)) from None
    text = Text(file.lines, [""] * len(file.lines))
    request = request_of([text], sum(map(len, file.lines)), fields, limits, markup=form in FILE_FORMATS)
    return FileRequest(name, file, request)


class TranslatedFiles:
    """Translated files in memory, until they are old or too many; `max_bytes` is the most that they have."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes, self._num_bytes = max_bytes, 0
        self._files: dict[str, tuple[float, str, bytes]] = {}  # the oldest first

    def add(self, name: str, content: bytes) -> str:
        """Adds a file, and returns the key with which clients fetch it."""
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
