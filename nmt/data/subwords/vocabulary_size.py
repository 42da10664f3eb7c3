"""`data.tokenizer.vocab_size=auto`: how many pieces a corpus gets, by its size and its characters."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable
from itertools import accumulate

SIZES = ((0, 2000), (10_000, 4000), (25_000, 8000), (100_000, 16_000), (1_000_000, 32_000))
"""Cleaned pairs from which on a size is taken → pieces of a vocabulary that both languages share.

Small corpora want small vocabularies: with 100,000 words of German and English, Sennrich and Zhang 2019
("Revisiting Low-Resource Neural Machine Translation") gain much by 2,000 pieces instead of 14,000. For the
29,000 pairs of Multi30k, 4,000 are too few (docs/multi30k.md). For the 4.5 million of WMT14, Vaswani et al.
2017 take 37,000.
"""

_ROUND = 1000


def recommended_size(pairs: int, characters: int, *, joint: bool) -> int:
    """The number of pieces of each vocabulary; more pairs or characters never make it smaller.

    Args:
        pairs: cleaned training pairs of all corpora.
        characters: that a vocabulary needs pieces for, as `num_characters` counts them. It gets twice as many
            pieces at least: Chinese, say, has thousands.
        joint: whether both languages share one vocabulary. Of two, each has half the size.
    """
    size = SIZES[bisect_right(SIZES, pairs, key=lambda row: row[0]) - 1][1]
    needed = -(-2 * characters // _ROUND) * _ROUND
    return max(size if joint else size // 2, needed)


def num_characters(pairs: Iterable[tuple[str, str]], coverage: float, *, joint: bool) -> int:
    """The number of different characters that make up the share `coverage` of a text, most frequent first.

    Args:
        pairs: the text.
        coverage: the share, in (0, 1]; `data.tokenizer.character_coverage`.
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
