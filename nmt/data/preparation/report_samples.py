"""Samples for the data report: some retained pairs, and some pieces of the vocabulary."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from nmt.data.cleaning.cleaner import EXAMPLE_CHARACTERS
from nmt.data.shuffle import Shuffle
from nmt.data.store import Store
from nmt.data.subwords.tokenizer import Tokenizer
from nmt.data.subwords.vocabulary import NUM_SPECIAL, Vocabulary
from nmt.runtime.arrays import Array

NUM_PAIRS = 10
"""Number of pairs shown of a single corpus. Of each of several corpora, half as many are shown."""

NUM_PIECES = 24
"""Number of pieces shown of each kind."""

_SEED = 20170612  # fixed, so that the sample does not depend on the seed of the run


def kept_pairs(store: Store, tokenizer: Tokenizer, corpora: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yields a uniform sample of each corpus in corpus order, the same at every call.

    The sample is decoded from ids, so that only these pairs are read.

    Args:
        store: the prepared pairs.
        tokenizer: tokenizer of the pairs.
        corpora: names of the corpora in `store`.

    Yields:
        `corpus`, the name; `source` and `target`, the pieces of each side, truncated with "…" if it is long.
    """
    number = NUM_PAIRS if len(corpora) == 1 else NUM_PAIRS // 2
    start = 0
    for corpus, size in zip(corpora, store.sizes, strict=True):
        rows = start + np.sort(Shuffle(size, _SEED).rows(0, min(number, size)))
        for source, target in zip(*store.take(rows), strict=True):
            yield {
                "corpus": corpus,
                "source": _shown(source, tokenizer.source),
                "target": _shown(target, tokenizer.target),
            }
        start += size


def vocabulary(counts: Array, side: Vocabulary) -> dict[str, Any]:
    """Returns pieces with their counts: the most frequent, of middle frequency, the rarest and the longest.

    Args:
        counts: (V,) number of occurrences of each piece.
        side: the pieces.

    Returns:
        `size`, the number of pieces, special pieces and bytes included; `unused`, the number of pieces that
        do not occur, special pieces and bytes not counted; `most_frequent`, `middle`, `rarest` and `longest`,
        lists of `[piece, count]`. The lists contain only pieces that occur. They are in the order of rank,
        except `longest`. They contain no special pieces, and bytes only in `most_frequent`.
    """
    pieces = side.names
    normal = range(NUM_SPECIAL, len(counts))
    used = sorted((i for i in normal if counts[i]), key=lambda i: (-int(counts[i]), i))
    words = [i for i in used if not side.is_byte(i)]
    middle = max(0, (len(words) - NUM_PIECES) // 2)
    chosen = {
        "most_frequent": used[:NUM_PIECES],
        "middle": words[middle : middle + NUM_PIECES],
        "rarest": words[-NUM_PIECES:],
        "longest": sorted(words, key=lambda i: (-len(pieces[i]), i))[:NUM_PIECES],
    }
    return {
        "size": len(counts),
        "unused": sum(not counts[i] and not side.is_byte(i) for i in normal),
        **{kind: [[pieces[i], int(counts[i])] for i in ids] for kind, ids in chosen.items()},
    }


def _shown(ids: Array, side: Vocabulary) -> list[str]:
    """Returns the pieces of a sentence, truncated with "…" to `EXAMPLE_CHARACTERS` characters."""
    shown: list[str] = []
    room = EXAMPLE_CHARACTERS
    for piece in (side.names[id] for id in ids.tolist()):
        room -= len(piece)
        if room < 1:  # one character is reserved for the "…"
            return [*shown, "…"]
        shown.append(piece)
    return shown
