"""Preparation of the data: cleaning, tokenizer training and encoding. The result of each stage is cached."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial, reduce
from pathlib import Path
from typing import Any

import sentencepiece as spm

from nmt.config import DataConfig, Extension, TokenizerConfig
from nmt.copying.strings import PLACEHOLDERS, VERSION, mask_pair
from nmt.data.cache import cache_errors, cached_or_built, fingerprint
from nmt.data.cleaning.clean_text import killed_workers, report_of, report_to_json, shard_name
from nmt.data.cleaning.cleaner import CleaningReport
from nmt.data.corpora.columns import TextBlock
from nmt.data.corpora.held_out import HeldOut, by_key, held_out_facts
from nmt.data.corpora.mixture import mean_draws
from nmt.data.corpora.sources import Source, check_tags, known_tags, open_sources, without_tag
from nmt.data.preparation.cleaned import FORMAT, SHARD_PAIRS, CleanedText, check_not_empty, read_held_out_sets
from nmt.data.preparation.encoding import Encoder, encoded_set, encoded_texts, encoder_fingerprint
from nmt.data.preparation.evidence import evidence
from nmt.data.preparation.given_vocabulary import given_vocabulary, has_many_bytes
from nmt.data.preparation.samples import pairs_for_pieces, samples_of
from nmt.data.preparation.source_text import FINGERPRINT, NUM_LINES, text_facts
from nmt.data.store import Shard, Store
from nmt.data.subwords import normalization
from nmt.data.subwords.extension import extended
from nmt.data.subwords.learning import num_characters, recommended_size, train_tokenizer
from nmt.data.subwords.tokenizer import Tokenizer
from nmt.runtime.lazy import cached_property
from nmt.runtime.streams import log, progress
from nmt.runtime.workers import run_ordered


@dataclass(frozen=True)
class Prepared:
    """The data for training. The name of a single validation or test set without a name is empty.

    Attributes:
        tokenizer: the tokenizer, learnt from the cleaned training text.
        train: encoded training pairs.
        valid: name of each validation set → its raw text.
        test: name of each test set → its raw text; empty if there is no test.
        valid_stores: name of each validation set → all its pairs, encoded, with sides truncated to
            `VALID_PIECES`.
        report: the content of `results.json["data"]`. The same data and options give the same report.
        fingerprint: identifies the training pairs and their segmentation into pieces.
        vocab_size: `data.tokenizer.vocab_size`, or the number chosen for `auto`.
        given: the tokenizer of `data.tokenizer.path`.
        cleaned: yields the text of the training pairs, block by block, without tags.
    """

    tokenizer: Tokenizer
    train: Store
    valid: Mapping[str, HeldOut]
    test: Mapping[str, HeldOut]
    valid_stores: Mapping[str, Store]
    report: dict[str, Any]
    fingerprint: str
    vocab_size: int = 0
    given: Tokenizer | None = None
    cleaned: Callable[[], Iterator[TextBlock]] = field(default=lambda: iter(()), repr=False)

    @property
    def is_extended(self) -> bool:
        """Whether the vocabulary is that of `data.tokenizer.path` with new pieces."""
        return self.given is not None and self.given.fingerprint != self.tokenizer.fingerprint


def prepare(config: DataConfig, *, shard_pairs: int = SHARD_PAIRS, checked: bool = False) -> Prepared:
    """Prepares the data, or opens data that were prepared earlier.

    There are three stages: the cleaned text of each corpus, the tokenizer, and the ids of each corpus. Each
    stage is cached in folders whose names identify everything that the stage depends on. A changed option
    repeats only the stages that depend on it. Changed code of tokenizer or encoder repeats the encoding, so
    that a corrected error never meets old ids. An interrupted preparation resumes. The result does not depend
    on the number of processes. `checked`: another process of this machine has just opened, and so checked,
    the same data.

    Raises:
        UserError: data are missing or damaged, the cache can't be written, or no pairs remain after cleaning.
    """
    sources = open_sources(config)
    config, existing = given_vocabulary(config, sources)
    valid, test = read_held_out_sets(config)
    held_out = by_key("valid", valid) | by_key("test", test)
    check_tags(held_out, sources, known_tags(config.tokenizer.user_symbols, sources))
    warnings = [] if checked else evidence(sources, held_out)
    cleaned = CleanedText(config, sources, list(held_out.values()), shard_pairs)
    stages = _Stages(config, cleaned, existing, checked)
    with cache_errors():
        tokenizer, text = stages.tokenizer(), stages.text_facts()
        stores, reports, changed = zip(*stages.encoded(tokenizer), strict=True)
    if config.cache_days and stages.encoded_any:
        stages.folders.forget_unused(config.cache_days)
    train = Store.joined(stores)
    cleaning = reduce(CleaningReport.merge, reports)
    report: dict[str, Any] = {
        "name": config.name,
        "source_lang": config.source_lang,
        "target_lang": config.target_lang,
        "train": _train_facts(config, sources, train, reports),
        "valid": held_out_facts(valid),
        **({"test": held_out_facts(test)} if test else {}),
        **({"warnings": warnings} if warnings else {}),
        "cleaning": {**cleaning.as_dict(), "words": cleaning.words},
        "text": text,
        "normalization": normalization.summed(changed),
        "source_tokens": train.num_source_tokens,
        "target_tokens": train.num_target_tokens,
        "mean_source_tokens": round(train.num_source_tokens / train.num_pairs, 4),
        "mean_target_tokens": round(train.num_target_tokens / train.num_pairs, 4),
        "vocab_size": stages.tokenizer_options.vocab_size,
        "source_vocab_size": tokenizer.source.size,
        "target_vocab_size": tokenizer.target.size,
        "tokenizer": tokenizer.fingerprint,
        "fingerprint": stages.fingerprint(tokenizer),
    }
    normalization.warn_of_changed_targets(report["normalization"]["target"], "the target lines")
    return Prepared(
        tokenizer=tokenizer,
        train=train,
        valid=valid,
        test=test,
        valid_stores={name: encoded_set(tokenizer, text) for name, text in valid.items()},
        report=report,
        fingerprint=report["fingerprint"],
        vocab_size=stages.tokenizer_options.vocab_size,
        given=existing,
        cleaned=partial(stages.cleaned, stores),
    )


class _Stages:
    """The three stages of preparation. A stage runs the stage before it only if its own result is not cached.

    Attributes:
        text: the first stage.
        encoded_any: whether the text of any corpus was encoded.
    """

    def __init__(
        self, config: DataConfig, text: CleanedText, existing: Tokenizer | None, checked: bool
    ) -> None:
        self._config, self._existing, self._checked = config, existing, checked
        self.text, self.folders, self._sources, self._tags = text, text.folders, text.sources, text.tags
        self._text_fingerprints = text.fingerprints
        self.encoded_any = False
        self._new_symbols = [tag for tag in text.tags if existing and tag not in existing.source_symbols]

    @cached_property
    def tokenizer_options(self) -> TokenizerConfig:
        """The options of the tokenizer, with a number in place of `vocab_size=auto`."""
        options = self._config.tokenizer
        size = self._vocab_size() if options.vocab_size == "auto" else options.vocab_size
        symbols = [*self._tags, *PLACEHOLDERS] if self._config.placeholders else self._tags
        return replace(options, user_symbols=symbols, vocab_size=size)

    def _vocab_size(self) -> int:
        if self._existing is not None:
            return self.tokenizer().source.size
        joint, coverage = self._config.tokenizer.joint, self._config.tokenizer.character_coverage

        def build(part: Path) -> dict[str, Any]:
            texts = self.text.nonempty_texts()
            sample = pairs_for_pieces(texts, self._config)
            return {
                "pairs": sum(text.num_pairs for text in texts),
                "characters": num_characters(sample, coverage, joint=joint),
            }

        sampled = self._config.tokenizer.sample_pairs
        counted = cached_or_built(
            self.folders.folder("size", fingerprint([FORMAT, self._mixture, joint, coverage, sampled])), build
        )
        size = recommended_size(**counted, joint=joint)
        log.info(
            "data.tokenizer.vocab_size=auto: %d%s, for %s cleaned training pairs",
            *(size, "" if joint else " per side", f"{counted['pairs']:,}"),
        )
        return size

    @cached_property
    def _tokenizer_folder(self) -> Path:
        """Its name identifies the given tokenizer, or everything that the training depends on."""
        if self._existing is not None:
            given, own = [FORMAT, self._existing.fingerprint], self._config.tokenizer
            if self._extends:
                given += [spm.__version__, self._mixture, self._new_symbols, *self._placeholder_facts]
                given += [own.character_coverage, own.sample_pairs]
            return self.folders.folder("tokenizer", fingerprint(given))
        facts = [FORMAT, spm.__version__, self._mixture, asdict(self.tokenizer_options)]
        return self.folders.folder("tokenizer", fingerprint([*facts, *self._placeholder_facts]))

    @cached_property
    def _extends(self) -> bool:
        """Whether the given vocabulary gets new pieces."""
        existing, extend = self._existing, self._config.tokenizer.extend
        if existing is None or extend is not Extension.auto or self._new_symbols:
            return existing is not None and extend is not Extension.never

        def build(part: Path) -> dict[str, Any]:
            samples = [text.sample(normalization.SAMPLE_PAIRS) for text in self.text.nonempty_texts()]
            return {"many": has_many_bytes(map(self._masked, samples), existing)}

        facts = [FORMAT, existing.fingerprint, self._text_fingerprints, *self._placeholder_facts]
        return bool(cached_or_built(self.folders.folder("bytes", fingerprint(facts)), build)["many"])

    def _pairs(self) -> Iterator[tuple[str, str]]:
        return self._masked(pairs_for_pieces(self.text.nonempty_texts(), self._config))

    def _masked(self, pairs: Iterator[tuple[str, str]]) -> Iterator[tuple[str, str]]:
        return (mask_pair(*pair)[:2] for pair in pairs) if self._config.placeholders else pairs

    def tokenizer(self) -> Tokenizer:
        """Trains the tokenizer, or copies or extends the given tokenizer."""

        def build(part: Path) -> dict[str, Any]:
            if self._existing is None:
                chosen = self._config.tokenizer.vocab_size == "auto"
                train_tokenizer(self._pairs, self.tokenizer_options, part, chosen_size=chosen)
            elif self._extends:
                extended(self._existing, self._pairs, self._new_symbols, self._config.tokenizer).save(part)
            else:
                self._existing.save(part)
            return {}

        cached_or_built(self._tokenizer_folder, build, checked=self._checked)
        return Tokenizer.load(self._tokenizer_folder)

    def text_facts(self) -> dict[str, Any]:
        """Computes facts about the training sources; see `nmt.data.preparation.source_text`."""
        languages = [source.languages for source in self._sources]

        def build(part: Path) -> dict[str, Any]:
            samples = samples_of(self.text.nonempty_texts(), self._config, NUM_LINES)
            langs, pairs = zip(
                *((pair, one) for some, pair in zip(samples, languages, strict=True) for one in some),
                strict=True,
            )
            return text_facts([(without_tag(source, self._tags), target) for source, target in pairs], langs)

        facts = [FORMAT, self._mixture, languages, self._tags, *FINGERPRINT]
        return cached_or_built(self.folders.folder("facts", fingerprint(facts)), build, checked=self._checked)

    def encoded(self, tokenizer: Tokenizer) -> list[tuple[Store, CleaningReport, dict[str, Any]]]:
        """Encodes each corpus: its pairs, the report of dropped pairs, and what normalisation changes."""
        return [self._encoded(index, tokenizer) for index in range(len(self._sources))]

    def cleaned(self, stores: Sequence[Store]) -> Iterator[TextBlock]:
        """Yields the text of the pairs that are encoded, of each corpus with its store, without tags."""
        return (block for pair in zip(self.text.texts, stores, strict=True) for block in encoded_texts(*pair))

    def fingerprint(self, tokenizer: Tokenizer) -> str:
        """Returns a fingerprint of the encoded pairs."""
        fingerprints = [self._ids_fingerprint(index, tokenizer) for index in range(len(self._sources))]
        return fingerprints[0] if len(fingerprints) == 1 else fingerprint(fingerprints)

    def _encoded(self, index: int, tokenizer: Tokenizer) -> tuple[Store, CleaningReport, dict[str, Any]]:
        source = self._sources[index]
        key = [self._ids_fingerprint(index, tokenizer), encoder_fingerprint(tokenizer)]
        folder = self.folders.folder("ids", fingerprint(key))
        text_folder = self.text.folder(index)
        repeats = self.text.repeats_file(index)
        setup = partial(Encoder, text_folder, repeats, self._tokenizer_folder, source.cleaning, source.tag)
        tables: list[str] = []

        def build(part: Path) -> dict[str, Any]:
            texts = self.text.texts[index]
            report = texts.report()
            paths = [part / shard_name(shard) for shard in range(texts.num_shards)]
            missing = [path for path in paths if not path.exists()]
            with progress(total=report.kept, unit="pairs", description="Encoding") as bar:
                killed = killed_workers(self.text.workers)
                for num_pairs in run_ordered(setup, missing, self.text.workers, *killed):
                    bar.update(num_pairs)
            for path in paths:
                report = report.merge(report_of(Shard.open(path).facts))
            check_not_empty(source, report)
            self.encoded_any = True
            tables.append(f"{report.table()}\n{report.samples()}".rstrip())
            sample = texts.sample(normalization.SAMPLE_PAIRS)
            return {
                "shards": [path.name for path in paths],
                "report": report_to_json(report),
                "normalization": normalization.changes(sample, tokenizer),
            }

        def repair(name: str) -> None:
            _ = self.text.texts  # runs the first stage
            setup()(folder / name)

        facts = cached_or_built(folder, build, repair, checked=self._checked)
        report = report_of(facts["report"])
        title = f"{self._config.name}, {source.name}" if source.name else self._config.name
        if tables:
            log.info("%s, cleaned:\n%s", title, tables[0])
        else:
            log.info("%s: already prepared, %d of %d pairs retained", title, report.kept, report.total)
        if report.hint is not None:
            log.warning("%s: %s", source.corpus.key, report.hint)
        store = Store.open(folder / name for name in facts["shards"])
        return store, report, facts["normalization"]

    @property
    def _placeholder_facts(self) -> list[Any]:
        """Facts that identify the replacement of strings by placeholders; none without it."""
        return [{"placeholders": VERSION}] if self._config.placeholders else []

    @property
    def _mixture(self) -> Any:
        """Facts that identify the text from which the pieces are learnt."""
        if len(self._sources) == 1:
            return self._text_fingerprints[0]
        weights = [corpus.weight for corpus in self._config.train.corpora.values()]
        return [self._text_fingerprints, weights, self._config.temperature]

    def _ids_fingerprint(self, index: int, tokenizer: Tokenizer) -> str:
        source = self._sources[index]
        facts: list[Any] = [
            FORMAT, self._text_fingerprints[index], tokenizer.fingerprint, source.cleaning.max_pieces,
        ]  # fmt: skip
        if source.tag is not None:
            facts.append({"tag": source.tag})
        if self.text.repeats_file(index):
            facts.append({"after": self._text_fingerprints[:index]})
        return fingerprint([*facts, *self._placeholder_facts])


def _train_facts(
    config: DataConfig, sources: Sequence[Source], train: Store, reports: Sequence[CleaningReport]
) -> dict[str, Any]:
    """Returns the part of the report about the training corpora."""
    if not config.train.corpora:
        return {"corpus": sources[0].corpus.name, **sources[0].corpus.facts}
    draws = mean_draws(train.sizes, config)
    return {
        "corpora": {
            source.name: {
                "corpus": source.corpus.name,
                **source.corpus.facts,
                "source_lang": source.languages[0],
                "target_lang": source.languages[1],
                "tag": source.tag,
                "draws_per_epoch": round(float(mean), 4),
                "cleaning": {**report.as_dict(), "words": report.words},
            }
            for source, mean, report in zip(sources, draws, reports, strict=True)
        }
    }
