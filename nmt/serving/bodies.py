"""Bodies of requests: the fields of a JSON object, a form or a multipart form, and those of the address."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from email.parser import HeaderParser
from typing import Any
from urllib.parse import parse_qsl

from starlette.exceptions import HTTPException

_FIELDS = 10_000  # most fields of a form
_PART_HEADER = 4096  # bytes


@dataclass(frozen=True)
class UploadedFile:
    """A file of a multipart form."""

    name: str
    content: bytes


def read_fields(body: bytes, content_type: str, query: bytes = b"") -> dict[str, Any]:
    """Returns the fields of a request: those of its address, and those of its body, which come first.

    Raises:
        HTTPException: the address or the body is not valid (400), or the body has another type (415).
    """
    if not body and query and not _is_json(_kind(content_type)):
        return _of_form(query)
    return _of_form(query) | read_body(body, content_type)


def read_body(body: bytes, content_type: str) -> dict[str, Any]:
    """Returns the fields of a body: a JSON object, or a form. Without a Content-Type the body is JSON.

    Raises:
        HTTPException: the body is not valid (400), or has another type (415).
    """
    kind = _kind(content_type)
    if kind == "application/x-www-form-urlencoded":
        return _of_form(body)
    if kind == "multipart/form-data":
        return _collected(_parts(body, content_type))
    if not _is_json(kind) and kind not in ("", "text/plain"):
        raise HTTPException(
            415,
            f"Content-Type {kind[:80]!a} is not supported. Use application/json, multipart/form-data or "
            "application/x-www-form-urlencoded.",
        )
    try:
        fields = json.loads(body.decode(), parse_constant=_not_json)
    except UnicodeDecodeError:
        raise HTTPException(400, "The body is not valid UTF-8.") from None
    except RecursionError:
        raise HTTPException(400, "The body is not valid JSON: it is nested too deeply.") from None
    except ValueError as error:
        raise HTTPException(400, f"The body is not valid JSON: {error}.") from None
    if not isinstance(fields, dict):
        raise HTTPException(400, 'The body must be a JSON object, such as {"q": "text"}.')
    return fields


def _kind(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


def _is_json(kind: str) -> bool:
    return kind in ("application/json", "text/json") or (
        kind.startswith("application/") and kind.endswith("+json")
    )


def _not_json(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON value")


def _of_form(body: bytes) -> dict[str, Any]:
    try:
        pairs = parse_qsl(
            body.decode(), keep_blank_values=True, errors="strict", max_num_fields=_FIELDS, separator="&"
        )
    except UnicodeDecodeError:
        raise HTTPException(400, "The form is not valid UTF-8.") from None
    except ValueError:
        raise HTTPException(400, f"The form has more than {_FIELDS:,} fields.") from None
    return _collected(pairs)


def _collected(pairs: Iterable[tuple[str, str | UploadedFile]]) -> dict[str, Any]:
    """Returns fields by name. The last value of a field is retained, but several `q` become a list."""
    fields: dict[str, Any] = {}
    texts: list[str | UploadedFile] = []
    for name, value in pairs:
        if name == "q":
            texts.append(value)
        else:
            fields[name] = value
    if texts:
        fields["q"] = texts if len(texts) > 1 else texts[0]
    return fields


def _parts(body: bytes, content_type: str) -> Iterable[tuple[str, str | UploadedFile]]:
    """Yields name and value of each part of a multipart form (RFC 7578)."""
    malformed = HTTPException(400, "The body is not a valid multipart form.")
    try:
        boundary = _parameter("content-type", content_type, "boundary").encode("latin-1")
    except UnicodeEncodeError:
        raise malformed from None
    if not 1 <= len(boundary) <= 70:
        raise malformed
    delimiter = b"\r\n--" + boundary
    whole = b"\r\n" + body  # the first delimiter may be at the beginning
    if whole.count(delimiter) > _FIELDS:
        raise HTTPException(400, f"The form has more than {_FIELDS:,} fields.")
    _, *parts = whole.split(delimiter)
    if not parts or not parts[-1].startswith(b"--"):
        raise malformed
    for part in parts[:-1]:
        head, separator, content = part.lstrip(b" \t").partition(b"\r\n\r\n")
        if not separator or not head.startswith(b"\r\n") or len(head) > _PART_HEADER:
            raise malformed
        try:
            headers = HeaderParser().parsestr(head.removeprefix(b"\r\n").decode())
            disposition = headers.get("content-disposition", "")
            name = _parameter("content-disposition", disposition, "name")
            if _parameter("content-disposition", disposition, "filename", missing=None) is not None:
                filename = _parameter("content-disposition", disposition, "filename")
                yield name, UploadedFile(filename, content)
            else:
                yield name, content.decode()
        except UnicodeDecodeError:
            raise HTTPException(400, "The form is not valid UTF-8.") from None


def _parameter(header: str, value: str, name: str, missing: str | None = "") -> Any:
    """Returns a parameter of a header; `missing` if there is none."""
    from email.message import Message
    from email.utils import collapse_rfc2231_value

    message = Message()
    message[header] = " ".join(value.splitlines())
    found = message.get_param(name, missing, header=header)
    return found if found is None else collapse_rfc2231_value(found)
