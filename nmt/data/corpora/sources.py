"""The corpora that training draws from: one, or several by name, each cleaned and tagged in its own way."""

from __future__ import annotations

from dataclasses import dataclass, replace

from nmt.config import CleaningConfig, CorpusConfig, DataConfig, HubConfig
from nmt.data.corpora.corpus import Corpus, given_options, open_corpus
from nmt.data.subwords.tokenizer import check_symbols
from nmt.errors import UserError


@dataclass(frozen=True)
class Source:
    """A corpus and what is done with it.

    Attributes:
        name: among several corpora; empty where there is but one without a name.
        corpus: its pairs, raw.
        cleaning: how it is cleaned.
        languages: language codes of source and target.
        tag: what is put before every source.
    """

    name: str
    corpus: Corpus
    cleaning: CleaningConfig
    languages: tuple[str, str]
    tag: str | None = None


def open_sources(data: DataConfig) -> list[Source]:
    """Finds all training corpora, in the order of the options, without reading the pairs yet.

    Raises:
        UserError: nothing is given, one corpus and several are, or data cannot be found.
    """
    train = data.train
    if not train.corpora:
        return [_source("data.train", "", open_corpus(train, data, "data.train"), data, train.tag)]
    names = given_options(train) + (["tag"] if train.tag is not None else [])
    if names:
        drop = " ".join(f"data.train.{name}=null" for name in names)
        raise UserError(
            f"data.train.corpora and data.train.{names[0]} are both given, and only one can be: add {drop}, "
            f"or make it one of the corpora"
        )
    return [_open(f"data.train.corpora.{name}", name, corpus, data) for name, corpus in train.corpora.items()]


def _open(key: str, name: str, corpus: CorpusConfig, data: DataConfig) -> Source:
    own = replace(
        data,
        hub=hub_of(corpus, data),
        source_key=corpus.source_key or data.source_key,
        target_key=corpus.target_key or data.target_key,
        source_lang=corpus.source_lang or data.source_lang,
        target_lang=corpus.target_lang or data.target_lang,
        cleaning=data.cleaning_of(key, corpus),
    )
    try:
        opened = open_corpus(corpus, own, key)
    except UserError as error:
        if corpus.hub.path is None:
            raise
        raise UserError(str(error).replace("data.hub.", f"{key}.hub.")) from error
    return _source(key, name, opened, own, corpus.tag)


def _source(key: str, name: str, corpus: Corpus, own: DataConfig, tag: str | None) -> Source:
    if tag is not None:
        check_symbols([tag], f"{key}.tag")
    return Source(name, corpus, own.cleaning, (own.source_lang, own.target_lang), tag)


def hub_of(corpus: CorpusConfig, data: DataConfig) -> HubConfig:
    """What a corpus gives itself; the rest is shared, unless it names another set."""
    own, shared = corpus.hub, data.hub
    if own.path is not None:
        return own
    return HubConfig(shared.path, own.name or shared.name, own.revision or shared.revision)
