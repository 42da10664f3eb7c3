"""Samples of the cleaned training text: pairs of each corpus, in proportion to its draws in an epoch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

from nmt.config import DataConfig
from nmt.data.cleaning.clean_text import Texts
from nmt.data.corpora.mixture import apportioned, mean_draws

# Text from which the pieces are learnt. SentencePiece needs about 25 bytes of memory per byte.
_SAMPLE_BYTES = 100_000_000


def pairs_for_pieces(texts: Sequence[Texts], config: DataConfig) -> Iterator[tuple[str, str]]:
    """Yields the pairs from which the pieces are learnt, corpus by corpus."""
    return chain.from_iterable(samples_of(texts, config, config.tokenizer.sample_pairs))


def samples_of(texts: Sequence[Texts], config: DataConfig, size: int) -> Iterator[Iterator[tuple[str, str]]]:
    """Yields an iterator over the sampled pairs of each corpus; there are `size` pairs in all, at most.

    The pairs of a corpus that is drawn several times in an epoch are repeated.
    """
    sizes = [text.num_pairs for text in texts]
    pairs_of_bytes = _SAMPLE_BYTES * sum(sizes) // sum(text.num_bytes for text in texts)
    size = min(size, sum(sizes), max(pairs_of_bytes, 1))
    for text, count in zip(texts, apportioned(size, mean_draws(sizes, config)), strict=True):
        times, rest = divmod(count, text.num_pairs)
        yield chain(*(text.sample(text.num_pairs) for _ in range(times)), text.sample(rest))
