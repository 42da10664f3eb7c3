"""From the corpora to what training reads: cleaned, cut into pieces, encoded; each stage kept for reuse."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, cached_property, partial, reduce
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece as spm

from nmt.config import CleaningConfig, DataConfig, TokenizerConfig
from nmt.data.arrays import Side, offsets_of
from nmt.data.cache import cache_errors, fingerprint, forget_unused, made
from nmt.data.cleaning.clean_text import (
    TextOptions,
    Texts,
    clean_texts,
    report_of,
    report_to_json,
    write_repeats_across,
)
from nmt.data.cleaning.cleaner import CleaningReport, PieceRule, Rule, build_rules, rule_facts
from nmt.data.corpora.corpus import HeldOut, is_given, read_held_out
from nmt.data.corpora.mixture import apportioned, mean_draws
from nmt.data.corpora.sources import Source, open_sources
from nmt.data.corpora.tags import check_pieces, check_tags, known_tags
from nmt.data.preparation.counts import Counts
from nmt.data.store import Shard, Store
from nmt.data.subwords.tokenizer import Tokenizer, find_tokenizer, train_tokenizer
from nmt.data.subwords.vocabulary_size import num_characters, recommended_size
from nmt.data.workers import run_ordered
from nmt.errors import UserError
from nmt.runtime import available_cores, cache_folder, expanded, log, progress

FORMAT = 6  # of what is kept: another number makes everything anew
SHARD_PAIRS = 65_536  # raw pairs a shard, fewer where they are long
VALID_PIECES = 1024  # a longer side of a validation pair is cut

_SLICE = 8192  # pairs encoded at a time
_SAMPLE_BYTES = 100_000_000  # of text to learn pieces from, for each of which SentencePiece takes some 25


@dataclass(frozen=True)
class Prepared:
    """All that training needs of the data.

    Attributes:
        tokenizer: learnt from the cleaned training text.
        train: encoded training pairs.
        valid: validation text, raw.
        test: test text, raw, if any is given.
        valid_store: validation encoded, every pair of it, sides cut at `VALID_PIECES`.
        report: for `results.json["data"]`; the same data and options give the same report.
        fingerprint: stands for the training pairs and the pieces they are made of.
        vocab_size: `data.tokenizer.vocab_size`, its `auto` replaced by the number that was chosen.
    """

    tokenizer: Tokenizer
    train: Store
    valid: HeldOut
    test: HeldOut | None
    valid_store: Store
    report: dict[str, Any]
    fingerprint: str
    vocab_size: int = 0


def prepare(config: DataConfig, *, shard_pairs: int = SHARD_PAIRS, checked: bool = False) -> Prepared:
    """Prepares the data, or opens what was prepared before.

    There are three stages, each kept in folders of the cache that are named by all they depend on: the
    cleaned text of each corpus, the tokenizer, and the ids of each corpus. What an option leaves alone is not
    made again, an interrupted preparation goes on where it was, and the result does not depend on the number
    of processes.

    Args:
        config: the options.
        shard_pairs: raw pairs a shard.
        checked: another process of this machine has opened them just now, which checks every file.

    Raises:
        UserError: data are missing or damaged, the cache can't be written, or nothing is left after cleaning.
    """
    sources = open_sources(config)
    given = None
    if config.tokenizer.path is not None:
        given = find_tokenizer(config.tokenizer.path)
        check_pieces(sources, given.source_symbols, config.tokenizer.path)
        config = replace(config, tokenizer=replace(config.tokenizer, user_symbols=list(given.source_symbols)))
    held_out = {"valid": read_held_out(config.valid, config, "data.valid")}
    if is_given(config.test):
        held_out["test"] = read_held_out(config.test, config, "data.test")
    check_tags(held_out, sources, known_tags(config.tokenizer.user_symbols, sources))
    stages = _Stages(config, sources, list(held_out.values()), given, shard_pairs, checked)
    with cache_errors():
        tokenizer = stages.tokenizer()
        stores, reports = zip(*stages.encoded(tokenizer), strict=True)
    if config.cache_days and stages.anew:
        forget_unused(stages.root, config.cache_days)
    train = Store.joined(stores)
    cleaning = reduce(CleaningReport.merge, reports)
    report: dict[str, Any] = {
        "name": config.name,
        "source_lang": config.source_lang,
        "target_lang": config.target_lang,
        "train": _train_facts(config, sources, train, reports),
        **{
            key: {"corpus": split.name, "sentences": len(split.sources), "tag": split.tag, **split.facts}
            for key, split in held_out.items()
        },
        "cleaning": {**cleaning.as_dict(), "words": cleaning.words},
        "source_tokens": train.num_source_tokens,
        "target_tokens": train.num_target_tokens,
        "mean_source_tokens": round(train.num_source_tokens / train.num_pairs, 4),
        "mean_target_tokens": round(train.num_target_tokens / train.num_pairs, 4),
        "vocab_size": stages.pieces.vocab_size,
        "source_vocab_size": tokenizer.source_vocab_size,
        "target_vocab_size": tokenizer.target_vocab_size,
        "tokenizer": tokenizer.fingerprint,
        "fingerprint": stages.fingerprint(tokenizer),
    }
    return Prepared(
        tokenizer=tokenizer,
        train=train,
        valid=held_out["valid"],
        test=held_out.get("test"),
        valid_store=_valid_store(tokenizer, held_out["valid"]),
        report=report,
        fingerprint=report["fingerprint"],
        vocab_size=stages.pieces.vocab_size,
    )


class _Stages:
    """The three stages; each makes the one before it only if it has to be made itself.

    Attributes:
        root: the folder that holds all.
        anew: whether any ids were made.
    """

    def __init__(
        self,
        config: DataConfig,
        sources: Sequence[Source],
        held_out: Sequence[HeldOut],
        given: Tokenizer | None,
        shard_pairs: int,
        checked: bool,
    ) -> None:
        self._config, self._sources = config, sources
        self._given, self._shard_pairs, self._checked = given, shard_pairs, checked
        self._workers = config.workers or available_cores()
        self.anew = False
        self.root = (expanded(config.cache_dir) if config.cache_dir else cache_folder()) / "prepared"
        tags = known_tags(config.tokenizer.user_symbols, sources)
        self._rules = [
            build_rules(source.cleaning, *held_out, languages=source.languages, tags=tags)
            for source in sources
        ]
        self._text_prints = list(map(self._text_print, sources, self._rules))
        self._tags = tags
        self._texts = cache(self._cleaned)

    @cached_property
    def pieces(self) -> TokenizerConfig:
        """The options of the tokenizer, the number of pieces chosen if it is `auto`."""
        options = self._config.tokenizer
        size = self._vocab_size() if options.vocab_size == "auto" else options.vocab_size
        return replace(options, user_symbols=self._tags, vocab_size=size)

    def _vocab_size(self) -> int:
        if self._given is not None:
            return self._given.source_vocab_size
        joint, coverage = self._config.tokenizer.joint, self._config.tokenizer.character_coverage

        def build(part: Path) -> dict[str, Any]:
            texts = self._checked_texts()
            sample = _sample(texts, self._config)
            return {
                "pairs": sum(text.num_pairs for text in texts),
                "characters": num_characters(sample, coverage, joint=joint),
            }

        sampled = self._config.tokenizer.sample_pairs
        counted = made(
            self._folder("size", fingerprint([FORMAT, self._mixture, joint, coverage, sampled])), build
        )
        size = recommended_size(**counted, joint=joint)
        log.info(
            "data.tokenizer.vocab_size=auto: %d%s, for %s cleaned training pairs",
            *(size, "" if joint else " a side", f"{counted['pairs']:,}"),
        )
        return size

    @cached_property
    def _tokenizer_folder(self) -> Path:
        return self._folder("tokenizer", self._tokenizer_print())

    def tokenizer(self) -> Tokenizer:
        """Learns the pieces, or takes those that are given."""

        def build(part: Path) -> dict[str, Any]:
            if self._given is not None:
                self._given.save(part)
                return {}
            train_tokenizer(partial(_sample, self._checked_texts(), self._config), self.pieces, part)
            return {}

        made(self._tokenizer_folder, build, checked=self._checked)
        return Tokenizer.load(self._tokenizer_folder)

    def encoded(self, tokenizer: Tokenizer) -> list[tuple[Store, CleaningReport]]:
        """Encodes the text of each corpus; gives what was dropped on the way too."""
        return [self._encoded(place, tokenizer) for place in range(len(self._sources))]

    def fingerprint(self, tokenizer: Tokenizer) -> str:
        """Stands for the encoded pairs."""
        prints = [self._ids_print(place, tokenizer) for place in range(len(self._sources))]
        return prints[0] if len(prints) == 1 else fingerprint(prints)

    def _cleaned(self) -> list[Texts]:
        """The first stage: each corpus by itself, then what one repeats of those before it."""
        texts = []
        for source, rules, text_print in zip(self._sources, self._rules, self._text_prints, strict=True):
            options = TextOptions(
                drop_duplicates=source.cleaning.drop_duplicates,
                drop_near_duplicates=source.cleaning.drop_near_duplicates,
                shard_pairs=self._shard_pairs,
                workers=self._workers,
            )
            texts.append(clean_texts(self._folder("text", text_print), source.corpus, rules, options))
        if any(self._repeats(place) for place in range(len(texts))):

            def build(part: Path) -> dict[str, Any]:
                paths = [part / _shard_name(place) for place in range(len(texts))]
                write_repeats_across(texts, [source.cleaning for source in self._sources], paths)
                return {}

            made(self._repeats_folder, build)
        return [
            Texts(self._folder("text", text_print), self._repeats(place))
            for place, text_print in enumerate(self._text_prints)
        ]

    def _checked_texts(self) -> list[Texts]:
        """The first stage, of which every corpus must have left something."""
        for source, texts in zip(self._sources, self._texts(), strict=True):
            _check_any(source, texts.report())
        return self._texts()

    def _encoded(self, place: int, tokenizer: Tokenizer) -> tuple[Store, CleaningReport]:
        source = self._sources[place]
        folder = self._folder("ids", self._ids_print(place, tokenizer))
        text_folder = self._folder("text", self._text_prints[place])
        setup = partial(
            _Encoder, text_folder, self._repeats(place), self._tokenizer_folder, source.cleaning, source.tag
        )
        tables: list[str] = []

        def build(part: Path) -> dict[str, Any]:
            texts = self._texts()[place]
            report = texts.report()
            paths = [part / _shard_name(shard) for shard in range(texts.num_shards)]
            missing = [path for path in paths if not path.exists()]
            with progress(total=report.kept, unit="pairs", description="Encoding") as bar:
                for num_pairs in run_ordered(_encode, missing, setup, self._workers):
                    bar.update(num_pairs)
            for path in paths:
                report = report.merge(report_of(Shard.open(path).facts))
            _check_any(source, report)
            self.anew = True
            tables.append(f"{report.table()}\n{report.samples()}".rstrip())
            return {"shards": [path.name for path in paths], "report": report_to_json(report)}

        def repair(name: str) -> None:
            self._texts()
            _encode(setup(), folder / name)

        facts = made(folder, build, repair, checked=self._checked)
        report = report_of(facts["report"])
        title = f"{self._config.name}, {source.name}" if source.name else self._config.name
        if tables:
            log.info("%s, cleaned:\n%s", title, tables[0])
        else:
            log.info("%s: prepared before, %d of %d pairs kept", title, report.kept, report.total)
        return Store.open(folder / name for name in facts["shards"]), report

    def _tokenizer_print(self) -> str:
        """Stands for the pieces: those that are given, or all that they are learnt from."""
        if self._given is not None:
            return fingerprint([FORMAT, self._given.fingerprint])
        return fingerprint([FORMAT, spm.__version__, self._mixture, asdict(self.pieces)])

    @property
    def _mixture(self) -> Any:
        """Stands for the text that pieces are learnt from."""
        if len(self._sources) == 1:
            return self._text_prints[0]
        weights = [corpus.weight for corpus in self._config.train.corpora.values()]
        return [self._text_prints, weights, self._config.temperature]

    def _text_print(self, source: Source, rules: Sequence[Rule]) -> str:
        """Stands for the cleaned text of a corpus, whatever corpora are beside it."""
        repeats = [
            name for name in ("drop_duplicates", "drop_near_duplicates") if getattr(source.cleaning, name)
        ]
        return fingerprint([FORMAT, self._shard_pairs, source.corpus.facts, rule_facts(rules), repeats])

    def _ids_print(self, place: int, tokenizer: Tokenizer) -> str:
        source = self._sources[place]
        facts: list[Any] = [
            FORMAT, self._text_prints[place], tokenizer.fingerprint, source.cleaning.max_pieces,
        ]  # fmt: skip
        if source.tag is not None:
            facts.append({"tag": source.tag})
        if self._repeats(place):
            facts.append({"after": self._text_prints[:place]})
        return fingerprint(facts)

    @property
    def _repeats_folder(self) -> Path:
        return self._folder("repeats", fingerprint([FORMAT, self._text_prints]))

    def _repeats(self, place: int) -> Path | None:
        """Where it stands what a corpus repeats of those before it, if that is to go."""
        cleaning = self._sources[place].cleaning
        if not place or not (cleaning.drop_duplicates or cleaning.drop_near_duplicates):
            return None
        return self._repeats_folder / _shard_name(place)

    def _folder(self, stage: str, name: str) -> Path:
        return self.root / f"{stage}-{name[:16]}"


class _Encoder:
    """What a process needs to encode shards of a corpus."""

    def __init__(
        self,
        text_folder: Path,
        repeats: Path | None,
        tokenizer_folder: Path,
        cleaning: CleaningConfig,
        tag: str | None,
    ) -> None:
        self.texts = Texts(text_folder, repeats)
        self.tokenizer = Tokenizer.load(tokenizer_folder)
        self.rule = PieceRule(cleaning)
        self.tag = None if tag is None else self.tokenizer.source_symbols[tag]


def _encode(encoder: _Encoder, path: Path) -> int:
    """Encodes and writes the shard that `path` names; gives the number of pairs it was made from."""
    tokenizer, rule = encoder.tokenizer, encoder.rule
    shard = int(path.stem)
    rows = encoder.texts.rows(shard)
    report = CleaningReport()
    slices: list[tuple[Side, Side]] = []
    for begin in range(0, max(len(rows), 1), _SLICE):
        chosen = rows[begin : begin + _SLICE]
        sources, targets = encoder.texts.sides(shard, chosen)
        source, target = tokenizer.source_ids(sources), tokenizer.target_ids(targets)
        if encoder.tag is not None:
            source = _tagged(source, encoder.tag)
        gone = rule.mask(source.lengths(), target.lengths())
        if gone.any():
            for pair in zip(*encoder.texts.pairs(shard, chosen[gone]), strict=True):
                report.drop(rule.name, rule.words, *pair)
                report.keep(-1)  # it was counted as kept by the stage before
            kept = np.flatnonzero(~gone)
            source, target = source.take(kept), target.take(kept)
        slices.append((source, target))
    source, target = (Side.concatenated([pair[side] for pair in slices]) for side in (0, 1))
    counts = Counts.of(source, target, tokenizer.source_vocab_size, tokenizer.target_vocab_size)
    Shard(source, target, counts.arrays(), report_to_json(report)).write(path)
    return len(rows)


def _tagged(side: Side, tag: int) -> Side:
    """A side with a piece before every sentence that has any."""
    full = side.lengths() > 0
    return Side(np.insert(side.ids, side.offsets[:-1][full], tag), side.offsets + offsets_of(full))


def _valid_store(tokenizer: Tokenizer, valid: HeldOut) -> Store:
    sources, targets = tokenizer.encode_source(valid.inputs), tokenizer.encode_target(valid.references)
    longer = sum(max(map(len, pair)) > VALID_PIECES for pair in zip(sources, targets, strict=True))
    if longer:
        log.warning("%s: %d pairs are cut at %d pieces for the loss", valid.name, longer, VALID_PIECES)
    return Store.of([ids[:VALID_PIECES] for ids in sources], [ids[:VALID_PIECES] for ids in targets])


def _check_any(source: Source, report: CleaningReport) -> None:
    if not report.kept:
        table = "; ".join(" ".join(line.split()) for line in report.table().splitlines())
        key = source.corpus.key
        raise UserError(f"{key}: no pair is left after cleaning ({table}): look at data.cleaning")


def _sample(texts: Sequence[Texts], config: DataConfig) -> Iterator[tuple[str, str]]:
    """The pairs that the pieces are learnt from, of each corpus in proportion to its draws."""
    sizes = [text.num_pairs for text in texts]
    pairs_of_bytes = _SAMPLE_BYTES * sum(sizes) // sum(text.num_bytes for text in texts)
    size = min(config.tokenizer.sample_pairs, sum(sizes), max(pairs_of_bytes, 1))
    for text, count in zip(texts, apportioned(size, mean_draws(sizes, config)), strict=True):
        times, rest = divmod(count, text.num_pairs)
        for _ in range(times):
            yield from text.sample(text.num_pairs)
        yield from text.sample(rest)


def _train_facts(
    config: DataConfig, sources: Sequence[Source], train: Store, reports: Sequence[CleaningReport]
) -> dict[str, Any]:
    """What the report says of the training corpora, one by one."""
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


def _shard_name(number: int) -> str:
    return f"{number:05d}.safetensors"
