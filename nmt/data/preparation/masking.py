"""Placeholders in prepared data: replaces the strings that both sides of a pair have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from nmt.config import DataConfig
from nmt.copying.strings import mask_pair
from nmt.data.subwords.tokenizer import Tokenizer
from nmt.errors import UserError
from nmt.runtime.arrays import Side


def masked_pairs(pairs: Callable[[], Iterator[tuple[str, str]]]) -> Iterator[tuple[str, str]]:
    """Yields pairs with placeholders: the text from which a vocabulary with placeholders is learnt."""
    return (mask_pair(*pair)[:2] for pair in pairs())


def masked_lines(
    sources: Sequence[str], targets: Sequence[str], tokenizer: Tokenizer
) -> tuple[Sequence[str], Sequence[str]]:
    """Returns both sides of pairs with placeholders, or unchanged if the vocabulary has none."""
    if not tokenizer.placeholders:
        return sources, targets
    tags = tokenizer.source_symbols
    pairs = [mask_pair(*pair, tags)[:2] for pair in zip(sources, targets, strict=True)]
    return [source for source, _ in pairs], [target for _, target in pairs]


def masked_sides(sources: Side, targets: Side, tokenizer: Tokenizer) -> tuple[Side, Side]:
    """Does the same as `masked_lines` for lines of `Side.of_lines`."""
    if not tokenizer.placeholders:
        return sources, targets
    masked = masked_lines(sources.lines(), targets.lines(), tokenizer)
    return Side.of_lines(masked[0]), Side.of_lines(masked[1])


def check_placeholders(config: DataConfig, given: Tokenizer) -> None:
    """Checks that the vocabulary of `data.tokenizer.path` has placeholders if `data.placeholders` is on.

    Raises:
        UserError: only one of the two has them.
    """
    if config.placeholders != bool(given.placeholders):
        has, wanted = ("has", "true") if given.placeholders else ("has no", "false")
        raise UserError(
            f"data.placeholders={str(config.placeholders).lower()}: the vocabulary of "
            f"{config.tokenizer.path} {has} placeholders. Set data.placeholders={wanted}."
        )
