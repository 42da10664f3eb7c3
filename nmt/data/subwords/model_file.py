"""A SentencePiece model as a message: its fields, and the normaliser of the text that it encodes.

A model holds its pieces, the options of its training, and its normaliser. Both sides may have the same
pieces, each with a normaliser of its own: their models differ in that section alone. Fields are numbered as
in sentencepiece_model.proto.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from struct import pack

from nmt.config import Normalization, Segmentation

_TRAINER, _NORMALIZER = 2, 3
_USER_SYMBOL = 31  # a field of the trainer's section


@dataclass(frozen=True)
class Normalizer:
    """The normaliser of a model.

    Attributes:
        name: its rule, such as `nmt_nfkc`.
        keeps_spaces: whether runs of spaces within a line are retained. SentencePiece joins them otherwise.
    """

    name: str
    keeps_spaces: bool

    @property
    def is_lossless(self) -> bool:
        """Whether encoding and decoding retain the text of a line, except canonical equivalence with NFC."""
        return self.keeps_spaces and self.name in (Normalization.identity.name, Normalization.nfc.name)


def normalizer_of(model: bytes) -> Normalizer:
    """Returns the normaliser of a model. Raises `ValueError` if it is not a SentencePiece model."""
    values = dict(protobuf_fields(submessage(model, _NORMALIZER)))
    name = values.get(1, b"")
    return Normalizer(name.decode() if isinstance(name, bytes) else "", values.get(4, 1) == 0)


def lossless(rule: Normalization, model: bytes) -> bytes:
    """Returns the section of a normaliser that retains all text: `identity`, or `nfc`.

    A vocabulary composes text by itself if the name is `nfc`. Other programs need the table of `model`.
    """
    table = dict(protobuf_fields(normalizer_section(model))).get(2, b"")
    parts = [_field(1, rule.name.encode())]
    if isinstance(table, bytes) and table:
        parts.append(_field(2, table))
    return b"".join(parts) + b"\x20\x00"  # field 4, remove_extra_whitespaces: false


def normalizer_section(model: bytes) -> bytes:
    """Returns the section of a model that describes its normaliser."""
    return submessage(model, _NORMALIZER)


def with_normalizer(model: bytes, section: bytes) -> bytes:
    """Returns a model with the same pieces and another normaliser."""
    return _with_section(model, _NORMALIZER, section)


def with_pieces(model: bytes, symbols: Iterable[str], scores: Mapping[str, float]) -> bytes:
    """Returns a model with more pieces after its own: user symbols, then pieces with scores."""
    names = [symbol.encode() for symbol in symbols]
    trainer = submessage(model, _TRAINER) + b"".join(_field(_USER_SYMBOL, name) for name in names)
    pieces = [_field(1, name) + b"\x18\x04" for name in names]  # field 3, type: USER_DEFINED
    pieces += [_field(1, name.encode()) + b"\x15" + pack("<f", score) for name, score in scores.items()]
    return _with_section(model, _TRAINER, trainer) + b"".join(_field(1, piece) for piece in pieces)


def _with_section(model: bytes, number: int, section: bytes) -> bytes:
    before, found, after = model.rpartition(_field(number, submessage(model, number)))
    if not found:
        raise ValueError("it lacks the options of its training or its normaliser")
    return before + _field(number, section) + after


def have_same_pieces(model: bytes, other: bytes) -> bool:
    """Returns whether two models differ at most in their normalisers."""
    section = normalizer_section(other)
    return model == other or (bool(section) and with_normalizer(model, section) == other)


def _field(number: int, content: bytes) -> bytes:
    return _number(number << 3 | 2) + _number(len(content)) + content


def _number(value: int) -> bytes:
    """Returns a number as a varint."""
    coded = bytearray()
    while value > 0x7F:
        coded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*coded, value])


def user_symbols(model: bytes) -> list[str]:
    """Reads `trainer_spec.user_defined_symbols` (fields 2 and 31 of sentencepiece_model.proto)."""
    fields = protobuf_fields(submessage(model, _TRAINER))
    return [value.decode() for number, value in fields if number == _USER_SYMBOL and isinstance(value, bytes)]


def segmentation_of(model: bytes) -> Segmentation:
    """Returns the training method of a SentencePiece model.

    It is `trainer_spec.model_type` (fields 2 and 3 of sentencepiece_model.proto).

    Raises:
        ValueError: it is neither unigram nor BPE.
    """
    kind = next((value for number, value in protobuf_fields(submessage(model, _TRAINER)) if number == 3), 1)
    names = {1: Segmentation.unigram, 2: Segmentation.bpe}
    if kind not in names:
        raise ValueError("neither a unigram nor a BPE model")
    return names[int(kind)]


def submessage(message: bytes, wanted: int) -> bytes:
    """Returns the first submessage with a number; empty if there is none."""
    content = next((value for number, value in protobuf_fields(message) if number == wanted), b"")
    if not isinstance(content, bytes):
        raise ValueError("not a SentencePiece model")
    return content


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
