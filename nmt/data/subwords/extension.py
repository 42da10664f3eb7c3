"""Extension of a vocabulary: new pieces for symbols and characters that it lacks, after its own.

The ids of the old pieces stay. Each new piece is a symbol, or has a character that the old vocabulary writes
as bytes. So text without them has the same ids as before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from nmt.config import Segmentation, TokenizerConfig
from nmt.config.data import SIDE_NORMALIZATION
from nmt.copying.strings import WORD_START
from nmt.data.subwords.learning import NUM_RESERVED, num_characters, recommended_size, train_model
from nmt.data.subwords.model_file import normalizer_of, user_symbols, with_pieces
from nmt.data.subwords.tokenizer import Tokenizer, check_symbols
from nmt.data.subwords.vocabulary import UNK_ID, SentencePieceVocabulary, Vocabulary
from nmt.errors import UserError
from nmt.runtime.arrays import Side

MOST_BYTES = 0.03
"""Share of bytes among the pieces of a side above which a model learns its text badly."""

_KEY = "data.tokenizer.extend"


def byte_shares(pairs: Iterable[tuple[str, str]], tokenizer: Tokenizer) -> list[float]:
    """Returns the share of bytes and unknown pieces among the pieces of each side of pairs."""
    lines = [*zip(*pairs, strict=True)] or [(), ()]
    shares = []
    for vocabulary, texts in zip((tokenizer.source, tokenizer.target), lines, strict=True):
        ids = vocabulary.encode(Side.of_lines(texts)).flat()
        rare = np.array([id == UNK_ID or vocabulary.is_byte(id) for id in range(vocabulary.size)])
        shares.append(float(rare[ids].mean()) if len(ids) else 0.0)
    return shares


def extended(
    tokenizer: Tokenizer,
    pairs: Callable[[], Iterator[tuple[str, str]]],
    symbols: Sequence[str],
    config: TokenizerConfig,
) -> Tokenizer:
    """Returns a tokenizer with new pieces for symbols, and for the characters of pairs that it lacks.

    Pieces are learnt from the words with such characters, as many as for a vocabulary of that text alone.
    Both sides of a joint vocabulary get the same pieces. `pairs` returns a new iterator at each call.

    Raises:
        UserError: the vocabulary has no bytes, since it is one of Marian; or a symbol can't be a piece.
    """
    if not tokenizer.can_be_extended:
        raise UserError(
            f"{_KEY}: the vocabulary of a Marian model can't get new pieces. Set {_KEY}=never, and leave out "
            "tags and symbols that it lacks."
        )
    check_symbols([*tokenizer.source_symbols, *symbols], "data.tokenizer.user_symbols")
    sides, models = [tokenizer.source, tokenizer.target], []
    for group in [[0, 1]] if tokenizer.joint else [[0], [1]]:
        first = sides[group[0]]
        _check_free(first, symbols)
        lines = [line for side in group for line in _words_to_learn(sides[side], side, pairs())]
        pieces = _new_pieces(first, lines, symbols, replace(config, segmentation=tokenizer.segmentation))
        models += [with_pieces(sides[side].model, symbols, pieces) for side in group]
    return Tokenizer(*models[: 1 if tokenizer.target is tokenizer.source else 2])


def is_extension(tokenizer: Tokenizer, of: Tokenizer) -> bool:
    """Returns whether a tokenizer has the pieces of another one with their ids, and its normalisation."""
    return all(
        list(side.names[: old.size]) == list(old.names)
        and normalizer_of(side.model) == normalizer_of(old.model)
        for side, old in ((tokenizer.source, of.source), (tokenizer.target, of.target))
    )


def replaced_pieces(old: Vocabulary, names: Iterable[str]) -> Iterator[list[int]]:
    """Yields for each of new pieces the ids of the old pieces that have been written in its place."""
    space = old.names.index(WORD_START) if WORD_START in old.names else None
    for name in names:
        ids = old.encode(Side.of_lines([name.replace(WORD_START, " ")])).flat().tolist()
        if ids[:1] == [space] and not name.startswith(WORD_START):
            del ids[0]  # a piece in the middle of a word has no space
        yield ids or [UNK_ID]


def _known_characters(vocabulary: Vocabulary) -> frozenset[str]:
    return frozenset(name for name in vocabulary.names if len(name) == 1) | {WORD_START, " "}


def _check_free(vocabulary: Vocabulary, symbols: Iterable[str]) -> None:
    """Raises `UserError` if a new symbol is an ordinary piece, which it can't replace without another id."""
    for symbol in set(symbols).intersection(vocabulary.names):
        raise UserError(
            f"data.tokenizer.user_symbols: {symbol!r} is an ordinary piece of the vocabulary of the other "
            "model. Choose another name."
        )


def _words_to_learn(vocabulary: Vocabulary, side: int, pairs: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yields the words of each line that have characters without a piece; no line without such words."""
    known = _known_characters(vocabulary)
    for pair in pairs:
        line = vocabulary.normalized([pair[side]])[0].replace(WORD_START, " ")
        if not known.issuperset(line):
            yield " ".join(word for word in line.split(" ") if not known.issuperset(word))


def _new_pieces(
    vocabulary: Vocabulary, lines: list[str], symbols: Sequence[str], config: TokenizerConfig
) -> dict[str, float]:
    """Learns pieces from lines, and returns those with a character that the vocabulary lacks; with scores."""
    if not lines:
        return {}
    known, old = _known_characters(vocabulary), set(vocabulary.names)
    characters = num_characters(((line, "") for line in lines), config.character_coverage, joint=True)
    symbols = [*user_symbols(vocabulary.model), *symbols]
    size = recommended_size(len(lines), characters, joint=True) + NUM_RESERVED + len(symbols)
    options = replace(
        config, vocab_size=size, user_symbols=list(symbols), normalization=dict(SIDE_NORMALIZATION)
    )
    scores = SentencePieceVocabulary(train_model(lines, options, "the new text")).scores
    new = {name: score for name, score in scores.items() if not known.issuperset(name) and name not in old}
    if config.segmentation is Segmentation.bpe:  # the scores are ranks of merges: those of the old come first
        last = min(vocabulary.scores.values(), default=0.0)
        return {
            name: last - 1 - rank for rank, name in enumerate(sorted(new, key=new.__getitem__, reverse=True))
        }
    return new
