"""Tags for a model without placeholders: lines are translated without them, and word links place them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from nmt.copying.aligned_tags import proportional_links, removed_tags, with_tags
from nmt.copying.strings import MARKUP
from nmt.errors import UserError

if TYPE_CHECKING:
    from nmt.decoding.searcher import SearchRequest
    from nmt.decoding.translation import Translation
    from nmt.decoding.translator import Translator


def translated_without_tags(
    translate: Callable[[Sequence[str], bool], Sequence[Translation]], lines: Sequence[str], *, aligned: bool
) -> list[Translation]:
    """Returns the translations of lines, with their tags.

    Args:
        translate: translates lines, with the alignments of their words if its second argument is true.
        lines: lines with tags, and with variables, which are placed as tags are.
        aligned: whether there are alignments; without them, a tag is at the same share of its line.
    """
    if not lines:
        return []
    bare, elements = zip(*(removed_tags(line, MARKUP) for line in lines), strict=True)
    return [
        replace(
            translation,
            hypotheses=tuple(
                replace(
                    one,
                    text=with_tags(one.text, tags, one.alignment or proportional_links(line, one.text)),
                    alignment=(),
                )
                for one in translation.hypotheses
            ),
        )
        for translation, line, tags in zip(
            translate(bare, aligned and any(elements)), bare, elements, strict=True
        )
    ]


def can_align(translator: Translator) -> bool:
    """Returns whether translations can have alignments."""
    from nmt.decoding.searcher import SearchRequest  # imports torch, for which --help does not wait

    return can(translator, SearchRequest(alignments=True))


def can(translator: Translator, request: SearchRequest, *, constraints: bool = False) -> bool:
    """Returns whether the searcher of a translator can answer a request."""
    try:
        translator.searcher.prepare(request, constraints=constraints)
    except UserError:
        return False
    return True
