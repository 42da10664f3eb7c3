"""From the corpora to what training reads: cleaned, cut into pieces, encoded; each stage kept for reuse."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece as spm

from nmt.config import CleaningConfig, DataConfig
from nmt.data.arrays import Side, smallest_dtype
from nmt.data.cache import cache_errors, fingerprint, made
from nmt.data.cleaning import CleaningReport, PieceRule, build_rules, language_facts
from nmt.data.corpus import Corpus, HeldOut, is_given, open_corpus, read_held_out
from nmt.data.store import Shard, Store
from nmt.data.texts import TextOptions, Texts, clean_texts, report_of, report_to_json
from nmt.data.tokenizer import Tokenizer, train_tokenizer
from nmt.data.workers import run_ordered
from nmt.errors import UserError
from nmt.runtime import available_cores, cache_folder, log, progress

FORMAT = 1  # of what is kept: another number makes everything anew
SHARD_PAIRS = 65_536  # raw pairs a shard
VALID_PIECES = 1024  # a longer side of a validation pair is cut

_SLICE = 4096  # pairs encoded at a time


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
    """

    tokenizer: Tokenizer
    train: Store
    valid: HeldOut
    test: HeldOut | None
    valid_store: Store
    report: dict[str, Any]
    fingerprint: str


def prepare(config: DataConfig, *, shard_pairs: int = SHARD_PAIRS) -> Prepared:
    """Prepares the data, or opens what was prepared before.

    There are three folders in the cache, each named by all it depends on: the cleaned text, the tokenizer and
    the ids. What an option leaves alone is not made again, an interrupted preparation goes on where it was,
    and the result does not depend on the number of processes.

    Args:
        config: the options.
        shard_pairs: raw pairs a shard.

    Raises:
        UserError: data are missing or damaged, the cache can't be written, or nothing is left after cleaning.
    """
    corpus = open_corpus(config.train, config, "data.train")
    held_out = {"valid": read_held_out(config.valid, config, "data.valid")}
    if is_given(config.test):
        held_out["test"] = read_held_out(config.test, config, "data.test")
    stages = _Stages(config, corpus, list(held_out.values()), shard_pairs)
    with cache_errors():
        tokenizer = stages.tokenizer()
        train, cleaning = stages.encoded(tokenizer)
    report: dict[str, Any] = {
        "name": config.name,
        "source_lang": config.source_lang,
        "target_lang": config.target_lang,
        "train": {"corpus": corpus.name, **corpus.facts},
        **{
            key: {"corpus": split.name, "sentences": len(split.sources), **split.facts}
            for key, split in held_out.items()
        },
        "cleaning": {**cleaning.as_dict(), "words": cleaning.words},
        "source_tokens": train.num_source_tokens,
        "target_tokens": train.num_target_tokens,
        "mean_source_tokens": round(train.num_source_tokens / train.num_pairs, 4),
        "mean_target_tokens": round(train.num_target_tokens / train.num_pairs, 4),
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
    )


