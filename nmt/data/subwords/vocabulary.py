"""The vocabulary of one side: pieces with ids, text to ids, ids to text, and the word of each piece.

`nmt-train` makes a `SentencePieceVocabulary`, whose ids are those of a SentencePiece model. Imported models
have a `MarianVocabulary`.

Words are separated by white space, as in `str.split`. Normalisation may change the text, and a word may have
pieces with a space in them, so the text of the pieces does not show where a word begins. SentencePiece
reports for each piece the bytes of the text that it stands for.
"""

from __future__ import annotations

import re
import unicodedata
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate

import sentencepiece as spm

from nmt.config import Normalization
from nmt.copying.strings import WORD_START
from nmt.data.subwords.model_file import normalizer_of, protobuf_fields
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

    @property
    def rule(self) -> str:
        """The name of the rule by which text is normalised, such as `nmt_nfkc`."""
        return normalizer_of(self.model).name

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

    def pieces_of(self, ids: Iterable[int]) -> list[str]:
        """Returns the pieces with these ids."""
        return [self.names[id] for id in ids]

    def normalized(self, texts: Sequence[str]) -> list[str]:
        """Returns texts in the form in which they are encoded: of equal forms, only one can be written."""
        normal: list[str] = self.processor.normalize(list(texts))
        return [text.replace(WORD_START, " ").strip(" ") for text in normal]

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
    """The pieces of a SentencePiece model of `nmt-train`, with byte fallback. Each word is encoded alone.

    With a lossless normaliser, decoding returns the encoded text without the spaces at its ends. Spaces
    between two words are then pieces too, if there are several. A word with U+2581, which is SentencePiece's
    sign for a space, is encoded as bytes.
    """

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
        normalizer = normalizer_of(model)
        self._is_lossless = normalizer.is_lossless
        self._composes = self._is_lossless and normalizer.name == Normalization.nfc.name
        space = processor.piece_to_id(WORD_START)
        self._blank = space if self._is_lossless and space != UNK_ID else None
        self._words = Words(self._encode_words, processor.vocab_size(), self._blank)

    def __reduce__(self) -> tuple[type[SentencePieceVocabulary], tuple[bytes]]:
        return SentencePieceVocabulary, (self.model,)

    @cached_property
    def names(self) -> Sequence[str]:
        """See `Vocabulary.names`."""
        return [self.processor.id_to_piece(id) for id in range(self.processor.vocab_size())]

    def is_byte(self, id: int) -> bool:
        """See `Vocabulary.is_byte`."""
        return bool(self.processor.is_byte(id))

    def normalized(self, texts: Sequence[str]) -> list[str]:
        """See `Vocabulary.normalized`."""
        if self._is_lossless:
            return [self._composed(text).strip(" ") for text in texts]
        return super().normalized(texts)

    def encode(self, texts: Side) -> Side:
        """See `Vocabulary.encode`."""
        if self._composes:
            texts = Side.of_lines(self._composed(text.tobytes()[:-1].decode()) for text in texts)
        return self._words.encode(texts)

    def word_numbers(self, text: str) -> list[int]:
        """See `Vocabulary.word_numbers`."""
        text = self._composed(text)
        begins: list[int] = []
        inside = text.strip(" ")
        place = text.index(inside)
        for word in inside.split(" ") if inside else ():
            start = len(text[:place].encode())
            if not word:
                begins += [start] * (self._blank is not None)
            elif self._is_lossless and WORD_START in word:
                begins += [start, *range(start, start + len(word.encode()))]
            else:  # each word is encoded alone, as `Words` does it
                message = self.processor.encode(word, out_type="serialized_proto")
                begins += [start + begin for begin in piece_begins(message)]
            place += len(word) + 1
        return words_at(text, text, begins)

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """See `Vocabulary.decode`."""
        texts: list[str] = self.processor.decode(list(ids), num_threads=1) if ids else []
        return [text.lstrip(" ") for text in texts] if self._is_lossless else texts

    def _composed(self, text: str) -> str:
        return unicodedata.normalize("NFC", text) if self._composes else text

    def _encode_words(self, words: list[str]) -> list[list[int]]:
        """Returns the ids of each of many words, encoded alone."""
        ids: list[list[int]] = self.processor.encode(words, num_threads=1)
        if self._is_lossless:
            for number, word in enumerate(words):
                if WORD_START in word:
                    pieces = [WORD_START, *(f"<0x{byte:02X}>" for byte in word.encode())]
                    ids[number] = self.processor.piece_to_id(pieces)
        return ids

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

    Marian itself encodes the names of special pieces as ordinary text: `special_in_text=False`.
    """

    def __init__(self, model: bytes, names: Sequence[str], special_in_text: bool = True) -> None:
        super().__init__(model)
        self._names, self._special_in_text = list(names), special_in_text
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
        names_in_text = "|".join(map(re.escape, longest_first)) if special_in_text else "(?!)"
        self._special_names = re.compile(f"({names_in_text})")

    def __reduce__(self) -> tuple[type[MarianVocabulary], tuple[bytes, Sequence[str], bool]]:
        return MarianVocabulary, (self.model, self._names, self._special_in_text)

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
        pieces = [*map(self.pieces_of, ids)]
        texts: list[str] = self.processor.decode(pieces, num_threads=1) if ids else []
        # A piece of the other side keeps its mark: this side's SentencePiece model does not know it.
        return [text.replace(WORD_START, " ").strip() for text in texts]

    def decoded_begins(self, ids: Sequence[int]) -> tuple[str, list[int]]:
        """See `Vocabulary.decoded_begins`."""
        pieces = self.pieces_of(ids)
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
