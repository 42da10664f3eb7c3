"""Validation and test text: one set without a name, or several named sets with their languages and tags."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from nmt.config import DataConfig, SetConfig, SplitConfig, TaggedConfig
from nmt.data.corpora.corpus import Corpus, given_options, open_corpus, options_of, refuse_both
from nmt.data.corpora.malformed import for_split
from nmt.data.corpora.text import expand, file_facts, read_lines
from nmt.data.subwords.tokenizer import check_tag
from nmt.errors import UserError


@dataclass(frozen=True)
class HeldOut:
    """The raw text of the validation or test, or of one of its named sets, with all its lines."""

    name: str
    sources: list[str] = field(repr=False)
    references: list[str] = field(repr=False)
    groups: list[str] | None = field(repr=False)
    """A label per line, or None."""
    facts: dict[str, Any]
    """As in `Corpus`."""
    tag: str | None = None
    """Prefix of every source."""
    source_lang: str = ""
    """Language of the sources, by the options."""
    target_lang: str = ""
    """Language of the references; that of the data if they are in several."""
    target_langs: Sequence[str] = field(default=(), repr=False)
    """Language of each reference, if they are in several."""

    @property
    def inputs(self) -> list[str]:
        """The inputs of the model: the sources, each with the tag before it. A blank source gets no tag."""
        if self.tag is None:
            return self.sources
        return [f"{self.tag} {source}" if source.strip() else source for source in self.sources]


def is_given(split: SplitConfig) -> bool:
    """Whether a split names data."""
    return bool(split.sets or given_options(split))


def read_sets(
    split: SplitConfig, data: DataConfig, key: str, trained_on: DataConfig | None = None
) -> dict[str, HeldOut]:
    """Reads all sets of the validation or test by their names; see `sets_of` and `read_held_out`."""
    sets = sets_of(split, data, key, trained_on)
    return {name: read_held_out(*options, trained_on) for name, options in sets.items()}


def sets_of(
    split: SplitConfig, data: DataConfig, key: str, trained_on: DataConfig | None = None
) -> dict[str, tuple[TaggedConfig, DataConfig, str]]:
    """Returns the arguments of `read_held_out` for each set of the validation or test by its name.

    The name of a single set without a name is empty. A named set without `target_lang` is in the language of
    its tag, if it has one.

    Raises:
        UserError: both a single set and `sets` are given.
    """
    if not split.sets:
        return {"": (split, data, key)}
    refuse_both(split, key, "sets")
    sets: dict[str, tuple[TaggedConfig, DataConfig, str]] = {}
    for name, options in split.sets.items():
        of_tag = (trained_on or data).target_langs([options.tag or ""], data.target_lang)[0]
        named = replace(options, target_lang=options.target_lang or of_tag)
        sets[name] = options, options_of(named, data), f"{key}.sets.{name}"
    return sets


def read_held_out(
    split: TaggedConfig, data: DataConfig, key: str, trained_on: DataConfig | None = None
) -> HeldOut:
    """Reads a set of the validation or test with all its lines, blank ones included; see `open_corpus`.

    The corpora of `trained_on`, the data of a model, or else those of `data`, have the languages of the tags.

    Raises:
        UserError: as `open_corpus` and `Corpus.pairs`; the number of groups differs from that of the pairs,
            or the number of names from that of the files; or the tag can't be a piece.
    """
    if split.tag is not None:
        check_tag(split.tag, f"{key}.tag")
    corpus = open_corpus(split, data, key)
    malformed = for_split(corpus.max_malformed, None if split.groups is None else f"{key}.groups")
    pairs = list(corpus.pairs(malformed))
    malformed.warn(key)
    groups, facts = None, corpus.facts
    if split.groups is not None:
        files = expand(split.groups, f"{key}.groups", several=False)
        groups = [label for path in files for label in read_lines(path)]
        facts = facts | {"groups": [file_facts(path) for path in files]}
        if len(groups) != len(pairs):
            raise UserError(
                f"{key}.groups={split.groups}: has {len(groups)} labels for {len(pairs)} pairs. "
                "Give one label per pair."
            )
    if split.names:
        groups, facts = _names_of_lines(split, corpus, key), facts | {"names": list(split.names)}
    sources, references = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    languages = data.source_lang, data.target_lang
    held_out = HeldOut(corpus.name, sources, references, groups, facts, split.tag, *languages)
    if isinstance(split, SetConfig) and split.target_lang is not None:
        return held_out
    langs = (trained_on or data).target_langs(held_out.inputs, data.target_lang)
    if len(set(langs)) == 1:
        return replace(held_out, target_lang=langs[0])
    return replace(held_out, target_langs=langs)


def _names_of_lines(split: TaggedConfig, corpus: Corpus, key: str) -> list[str]:
    """Returns the name of the file of each pair."""
    option = f"{key}.names=[{','.join(split.names)}]"
    if split.groups is not None:
        raise UserError(f"{option}: {key}.groups is also given. Remove one of them.")
    if len(split.names) != len(corpus.files):
        count = len(corpus.files)
        have = f"{count} {'file' if count == 1 else 'files'}" if count else "data that are not files"
        raise UserError(f"{option}: {len(split.names)} names for {have}. Give one name per file.")
    counts = [sum(len(block[0]) for block in read(corpus.malformed())) for read in corpus.files]
    return [name for name, count in zip(split.names, counts, strict=True) for _ in range(count)]


def by_key(split: str, sets: Mapping[str, HeldOut]) -> dict[str, HeldOut]:
    """Returns the sets of a split by their keys in `data`, such as `valid` and `valid.sets.news`."""
    return {f"{split}.sets.{name}" if name else split: text for name, text in sets.items()}


def held_out_facts(sets: Mapping[str, HeldOut]) -> dict[str, Any]:
    """Returns the part of `results.json` about the data of the validation or test."""
    facts: dict[str, dict[str, Any]] = {
        name: {"corpus": text.name, "sentences": len(text.sources), "tag": text.tag, **text.facts}
        for name, text in sets.items()
    }
    if "" in facts:
        return facts[""]
    for name, text in sets.items():
        facts[name] |= {"source_lang": text.source_lang, "target_lang": text.target_lang}
    return {"sets": facts}
