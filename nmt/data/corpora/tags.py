"""Tags: the first word of a source, which tells the model the kind of text or the language to write."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from nmt.data.corpora.corpus import HeldOut
from nmt.data.corpora.sources import Source
from nmt.errors import UserError
from nmt.runtime import log


def known_tags(user_symbols: Sequence[str], sources: Sequence[Source]) -> list[str]:
    """What may be a tag: the tokenizer's user symbols, and the tags of the corpora."""
    tags = dict.fromkeys(source.tag for source in sources if source.tag is not None)
    return [*user_symbols, *(tag for tag in tags if tag not in user_symbols)]


def check_tags(held_out: Mapping[str, HeldOut], sources: Sequence[Source], known: Collection[str]) -> None:
    """Compares the tags of held-out text with those of the corpora; warns where one may have been forgotten.

    Args:
        held_out: by the name of the split.
        sources: the training corpora.
        known: as `known_tags` gives them.

    Raises:
        UserError: the tag of a split is none that the model will know.
    """
    all_tagged = all(source.tag is not None for source in sources)
    for name, split in held_out.items():
        key = f"data.{name}.tag"
        if split.tag is not None and split.tag not in known:
            others = f", only {', '.join(known)}" if known else ""
            raise UserError(f"{key}={split.tag}: no training corpus has this tag{others}")
        if all_tagged and split.tag is None and not first_words(split.sources) <= set(known):
            log.warning(
                "data.%s has no tag, but every training corpus has one, so the model learns from no source "
                "without; set %s to one of %s",
                name, key, ", ".join(known),
            )  # fmt: skip


def check_pieces(sources: Sequence[Source], pieces: Collection[str], path: str) -> None:
    """Makes sure that a vocabulary which is given has the tags of the corpora.

    Args:
        sources: the training corpora.
        pieces: the symbols of the vocabulary.
        path: where it was taken from.

    Raises:
        UserError: it lacks one.
    """
    for source in sources:
        if source.tag is not None and source.tag not in pieces:
            key = f"data.train.corpora.{source.name}.tag" if source.name else "data.train.tag"
            others = f", only {', '.join(pieces)}" if pieces else ""
            raise UserError(f"{key}={source.tag}: the vocabulary of {path} has no such piece{others}")


def first_words(texts: Iterable[str]) -> set[str]:
    """The first word of each text that has any."""
    return {text.split(None, 1)[0] for text in texts if text.strip()}


def without_tag(text: str, tags: Collection[str]) -> str:
    """What follows the tag that is the first word of a text; the text itself if none is or nothing does."""
    words = text.split(None, 1)
    return words[1] if len(words) == 2 and words[0] in tags else text
