"""The constraints of the lines of a text: phrases, their ids, and the phrases that a translation lacks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from nmt.decoding.constraints.automaton import Automaton
from nmt.errors import UserError

if TYPE_CHECKING:
    from nmt.data.subwords.tokenizer import Tokenizer

PhraseIds = Sequence[Sequence[int]]
"""The ids of each phrase of a sentence."""


class Phrases:
    """The phrases that the translation of each line must contain.

    Args:
        texts: for each line its phrases.
        tokenizer: splits the phrases into target pieces.
        masked: the phrases with placeholders in place of strings of the line; None: they have none.

    Raises:
        UserError: a phrase has no pieces, for example because it is blank.
    """

    def __init__(
        self,
        texts: Sequence[Sequence[str]],
        tokenizer: Tokenizer,
        masked: Sequence[Sequence[str]] | None = None,
    ) -> None:
        self.texts = texts
        encoded = iter(tokenizer.encode_target([text for line in masked or texts for text in line]))
        self.ids: list[PhraseIds] = [[next(encoded) for _ in line] for line in texts]
        for number, (line, ids) in enumerate(zip(texts, self.ids, strict=True), 1):
            for text, pieces in zip(line, ids, strict=True):
                if not pieces:
                    raise UserError(f"constraints of line {number}: {text!r} has no pieces. Remove it.")

    def unmet(self, line: int, automaton: Automaton | None, ids: Sequence[int]) -> tuple[str, ...]:
        """Returns the phrases that a translation lacks.

        Args:
            line: index of the line.
            automaton: that of the phrases of the line; None: it has no phrases.
            ids: the ids of the translation, without EOS.
        """
        texts = self.texts[line]
        return () if automaton is None else tuple(texts[index] for index in automaton.unmet(ids))


def separated(phrases: Sequence[str], tokenizer: Tokenizer) -> tuple[list[str], tuple[str, ...]]:
    """Returns the phrases that a translation can contain, and those without pieces, such as a blank."""
    pairs = [*zip(phrases, tokenizer.encode_target(phrases), strict=True)]
    return [text for text, ids in pairs if ids], tuple(text for text, ids in pairs if not ids)
