"""The vocabulary of another model that a run is given, with `data.tokenizer.path` or `start_from`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from nmt.config import DataConfig, Extension
from nmt.data.corpora.sources import Source, check_pieces
from nmt.data.subwords.extension import MOST_BYTES, byte_shares
from nmt.data.subwords.tokenizer import Tokenizer, find_tokenizer
from nmt.errors import UserError


def given_vocabulary(config: DataConfig, sources: Sequence[Source]) -> tuple[DataConfig, Tokenizer | None]:
    """Reads the vocabulary of `data.tokenizer.path`; None without that option.

    Returns:
        The options, with the symbols of the vocabulary and the new ones as `user_symbols`; the vocabulary.

    Raises:
        UserError: it is missing or damaged, or lacks a tag that it does not get, or placeholders.
    """
    options = config.tokenizer
    if options.path is None:
        return config, None
    tokenizer = find_tokenizer(options.path)
    symbols = list(tokenizer.source_symbols)
    if options.extend is Extension.never:  # a run of an earlier version may have symbols that were ignored
        check_pieces(sources, symbols, options.path)
    else:
        symbols += [symbol for symbol in options.user_symbols if symbol not in symbols]
    if config.placeholders != bool(tokenizer.placeholders):
        has, wanted = ("has", "true") if tokenizer.placeholders else ("has no", "false")
        raise UserError(
            f"data.placeholders={str(config.placeholders).lower()}: the vocabulary of "
            f"{options.path} {has} placeholders. Set data.placeholders={wanted}."
        )
    return replace(config, tokenizer=replace(options, user_symbols=symbols)), tokenizer


def check_given_symbols(config: DataConfig) -> None:
    """Checks that the vocabulary of `data.tokenizer.path` has all `user_symbols` if it gets none.

    Raises:
        UserError: a symbol is missing.
    """
    options = config.tokenizer
    if options.path is not None and options.extend is Extension.never and options.user_symbols:
        known = find_tokenizer(options.path).source_symbols
        for symbol in options.user_symbols:
            if symbol not in known:
                raise UserError(
                    f"data.tokenizer.user_symbols: the vocabulary of {options.path} has no piece {symbol!r}. "
                    "Leave it out, or set data.tokenizer.extend=always."
                )


def has_joint_vocabulary(config: DataConfig) -> bool:
    """Returns whether both sides have one vocabulary: that of `data.tokenizer.path`, or the one to learn."""
    path = config.tokenizer.path
    return config.tokenizer.joint if path is None else find_tokenizer(path).joint


def has_many_bytes(corpora: Iterable[Iterable[tuple[str, str]]], tokenizer: Tokenizer) -> bool:
    """Returns whether a side of a corpus has more than `MOST_BYTES` bytes, and could have pieces instead."""
    shares = (max(byte_shares(pairs, tokenizer)) for pairs in corpora)
    return tokenizer.can_be_extended and any(share > MOST_BYTES for share in shares)
