"""The vocabulary of one side: pieces with ids, text to ids, ids to text, and the word of each piece.

`nmt-train` makes a `SentencePieceVocabulary`, whose ids are those of a SentencePiece model. Imported models
have a `MarianVocabulary`.

Words are separated by white space, as in `str.split`. Normalisation may change the text, and a word may have
pieces with a space in them, so the text of the pieces does not show where a word begins. SentencePiece
reports for each piece the bytes of the text that it stands for.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate

import sentencepiece as spm

from nmt.copying.strings import WORD_START
from nmt.data.subwords.words import Words
from nmt.runtime.arrays import Side, smallest_dtype
from nmt.runtime.lazy import cached_property

PAD_ID, BOS_ID, EOS_ID, UNK_ID = 0, 1, 2, 3
"""Ids of the special pieces, the same in every vocabulary."""

NUM_SPECIAL = 4
"""Number of special pieces; their ids come first."""

FORBIDDEN_IDS = (PAD_ID, BOS_ID, UNK_ID)
"""Ids that a search must not write."""

_NORMAL = 1  # SentencePiece.Type.NORMAL in sentencepiece_model.proto


class Vocabulary(ABC):
    """The pieces of one side.

    Attributes:
        model: a SentencePiece model, as bytes.
        processor: the same, loaded. Its ids are those of the vocabulary only in a `SentencePieceVocabulary`.

    Raises:
        ValueError: the model is damaged, or not one of the kind of the class.
    """

    def __init__(self, model: bytes) -> None:
        self.model = model
        try:
            self.processor = spm.SentencePieceProcessor(model_proto=model)
        except (RuntimeError, OSError) as error:
            raise ValueError("not a SentencePiece model") from error

    @property
    @abstractmethod
    def names(self) -> Sequence[str]:
        """The piece of each id."""

    @property
    def size(self) -> int:
        """The number of pieces."""
        return len(self.names)

    @cached_property
    def scores(self) -> Mapping[str, float]:
        """The scores of the pieces into which words are segmented: no bytes, symbols or special pieces.

        They are the scores in the SentencePiece model: log-probabilities in a unigram model.
        """
        fields = protobuf_fields(self.model)
        pieces = [value for number, value in fields if number == 1 and isinstance(value, bytes)]
        scores = {}
        for number, piece in enumerate(pieces):
            if dict(protobuf_fields(piece)).get(3, _NORMAL) == _NORMAL:  # field 3: its type
                scores[self.processor.id_to_piece(number)] = self.processor.get_score(number)
        return scores

    @abstractmethod
    def is_byte(self, id: int) -> bool:
        """Returns whether a piece stands for one byte of UTF-8."""

    @abstractmethod
    def encode(self, texts: Side) -> Side:
        """Returns the ids of each text of `Side.of_lines`, without BOS and EOS. An empty text has none."""

    @abstractmethod
    def word_numbers(self, text: str) -> list[int]:
        """Returns for each id of a text the number of its word; see `nmt.data.subwords.vocabulary`."""

    @abstractmethod
    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """Returns the text of each sequence of ids, none of which is special."""

    @abstractmethod
    def decoded_begins(self, ids: Sequence[int]) -> tuple[str, list[int]]:
        """Decodes ids, at least one, none of them special.

        Returns:
            The text, before any spaces at its ends are removed, and for each id the byte at which its piece
            begins in it.
        """


class SentencePieceVocabulary(Vocabulary):
    """The pieces of a SentencePiece model of `nmt-train`, with byte fallback. Each word is encoded alone."""

    def __init__(self, model: bytes) -> None:
        super().__init__(model)
        processor = self.processor
        ids = (processor.pad_id(), processor.bos_id(), processor.eos_id(), processor.unk_id())
        if ids != (PAD_ID, BOS_ID, EOS_ID, UNK_ID):
            raise ValueError(
                f"its ids of pad, bos, eos and unk are {ids}, not {(PAD_ID, BOS_ID, EOS_ID, UNK_ID)}"
            )
        if not processor.is_byte(processor.piece_to_id("<0x00>")):
            raise ValueError("it was trained without byte fallback")
        # One thread: callers that want more cores use processes.
        self._words = Words(partial(processor.encode, num_threads=1), processor.vocab_size())

    @cached_property
    def names(self) -> Sequence[str]:
        """See `Vocabulary.names`."""
        return [self.processor.id_to_piece(id) for id in range(self.processor.vocab_size())]

    def is_byte(self, id: int) -> bool:
        """See `Vocabulary.is_byte`."""
        return bool(self.processor.is_byte(id))

    def encode(self, texts: Side) -> Side:
        """See `Vocabulary.encode`."""
        return self._words.encode(texts)

    def word_numbers(self, text: str) -> list[int]:
        """See `Vocabulary.word_numbers`."""
        # Each part between spaces is encoded alone, as `Words` does it.
        parts = [(match.start(), match[0]) for match in re.finditer("[^ ]+", text)]
        messages = self.processor.encode(
            [part for _, part in parts], out_type="serialized_proto", num_threads=1
        )
        begins = [
            len(text[:start].encode()) + begin
            for (start, _), message in zip(parts, messages, strict=True)
            for begin in piece_begins(message)
        ]
        return words_at(text, text, begins)

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """See `Vocabulary.decode`."""
        texts: list[str] = self.processor.decode(list(ids), num_threads=1) if ids else []
        return texts

    def decoded_begins(self, ids: Sequence[int]) -> tuple[str, list[int]]:
        """See `Vocabulary.decoded_begins`."""
        message: bytes = self.processor.decode(list(ids), out_type="serialized_proto")
        return self.processor.decode(list(ids)), piece_begins(message)


_BYTE = re.compile("<0x[0-9A-F]{2}>")
_TAG = re.compile(">>.*<<", re.DOTALL)


class MarianVocabulary(Vocabulary):
    """A SentencePiece model, and a list that gives each piece its id, as in the OPUS-MT models of Marian.

    Pieces that are not in the list are unknown. Both sides may have the same list, but each has a
    SentencePiece model. The ids are those of transformers' `MarianTokenizer`, in another order: there, the
    special pieces may have any ids, and here the list begins with pad, bos, eos and unk. As there, a whole
    line is encoded at once, the names of the special pieces in a text become these pieces, and `>>xx<<` at
    the beginning of a text is one piece, which selects the target language of some models. Two ids with the
    same piece raise `ValueError`.
    """

    def __init__(self, model: bytes, names: Sequence[str]) -> None:
        super().__init__(model)
        self._names = list(names)
        # Not the piece bos, which begins a translation: Marian does not have it.
        self._special = {names[id]: id for id in (PAD_ID, EOS_ID, UNK_ID)}
        self._ids = {name: id for id, name in enumerate(names) if id >= NUM_SPECIAL}
        if len(self._ids | self._special) != len(names) - 1:
            raise ValueError("two ids have the same piece")
        processor = self.processor
        self._id_of = [
            self._id(processor.id_to_piece(number)) for number in range(int(processor.vocab_size()))
        ]
        longest_first = sorted(self._special, key=len, reverse=True)
        self._special_names = re.compile(f"({'|'.join(map(re.escape, longest_first))})")

    @property
    def names(self) -> Sequence[str]:
        """See `Vocabulary.names`."""
        return self._names

    @cached_property
    def tags(self) -> dict[str, int]:
        """The pieces `>>xx<<` with their ids."""
        return {name: id for name, id in self._ids.items() if _TAG.fullmatch(name)}

    def is_byte(self, id: int) -> bool:
        """See `Vocabulary.is_byte`."""
        return _BYTE.fullmatch(self._names[id]) is not None

    def encode(self, texts: Side) -> Side:
        """See `Vocabulary.encode`."""
        lines = [list(self._parts(text)) for text in texts.lines()]
        encoded = iter(self._encode([part for parts in lines for _, part, id in parts if id is None]))
        ids = [
            [number for _, _, id in parts for number in (next(encoded) if id is None else [id])]
            for parts in lines
        ]
        return Side.of(ids, smallest_dtype(self.size - 1))

    def word_numbers(self, text: str) -> list[int]:
        """See `Vocabulary.word_numbers`."""
        begins: list[int] = []
        for start, part, id in self._parts(text):
            before = len(text[:start].encode())
            inside = [0]
            if id is None:
                inside = piece_begins(self.processor.encode(part, out_type="serialized_proto"))
            begins += [before + begin for begin in inside]
        return words_at(text, text, begins)

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """See `Vocabulary.decode`."""
        pieces = [[self._names[id] for id in sequence] for sequence in ids]
        texts: list[str] = self.processor.decode(pieces, num_threads=1) if ids else []
        # A piece of the other side keeps its mark: this side's SentencePiece model does not know it.
        return [text.replace(WORD_START, " ").strip() for text in texts]

    def decoded_begins(self, ids: Sequence[int]) -> tuple[str, list[int]]:
        """See `Vocabulary.decoded_begins`."""
        pieces = [self._names[id] for id in ids]
        message: bytes = self.processor.decode(pieces, out_type="serialized_proto")
        return self.processor.decode(pieces), piece_begins(message)

    def _parts(self, text: str) -> Iterator[tuple[int, str, int | None]]:
        """Yields the parts of a text with their places: special pieces and tags, with ids, and the rest."""
        place = 0
        for part in self._special_names.split(text):
            start, place = place, place + len(part)
            if part in self._special:
                yield start, part, self._special[part]
                continue
            end = part.find("<<") + 2
            if part.startswith(">>") and end >= 2:
                yield start, part[:end], self._id(part[:end])
                start, part = start + end, part[end:]
            if part:
                yield start, part, None

    def _encode(self, parts: list[str]) -> Iterator[list[int]]:
        """Encodes text without tags and special pieces."""
        unknown = self.processor.unk_id()
        for part, numbers in zip(parts, self.processor.encode(parts, num_threads=1), strict=True):
            if unknown in numbers:
                # The list may have a piece that the SentencePiece model does not: one of the other side.
                yield [self._id(piece) for piece in self.processor.encode(part, out_type=str)]
            else:
                yield [self._id_of[number] for number in numbers]

    def _id(self, piece: str) -> int:
        return self._ids.get(piece, self._special.get(piece, UNK_ID))


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


NO_WORD = -1
"""The number of a piece that belongs to no word, such as a space at the end."""


def words_at(text: str, shown: str, begins: Sequence[int]) -> list[int]:
    """Returns the number of the word at each place.

    A place between two words belongs to the second one: a piece such as `▁word` begins with its space.

    Args:
        text: the text that the places refer to.
        shown: the text that the user sees, which is split into words. It has as many characters as `text`.
        begins: places, as numbers of bytes.
    """
    assert len(text) == len(shown)
    ends = [match.end() for match in re.finditer(r"\S+", shown)]
    byte_ends = [0, *accumulate(len(character.encode()) for character in text)]
    last_bytes = [byte_ends[end] for end in ends]
    words = [bisect_right(last_bytes, begin) for begin in begins]  # the first word that ends after the place
    return [word if word < len(ends) else NO_WORD for word in words]


def piece_begins(message: bytes) -> list[int]:
    """Returns the first byte of each piece of a `SentencePieceText` message (its fields 2 and 4)."""
    pieces = (value for number, value in protobuf_fields(message) if number == 2)
    return [
        next(int(value) for number, value in protobuf_fields(piece) if number == 4)
        for piece in pieces
        if isinstance(piece, bytes)
    ]
