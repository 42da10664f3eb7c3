"""The training corpora: one, or several by name, each with its cleaning options and its tag.

A tag is the first word of a source. It specifies the kind of text or the target language.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from nmt.config import CleaningConfig, CorpusConfig, DataConfig
from nmt.data.corpora.corpus import Corpus, open_corpus, options_of, refuse_both
from nmt.data.corpora.held_out import HeldOut
from nmt.data.subwords.tokenizer import check_tag
from nmt.errors import UserError
from nmt.runtime.streams import log


@dataclass(frozen=True)
class Source:
    """A training corpus with its options.

    Attributes:
        name: name of the corpus; empty for a single corpus without a name.
        corpus: the raw pairs.
        languages: language codes of source and target.
        tag: prefix of every source.
    """

    name: str
    corpus: Corpus
    cleaning: CleaningConfig
    languages: tuple[str, str]
    tag: str | None = None


def open_sources(data: DataConfig) -> list[Source]:
    """Opens all training corpora, in the order of the options, without reading their pairs.

    Raises:
        UserError: no corpus is given, both a single corpus and `corpora` are given, or data are not found.
    """
    train = data.train
    if not train.corpora:
        return [_source("data.train", "", open_corpus(train, data, "data.train"), data, train.tag)]
    refuse_both(train, "data.train", "corpora")
    return [_open(f"data.train.corpora.{name}", name, corpus, data) for name, corpus in train.corpora.items()]


def _open(key: str, name: str, corpus: CorpusConfig, data: DataConfig) -> Source:
    options = replace(options_of(corpus, data), cleaning=data.cleaning_of(key, corpus))
    return _source(key, name, open_corpus(corpus, options, key), options, corpus.tag)


def _source(key: str, name: str, corpus: Corpus, options: DataConfig, tag: str | None) -> Source:
    if tag is not None:
        check_tag(tag, f"{key}.tag")
    return Source(name, corpus, options.cleaning, (options.source_lang, options.target_lang), tag)


def known_tags(user_symbols: Sequence[str], sources: Sequence[Source]) -> list[str]:
    """Returns the possible tags: the user symbols of the tokenizer, and the tags of the corpora."""
    tags = dict.fromkeys(source.tag for source in sources if source.tag is not None)
    return [*user_symbols, *(tag for tag in tags if tag not in user_symbols)]


def check_tags(held_out: Mapping[str, HeldOut], sources: Sequence[Source], known: Collection[str]) -> None:
    """Checks the tags of held-out text against those of the corpora. Warns if a tag may be missing.

    `held_out` has the text of each set by its key, without `data.`; `known` is the result of `known_tags`.

    Raises:
        UserError: the tag of a set is unknown to the model.
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
    """Checks that the given vocabulary of `path`, with these `pieces`, contains the tags of corpora.

    Raises:
        UserError: a tag is missing.
    """
    for source in sources:
        if source.tag is not None and source.tag not in pieces:
            key = f"data.train.corpora.{source.name}.tag" if source.name else "data.train.tag"
            others = f", only {', '.join(pieces)}" if pieces else ""
            raise UserError(
                f"{key}={source.tag}: the vocabulary of {path} has no such piece{others}. "
                "Set data.tokenizer.extend=always."
            )


def first_words(texts: Iterable[str]) -> set[str]:
    """Returns the first word of each text that is not blank."""
    return {text.split(None, 1)[0] for text in texts if text.strip()}


def without_tag(text: str, tags: Collection[str]) -> str:
    """Removes the tag at the beginning of a text, if there is one and text after it."""
    words = text.split(None, 1)
    return words[1] if len(words) == 2 and words[0] in tags else text
