"""The lines that the models of a stage translate: the cleaned training sources, or monolingual text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nmt.config import DataConfig
from nmt.data.cache import fingerprint
from nmt.data.corpora.columns import TextBlock
from nmt.data.corpora.held_out import HeldOut
from nmt.data.corpora.text import expand, file_facts, read_blocks
from nmt.data.preparation.cleaned import CleanedText, open_cleaned_text
from nmt.errors import UserError
from nmt.runtime.lazy import cached_property

_BLOCK = 8192  # pairs that are read at a time


@dataclass(frozen=True)
class Lines:
    """The lines that a stage translates.

    Attributes:
        count: their number.
        blocks: reads them in order, as often as it is called.
        fingerprint: identifies them.
        facts: facts about them for the report.
    """

    count: int
    blocks: Callable[[], Iterator[Sequence[str]]] = field(repr=False)
    fingerprint: str
    facts: Mapping[str, Any] = field(default_factory=dict)


class TrainingText:
    """The cleaned training text and the validation text of a run; nothing is read before it is used."""

    def __init__(self, data: DataConfig) -> None:
        self._data = data

    @cached_property
    def _opened(self) -> tuple[CleanedText, dict[str, HeldOut]]:
        return open_cleaned_text(self._data)

    def sources(self, corpus: str) -> Lines:
        """Returns the sources of the cleaned pairs of a corpus, without tags."""
        cleaned, _ = self._opened
        index = [source.name for source in cleaned.sources].index(corpus) if self._data.train.corpora else 0
        texts = cleaned.nonempty_texts()[index]
        # Of equal pairs in several corpora, that of the first one is retained.
        identity = fingerprint(cleaned.fingerprints[: index + 1])[:16]
        return Lines(texts.num_pairs, lambda: (sources for sources, _ in texts.blocks(_BLOCK)), identity)

    def pairs(self) -> Iterator[TextBlock]:
        """Yields the cleaned pairs of all corpora in the languages of the data, without tags."""
        cleaned, _ = self._opened
        for source, texts in zip(cleaned.sources, cleaned.nonempty_texts(), strict=True):
            if source.languages == self._languages:
                yield from texts.blocks(_BLOCK)

    def valid_pairs(self) -> TextBlock:
        """Returns the pairs of all validation sets in the languages of the data, without tags."""
        _, valid = self._opened
        sets = [text for text in valid.values() if (text.source_lang, text.target_lang) == self._languages]
        return [line for text in sets for line in text.sources], [
            line for text in sets for line in text.references
        ]

    @property
    def _languages(self) -> tuple[str, str]:
        return self._data.source_lang, self._data.target_lang


def monolingual_lines(data: DataConfig) -> Lines:
    """Returns the lines of `data.monolingual.target` that are not blank.

    Raises:
        UserError: a file is missing or damaged, or there are none.
    """
    key = "data.monolingual.target"
    files = expand(data.monolingual.target, key)

    def blocks() -> Iterator[Sequence[str]]:
        for file in files:
            for block in read_blocks(file):
                yield [line for line in block if line.strip()]

    total = sum(len(block) for file in files for block in read_blocks(file))
    count = sum(map(len, blocks()))
    if not count:
        names = ", ".join(file.name for file in files)
        raise UserError(f"{key}: {names} has no sentences. Give a text file with one sentence per line.")
    identity = fingerprint([file_facts(file) for file in files])[:16]
    return Lines(count, blocks, identity, {"blank_lines": total - count})
