"""Subword regularisation: words cut up at random, each time from a seed.

SentencePiece's own sampling salts its generator with the process and cannot be repeated, so the two methods
are written out in `ways`. Pieces never cross the beginning of a word, so each word is drawn by itself, and
what a word is made of is read off its pieces: the text is not needed again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from itertools import repeat
from threading import Lock
from typing import Any

import numpy as np
import sentencepiece as spm

from nmt.config import Segmentation
from nmt.data.arrays import Array, Side
from nmt.data.tokenizer import protobuf_fields
from nmt.data.ways import BITS, NUMBERS, BpeWays, Leaf, Node, UnigramWays, draw, stretches

WORD_START = "\u2581"  # what SentencePiece puts in the place of a space

_NORMAL = 1  # SentencePiece.Type.NORMAL in sentencepiece_model.proto
_MOST_WORDS = 1 << 16  # counted, to find the common ones
_MOST_TREES = 1 << 13  # of the words met last, some kilobytes each
_LONGEST_KEPT = 8  # pieces; where no spaces are written, a word is a sentence and does not come again
_MOST_WAYS = 1 << 20  # in tables, some forty bytes each
_COMMON = 32  # a word met so often gets a table
_LEAST = NUMBERS >> 9  # stretches of the numbers that a table does not look into


class Sampler:
    """Cuts the words of encoded sentences up afresh."""

    def __init__(
        self, processor: spm.SentencePieceProcessor, segmentation: Segmentation, alpha: float
    ) -> None:
        """Reads the pieces.

        Args:
            processor: the vocabulary.
            segmentation: how it was learnt, which decides how words are drawn: by `UnigramWays` or `BpeWays`.
            alpha: the strength.
        """
        kinds = _kinds(processor.serialized_model_proto())
        pieces = [processor.id_to_piece(i) for i in range(len(kinds))]
        scores = {piece: processor.get_score(i) for i, piece in enumerate(pieces) if kinds[i] == _NORMAL}
        ids = {piece: i for i, piece in enumerate(pieces)}
        self._pieces = pieces
        self._normal = np.array(kinds) == _NORMAL
        self._starts_word = np.array([piece.startswith(WORD_START) for piece in pieces])
        self._ways: UnigramWays | BpeWays
        if segmentation is Segmentation.unigram:
            self._ways = UnigramWays(ids, scores, alpha)
        else:
            self._ways = BpeWays(ids, scores, alpha)
        self._tables = Tables()
        self._kept = lru_cache(_MOST_TREES)(self._word)
        self._met: Counter[bytes] = Counter()
        self._lock = Lock()  # a block is drawn in the background, and another where a batch is looked up

    def resegment(self, side: Side, seed: int) -> Side:
        """The same sentences in other pieces, a pure function of the sentences and the seed.

        Words with a byte, a user's symbol or an unknown piece stay as they are.
        """
        flat = side.flat()
        if not len(flat):
            return side
        offsets = side.offsets.astype(np.int64) - int(side.offsets[0])
        begins = self._starts_word[flat]
        begins[offsets[:-1][np.diff(offsets) > 0]] = True
        cuts = np.append(np.flatnonzero(begins), len(flat))  # where words begin, and the end
        words = _slices(np.ascontiguousarray(flat).tobytes(), (cuts * flat.itemsize).tolist())
        numbers = np.random.Generator(np.random.SFC64(seed)).integers(0, NUMBERS, len(words))
        with self._lock:
            self._meet(words, flat.dtype)
            pieces = self._drawn(words, numbers, flat.dtype)
        return Side(pieces.ids.astype(flat.dtype), pieces.offsets[np.searchsorted(cuts, offsets)])

    def _drawn(self, words: Sequence[bytes], numbers: Array, dtype: np.dtype[Any]) -> Side:
        """The pieces of each word."""
        rows = self._tables.look_up(words, numbers)
        drawn = [
            draw(self._tree(words[i], dtype), int(numbers[i])) for i in np.flatnonzero(rows < 0).tolist()
        ]
        ways = Side.concatenated([self._tables.ways, Side.of(drawn, np.uint32)])
        rows[rows < 0] = np.arange(len(self._tables.ways), len(ways))
        return ways.take(rows)

    def _meet(self, words: Sequence[bytes], dtype: np.dtype[Any]) -> None:
        """Gives a table to each word that has become common, while there is room."""
        if len(self._tables.ways) > _MOST_WAYS:
            return
        met = Counter(word for word in words if word not in self._tables)
        common = []
        for word, count in met.items():
            if len(self._met) < _MOST_WORDS or word in self._met:
                self._met[word] += count
                if self._met[word] >= _COMMON:
                    common.append((word, stretches(self._tree(word, dtype), _LEAST)))
        self._tables.add(common)

    def _tree(self, key: bytes, dtype: np.dtype[Any]) -> Node:
        find = self._kept if len(key) <= _LONGEST_KEPT * dtype.itemsize else self._word
        return find(key, dtype)

    def _word(self, key: bytes, dtype: np.dtype[Any]) -> Node:
        ids = np.frombuffer(key, dtype)
        word = None
        if self._normal[ids].all():
            word = self._ways.word("".join(self._pieces[i] for i in ids))
        return word or Leaf(ids.tolist())


class Tables:
    """The likelier ways to cut up common words, all in one place, so that a block of words is one search.

    Attributes:
        ways: each way of each word, words in the order they were added; no ids where a table is not complete.
    """

    def __init__(self) -> None:
        """Begins without a word."""
        self.ways = Side.of([], np.uint32)
        self._numbers: dict[bytes, int] = {}
        # Where the stretch of each way ends, plus NUMBERS for each word before: sorted, without an overlap.
        self._ends = np.zeros(0, np.int64)

    def __contains__(self, word: bytes) -> bool:
        """Whether there is a table of the word."""
        return word in self._numbers

    def add(self, words: Sequence[tuple[bytes, Sequence[tuple[int, Sequence[int] | None]]]]) -> None:
        """Takes the `stretches` of words that have no table yet."""
        if not words:
            return
        ends, ways = [], []
        for word, table in words:
            begin = len(self._numbers) << BITS
            self._numbers[word] = len(self._numbers)
            ends += [begin + end for end, _ in table]
            ways += [ids or () for _, ids in table]
        self._ends = np.concatenate([self._ends, np.array(ends)])
        self.ways = Side.concatenated([self.ways, Side.of(ways, np.uint32)])

    def look_up(self, words: Sequence[bytes], numbers: Array) -> Array:
        """For each word and its number, the row of `ways`; -1 where the tree of the word must be asked."""
        tables = np.fromiter(map(self._numbers.get, words, repeat(-1)), np.int64, len(words))
        rows: Array = np.searchsorted(self._ends, (tables << BITS) + numbers, side="right")
        rows[tables < 0] = -1
        known = rows >= 0
        rows[known] = np.where(self.ways.lengths()[rows[known]] > 0, rows[known], -1)
        return rows


def _slices(data: bytes, cuts: Sequence[int]) -> list[bytes]:
    return [data[begin:end] for begin, end in zip(cuts, cuts[1:], strict=False)]


def _kinds(model: bytes) -> list[int]:
    """The type of each piece: field 3 of `pieces`, field 1 of sentencepiece_model.proto."""
    pieces = [value for number, value in protobuf_fields(model) if number == 1 and isinstance(value, bytes)]
    return [int(dict(protobuf_fields(piece)).get(3, _NORMAL)) for piece in pieces]
