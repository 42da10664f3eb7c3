"""Samples for the data report: some pairs that are kept, and some pieces of the vocabulary."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import sentencepiece as spm

from nmt.data.arrays import Array
from nmt.data.cleaning.cleaner import EXAMPLE_CHARACTERS
from nmt.data.shuffle import Shuffle
from nmt.data.store import Store
from nmt.data.subwords.tokenizer import Tokenizer

NUM_PAIRS = 10
"""Pairs shown of a corpus; of several corpora half as many of each."""

NUM_PIECES = 24
"""Pieces shown of each kind."""

_SEED = 20170612  # the same pairs whatever the run's seed


def kept_pairs(store: Store, tokenizer: Tokenizer, corpora: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Pairs drawn evenly from each corpus, in their order, always the same ones.

    They are read from their ids, which touches these pairs alone.

    Args:
        store: the prepared pairs.
        tokenizer: whose pieces they are made of.
        corpora: the names of the corpora of `store`.

    Yields:
        `corpus`, and `source` and `target`: the pieces of each side, cut with "…" where it is long.
    """
    number = NUM_PAIRS if len(corpora) == 1 else NUM_PAIRS // 2
    start = 0
    for corpus, size in zip(corpora, store.sizes, strict=True):
        rows = start + np.sort(Shuffle(size, _SEED).rows(0, min(number, size)))
        for source, target in zip(*store.take(rows), strict=True):
            yield {
                "corpus": corpus,
                "source": _shown(source, tokenizer.source_processor),
                "target": _shown(target, tokenizer.target_processor),
            }
        start += size


def vocabulary(counts: Array, processor: spm.SentencePieceProcessor) -> dict[str, Any]:
    """Pieces with their counts: the most frequent, those in the middle, the rarest and the longest.

    Args:
        counts: (V,) occurrences of each piece.
        processor: whose pieces they are.

    Returns:
        `size`, special pieces and bytes included; `unused`, how many do not occur, special pieces and bytes
        aside; `most_frequent`, `middle`, `rarest` and `longest`, each a list of `[piece, count]`. They are
        pieces that occur, by rank but for `longest`. Special pieces are left out, bytes only among the most
        frequent.
    """
    pieces: list[str] = [processor.id_to_piece(i) for i in range(len(counts))]
    normal = [i for i in range(len(counts)) if not (processor.is_control(i) or processor.is_unknown(i))]
    used = sorted((i for i in normal if counts[i]), key=lambda i: (-int(counts[i]), i))
    words = [i for i in used if not processor.is_byte(i)]
    middle = max(0, (len(words) - NUM_PIECES) // 2)
    chosen = {
        "most_frequent": used[:NUM_PIECES],
        "middle": words[middle : middle + NUM_PIECES],
        "rarest": words[-NUM_PIECES:],
        "longest": sorted(words, key=lambda i: (-len(pieces[i]), i))[:NUM_PIECES],
    }
    return {
        "size": len(counts),
        "unused": sum(not counts[i] and not processor.is_byte(i) for i in normal),
        **{kind: [[pieces[i], int(counts[i])] for i in ids] for kind, ids in chosen.items()},
    }


def _shown(ids: Array, processor: spm.SentencePieceProcessor) -> list[str]:
    """The pieces of a sentence, as many as `EXAMPLE_CHARACTERS` hold."""
    shown: list[str] = []
    room = EXAMPLE_CHARACTERS
    for piece in map(processor.id_to_piece, ids.tolist()):
        room -= len(piece)
        if room < 1:  # for the "…"
            return [*shown, "…"]
        shown.append(piece)
    return shown
