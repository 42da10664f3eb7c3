"""The training corpora: one, or several by name, each with its cleaning options and its tag."""

from __future__ import annotations

from dataclasses import dataclass, replace

from nmt.config import CleaningConfig, CorpusConfig, DataConfig, HubConfig
from nmt.data.corpora.corpus import Corpus, given_options, open_corpus
from nmt.data.subwords.tokenizer import check_symbols
from nmt.errors import UserError


@dataclass(frozen=True)
class Source:
    """A training corpus with its options.

    Attributes:
        name: name of the corpus; empty for a single corpus without a name.
        corpus: the raw pairs.
        cleaning: the cleaning options.
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
    names = given_options(train) + (["tag"] if train.tag is not None else [])
    if names:
        drop = " ".join(f"data.train.{name}=null" for name in names)
        raise UserError(
            f"data.train.corpora and data.train.{names[0]} are both given. Add {drop}, "
            f"or move it to a corpus of data.train.corpora."
        )
    return [_open(f"data.train.corpora.{name}", name, corpus, data) for name, corpus in train.corpora.items()]


def _open(key: str, name: str, corpus: CorpusConfig, data: DataConfig) -> Source:
    options = replace(
        data,
        hub=hub_of(corpus, data),
        source_key=corpus.source_key or data.source_key,
        target_key=corpus.target_key or data.target_key,
        source_lang=corpus.source_lang or data.source_lang,
        target_lang=corpus.target_lang or data.target_lang,
        cleaning=data.cleaning_of(key, corpus),
    )
    try:
        opened = open_corpus(corpus, options, key)
    except UserError as error:
        if corpus.hub.path is None:
            raise
        raise UserError(str(error).replace("data.hub.", f"{key}.hub.")) from error
    return _source(key, name, opened, options, corpus.tag)


def _source(key: str, name: str, corpus: Corpus, options: DataConfig, tag: str | None) -> Source:
    if tag is not None:
        check_symbols([tag], f"{key}.tag")
    return Source(name, corpus, options.cleaning, (options.source_lang, options.target_lang), tag)


def hub_of(corpus: CorpusConfig, data: DataConfig) -> HubConfig:
    """Returns the hub options of a corpus; what it lacks comes from `data.hub`, unless it has another set."""
    specific, shared = corpus.hub, data.hub
    if specific.path is not None:
        return specific
    return HubConfig(shared.path, specific.name or shared.name, specific.revision or shared.revision)
