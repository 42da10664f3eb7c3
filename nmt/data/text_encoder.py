"""Text to arrays of ids, faster than SentencePiece: what words are made of is remembered.

No piece reaches beyond a space, so a text is made of what its words are made of. With BPE that is exactly
what SentencePiece gives for the whole text. With a unigram model it is so but for segmentations of equal
scores: there SentencePiece's choice hangs on how sums over the text before are rounded, this one on the word.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import sentencepiece as spm

from nmt.data.arrays import Side, offsets_of, smallest_dtype
from nmt.data.tokenizer import Tokenizer

_SPACE = "\u2581"  # what SentencePiece puts in the place of a space
_MOST_WORDS = 1 << 17  # remembered, some 200 bytes each; common words come first
_LONGEST_WORD = 32  # characters: a longer one hardly comes again


def source_encoder(tokenizer: Tokenizer) -> TextEncoder:
    """Does as `encode_source` of a tokenizer."""
    return TextEncoder(tokenizer.encode_source, tokenizer.source_processor, tokenizer.source_symbols)


def target_encoder(tokenizer: Tokenizer) -> TextEncoder:
    """Does as `encode_target` of a tokenizer."""
    return TextEncoder(tokenizer.encode_target, tokenizer.target_processor, tokenizer.source_symbols)


class TextEncoder:
    """Encodes the text of one side; what it gives for a text depends on that text alone."""

    def __init__(
        self,
        encode: Callable[[Sequence[str]], list[list[int]]],
        processor: spm.SentencePieceProcessor,
        symbols: Iterable[str],
    ) -> None:
        """Reads the pieces.

        Args:
            encode: gives the ids of texts.
            processor: the vocabulary.
            symbols: the user's symbols in it.
        """
        pieces = [processor.id_to_piece(i) for i in range(processor.vocab_size())]
        self._encode = encode
        self._dtype = smallest_dtype(len(pieces) - 1)
        # A text with one of these is left to SentencePiece: a tag counts at the beginning only, and the sign
        # for a space makes words of its own.
        self._exceptions = [_SPACE, *symbols]
        if any(_SPACE in piece[1:] for piece in pieces):  # a user's symbol may be like that
            self._exceptions = [""]
        self._words: dict[str, bytes] = {}

    def __call__(self, texts: Sequence[str]) -> Side:
        """The ids of each text, in the smallest dtype that holds all of the vocabulary's."""
        encoded: list[bytes] = []
        left: list[int] = []
        for row, text in enumerate(texts):
            try:
                encoded.append(b"".join(map(self._words.__getitem__, text.split(" "))))
            except KeyError:
                encoded.append(b"")
                left.append(row)
        for row, content in zip(left, self._with_new_parts([texts[row] for row in left]), strict=True):
            encoded[row] = content
        lengths = np.fromiter(map(len, encoded), np.int64, len(encoded)) // self._dtype.itemsize
        return Side(np.frombuffer(b"".join(encoded), self._dtype), offsets_of(lengths))

    def _with_new_parts(self, texts: Sequence[str]) -> list[bytes]:
        """The ids of texts that hold words which are not remembered."""
        parts = [[text] if self._is_exception(text) else text.split(" ") for text in texts]
        new = list(dict.fromkeys(part for each in parts for part in each if part not in self._words))
        encoded = (np.array(ids, self._dtype).tobytes() for ids in self._encode(new))
        of_new = dict(zip(new, encoded, strict=True))
        joined = [
            b"".join([of_new[part] if part in of_new else self._words[part] for part in each])
            for each in parts
        ]
        for part, content in of_new.items():
            if len(self._words) == _MOST_WORDS:
                break
            if len(part) <= _LONGEST_WORD and not self._is_exception(part):
                self._words[part] = content
        return joined

    def _is_exception(self, text: str) -> bool:
        return any(exception in text for exception in self._exceptions)
