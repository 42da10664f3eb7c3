"""The third stage of preparation: encodes shards of cleaned text, and counts lengths and pieces in them.

Encoding a shard stores the counts of lengths, length ratios and pieces in it, for the data report.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import sentencepiece as spm

from nmt.config import CleaningConfig
from nmt.copying.strings import mask_pair
from nmt.data.cache import fingerprint, source_of
from nmt.data.cleaning.clean_text import Texts, report_to_json
from nmt.data.cleaning.cleaner import CleaningReport, PieceRule
from nmt.data.corpora.columns import TextBlock
from nmt.data.corpora.held_out import HeldOut
from nmt.data.store import Shard, Store
from nmt.data.subwords.model_file import normalizer_of
from nmt.data.subwords.tokenizer import Tokenizer
from nmt.data.subwords.vocabulary import Vocabulary
from nmt.data.subwords.words import Words
from nmt.runtime.arrays import Array, Side, offsets_of, smallest_dtype
from nmt.runtime.streams import log

VALID_PIECES = 1024
"""A longer side of a validation pair is truncated."""
_SLICE = 8192  # pairs encoded at a time
_DROPPED = "dropped"  # the array in a shard that says which pairs of its text the piece rule has dropped
_RATIO_BINS_PER_OCTAVE = 4
_RATIO_OCTAVES = 3  # ratios from 1/8 to 8; the outer bins include all ratios beyond that
_RATIO_BINS = 2 * _RATIO_OCTAVES * _RATIO_BINS_PER_OCTAVE


def encoder_fingerprint(tokenizer: Tokenizer) -> str:
    """Returns a fingerprint of the code that determines the ids: the modules, and SentencePiece's version."""
    code = (Encoder, Tokenizer, Vocabulary, Words, normalizer_of, PieceRule, Side, mask_pair)
    sources = {part.__module__: source_of(part) for part in (*code, type(tokenizer), type(tokenizer.source))}
    return fingerprint([spm.__version__, sources])


class Encoder:
    """Encodes shards of a corpus, in any process."""

    def __init__(
        self,
        text_folder: Path,
        repeats: Path | None,
        tokenizer_folder: Path,
        cleaning: CleaningConfig,
        tag: str | None,
    ) -> None:
        self._texts = Texts(text_folder, repeats)
        self._tokenizer = Tokenizer.load(tokenizer_folder)
        self._rule = PieceRule(cleaning)
        self._tag = None if tag is None else self._tokenizer.source_symbols[tag]

    def __call__(self, path: Path) -> int:
        """Encodes the shard whose number is the name of `path`, and writes it; returns the pairs read."""
        tokenizer, rule, shard = self._tokenizer, self._rule, int(path.stem)
        rows, report = self._texts.rows(shard), CleaningReport()
        slices: list[tuple[Side, Side]] = []
        all_dropped: list[Array] = []
        for begin in range(0, max(len(rows), 1), _SLICE):
            chosen = rows[begin : begin + _SLICE]
            sources, targets = masked_sides(*self._texts.sides(shard, chosen), tokenizer)
            source, target = tokenizer.source_ids(sources), tokenizer.target.encode(targets)
            if self._tag is not None:
                source = _tagged(source, self._tag)
            dropped = rule.drops(source.lengths(), target.lengths())
            all_dropped.append(dropped)
            if dropped.any():
                for pair in zip(*self._texts.pairs(shard, chosen[dropped]), strict=True):
                    report.drop(rule.name, rule.words, *pair)
                    report.kept -= 1  # the first stage counted it as retained
                retained = np.flatnonzero(~dropped)
                source, target = source.take(retained), target.take(retained)
            slices.append((source, target))
        source, target = (Side.concatenated([pair[side] for pair in slices]) for side in (0, 1))
        counts = Counts.of(source, target, tokenizer.source.size, tokenizer.target.size)
        more = {**counts.arrays(), _DROPPED: np.concatenate(all_dropped)}
        Shard(source, target, more, report_to_json(report)).write(path)
        return len(rows)


def encoded_texts(texts: Texts, store: Store) -> Iterator[TextBlock]:
    """Yields the text of the pairs that an `Encoder` has encoded, without the tag, in blocks."""
    for shard, more in enumerate(store.more()):
        rows = texts.rows(shard)[~more[_DROPPED]]
        for begin in range(0, len(rows), _SLICE):
            yield texts.pairs(shard, rows[begin : begin + _SLICE])


