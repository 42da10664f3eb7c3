"""Subword regularisation: words cut up at random, each time from a seed.

SentencePiece's own sampling salts its generator with the process and cannot be repeated, so the two methods
are written out here. Pieces never cross the beginning of a word, so each word is drawn by itself, and what a
word is made of is read off its pieces: the text is not needed again.
"""

from __future__ import annotations

import math
import operator
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from random import Random
from typing import Any, Protocol

import numpy as np
import sentencepiece as spm

from nmt.config import Segmentation
from nmt.data.arrays import Side, offsets_of
from nmt.data.tokenizer import protobuf_fields

WORD_START = "\u2581"  # what SentencePiece puts in the place of a space

_NORMAL = 1  # SentencePiece.Type.NORMAL in sentencepiece_model.proto
_MOST_WORDS = 1 << 16  # remembered, a kilobyte or two each
_MOST_STATES = 1 << 18  # of words' merging, remembered


class Sampler:
    """Cuts the words of encoded sentences up afresh."""

    def __init__(
        self, processor: spm.SentencePieceProcessor, segmentation: Segmentation, alpha: float
    ) -> None:
        """Reads the pieces.

        Args:
            processor: the vocabulary.
            segmentation: how it was learnt, which decides how words are drawn: unigram segmentations with
                probability proportional to p**alpha (Kudo 2018, section 3.2), or BPE whose merges are each
                left out with probability alpha (Provilkov et al. 2020, algorithm 1).
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
        self._words: dict[bytes, Word] = {}

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
        random = Random(seed).random
        size, raw = flat.itemsize, np.ascontiguousarray(flat).tobytes()
        pieces: list[int] = []
        lengths: list[int] = []
        begin = 0
        for end in (cuts[1:] * size).tolist():
            key = raw[begin:end]
            begin = end
            drawn = (self._words.get(key) or self._word(key, flat.dtype)).draw(random)
            pieces += drawn
            lengths.append(len(drawn))
        ends = offsets_of(np.array(lengths))
        return Side(np.array(pieces, flat.dtype), ends[np.searchsorted(cuts, offsets)])

    def _word(self, key: bytes, dtype: np.dtype[Any]) -> Word:
        ids = np.frombuffer(key, dtype)
        word: Word | None = None
        if self._normal[ids].all():
            word = self._ways.word("".join(self._pieces[i] for i in ids))
        word = word or FixedWord(ids.tolist())
        if len(self._words) < _MOST_WORDS:  # common words come first; the rest are not worth their memory
            self._words[key] = word
        return word


def _kinds(model: bytes) -> list[int]:
    """The type of each piece: field 3 of `pieces`, field 1 of sentencepiece_model.proto."""
    pieces = [value for number, value in protobuf_fields(model) if number == 1 and isinstance(value, bytes)]
    return [int(dict(protobuf_fields(piece)).get(3, _NORMAL)) for piece in pieces]


class Word(Protocol):
    """The ways to cut up one word."""

    def draw(self, random: Callable[[], float]) -> Sequence[int]:
        """The ids of one way; `random` gives numbers in [0, 1)."""


class FixedWord:
    """A word that stays as it is."""

    def __init__(self, ids: Sequence[int]) -> None:
        """Takes its ids."""
        self._ids = ids

    def draw(self, random: Callable[[], float]) -> Sequence[int]:
        """The same ids always."""
        return self._ids


class UnigramWays:
    """The vocabulary of a unigram model, its log-probabilities times alpha."""

    def __init__(self, ids: Mapping[str, int], scores: Mapping[str, float], alpha: float) -> None:
        """Takes the ids of all pieces, and the scores of those that may be drawn."""
        self.pieces = {piece: (ids[piece], alpha * score) for piece, score in scores.items()}
        self.longest = max(map(len, scores), default=0)

    def word(self, text: str) -> Word | None:
        """The ways to cut up a word; None if there are none."""
        word = UnigramWord(text, self)
        return word if word.possible else None


class UnigramWord:
    """Forward filtering, backward sampling over all ways to cut up a word.

    The filter sums, up to each place, the weights of all ways to get there; going back from the end, the last
    piece is drawn by its share of that sum, and so on. This draws from the exact distribution.
    """

    def __init__(self, text: str, ways: UnigramWays) -> None:
        """Filters."""
        log_sums = [0.0]
        # For each place: the (id, begin) of the pieces that end there, and the running sum of their shares.
        self._last: list[tuple[list[tuple[int, int]], list[float]]] = [([], [])]
        for end in range(1, len(text) + 1):
            choices, logs = [], []
            for begin in range(max(0, end - ways.longest), end):
                found = ways.pieces.get(text[begin:end])
                if found is not None and log_sums[begin] > -math.inf:
                    choices.append((found[0], begin))
                    logs.append(log_sums[begin] + found[1])
            top = max(logs, default=-math.inf)
            weights = [math.exp(value - top) for value in logs]
            total = sum(weights)
            log_sums.append(top + math.log(total) if choices else -math.inf)
            # The last boundary would be 1, give or take rounding: it is not needed.
            self._last.append((choices, list(accumulate(weight / total for weight in weights[:-1]))))
        self.possible = log_sums[-1] > -math.inf

    def draw(self, random: Callable[[], float]) -> Sequence[int]:
        """Goes back from the end."""
        ids = []
        place = len(self._last) - 1
        while place:
            choices, boundaries = self._last[place]
            piece, place = choices[bisect_right(boundaries, random()) if boundaries else 0]
            ids.append(piece)
        ids.reverse()
        return ids


class BpeWays:
    """The pieces of a BPE model, which was learnt by merging: a higher score was merged earlier."""

    def __init__(self, ids: Mapping[str, int], scores: Mapping[str, float], alpha: float) -> None:
        """Takes the ids of all pieces, and the scores of those that may come out of a merge."""
        self.ids, self.scores, self.alpha = ids, scores, alpha
        self.room = _MOST_STATES
        self._scale = 1.0 / math.log(1.0 - alpha) if 0.0 < alpha < 1.0 else 0.0

    def word(self, text: str) -> Word | None:
        """The ways to cut up a word; None if a character is not a piece."""
        return BpeState(tuple(text), self) if all(character in self.scores for character in text) else None

    def run(self, number: float) -> float:
        """How many merges in a row are not left out, from a number in [0, 1): geometrically distributed."""
        if self._scale:
            return math.log(1.0 - number) * self._scale // 1
        return 0.0 if self.alpha else math.inf


class BpeState:
    """A word at some stage of merging; what may follow is remembered where there is room."""

    __slots__ = ("_following", "_ids", "_merges", "_parts", "_path", "_ways")

    def __init__(self, parts: tuple[str, ...], ways: BpeWays) -> None:
        """Finds the merges of neighbours that are possible, the best first, of equals the leftmost."""
        scores = ways.scores
        pairs = enumerate(map(operator.add, parts, parts[1:]))
        found = [(-scores[pair], place) for place, pair in pairs if pair in scores]
        self._parts, self._ways = parts, ways
        self._ids = [ways.ids[part] for part in parts]
        self._merges = [place for _, place in sorted(found)]
        self._following: dict[int, BpeState] = {}
        self._path: list[BpeState] | None = None

    def draw(self, random: Callable[[], float]) -> Sequence[int]:
        """Merges until each merge that is possible happens to be left out.

        The best merge is taken unless it is left out, and so on: how far that goes is drawn at once.
        """
        state, ways = self, self._ways
        while True:
            path = state._path or state._best_path()
            taken = ways.run(random())
            if taken >= len(path) - 1:
                return path[-1]._ids
            state = path[int(taken)]
            place = next((place for place in state._merges[1:] if random() >= ways.alpha), None)
            if place is None:
                return state._ids
            state = state._merged(place)

    def _best_path(self) -> list[BpeState]:
        """This state and those it goes through when no merge is left out."""
        path = [self]
        while path[-1]._merges:
            path.append(path[-1]._merged(path[-1]._merges[0]))
        if self._ways.room > 0:
            self._path = path
        return path

    def _merged(self, place: int) -> BpeState:
        state = self._following.get(place)
        if state is None:
            parts = self._parts
            merged = parts[place] + parts[place + 1]
            state = BpeState((*parts[:place], merged, *parts[place + 2 :]), self._ways)
            if self._ways.room > 0:
                self._ways.room -= 1
                self._following[place] = state
        return state
