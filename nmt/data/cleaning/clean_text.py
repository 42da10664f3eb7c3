"""The first stage of preparation: cleaned training text in shards, and the repeated pairs of all shards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import compress, islice
from pathlib import Path
from typing import Any

import numpy as np

from nmt.config import CleaningConfig
from nmt.data.cache import cached_or_built, write_file
from nmt.data.cleaning.cleaner import (
    DUPLICATE,
    NEAR_DUPLICATE,
    NUM_EXAMPLES,
    CleaningReport,
    Rule,
    near_hash,
    normal_text,
    pair_hash,
)
from nmt.data.corpora.columns import TextBlock
from nmt.data.corpora.corpus import Corpus
from nmt.data.corpora.malformed import Malformed
from nmt.data.shuffle import Shuffle
from nmt.data.store import Shard
from nmt.runtime.arrays import Array, Side, offsets_of, smallest_dtype
from nmt.runtime.streams import progress
from nmt.runtime.tensors import map_safetensors, safetensors_bytes
from nmt.runtime.workers import run_ordered

_REPEATS = "repeats.safetensors"  # numbers of the pairs that occur earlier, counted through all shards
_SAMPLE_SEED = 20170612


class Texts:
    """Memory-mapped cleaned pairs, in a folder that `clean_texts` wrote.

    The shards contain duplicates too. A file of numbers lists them, and all methods that say so skip them.
    The file of `write_repeats_across`, if given, replaces the one in the folder.

    Attributes:
        num_shards: number of shards.
        num_pairs: number of pairs without duplicates and near-duplicates.
        near: (n,) int64 numbers of the near-duplicates that are not duplicates, in ascending order.

    Raises:
        UserError: a shard is missing or damaged.
    """

    def __init__(self, folder: Path, repeats: Path | None = None) -> None:
        self._shards = [Shard.open(path) for path in _shard_paths(folder)]
        self._starts = offsets_of(np.array([len(shard.source) for shard in self._shards], np.int64))
        arrays = map_safetensors(repeats or folder / _REPEATS)[0]
        self._repeats, self.near = arrays["numbers"], arrays["near"]
        self.num_shards = len(self._shards)
        self.num_pairs = int(self._starts[-1]) - len(self._repeats)

    @property
    def num_bytes(self) -> int:
        """Size of all text, duplicates included."""
        return sum(len(shard.source.ids) + len(shard.target.ids) for shard in self._shards)

    def hashes(self, name: str) -> list[Hashes]:
        """Returns the hashes `hashes` or `near` of all pairs, duplicates included, by shard."""
        return [_stored_hashes(shard, name) for shard in self._shards]

    def rows(self, shard: int) -> Array:
        """Returns the rows of a shard without duplicates and near-duplicates."""
        start, stop = self._starts[shard : shard + 2]
        first, last = np.searchsorted(self._repeats, (start, stop))
        return np.delete(np.arange(stop - start), self._repeats[first:last] - start)

    def sides(self, shard: int, rows: Array) -> tuple[Side, Side]:
        """Returns both sides of ascending rows of a shard, in UTF-8, with a newline at the end of a line.

        If the rows are consecutive, the sides are views.
        """
        source, target = self._shards[shard].source, self._shards[shard].target
        return _lines_at(source, rows), _lines_at(target, rows)

    def pairs(self, shard: int, rows: Array) -> tuple[list[str], list[str]]:
        """Returns the same rows as strings without newlines."""
        source, target = self.sides(shard, rows)
        return source.lines(), target.lines()

    def blocks(self, size: int) -> Iterator[TextBlock]:
        """Yields all pairs in corpus order, in blocks of at most `size` pairs. Duplicates are skipped."""
        for shard in range(self.num_shards):
            rows = self.rows(shard)
            for start in range(0, len(rows), size):
                yield self.pairs(shard, rows[start : start + size])

    def sample(self, size: int) -> Iterator[tuple[str, str]]:
        """Yields a uniform sample of `size` pairs in corpus order, or all pairs if there are fewer.

        Duplicates are skipped.
        """
        counts = offsets_of(np.diff(self._starts) - np.diff(np.searchsorted(self._repeats, self._starts)))
        total = int(counts[-1])
        chosen = np.sort(Shuffle(total, _SAMPLE_SEED).rows(0, min(size, total)))
        cuts = np.searchsorted(chosen, counts)
        for shard in np.flatnonzero(np.diff(cuts)).tolist():
            places = chosen[cuts[shard] : cuts[shard + 1]] - counts[shard]
            yield from zip(*self.pairs(shard, self.rows(shard)[places]), strict=True)

    def report(self) -> CleaningReport:
        """Returns the number of dropped pairs by reason, duplicates included."""
        report = CleaningReport()
        for shard in self._shards:
            report = report.merge(report_of(shard.facts))
        equal = np.setdiff1d(self._repeats, self.near, assume_unique=True)
        repeats = self._repeats_report(DUPLICATE, "the same pair occurs earlier", equal)
        near = self._repeats_report(NEAR_DUPLICATE, "nearly the same pair occurs earlier", self.near)
        return report.merge(repeats).merge(near)

    def _repeats_report(self, name: str, words: str, numbers: Array) -> CleaningReport:
        repeats = CleaningReport()
        for number in numbers[:NUM_EXAMPLES].tolist():
            index = int(np.searchsorted(self._starts, number, "right")) - 1
            (source,), (target,) = self.pairs(index, np.array([number - self._starts[index]]))
            repeats.drop(name, words, source, target)
        if len(numbers):
            repeats.dropped[name] = len(numbers)
        repeats.kept -= len(numbers)
        return repeats


def clean_texts(
    folder: Path,
    corpus: Corpus,
    rules: Sequence[Rule],
    cleaning: CleaningConfig,
    shard_pairs: int,
    workers: int,
) -> Texts:
    """Reads and cleans a corpus, unless `folder`, whose name must identify all options, holds the result.

    Raises:
        UserError: the corpus can't be read, or the folder can't be written.
    """
    setup = partial(Cleaner, list(rules), cleaning.drop_near_duplicates)

    def build(part: Path) -> dict[str, Any]:
        malformed = corpus.malformed()
        tasks = _tasks(corpus, part, shard_pairs, malformed)
        with progress(total=corpus.num_pairs, unit="pairs", description="Cleaning") as bar:
            for num_pairs in run_ordered(setup, tasks, workers, *killed_workers(workers)):
                bar.update(num_pairs)
        malformed.warn(corpus.key)
        _write_repeats(part, cleaning)
        return {}

    def repair(name: str) -> None:
        if name == _REPEATS:
            return _write_repeats(folder, cleaning)
        block, dropped = next(islice(_blocks(corpus, shard_pairs), int(Path(name).stem), None))
        setup()((folder / name, _raw(block), dropped))

    cached_or_built(folder, build, repair)
    return Texts(folder)


def write_repeats_across(
    texts: Sequence[Texts], cleaning: Sequence[CleaningConfig], paths: Sequence[Path]
) -> None:
    """Finds duplicates and near-duplicates of pairs in an earlier corpus or earlier in the same corpus.

    Args:
        texts: the corpora, in order of precedence.
        cleaning: the options of each corpus. Duplicates are found in a corpus with `drop_duplicates`,
            whatever the options of the earlier corpus. Near-duplicates are found only if both corpora have
            `drop_near_duplicates`.
        paths: the file to write for each corpus; `Texts` reads it.
    """
    near_too = [options.drop_near_duplicates for options in cleaning]
    equal = _repeats_across([text.hashes("hashes") for text in texts])
    near = _repeats_across(
        [text.hashes("near") if asked else [] for text, asked in zip(texts, near_too, strict=True)]
    )
    for path, options, numbers, near_numbers in zip(paths, cleaning, equal, near, strict=True):
        _write_numbers(path, numbers if options.drop_duplicates else numbers[:0], near_numbers)


def _repeats_across(corpora: Sequence[Sequence[Hashes]]) -> list[Array]:
    """Returns the numbers of the repeated pairs of each corpus, counted through its shards.

    A pair is repeated if an equal hash occurs earlier in any corpus.
    """
    starts = offsets_of(np.array([sum(len(shard.rows) for shard in shards) for shards in corpora], np.int64))
    numbers = repeats([shard for shards in corpora for shard in shards])
    parts = np.split(numbers, np.searchsorted(numbers, starts[1:-1]))
    return [part - start for part, start in zip(parts, starts[:-1], strict=True)]


def killed_workers(workers: int) -> tuple[str, str]:
    """Returns the two parts of the error message for a killed process of `data.workers`; see `WorkerPool`."""
    return (
        f"data.workers={workers}: one of these processes was killed, probably because memory ran out",
        "Their finished parts are reused. Start again with fewer, such as data.workers=1.",
    )


def report_to_json(report: CleaningReport) -> dict[str, Any]:
    """Converts a report to the form in which a shard stores it."""
    return vars(report) | {"dropped": dict(report.dropped)}


def report_of(facts: dict[str, Any]) -> CleaningReport:
    """Converts the stored form of a report back; the reverse of `report_to_json`."""
    return CleaningReport(**(facts | {"dropped": Counter(facts["dropped"])}))


_Raw = tuple[bytes, bytes]  # the lines of the two sides, each joined by newlines
_Task = tuple[Path, _Raw | None, list[str]]  # the path of a shard, its lines, and its malformed rows


def _tasks(corpus: Corpus, folder: Path, shard_pairs: int, malformed: Malformed) -> Iterator[_Task]:
    """Yields the task of each shard, without its lines if it already exists."""
    for index, (block, dropped) in enumerate(_blocks(corpus, shard_pairs, malformed)):
        path = folder / shard_name(index)
        yield path, None if path.exists() else _raw(block), dropped


def _blocks(
    corpus: Corpus, size: int, malformed: Malformed | None = None
) -> Iterator[tuple[TextBlock, list[str]]]:
    """Yields the blocks of a corpus, each with what is wrong with the malformed rows in it and before it.

    Those after the last block belong to it too. An empty text stands for a row that is counted alone.
    """
    malformed = malformed or corpus.malformed()
    if not malformed.allowed:
        yield from ((block, []) for block in corpus.blocks(size, malformed))
        return
    previous = None
    counted = 0

    def dropped() -> list[str]:
        nonlocal counted
        messages = malformed.examples[counted:] + [""] * (
            malformed.count - max(counted, len(malformed.examples))
        )
        counted = malformed.count
        return messages

    for block in corpus.blocks(size, malformed):
        if previous is not None:
            yield previous, dropped()
        previous = block
    if previous is not None:
        yield previous, dropped()


def _raw(block: TextBlock) -> _Raw:
    return "\n".join(block[0]).encode(), "\n".join(block[1]).encode()


@dataclass(frozen=True)
class Cleaner:
    """Cleans shards, in any process."""

    rules: Sequence[Rule]
    near: bool

    def __call__(self, task: _Task) -> int:
        """Cleans and writes one shard; returns the number of rows read."""
        path, raw, malformed = task
        if raw is None:
            return report_of(Shard.open(path).facts).total
        sources, targets = (list(map(normal_text, content.decode().split("\n"))) for content in raw)
        assert len(sources) == len(targets)
        report = CleaningReport()
        report.drop_malformed(malformed)
        retained = [True] * len(sources)
        for rule in self.rules:
            for place in rule.suspects(sources, targets):
                if retained[place] and rule.drops(sources[place], targets[place]):
                    retained[place] = False
                    report.drop(rule.name, rule.words, sources[place], targets[place])
        sources, targets = list(compress(sources, retained)), list(compress(targets, retained))
        report.kept += len(sources)
        more = _sorted_hashes("hashes", map(pair_hash, sources, targets))
        if self.near:
            more |= _sorted_hashes("near", map(near_hash, sources, targets))
        Shard(Side.of_lines(sources), Side.of_lines(targets), more, report_to_json(report)).write(path)
        return report.total


def _sorted_hashes(name: str, digests: Iterable[bytes]) -> dict[str, Array]:
    """Returns sorted hashes in the form in which a shard stores them."""
    hashes = Hashes.of(np.frombuffer(b"".join(digests), "<u8"))
    return {name: hashes.values, f"{name}_rows": hashes.rows}


def _stored_hashes(shard: Shard, name: str) -> Hashes:
    return Hashes(shard.more[name], shard.more[f"{name}_rows"])


def _lines_at(side: Side, rows: Array) -> Side:
    """Returns the lines at ascending `rows` (n,); a view if the rows are consecutive."""
    first, count = int(rows[0]) if len(rows) else 0, len(rows)
    if not count or int(rows[-1]) - first + 1 == count:
        return Side(side.ids, side.offsets[first : first + count + 1])
    return side.take(rows)


def _write_repeats(folder: Path, cleaning: CleaningConfig) -> None:
    shards = [Shard.open(path) for path in _shard_paths(folder)]
    equal = repeats([_stored_hashes(shard, "hashes") for shard in shards] if cleaning.drop_duplicates else [])
    near = repeats(
        [_stored_hashes(shard, "near") for shard in shards] if cleaning.drop_near_duplicates else []
    )
    _write_numbers(folder / _REPEATS, equal, near)


def _write_numbers(path: Path, equal: Array, near: Array) -> None:
    arrays = {"numbers": np.union1d(equal, near), "near": np.setdiff1d(near, equal, assume_unique=True)}
    write_file(path, safetensors_bytes(arrays, None))


def shard_name(number: int) -> str:
    """Returns the name of the file of a shard."""
    return f"{number:05d}.safetensors"


def _shard_paths(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*.safetensors") if path.name != _REPEATS)


_PART_PAIRS = 1 << 22  # pairs whose hashes are compared at a time, about 50 bytes each


@dataclass(frozen=True, eq=False)
class Hashes:
    """The hashes of a shard's pairs in ascending order; equal hashes are in the order of their rows.

    Attributes:
        values: (n,) uint64 hashes.
        rows: (n,) unsigned integers of any size: the row of each hash.
    """

    values: Array
    rows: Array

    @classmethod
    def of(cls, values: Array) -> Hashes:
        """Sorts the hashes (n,) of rows 0 to n - 1."""
        rows = np.argsort(values, kind="stable")
        return cls(values[rows], rows.astype(smallest_dtype(len(rows) - 1)))


def repeats(shards: Sequence[Hashes]) -> Array:
    """Finds the values that occur earlier.

    The values are compared in parts, each a range of values. Every shard is sorted, so a part is one slice of
    each shard and all values are read once. Only the first of equal values in a shard is compared with other
    shards. A part therefore stays small even if one pair occurs millions of times. Memory is bounded for any
    number of pairs, except for the result, which takes about 16 bytes per repeated value.

    Args:
        shards: the shards in order of precedence. Rows are numbered through all shards.

    Returns:
        (n,) int64 in ascending order: the numbers of all but the first of equal values.
    """
    starts = offsets_of(np.array([len(shard.values) for shard in shards], np.int64))
    num_parts = int(starts[-1]) // _PART_PAIRS + 1
    lowest = np.array([(part << 64) // num_parts for part in range(num_parts)], np.uint64)
    cuts = np.array([np.append(np.searchsorted(s.values, lowest), len(s.values)) for s in shards])
    repeated_numbers = [np.empty(0, np.int64)]
    with progress(total=int(starts[-1]), unit="pairs", description="Finding duplicates") as bar:
        for part in range(num_parts if shards else 0):
            firsts: list[tuple[Array, Array]] = []
            slices = [slice(*cut) for cut in cuts[:, part : part + 2].tolist()]
            for shard, span, start in zip(shards, slices, starts, strict=False):
                values, numbers = shard.values[span], shard.rows[span].astype(np.int64) + start
                repeated = _equals_previous(values)
                if repeated.any():
                    repeated_numbers.append(numbers[repeated])
                    values, numbers = values[~repeated], numbers[~repeated]
                firsts.append((values, numbers))
            values, numbers = map(np.concatenate, zip(*firsts, strict=True))
            order = np.argsort(values, kind="stable")  # the first of equal values stays first
            repeated_numbers.append(numbers[order[_equals_previous(values[order])]])
            bar.update(sum(span.stop - span.start for span in slices))
    result = np.concatenate(repeated_numbers)
    result.sort()
    return result


def _equals_previous(ascending: Array) -> Array:
    """Returns (n,) bool: whether each value equals the previous one."""
    equal = np.zeros(len(ascending), bool)
    equal[1:] = ascending[1:] == ascending[:-1]
    return equal
