"""The first stage of preparation: the cleaned text of all training corpora, cached corpus by corpus."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nmt.config import DataConfig
from nmt.data.cache import Folders, cached_or_built, fingerprint
from nmt.data.cleaning.clean_text import Texts, clean_texts, shard_name, write_repeats_across
from nmt.data.cleaning.cleaner import CleaningReport, Rule, build_rules, rule_facts
from nmt.data.corpora.held_out import HeldOut, by_key, is_given, read_sets
from nmt.data.corpora.sources import Source, known_tags, open_sources
from nmt.errors import UserError
from nmt.runtime.files import cache_folder, expanded
from nmt.runtime.lazy import cached_property
from nmt.runtime.machine import available_cores

FORMAT = 6  # of the cached data; with another number, all data are prepared again
SHARD_PAIRS = 65_536  # raw pairs per shard, fewer if they are long


class CleanedText:
    """The cleaned text of all training corpora. It is read when `texts` is used first.

    Args:
        config: the options of the data.
        sources: the corpora.
        held_out: the validation and test text, whose pairs are dropped.
        shard_pairs: raw pairs per shard.

    Attributes:
        folders: the folders of the cache.
        tags: the possible tags of a source.
        fingerprints: one of the cleaned text of each corpus, independent of other corpora.
        workers: processes that prepare the data.
    """

    def __init__(
        self,
        config: DataConfig,
        sources: Sequence[Source],
        held_out: Sequence[HeldOut],
        shard_pairs: int = SHARD_PAIRS,
    ) -> None:
        self.sources, self._shard_pairs = sources, shard_pairs
        self.workers = config.workers or available_cores()
        self.folders = Folders(expanded(config.cache_dir) if config.cache_dir else cache_folder())
        self.tags = known_tags(config.tokenizer.user_symbols, sources)
        self._rules = [
            build_rules(source.cleaning, *held_out, languages=source.languages, tags=self.tags)
            for source in sources
        ]
        self.fingerprints = list(map(self._fingerprint, sources, self._rules))

    @cached_property
    def texts(self) -> list[Texts]:
        """The text of each corpus, without duplicates in the corpus and across corpora."""
        texts = []
        for source, rules, name in zip(self.sources, self._rules, self.fingerprints, strict=True):
            folder = self.folders.folder("text", name)
            texts.append(
                clean_texts(folder, source.corpus, rules, source.cleaning, self._shard_pairs, self.workers)
            )
        if any(self.repeats_file(index) for index in range(len(texts))):

            def build(part: Path) -> dict[str, Any]:
                paths = [part / shard_name(index) for index in range(len(texts))]
                write_repeats_across(texts, [source.cleaning for source in self.sources], paths)
                return {}

            cached_or_built(self._repeats_folder, build)
        return [Texts(self.folder(index), self.repeats_file(index)) for index in range(len(texts))]

    def nonempty_texts(self) -> list[Texts]:
        """Returns `texts`.

        Raises:
            UserError: no pairs of a corpus remain.
        """
        for source, texts in zip(self.sources, self.texts, strict=True):
            check_not_empty(source, texts.report())
        return self.texts

    def folder(self, index: int) -> Path:
        """Returns the folder with the text of a corpus."""
        return self.folders.folder("text", self.fingerprints[index])

    def repeats_file(self, index: int) -> Path | None:
        """Returns the file with the duplicates of a corpus across corpora, or None if it has no such file.

        The first corpus has none, and neither does a corpus that retains duplicates and near-duplicates.
        """
        cleaning = self.sources[index].cleaning
        if not index or not (cleaning.drop_duplicates or cleaning.drop_near_duplicates):
            return None
        return self._repeats_folder / shard_name(index)

    @property
    def _repeats_folder(self) -> Path:
        return self.folders.folder("repeats", fingerprint([FORMAT, self.fingerprints]))

    def _fingerprint(self, source: Source, rules: Sequence[Rule]) -> str:
        repeats = [
            name for name in ("drop_duplicates", "drop_near_duplicates") if getattr(source.cleaning, name)
        ]
        return fingerprint([FORMAT, self._shard_pairs, source.corpus.facts, rule_facts(rules), repeats])


def read_held_out_sets(config: DataConfig) -> tuple[dict[str, HeldOut], dict[str, HeldOut]]:
    """Returns the validation sets and the test sets by their names; there may be no test sets."""
    valid = read_sets(config.valid, config, "data.valid")
    return valid, read_sets(config.test, config, "data.test") if is_given(config.test) else {}


def open_cleaned_text(config: DataConfig) -> tuple[CleanedText, dict[str, HeldOut]]:
    """Returns the cleaned text of the training corpora, and the validation sets by their names.

    Raises:
        UserError: data are missing or damaged.
    """
    valid, test = read_held_out_sets(config)
    held_out = by_key("valid", valid) | by_key("test", test)
    return CleanedText(config, open_sources(config), list(held_out.values())), valid


def check_not_empty(source: Source, report: CleaningReport) -> None:
    """Raises `UserError` if no pairs of a corpus remain."""
    if not report.kept:
        table = "; ".join(" ".join(line.split()) for line in report.table().splitlines())
        key = source.corpus.key
        fix = report.hint or "Check data.cleaning."
        raise UserError(f"{key}: no pairs remain after cleaning ({table}). {fix}")
