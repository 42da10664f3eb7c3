"""The vocabulary of one side: pieces with ids, text to ids, and ids to text.

`nmt-train` makes a `SentencePieceVocabulary`, whose ids are those of a SentencePiece model. Imported models
have a `nmt.data.subwords.marian.MarianVocabulary`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import partial

import sentencepiece as spm

from nmt.data.subwords.protobuf import protobuf_fields
from nmt.data.subwords.word_numbers import piece_begins, words_of_text
from nmt.data.subwords.words import Words
from nmt.runtime.arrays import Side
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
    """

    def __init__(self, model: bytes) -> None:
        """Reads a SentencePiece model.

        Raises:
            ValueError: `model` is not one.
        """
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
        """Returns for each id of a text the number of its word; see `nmt.data.subwords.word_numbers`."""

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
        """Reads a SentencePiece model.

        Raises:
            ValueError: the model is damaged, or from another program.
        """
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
        return [self.processor.id_to_piece(id) for id in range(self.size)]

    @property
    def size(self) -> int:
        """The number of pieces."""
        return int(self.processor.vocab_size())

    def is_byte(self, id: int) -> bool:
        """See `Vocabulary.is_byte`."""
        return bool(self.processor.is_byte(id))

    def encode(self, texts: Side) -> Side:
        """See `Vocabulary.encode`."""
        return self._words.encode(texts)

    def word_numbers(self, text: str) -> list[int]:
        """See `Vocabulary.word_numbers`."""
        return words_of_text(text, self._begins)

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """See `Vocabulary.decode`."""
        texts: list[str] = self.processor.decode(list(ids), num_threads=1) if ids else []
        return texts

    def decoded_begins(self, ids: Sequence[int]) -> tuple[str, list[int]]:
        """See `Vocabulary.decoded_begins`."""
        message: bytes = self.processor.decode(list(ids), out_type="serialized_proto")
        return self.processor.decode(list(ids)), piece_begins(message)

    def _begins(self, parts: list[str]) -> list[list[int]]:
        """Returns for each part of a text the first byte of each of its pieces."""
        messages = self.processor.encode(parts, out_type="serialized_proto", num_threads=1)
        return list(map(piece_begins, messages))
