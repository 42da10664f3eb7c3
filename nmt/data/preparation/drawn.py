"""Validation and test pairs that are drawn from the training text, with `from_train`."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import replace
from hashlib import blake2b
from itertools import compress, islice
from pathlib import Path

from nmt.config import DataConfig, SplitConfig
from nmt.data.cleaning.rules.basic import comparison_key
from nmt.data.corpora.columns import Pair
from nmt.data.corpora.corpus import given_options
from nmt.data.corpora.held_out import HeldOut, is_given, read_sets
from nmt.data.corpora.sources import open_sources
from nmt.data.corpora.text import read_lines
from nmt.data.preparation.cleaned import CleanedText
from nmt.data.preparation.report import paths_of_cleaned_pairs
from nmt.errors import UserError
from nmt.runtime.files import fresh_folder, remove
from nmt.runtime.streams import log, progress

_BLOCK = 8192  # pairs that are read at a time


def with_drawn(config: DataConfig, folder: Path) -> DataConfig:
    """Returns the options with files in place of `from_train`; `write_drawn` writes them later.

    Raises:
        UserError: a split has `from_train` and data of its own.
    """
    splits = {"valid": config.valid, "test": config.test}
    for name, count in _counts(config).items():
        split = splits[name]
        others = ("sets", "groups", "names", "tag")
        given = given_options(split) + [option for option in others if getattr(split, option)]
        if given:
            raise UserError(
                f"data.{name}.from_train={count}: data.{name}.{given[0]} is also given. Remove one of them."
            )
        source, target = paths_of_cleaned_pairs(config, str(folder / name))
        splits[name] = SplitConfig(source=str(source), target=str(target))
    return replace(config, valid=splits["valid"], test=splits["test"])


def write_drawn(config: DataConfig, folder: Path, *, again: bool) -> None:
    """Draws the pairs of each split with `from_train`, and writes them to text files in `folder`.

    Only corpora without a tag in the languages of the data are drawn from. The pairs are those with the
    lowest hashes of their sources. So they do not depend on the order of the text, most of them remain if the
    text grows, and no two have the same source. The pairs of the test follow those of the validation. None is
    in a validation or test of its own.

    Args:
        config: the options of the data.
        folder: it is replaced.
        again: draw also if there are files. Without it they must have as many lines as the options say.

    Raises:
        UserError: the files have other numbers of lines, there are too few pairs, or no data of the
            validation, `drop_leaked` is off, so that the pairs would also be learnt, or a file can't be
            written.
    """
    counts = _counts(config)
    if not counts:
        return
    if folder.exists() and not again:
        for name, count in counts.items():
            lines = sum(1 for _ in read_lines(paths_of_cleaned_pairs(config, str(folder / name))[0]))
            if lines != count:
                raise UserError(
                    f"data.{name}.from_train={count}: {lines} pairs were drawn when this run began. "
                    "Give that number, or another run_dir."
                )
        return
    pairs = iter(_drawn(config, counts))
    remove(folder)
    with fresh_folder(folder) as fresh:
        for name, count in counts.items():
            sides = zip(*islice(pairs, count), strict=True)
            for path, side in zip(paths_of_cleaned_pairs(config, str(fresh / name)), sides, strict=True):
                path.write_text("".join(f"{line}\n" for line in side), encoding="utf-8")
            log.info(
                "data.%s.from_train=%d: drawn from the training text, in %s and %s",
                *(name, count, *paths_of_cleaned_pairs(config, str(folder / name))),
            )


def _counts(config: DataConfig) -> dict[str, int]:
    splits = {"valid": config.valid.from_train, "test": config.test.from_train}
    return {name: count for name, count in splits.items() if count is not None}


def _drawn(config: DataConfig, counts: Mapping[str, int]) -> list[Pair]:
    key = next(f"data.{name}.from_train={count}" for name, count in counts.items())
    held_out = list[HeldOut]()
    for name in ("valid", "test"):
        split: SplitConfig = getattr(config, name)
        if name not in counts and (name == "valid" or is_given(split)):
            held_out += read_sets(split, config, f"data.{name}").values()
    cleaned, total = CleanedText(config, open_sources(config), held_out), sum(counts.values())
    languages = config.source_lang, config.target_lang
    used = [source.tag is None and source.languages == languages for source in cleaned.sources]
    if not any(used):
        raise UserError(
            f"{key}: no training corpus without a tag is in the languages of the data. Give files."
        )
    if not all(source.cleaning.drop_leaked for source in cleaned.sources):
        raise UserError(
            f"{key}: without data.cleaning.drop_leaked these pairs would also be learnt. Set it to true, or "
            "give files."
        )
    texts = [*compress(cleaned.nonempty_texts(), used)]
    number = sum(text.num_pairs for text in texts)
    with progress(total=number, unit="pairs", description="Drawing held-out pairs") as bar:

        def pairs() -> Iterable[Pair]:
            for text in texts:
                for sources, targets in text.blocks(_BLOCK):
                    yield from zip(sources, targets, strict=True)
                    bar.update(len(sources))

        chosen = lowest(pairs(), total)
    if len(chosen) < total or 2 * total > number:
        raise UserError(
            f"{key}: the cleaned training text has {number} pairs, of which {total} were to be held out, and "
            "at most half can be. Lower the number, or give files."
        )
    return chosen


def lowest(pairs: Iterable[Pair], count: int) -> list[Pair]:
    """Returns the pairs with the lowest hashes of their sources, in the order of the hashes, or all pairs.

    Of pairs whose sources look alike, as `data.cleaning.drop_leaked` compares them, the first one counts.
    """
    chosen, negated = dict[int, Pair](), list[int]()
    for pair in pairs:
        digest = blake2b(comparison_key(pair[0]).encode(), digest_size=8).digest()
        number = int.from_bytes(digest, "big")
        if number in chosen or (len(chosen) == count and number > -negated[0]):
            continue
        chosen[number] = pair
        heapq.heappush(negated, -number)
        if len(chosen) > count:
            del chosen[-heapq.heappop(negated)]
    return [chosen[number] for number in sorted(chosen)]
