"""Subword regularisation: samples the segmentation of words into pieces, reproducibly from a seed.

The sampling of SentencePiece can't be repeated, because it seeds its generator differently in each process.
The two methods are therefore implemented in `segmentation`. A piece never crosses the beginning of a word, so
each word is sampled alone. The letters of a word are those of its pieces, so the text is not needed.
"""

from __future__ import annotations

import numpy as np

from nmt.config import Segmentation
from nmt.copying.strings import WORD_START
from nmt.data.subwords.segmentation import BpeSegmenter, Segmenter, UnigramSegmenter
from nmt.data.subwords.vocabulary import Vocabulary
from nmt.runtime.arrays import Array, Side


class Sampler:
    """Samples new segmentations of the words of encoded sentences."""

    def __init__(self, vocabulary: Vocabulary, segmentation: Segmentation, alpha: float) -> None:
        """Reads the vocabulary.

        Args:
            vocabulary: the pieces.
            segmentation: its training method; selects `UnigramSegmenter` or `BpeSegmenter`.
            alpha: the exponent in `UnigramSegmenter`, or the dropout probability in `BpeSegmenter`.
        """
        pieces = vocabulary.names
        ids = {piece: i for i, piece in enumerate(pieces)}
        scores = {piece: score for piece, score in vocabulary.scores.items() if piece in ids}
        method = UnigramSegmenter if segmentation is Segmentation.unigram else BpeSegmenter
        self._segmenter: Segmenter = method(ids, scores, alpha)
        letters = self._segmenter.letters
        # Bytes, user symbols and all other pieces that can't be segmented otherwise have no letters here.
        drawn = [piece if piece in scores and letters.keys() >= set(piece) else "" for piece in pieces]
        self._letters = Side.of([[letters[letter] for letter in piece] for piece in drawn], np.int32)
        self._starts_word = np.array([piece.startswith(WORD_START) for piece in pieces])

    def resegment(self, side: Side, seed: int) -> Side:
        """Returns the same sentences in other pieces: a pure function of the sentences and the seed.

        Bytes, user symbols and unknown pieces do not change. The words between them are segmented again.
        """
        flat = side.flat()
        if not len(flat):
            return side
        offsets = side.offsets.astype(np.int64) - int(side.offsets[0])
        starts = np.append(self._word_starts(flat, offsets), len(flat))  # of the words, and the end
        letters = self._letters.take(flat)
        words = Side(letters.ids, letters.offsets[starts])
        numbers = np.random.Generator(np.random.SFC64(seed)).integers(0, 1 << 64, len(words), np.uint64)
        before = Side(flat, starts)
        drawn = words.lengths() > 1
        drawn[drawn] = self._segmenter.may_change((words.lengths() - before.lengths())[drawn], numbers[drawn])
        after = self._segmenter.draw(words.take(np.flatnonzero(drawn)), numbers[drawn])
        rows = len(after) + np.arange(len(words))
        rows[drawn] = np.arange(len(after))
        both = Side.concatenated([Side(after.ids.astype(flat.dtype), after.offsets), before])
        new = both.take(rows)
        return Side(new.ids, new.offsets[np.searchsorted(starts, offsets)])

    def _word_starts(self, flat: Array, offsets: Array) -> Array:
        """Returns the positions where words begin. Each piece without letters counts as a word."""
        fixed = self._letters.lengths()[flat] == 0
        begins = self._starts_word[flat] | fixed
        begins[1:] |= fixed[:-1]
        begins[offsets[:-1][np.diff(offsets) > 0]] = True
        return np.flatnonzero(begins)
