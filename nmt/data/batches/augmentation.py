"""Augmentation of the training pairs of a block: capitals, titles, missing punctuation and typos.

The pieces of a chosen pair are decoded, its text is changed by `nmt.data.perturbation`, and encoded again.
The prepared data are the same with and without it.

Shapes: n pairs of a block.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile

import numpy as np

from nmt.config import DataConfig
from nmt.data.perturbation import capitals, titled, unpunctuated, with_typos
from nmt.data.subwords.tokenizer import Tokenizer
from nmt.data.subwords.vocabulary import NUM_SPECIAL, Vocabulary
from nmt.runtime.arrays import Array, Side

_PIECES_A_TYPO = 12
"""A source with typos has one, and at most one more for each 12 of its pieces."""
_CASES = (capitals, titled)


class Augmenter:
    """Changes random pairs, at the rates of `data.augmentation`. It can be pickled for other processes.

    Tags and user symbols at the beginning of a source remain. A pair is not changed if its source has a user
    symbol elsewhere, or an unknown piece.
    """

    def __init__(self, tokenizer: Tokenizer, data: DataConfig) -> None:
        self._rates, self._langs = data.augmentation, data.corpus_languages()
        self._source, self._target = tokenizer.source, tokenizer.target
        self._symbols = frozenset(tokenizer.source_symbols.values())
        self._fixed = self._symbols.union(range(NUM_SPECIAL))

    def augmented(self, source: Side, target: Side, corpora: Array, seed: int) -> tuple[Side, Side]:
        """Returns n pairs, some of them changed: a pure function of the arguments.

        A pair does not influence another one. `corpora`, (n,), has the number of the corpus of each pair.
        """
        random, rates = np.random.Generator(np.random.SFC64(seed)), self._rates
        of_case, of_end, of_typos = random.random((3, len(source)))
        seeds = random.integers(0, 1 << 62, len(source))
        cases = np.searchsorted(np.cumsum([rates.capitals, rates.titles]), of_case, "right")
        is_open, has_typos = of_end < rates.unpunctuated, of_typos < rates.typos
        heads, rests = dict[int, list[int]](), dict[int, list[int]]()
        for row in np.flatnonzero((cases < len(_CASES)) | is_open | has_typos).tolist():
            ids = source[row].tolist()
            heads[row] = [*takewhile(self._symbols.__contains__, ids)]
            rest = ids[len(heads[row]) :]
            if self._fixed.isdisjoint(rest):
                rests[row] = rest
        recased = [row for row in rests if cases[row] < len(_CASES)]
        old_targets = self._target.decode([target[row].tolist() for row in recased])
        translations = dict(zip(recased, old_targets, strict=True))
        sources, targets = dict[int, str](), dict[int, str]()
        for row, old in zip(rests, self._source.decode([*rests.values()]), strict=True):
            text = old
            if has_typos[row]:
                number, most = int(seeds[row]), 1 + len(rests[row]) // _PIECES_A_TYPO
                text = with_typos(text, 1 + number % most, number)
            if is_open[row]:
                text = unpunctuated(text)
            if row in translations:
                pair = text, translations[row]
                text, translation = _CASES[cases[row]](pair, self._langs[corpora[row]])
                if translation != translations[row]:
                    targets[row] = translation
            if text != old:
                sources[row] = text
        return _replaced(source, sources, self._source, heads), _replaced(target, targets, self._target)


def _replaced(
    side: Side,
    texts: Mapping[int, str],
    vocabulary: Vocabulary,
    heads: Mapping[int, Sequence[int]] | None = None,
) -> Side:
    """Returns the n sentences, those at the rows in `texts` encoded from these, each after its head."""
    if not texts:
        return side
    encoded = zip(texts, vocabulary.encode(Side.of_lines(texts.values())), strict=True)
    new = [[*(heads or {}).get(row, ()), *ids.tolist()] for row, ids in encoded]
    order = np.arange(len(side))
    order[[*texts]] = len(side) + np.arange(len(new))
    return Side.concatenated([side, Side.of(new, side.ids.dtype)]).take(order)
