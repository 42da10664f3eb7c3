"""Batches of sentences of similar length."""

from __future__ import annotations

from collections.abc import Sequence


def batches_by_length(lengths: Sequence[int], max_tokens: int, max_sentences: int) -> list[list[int]]:
    """Groups sentences of similar length into batches.

    The longest sentences come first, so that a batch that does not fit into memory fails at once.

    Args:
        lengths: number of tokens of each sentence.
        max_tokens: maximum number of tokens of a batch, padding counted. A longer sentence is a batch alone.
        max_sentences: maximum number of sentences of a batch.

    Returns:
        The sentence indices of each batch; every index is in exactly one batch.
    """
    batches: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        room = min(max_sentences, max_tokens // lengths[batches[-1][0]]) if batches else 0
        if batches and len(batches[-1]) < room:
            batches[-1].append(index)
        else:
            batches.append([index])
    return batches
