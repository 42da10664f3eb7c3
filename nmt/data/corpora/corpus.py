"""Raw sentence pairs: finds the data of a split, and reads all kinds of data with one interface."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from nmt.config import DataConfig, Markup, NamedConfig, PairsConfig, TaggedConfig
from nmt.data.corpora.columns import Pair, TextBlock, column_facts
from nmt.data.corpora.file_formats import BlockReader, may_have_numbers, read_all, reader_of
from nmt.data.corpora.hub import hub_of, open_hub
from nmt.data.corpora.malformed import Malformed, for_split
from nmt.data.corpora.text import expand, file_facts, mispaired, read_pairs
from nmt.errors import UserError
from nmt.languages import distance
from nmt.runtime.arrays import Array
from nmt.runtime.files import home_folder
from nmt.runtime.streams import log

_BLOCK_CHARACTERS = 1 << 25  # per block of `Corpus.blocks`; 65,536 typical pairs have about half of it


@dataclass(frozen=True)
class Corpus:
    """The pairs of one split, raw: nothing is stripped, cleaned or dropped."""

    name: str
    """Its name in logs and messages."""
    facts: dict[str, Any]
    """Facts that identify the content on every machine: of files, name, size and SHA-256; of a hub data set,
    path, configuration, commit and split."""
    read: BlockReader = field(repr=False)
    """Reads the blocks from the beginning, without malformed rows. `blocks` and `pairs` do the same with
    checks."""
    key: str = "data"
    """The option that names it, for messages."""
    num_pairs: int | None = None
    """Number of pairs, if it is known before reading."""
    files: Sequence[BlockReader] = field(default=(), repr=False)
    """Reads the blocks of each text file or table; empty if the data are not files."""
    max_malformed: float = 0.0
    """Largest share of rows that may be malformed; see `DataConfig`."""

    def malformed(self) -> Malformed:
        """Returns a new count of malformed rows, for one reading."""
        return for_split(self.max_malformed)

    def pairs(self, malformed: Malformed | None = None) -> Iterator[Pair]:
        """Yields (source, target) in order, as a stream. May be called again.

        `malformed` counts the dropped rows.

        Raises:
            UserError: a file is damaged, the sides differ in length, there are no pairs, or, once all are
                read, too many rows are malformed.
        """
        return (pair for block in self._checked(malformed) for pair in zip(*block, strict=True))

    def blocks(self, size: int, malformed: Malformed | None = None) -> Iterator[TextBlock]:
        """Yields the pairs in order, in blocks of `size` pairs; the last block may be smaller.

        Blocks of long pairs are smaller too. A block ends with the pair that brings it to 33.5 million
        characters, to bound memory. The limits of the blocks depend only on the pairs, not on the reads.

        Raises:
            UserError: as `pairs`.
        """
        sources: list[str] = []
        targets: list[str] = []
        before = 0  # characters in `sources` and `targets`
        for more_sources, more_targets in self._checked(malformed):
            ends = np.cumsum(_lengths(more_sources) + _lengths(more_targets)) + before
            begin = 0
            while begin < len(more_sources):
                full = int(np.searchsorted(ends, _BLOCK_CHARACTERS)) + 1
                end = min(full, begin + size - len(sources))
                sources += more_sources[begin:end]
                targets += more_targets[begin:end]
                if len(sources) == size or end == full <= len(ends):
                    yield sources, targets
                    sources, targets = [], []
                    ends = ends - ends[end - 1]
                begin = end
            before = int(ends[-1]) if len(ends) else before
        if sources:
            yield sources, targets

    def _checked(self, malformed: Malformed | None) -> Iterator[TextBlock]:
        malformed = malformed or self.malformed()
        count = 0
        for block in self.read(malformed):
            count += len(block[0])
            yield block
        malformed.check(self.name, count)
        if not count:
            raise UserError(f"{self.key}: {self.name} has no sentence pairs.{malformed.first}")


def refuse_both(split: TaggedConfig, key: str, several: str) -> None:
    """Checks that a split with several named parts has no options of a single one.

    `key` is the full name of the split, and `several` that of its parts: `corpora` or `sets`.

    Raises:
        UserError: it has both.
    """
    given = given_options(split)
    given += [name for name in ("tag", "groups", "names") if getattr(split, name) not in (None, [])]
    if given:
        drop = " ".join(f"{key}.{name}={'[]' if name == 'names' else 'null'}" for name in given)
        raise UserError(
            f"{key}.{several} and {key}.{given[0]} are both given. Add {drop}, or move it to a part of "
            f"{key}.{several}."
        )


def options_of(named: NamedConfig, data: DataConfig) -> DataConfig:
    """Returns the options of the data with those that a named part of them replaces."""
    return replace(
        data,
        hub=hub_of(named, data),
        source_key=named.source_key or data.source_key,
        target_key=named.target_key or data.target_key,
        source_lang=named.source_lang or data.source_lang,
        target_lang=named.target_lang or data.target_lang,
    )


def given_options(split: PairsConfig) -> list[str]:
    """Returns the options of a split that name its data and have a value."""
    return [
        name for name in ("split", "source", "target", "path", "sacrebleu") if _is_set(getattr(split, name))
    ]


def files_of(data: DataConfig) -> list[Path]:
    """Returns all files that the options of the data name.

    Raises:
        UserError: one is missing.
    """
    splits: dict[str, PairsConfig] = {}
    for name in ("train", "valid", "test"):
        split = getattr(data, name)
        parts = "corpora" if name == "train" else "sets"
        splits[f"data.{name}"] = split
        splits |= {f"data.{name}.{parts}.{part}": one for part, one in getattr(split, parts).items()}
    return [
        path
        for key, split in splits.items()
        for option in ("source", "target", "path", "groups")
        if _is_set(value := getattr(split, option, None))
        for path in expand(value, f"{key}.{option}")
    ]


def open_corpus(split: PairsConfig, data: DataConfig, key: str) -> Corpus:
    """Finds the data of a split and the facts that identify them, without reading the pairs.

    `data` has the languages, column names and hub data set; `key` is the full name of the split, for
    messages.

    Raises:
        UserError: nothing is given, more than one kind of data is given, a side is missing, or the data are
            not found.
    """
    kinds = _kinds(split)
    if not kinds:
        raise UserError(_nothing_given(data, key))
    if len(kinds) > 1:
        raise UserError(
            f"{key}: {' and '.join(kinds)} are both given. Add {key}.{kinds[0]}=null to remove the first."
        )
    return {
        "split": _from_hub,
        "text": _from_text,
        "source": _from_text,
        "target": _from_text,
        "path": _from_tables,
        "sacrebleu": _from_test_set,
    }[kinds[0]](split, data, key)


def _lengths(lines: list[str]) -> Array:
    return np.fromiter(map(len, lines), np.int64, len(lines))


def _kinds(split: PairsConfig) -> list[str]:
    options = given_options(split)
    return [name for name in options if not (name == "target" and "source" in options)]


def _is_set(value: Any) -> bool:
    return value not in (None, "", "???") and value != []


def _nothing_given(data: DataConfig, key: str) -> str:
    name = key.rpartition(".")[2]
    hub = f", or {key}.split={name} of {data.hub.path}" if data.hub.path else ""
    source, target = f"{name}.{data.source_lang}", f"{name}.{data.target_lang}"
    drawn = f", or {key}.from_train=1000 to draw pairs from data.train" if key == "data.valid" else ""
    return (
        f"{key}: names no data. Set {key}.source={source} {key}.target={target} (two text files), "
        f"or {key}.path={name}.tsv (TSV, JSONL or Parquet){hub}{drawn}"
    )


def _from_text(split: PairsConfig, data: DataConfig, key: str) -> Corpus:
    for present, missing in (("source", "target"), ("target", "source")):
        if not _is_set(getattr(split, missing)):
            lang = data.target_lang if missing == "target" else data.source_lang
            raise UserError(
                f"{key}.{present}: given without {key}.{missing}. Add the other side, "
                f"such as {key}.{missing}={key.rpartition('.')[2]}.{lang}"
            )
    sources, targets = expand(split.source, f"{key}.source"), expand(split.target, f"{key}.target")
    if len(sources) != len(targets):
        raise UserError(
            f"{key}: {len(sources)} source files but {len(targets)} target files. They must form pairs."
        )
    wrong = mispaired(sources, targets, (data.source_lang, data.target_lang))
    if wrong is not None:
        source, target = wrong
        paired = targets[sources.index(source)]
        log.warning(
            "%s: %s is paired with %s, but its name matches %s. Give both lists in the same order.",
            *(key, source, paired, target),
        )
    facts = {
        "source": [file_facts(path) for path in sources],
        "target": [file_facts(path) for path in targets],
    }
    name = f"{_names(sources)} + {_names(targets)}"
    pairs = list(zip(sources, targets, strict=True))
    parts = [partial(read_pairs, [pair], key) for pair in pairs]
    return Corpus(
        *(name, facts | _dropped(data), partial(read_pairs, pairs, key), key),
        files=parts,
        max_malformed=data.max_malformed,
    )


def _from_tables(split: PairsConfig, data: DataConfig, key: str) -> Corpus:
    files = expand(split.path, f"{key}.path")
    parts = [partial(reader_of(path, data), path, data) for path in files]
    keys = column_facts(data, has_numbers=any(map(may_have_numbers, files)))
    if data.markup is not Markup.drop:
        keys.append(f"markup={data.markup.name}")
    facts = {"files": [file_facts(path) for path in files], "keys": keys, **_dropped(data)}
    read = partial(read_all, parts)
    return Corpus(_names(files), facts, read, key, files=parts, max_malformed=data.max_malformed)


def _dropped(data: DataConfig) -> dict[str, Any]:
    """Returns the fact that malformed rows may be dropped; none if the first one is an error."""
    return {"max_malformed": data.max_malformed} if data.max_malformed else {}


def _from_test_set(split: PairsConfig, data: DataConfig, key: str) -> Corpus:
    """The first use of a test set of sacreBLEU downloads it."""
    if "SACREBLEU" not in os.environ:
        home_folder("SACREBLEU")
    from sacrebleu import utils
    from sacrebleu.dataset import DATASETS

    name, option = split.sacrebleu, f"{key}.sacrebleu={split.sacrebleu}"
    assert name is not None
    if name not in DATASETS:
        near = difflib.get_close_matches(name, DATASETS, n=4, cutoff=0.4) or ["wmt14/full", "wmt20"]
        raise UserError(f"{option}: not a test set of sacreBLEU. Did you mean {', '.join(near)}?")
    languages, pairs = f"{data.source_lang}-{data.target_lang}", utils.get_langpairs_for_testset(name)
    if languages not in pairs:
        nearest = _nearest_pair(data, pairs)
        if nearest is None:
            raise UserError(f"{option}: does not have {languages}, only {', '.join(sorted(pairs))}")
        languages = nearest
    try:
        source = Path(utils.get_source_file(name, languages))
        target = Path(utils.get_reference_files(name, languages)[0])
    except (OSError, SystemExit) as error:  # sacreBLEU exits if a download is damaged
        raise UserError(
            f"{option}: could not be downloaded to {utils.SACREBLEU_DIR} ({error}). Connect to the network "
            f"once, and remove {Path(utils.SACREBLEU_DIR, name.split('/')[0])} if an earlier download was "
            f"damaged; or give local files: {key}.source= and target="
        ) from None
    facts = {
        "sacrebleu": name,
        "languages": languages,
        "source": [file_facts(source)],
        "target": [file_facts(target)],
    }
    return Corpus(f"{name} {languages}", facts, partial(read_pairs, [(source, target)], key), key)


def _nearest_pair(data: DataConfig, pairs: Sequence[str]) -> str | None:
    """Returns the pair, such as `en-zh`, that is nearest to the languages of the data, or None."""
    distances = {}
    for pair in pairs:
        source, _, target = pair.partition("-")
        parts = distance(data.source_lang, source), distance(data.target_lang, target)
        if parts[0] is not None and parts[1] is not None:
            distances[pair] = parts[0] + parts[1]
    return min(distances, key=distances.__getitem__, default=None)


def _from_hub(split: PairsConfig, data: DataConfig, key: str) -> Corpus:
    assert split.split is not None
    if not data.hub.path:
        raise UserError(f"{key}.split={split.split}: a split of a hub data set. Set data.hub.path too.")
    try:
        hub_split = open_hub(data, split.split, key)
    except UserError as error:
        if not isinstance(split, NamedConfig) or split.hub.path is None:
            raise
        raise UserError(str(error).replace("data.hub.", f"{key}.hub.")) from error
    return Corpus(hub_split.name, hub_split.facts, hub_split.blocks, key, hub_split.num_pairs)


def _names(files: list[Path]) -> str:
    return files[0].name + (f" and {len(files) - 1} more" if len(files) > 1 else "")
