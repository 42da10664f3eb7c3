"""The fields of a protobuf message, read without the package `protobuf`."""

from __future__ import annotations

from collections.abc import Iterator


def protobuf_fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yields the fields of a protobuf message in order: number, and integer or bytes."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        kind = tag & 7
        if kind == 0:
            value, at = _varint(message, at)
            yield tag >> 3, value
            continue
        size, at = (8, at) if kind == 1 else (4, at) if kind == 5 else _varint(message, at)
        yield tag >> 3, message[at : at + size]
        at += size


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        value |= (byte & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if shift > 70:
            raise ValueError("not a SentencePiece model")
        if byte < 0x80:
            return value, at