def encoded_set(tokenizer: Tokenizer, text: HeldOut) -> Store:
    """Encodes a validation set. Longer sides are truncated to `VALID_PIECES`, with a warning."""
    inputs, references = masked_lines(text.inputs, text.references, tokenizer)
    sources, targets = tokenizer.encode_source(inputs), tokenizer.encode_target(references)
    longer = sum(max(map(len, pair)) > VALID_PIECES for pair in zip(sources, targets, strict=True))
    if longer:
        words = f"{longer} pairs are truncated to {VALID_PIECES} pieces for the validation loss"
        log.warning(f"{text.name}: {words}")
    return Store.of([ids[:VALID_PIECES] for ids in sources], [ids[:VALID_PIECES] for ids in targets])


def _tagged(side: Side, tag: int) -> Side:
    """Inserts the id of a tag before every sentence that is not empty."""
    nonempty = side.lengths() > 0
    return Side(np.insert(side.ids, side.offsets[:-1][nonempty], tag), side.offsets + offsets_of(nonempty))


def masked_lines(
    sources: Sequence[str], targets: Sequence[str], tokenizer: Tokenizer
) -> tuple[Sequence[str], Sequence[str]]:
    """Returns both sides of pairs with placeholders, or unchanged if the vocabulary has none."""
    if not tokenizer.placeholders:
        return sources, targets
    tags = tokenizer.source_symbols
    pairs = [mask_pair(*pair, tags)[:2] for pair in zip(sources, targets, strict=True)]
    return [source for source, _ in pairs], [target for _, target in pairs]


def masked_sides(sources: Side, targets: Side, tokenizer: Tokenizer) -> tuple[Side, Side]:
    """Does the same as `masked_lines` for lines of `Side.of_lines`."""
    if not tokenizer.placeholders:
        return sources, targets
    masked = masked_lines(sources.lines(), targets.lines(), tokenizer)
    return Side.of_lines(masked[0]), Side.of_lines(masked[1])


@dataclass(frozen=True)
class Counts:
    """Counts of pairs. A shard stores them under the names of these fields.

    Attributes:
        source_length_counts: (L,) number of sources of each length in pieces, EOS not counted.
        source_piece_counts: (V,) number of occurrences of each piece on the source side.
        target_length_counts: the same of the targets.
        target_piece_counts: the same of the target side.
        ratio_counts: (24,) histogram of target length / source length, with the bins of `ratio_edges`.
    """

    source_length_counts: Array
    source_piece_counts: Array
    target_length_counts: Array
    target_piece_counts: Array
    ratio_counts: Array

    @classmethod
    def of(cls, source: Side, target: Side, source_vocab_size: int, target_vocab_size: int) -> Counts:
        """Counts pairs without empty sides."""
        lengths = source.lengths(), target.lengths()
        place = (np.log2(lengths[1] / lengths[0]) + _RATIO_OCTAVES) * _RATIO_BINS_PER_OCTAVE
        bins = np.clip(np.floor(place).astype(np.int64), 0, _RATIO_BINS - 1)
        return cls(
            np.bincount(lengths[0]),
            np.bincount(source.flat(), minlength=source_vocab_size),
            np.bincount(lengths[1]),
            np.bincount(target.flat(), minlength=target_vocab_size),
            np.bincount(bins, minlength=_RATIO_BINS),
        )

    @classmethod
    def summed(cls, shards: Iterable[Mapping[str, Array]]) -> Counts:
        """Returns the sum of the counts of several shards, given as `arrays` returned them."""
        sums = {field.name: np.zeros(0, np.int64) for field in fields(cls)}
        for arrays in shards:
            for name, total in sums.items():
                longer, shorter = sorted((total, arrays[name]), key=len, reverse=True)
                sums[name] = longer.astype(np.int64)
                sums[name][: len(shorter)] += shorter.astype(np.int64)
        return cls(**sums)

    def arrays(self) -> dict[str, Array]:
        """Returns the counts in the form in which a shard stores them, in the smallest integer types."""
        return {
            name: array.astype(smallest_dtype(int(array.max(initial=0))))
            for name, array in vars(self).items()
        }


def ratio_edges() -> list[float]:
    """Returns the edges of the bins of `Counts.ratio_counts`, one more than bins.

    The outer bins include all ratios beyond the edges.
    """
    octaves = np.arange(_RATIO_BINS + 1) / _RATIO_BINS_PER_OCTAVE - _RATIO_OCTAVES
    return [round(edge, 4) for edge in np.exp2(octaves).tolist()]
