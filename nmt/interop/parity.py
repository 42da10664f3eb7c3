"""Compares a model of nmt with the same model in another program.

The original reads what the engine has translated by greedy search. If each id has the highest probability of
the original, too, then both translations are the same, by induction over the positions. Where the two highest
log-probabilities differ by less than `MARGIN`, rounding decides; such positions are counted. The text of the
translations, as the engine decodes it, is the same, too. So is that of the references, encoded and decoded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from nmt.bundle import Bundle
from nmt.copying.strings import WORD_START
from nmt.data.batches.batching import Batch
from nmt.data.corpora.text import bundled_folder, read_lines
from nmt.data.subwords.tokenizer import one_line
from nmt.data.subwords.vocabulary import FORBIDDEN_IDS, NUM_SPECIAL
from nmt.decoding.search_batches import batches_by_length
from nmt.errors import UserError
from nmt.evaluation.scores import require_equal_counts
from nmt.interop.interfaces import ForeignModel
from nmt.model import Seq2Seq
from nmt.runtime.files import expanded
from nmt.runtime.streams import log, progress

TOLERANCE = 1e-4
"""Largest difference of the log-probabilities of a token in fp32; below -10, a tenth of it times their
value."""
MARGIN = 1e-3
"""Log-probabilities that are closer than this may be in another order."""

_BATCH_TOKENS = 2048
_PIECES = 25  # of a sentence of `every_piece`, as in usual text
_LONGEST = 2048  # tokens of a compared sentence; attention takes memory and time by the square of its length


@dataclass(frozen=True)
class Parity:
    """The result of a comparison.

    Attributes:
        sentences: compared sentences.
        tokens: compared target tokens, EOS counted: of the references and of the translations.
        largest_difference: of the log-probabilities of a token.
        segmentation_ties: sentences whose text the engine cuts into other, equally probable pieces.
        near_ties: positions at which the engine chose another id and the difference was below `MARGIN`.
    """

    sentences: int
    tokens: int
    largest_difference: float
    segmentation_ties: int
    near_ties: int


class ParityError(Exception):
    """The export differs from the original; the message says where."""


@dataclass(frozen=True)
class Forced:
    """The log-probabilities of a target in the original.

    Attributes:
        log_probs: the log-probability of each token, EOS last.
        shortfall: how much lower each one is than the highest log-probability of an id that may be written.
    """

    log_probs: list[float]
    shortfall: list[float]


def compare(bundle: Bundle, engine: ForeignModel, text: ComparedText) -> Parity:
    """Compares a model in fp32 with the same model in another engine, and logs the result.

    Raises:
        ParityError: they differ.
    """
    with progress(total=2 * len(text.lines), unit="sentences", description="Comparing") as bar:
        parity = _parity(bundle, engine, text, bar.update)
    log.info(
        f"Compared on {text.name}: {parity.sentences:,} sentences, {parity.tokens:,} tokens: the same pieces "
        f"({parity.segmentation_ties:,} ties), log-probabilities within {parity.largest_difference:.1e}, "
        f"the same text by greedy search ({parity.near_ties:,} near ties)"
    )
    return parity


def _parity(
    bundle: Bundle, engine: ForeignModel, text: ComparedText, advance: Callable[[int], object]
) -> Parity:
    model, tokenizer, sources, targets = bundle.model, bundle.tokenizer, text.sources, text.targets
    segmentation_ties = _compare_ids(engine, text.lines, text.untagged)
    largest = _compare_scores(
        "of a reference", engine.score(sources, targets), forced(model, sources, targets, advance)
    )
    all_sources, all_targets = every_piece(
        tokenizer.source.size, tokenizer.target.size, min(text.longest, _LONGEST)
    )
    _compare_scores(
        "of a sentence of all pieces",
        engine.score(all_sources, all_targets),
        forced(model, all_sources, all_targets),
    )
    encoded = engine.encode_target(text.references)
    ids = targets if encoded is None else encoded
    read = engine.decode([[id for id in sentence if id >= NUM_SPECIAL] for sentence in ids])
    _compare_texts("of a reference", read, tokenizer.decode_target(targets))
    translations = engine.translate(sources, text.limits)
    written = engine.decode(translations)
    _compare_texts("of its own translation", written, tokenizer.decode_target(translations))
    originals = forced(model, sources, translations, advance)
    scores = engine.score(sources, translations)
    largest = max(largest, _compare_scores("of its own translation", scores, originals))
    near_ties = 0
    for number, (original, translation, limit) in enumerate(
        zip(originals, translations, text.limits, strict=True), 1
    ):
        cut = len(translation) >= limit  # the search ended there without EOS
        for place, shortfall in enumerate(original.shortfall[: -1 if cut else None], 1):
            if not shortfall <= MARGIN:
                raise ParityError(
                    f"sentence {number}: at token {place} it writes another piece, which is less probable "
                    f"by {shortfall:.1e}"
                )
            near_ties += shortfall > 0
    tokens = sum(len(ids) + 1 for side in (targets, translations) for ids in side)
    return Parity(len(text.lines), tokens, largest, segmentation_ties, near_ties)


def every_piece(source_size: int, target_size: int, longest: int) -> tuple[list[list[int]], list[list[int]]]:
    """Returns pairs of ids that have every piece of both sides, and every position in one pair.

    Text for the comparison has frequent pieces alone, and few long sentences. An error in another row of an
    embedding or of a table of positions would remain.
    """
    sides = []
    for size in (source_size, target_size):
        # A stride that has no common factor with the size mixes pieces of like ids.
        ids = [NUM_SPECIAL + i * 7919 % (size - NUM_SPECIAL) for i in range(size - NUM_SPECIAL)]
        ids = ids if len(set(ids)) == len(ids) else list(range(NUM_SPECIAL, size))
        repeated = (ids * (longest // len(ids) + 1))[: longest - 1]
        step = min(_PIECES, max(1, longest - 1))
        sides.append([repeated, *(ids[i : i + step] for i in range(0, len(ids), step))])
    count = max(map(len, sides))
    source, target = ([side[i % len(side)] for i in range(count)] for side in sides)
    return source, target


def _compare_ids(engine: ForeignModel, lines: Sequence[str], expected: Sequence[Sequence[int]]) -> int:
    """Returns the number of lines that have other, equally probable pieces."""
    ties = 0
    for number, (line, theirs, ours) in enumerate(zip(lines, engine.encode(lines), expected, strict=True), 1):
        if list(theirs) != list(ours):
            if engine.encodings_tie(line, ours):
                ties += 1
                continue
            place = next((i for i, (a, b) in enumerate(zip(theirs, ours, strict=False)) if a != b), 0)
            raise ParityError(f"sentence {number}: its text has other pieces from piece {place + 1} on")
    return ties


def _compare_texts(what: str, theirs: Sequence[str], ours: Sequence[str]) -> None:
    """Compares decoded text, except white space at its ends, and U+2581, which engines read as a space."""
    for number, pair in enumerate(zip(theirs, ours, strict=True), 1):
        a, b = (one_line(text).replace(WORD_START, " ").strip() for text in pair)
        if a != b:
            place = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), 0)
            shown = (ascii(text[max(0, place - 5) : place + 10]) for text in (a, b))
            raise ParityError(f"sentence {number}: the text {what} has {' in place of '.join(shown)}")


def _compare_scores(what: str, theirs: Sequence[Sequence[float]], ours: Sequence[Forced]) -> float:
    """Returns the largest difference of a token."""
    largest = 0.0
    for number, (scores, original) in enumerate(zip(theirs, ours, strict=True), 1):
        expected = original.log_probs
        if len(scores) != len(expected):
            raise ParityError(
                f"sentence {number}: it scores {len(scores)} tokens {what} in place of {len(expected)}"
            )
        for place, (a, b) in enumerate(zip(scores, expected, strict=True), 1):
            difference = abs(a - b)
            if not difference <= TOLERANCE * max(1, abs(b) / 10):  # NaN, too
                raise ParityError(
                    f"sentence {number}: the log-probability of token {place} {what} is {a:.5f} in place of "
                    f"{b:.5f}"
                )
            largest = max(largest, difference)
    return largest


@torch.inference_mode()
def forced(
    model: Seq2Seq,
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    advance: Callable[[int], object] = lambda count: None,
) -> list[Forced]:
    """Returns the log-probabilities of given targets, computed as in training, in fp32.

    Sources are ids without EOS, targets are ids without BOS and EOS.
    """
    scores: list[Forced] = [Forced([], [])] * len(sources)
    for rows in batches_by_length(
        [max(len(a), len(b)) + 1 for a, b in zip(sources, targets, strict=True)], _BATCH_TOKENS, _BATCH_TOKENS
    ):
        batch = Batch.of([sources[row] for row in rows], [targets[row] for row in rows])
        log_probs = model.logits(model(batch)).log_softmax(-1)
        own = log_probs.gather(1, batch.target_out[:, None].long())[:, 0]
        log_probs[:, list(FORBIDDEN_IDS)] = -math.inf
        shortfall = log_probs.amax(-1) - own
        lengths = [len(targets[row]) + 1 for row in rows]
        for row, a, b in zip(rows, torch.split(own, lengths), torch.split(shortfall, lengths), strict=True):
            scores[row] = Forced(a.tolist(), b.tolist())
        advance(len(rows))
    return scores


@dataclass(frozen=True)
class Pairs:
    """Sources with their translations, and a name for them."""

    name: str
    lines: Sequence[str]
    references: Sequence[str]


@dataclass(frozen=True)
class ComparedText(Pairs):
    """The text of the comparison; its lines have no tags.

    Attributes:
        untagged: the ids of `lines`.
        sources: the ids that the model reads: those of `untagged`, after that of the tag if there is one.
        targets: the ids of `references`.
        longest: the maximum number of tokens of a sentence that both models can compute, EOS counted.
    """

    untagged: Sequence[list[int]]
    sources: Sequence[list[int]]
    targets: Sequence[list[int]]
    longest: int

    @property
    def limits(self) -> list[int]:
        """The maximum number of tokens of each translation, EOS counted.

        As in the paper, a translation has at most 50 tokens more than its source, and here fewer than
        `longest`.
        """
        return [min(len(ids) + 1 + 50, self.longest - 1) for ids in self.sources]


def pairs_of_files(check: str, references: str) -> Pairs:
    """Reads the files of the options `check` and `references`.

    Raises:
        UserError: a file can't be read, or they have different numbers of lines.
    """
    sides = [list(read_lines(expanded(path))) for path in (check, references)]
    require_equal_counts({f"check={check}": len(sides[0]), f"references={references}": len(sides[1])})
    return Pairs(" and ".join(Path(path).name for path in (check, references)), *sides)


def bundled_pairs() -> Pairs:
    """Returns sentences of the bundled corpus, English and German."""
    folder = bundled_folder() / "quickstart"
    return Pairs(
        "bundled sentences", *(list(read_lines(folder / f"valid.{side}.gz")) for side in ("en", "de"))
    )


def comparable_text(pairs: Pairs, bundle: Bundle, longest: int, count: int) -> ComparedText:
    """Returns the first `count` sentences that the model reads uncut, of less than `longest` tokens with EOS.

    Left out are sentences of more than 2,048 tokens, and sentences of an imported model that have tags.

    Raises:
        UserError: there is no such sentence.
    """
    tokenizer, limit = bundle.tokenizer, min(longest, bundle.config.decoding.max_source_tokens, _LONGEST)
    sides = tokenizer.encode_source(pairs.lines), tokenizer.encode_target(pairs.references)
    cut = [tokenizer.split_tag(line) for line in pairs.lines]
    rows = [
        (line, reference, source[len(tag) :], source, target)
        for (tag, line), reference, source, target in zip(cut, pairs.references, *sides, strict=True)
        if len(source) > len(tag)
        and max(len(source), len(target)) < limit
        and WORD_START not in line  # the engine reads it as a space, and a lossless source as bytes
        and (tag or line.split(maxsplit=1)[0] not in tokenizer.source_symbols)
    ][:count]
    if not rows:
        raise UserError(
            f"{pairs.name}: has no sentence that can be compared, of 1 to {limit - 1} pieces. Give "
            "nmt-export check=FILE and references=FILE."
        )
    lines, references, untagged, sources, targets = (list(column) for column in zip(*rows, strict=True))
    return ComparedText(pairs.name, lines, references, untagged, sources, targets, longest)


_TIE = 1e-5  # relative; SentencePiece adds the log-probabilities of pieces in fp32


def equally_probable(processor: Any, line: str, ids: Sequence[int]) -> bool:
    """Returns whether `ids` encode a text as well as the ids that SentencePiece chooses, up to rounding."""
    best = processor.encode(line)
    if processor.decode(best) != processor.decode(list(ids)):
        return False
    scores = [sum(map(processor.get_score, pieces)) for pieces in (best, ids)]
    return bool(abs(scores[0] - scores[1]) <= _TIE * max(1.0, abs(scores[1])))
