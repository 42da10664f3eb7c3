"""Tags: the first word of a source, which specifies the kind of text or the target language."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from nmt.data.corpora.corpus import HeldOut
from nmt.data.corpora.sources import Source
from nmt.errors import UserError
from nmt.runtime import log


def known_tags(user_symbols: Sequence[str], sources: Sequence[Source]) -> list[str]:
    """Returns the possible tags: the user symbols of the tokenizer, and the tags of the corpora."""
    tags = dict.fromkeys(source.tag for source in sources if source.tag is not None)
    return [*user_symbols, *(tag for tag in tags if tag not in user_symbols)]


def check_tags(held_out: Mapping[str, HeldOut], sources: Sequence[Source], known: Collection[str]) -> None:
    """Checks the tags of held-out text against those of the corpora. Warns if a tag may be missing.

    Args:
        held_out: the held-out text by the name of its split.
        sources: the training corpora.
        known: the result of `known_tags`.

    Raises:
        UserError: the tag of a split is unknown to the model.
    """
    all_tagged = all(source.tag is not None for source in sources)
    for name, split in held_out.items():
        key = f"data.{name}.tag"
        if split.tag is not None and split.tag not in known:
            others = f", only {', '.join(known)}" if known else ""
            raise UserError(f"{key}={split.tag}: no training corpus has this tag{others}")
        if all_tagged and split.tag is None and not first_words(split.sources) <= set(known):
            log.warning(
                "data.%s has no tag, but every training corpus has one, so the model sees no source without "
                "a tag in training. Set %s to one of %s.",
                name, key, ", ".join(known),
            )  # fmt: skip


def check_pieces(sources: Sequence[Source], pieces: Collection[str], path: str) -> None:
    """Checks that a given vocabulary contains the tags of the corpora.

    Args:
        sources: the training corpora.
        pieces: the symbols of the vocabulary.
        path: the path of the vocabulary, for the message.

    Raises:
        UserError: a tag is missing.
    """
    for source in sources:
        if source.tag is not None and source.tag not in pieces:
            key = f"data.train.corpora.{source.name}.tag" if source.name else "data.train.tag"
            others = f", only {', '.join(pieces)}" if pieces else ""
            raise UserError(f"{key}={source.tag}: the vocabulary of {path} has no such piece{others}")


def first_words(texts: Iterable[str]) -> set[str]:
    """Returns the first word of each text that is not blank."""
    return {text.split(None, 1)[0] for text in texts if text.strip()}


def without_tag(text: str, tags: Collection[str]) -> str:
    """Removes the tag at the beginning of a text, if there is one and text after it."""
    words = text.split(None, 1)
    return words[1] if len(words) == 2 and words[0] in tags else text