class _Stages:
    """The three stages; each makes the one before it only if it has to be made itself."""

    def __init__(
        self, config: DataConfig, corpus: Corpus, held_out: Sequence[HeldOut], shard_pairs: int
    ) -> None:
        self._config = config
        self._workers = config.workers or available_cores()
        self._root = (
            Path(config.cache_dir).expanduser() if config.cache_dir else cache_folder()
        ) / "prepared"
        languages = config.source_lang, config.target_lang
        rules = build_rules(config.cleaning, *held_out, languages=languages)
        cleaning = asdict(config.cleaning)
        del cleaning["max_pieces"]  # the one rule that is applied to ids
        cleaning["languages"] = language_facts(config.cleaning, languages)
        leaked = [split.facts for split in held_out] if config.cleaning.drop_leaked else []
        self._text_print = fingerprint([FORMAT, shard_pairs, corpus.facts, cleaning, leaked])
        tokenizer = [FORMAT, spm.__version__, self._text_print, asdict(config.tokenizer)]
        self._text_folder = self._folder("text", self._text_print)
        self._tokenizer_folder = self._folder("tokenizer", fingerprint(tokenizer))
        options = TextOptions(
            drop_duplicates=config.cleaning.drop_duplicates,
            drop_near_duplicates=config.cleaning.drop_near_duplicates,
            shard_pairs=shard_pairs,
            workers=self._workers,
        )
        self._texts = cache(lambda: clean_texts(self._text_folder, corpus, rules, options))

    def tokenizer(self) -> Tokenizer:
        """Learns the pieces."""

        def build(part: Path) -> dict[str, Any]:
            texts = self._texts()
            _check_any(texts.report())
            config = self._config.tokenizer
            train_tokenizer(partial(texts.sample, config.sample_pairs), config, part)
            return {}

        made(self._tokenizer_folder, build)
        return Tokenizer.load(self._tokenizer_folder)

    def encoded(self, tokenizer: Tokenizer) -> tuple[Store, CleaningReport]:
        """Encodes the text; gives what was dropped on the way too."""
        folder = self._folder("ids", self.fingerprint(tokenizer))
        setup = partial(_Encoder, self._text_folder, self._tokenizer_folder, self._config.cleaning)
        tables: list[str] = []

        def build(part: Path) -> dict[str, Any]:
            report = self._texts().report()
            paths = [part / f"{shard:05d}.safetensors" for shard in range(self._texts().num_shards)]
            missing = [path for path in paths if not path.exists()]
            with progress(total=report.kept, unit="pairs", description="Encoding") as bar:
                for num_pairs in run_ordered(_encode, missing, setup, self._workers):
                    bar.update(num_pairs)
            for path in paths:
                report = report.merge(report_of(Shard.open(path).facts))
            _check_any(report)
            tables.append(f"{report.table()}\n{report.samples()}".rstrip())
            return {"shards": [path.name for path in paths], "report": report_to_json(report)}

        def repair(name: str) -> None:
            self._texts()
            _encode(setup(), folder / name)

        facts = made(folder, build, repair)
        report = report_of(facts["report"])
        if tables:
            log.info("%s, cleaned:\n%s", self._config.name, tables[0])
        else:
            log.info("%s: prepared before, %d of %d pairs kept", self._config.name, report.kept, report.total)
        return Store.open(folder / name for name in facts["shards"]), report

    def fingerprint(self, tokenizer: Tokenizer) -> str:
        """Stands for the encoded pairs."""
        return fingerprint(
            [FORMAT, self._text_print, tokenizer.fingerprint, self._config.cleaning.max_pieces]
        )

    def _folder(self, stage: str, name: str) -> Path:
        return self._root / f"{stage}-{name[:16]}"


class _Encoder:
    """What a process needs to encode shards."""

    def __init__(self, text_folder: Path, tokenizer_folder: Path, cleaning: CleaningConfig) -> None:
        self.texts = Texts(text_folder)
        self.tokenizer = Tokenizer.load(tokenizer_folder)
        self.rule = PieceRule(cleaning)


def _encode(encoder: _Encoder, path: Path) -> int:
    """Encodes and writes the shard that `path` names; gives the number of pairs it was made from."""
    tokenizer, rule = encoder.tokenizer, encoder.rule
    source_dtype = smallest_dtype(tokenizer.source_vocab_size - 1)
    target_dtype = smallest_dtype(tokenizer.target_vocab_size - 1)
    shard = int(path.stem)
    rows = encoder.texts.rows(shard)
    report = CleaningReport()
    slices: list[tuple[Side, Side]] = []
    for begin in range(0, max(len(rows), 1), _SLICE):
        sources, targets = encoder.texts.pairs(shard, rows[begin : begin + _SLICE])
        source = Side.of(tokenizer.encode_source(sources), source_dtype)
        target = Side.of(tokenizer.encode_target(targets), target_dtype)
        gone = rule.mask(source.lengths(), target.lengths())
        for row in np.flatnonzero(gone).tolist():
            report.drop(rule.name, rule.words, sources[row], targets[row])
            report.keep(-1)  # it was counted as kept by the stage before
        kept = np.flatnonzero(~gone)
        slices.append((source.take(kept), target.take(kept)))
    source, target = (Side.concatenated([pair[side] for pair in slices]) for side in (0, 1))
    Shard(source, target, facts=report_to_json(report)).write(path)
    return len(rows)


def _valid_store(tokenizer: Tokenizer, valid: HeldOut) -> Store:
    sources, targets = tokenizer.encode_source(valid.sources), tokenizer.encode_target(valid.references)
    longer = sum(max(map(len, pair)) > VALID_PIECES for pair in zip(sources, targets, strict=True))
    if longer:
        log.warning("%s: %d pairs are cut at %d pieces for the loss", valid.name, longer, VALID_PIECES)
    return Store.of([ids[:VALID_PIECES] for ids in sources], [ids[:VALID_PIECES] for ids in targets])


def _check_any(report: CleaningReport) -> None:
    if not report.kept:
        table = "; ".join(" ".join(line.split()) for line in report.table().splitlines())
        raise UserError(f"data.train: no pair is left after cleaning ({table}): look at data.cleaning")
