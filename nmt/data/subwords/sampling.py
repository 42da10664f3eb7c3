"""Subword regularisation: words cut up at random, each time from a seed.

SentencePiece's own sampling salts its generator with the process and cannot be repeated, so the two methods
are written out in `ways`. Pieces never cross the beginning of a word, so each word is drawn by itself, and
what a word is made of is read off its pieces: the text is not needed again.
"""

from __future__ import annotations

import numpy as np
import sentencepiece as spm

from nmt.config import Segmentation
from nmt.data.arrays import Array, Side
from nmt.data.subwords.segmentation import BpeSegmenter, Segmenter, UnigramSegmenter
from nmt.data.subwords.tokenizer import protobuf_fields

WORD_START = "\u2581"  # what SentencePiece puts in the place of a space

_NORMAL = 1  # SentencePiece.Type.NORMAL in sentencepiece_model.proto


class Sampler:
    """Cuts the words of encoded sentences up afresh."""

    def __init__(
        self, processor: spm.SentencePieceProcessor, segmentation: Segmentation, alpha: float
    ) -> None:
        """Reads the pieces.

        Args:
            processor: the vocabulary.
            segmentation: how it was learnt: selects `UnigramSegmenter` or `BpeSegmenter`.
            alpha: the strength.
        """
        kinds = _kinds(processor.serialized_model_proto())
        pieces = [processor.id_to_piece(i) for i in range(len(kinds))]
        scores = {piece: processor.get_score(i) for i, piece in enumerate(pieces) if kinds[i] == _NORMAL}
        ids = {piece: i for i, piece in enumerate(pieces)}
        ways = UnigramSegmenter if segmentation is Segmentation.unigram else BpeSegmenter
        self._ways: Segmenter = ways(ids, scores, alpha)
        letters = self._ways.letters
        # Of no letters: a byte, a user's symbol and what else has no other way to be cut up.
        drawn = [piece if piece in scores and letters.keys() >= set(piece) else "" for piece in pieces]
        self._letters = Side.of([[letters[letter] for letter in piece] for piece in drawn], np.int32)
        self._starts_word = np.array([piece.startswith(WORD_START) for piece in pieces])

    def resegment(self, side: Side, seed: int) -> Side:
        """The same sentences in other pieces, a pure function of the sentences and the seed.

        Bytes, a user's symbols and unknown pieces stay as they are; what is between them is cut up afresh.
        """
        flat = side.flat()
        if not len(flat):
            return side
        offsets = side.offsets.astype(np.int64) - int(side.offsets[0])
        starts = np.append(self._cuts(flat, offsets), len(flat))  # where words begin, and the end
        letters = self._letters.take(flat)
        words = Side(letters.ids, letters.offsets[starts])
        numbers = np.random.Generator(np.random.SFC64(seed)).integers(0, 1 << 64, len(words), np.uint64)
        before = Side(flat, starts)
        drawn = words.lengths() > 1
        drawn[drawn] = self._ways.may_change((words.lengths() - before.lengths())[drawn], numbers[drawn])
        after = self._ways.draw(words.take(np.flatnonzero(drawn)), numbers[drawn])
        rows = len(after) + np.arange(len(words))
        rows[drawn] = np.arange(len(after))
        both = Side.concatenated([Side(after.ids.astype(flat.dtype), after.offsets), before])
        new = both.take(rows)
        return Side(new.ids, new.offsets[np.searchsorted(starts, offsets)])

    def _cuts(self, flat: Array, offsets: Array) -> Array:
        """Where words begin: what can be drawn, and each piece that can't by itself."""
        fixed = self._letters.lengths()[flat] == 0
        begins = self._starts_word[flat] | fixed
        begins[1:] |= fixed[:-1]
        begins[offsets[:-1][np.diff(offsets) > 0]] = True
        return np.flatnonzero(begins)


def _kinds(model: bytes) -> list[int]:
    """The type of each piece: field 3 of `pieces`, field 1 of sentencepiece_model.proto."""
    pieces = [value for number, value in protobuf_fields(model) if number == 1 and isinstance(value, bytes)]
    return [int(dict(protobuf_fields(piece)).get(3, _NORMAL)) for piece in pieces]
