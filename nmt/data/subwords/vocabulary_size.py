"""`data.tokenizer.vocab_size=auto`: a vocabulary size for the size and the characters of a corpus."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable
from itertools import accumulate

SIZES = ((0, 2000), (10_000, 4000), (25_000, 8000), (100_000, 16_000), (1_000_000, 32_000))
"""Minimum number of cleaned pairs, and the number of pieces of a vocabulary that both languages share.

A small corpus needs a small vocabulary. With 100,000 words of German and English, Sennrich and Zhang 2019
("Revisiting Low-Resource Neural Machine Translation") gain much with 2,000 pieces instead of 14,000. For the
29,000 pairs of Multi30k, 4,000 pieces are too few (docs/multi30k.md). For the 4.5 million pairs of WMT14,
Vaswani et al. 2017 use 37,000.
"""

_MULTIPLE = 1000


def recommended_size(pairs: int, characters: int, *, joint: bool) -> int:
    """Returns the number of pieces of each vocabulary. It never decreases with more pairs or characters.

    Args:
        pairs: number of cleaned training pairs of all corpora.
        characters: number of characters that need a piece, as `num_characters` counts them. The vocabulary
            has at least twice as many pieces, which matters for Chinese with its thousands of characters.
        joint: whether both languages share one vocabulary. If not, each vocabulary has half the size.
    """
    size = SIZES[bisect_right(SIZES, pairs, key=lambda row: row[0]) - 1][1]
    needed = -(-2 * characters // _MULTIPLE) * _MULTIPLE
    return max(size if joint else size // 2, needed)


def num_characters(pairs: Iterable[tuple[str, str]], coverage: float, *, joint: bool) -> int:
    """Counts the most frequent characters that together make up the fraction `coverage` of a text.

    Args:
        pairs: the text.
        coverage: the fraction, in (0, 1]: `data.tokenizer.character_coverage`.
        joint: whether the two sides count as one text. If not, the larger number of the two is returned.
    """
    counts: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
    for pair in pairs:
        for side, text in zip(counts, pair, strict=True):
            side.update(text)
    texts = [counts[0] + counts[1]] if joint else list(counts)
    return max(_covering(text, coverage) for text in texts)


def _covering(counts: Counter[str], coverage: float) -> int:
    sums = list(accumulate(count for _, count in counts.most_common()))
    return next((rank + 1 for rank, covered in enumerate(sums) if covered >= coverage * sums[-1]), 0)
