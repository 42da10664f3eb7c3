"""Options of beam search in validation, test and translation."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from nmt.config import disabled
from nmt.config.checks import (
    MANY,
    PROCESSES,
    Section,
    above,
    auto_or,
    auto_or_truth,
    between,
    bounded,
    shortened,
)
from nmt.errors import UserError


class Shift(Enum):
    """The step whose attention aligns a target piece: the step that predicts it, or the one that reads it."""

    auto = "auto"
    predicting = "predicting"
    reading = "reading"


class Casing(Enum):
    """The lines in capitals or title case that are translated in ordinary case."""

    auto = "auto"
    always = "always"
    never = "never"


class Numbers(Enum):
    """The treatment of numbers: compared with the translation, copied into it, or ignored."""

    check = "check"
    copy = "copy"
    ignore = "ignore"


@dataclass
class DecodingConfig(
    Section, key="decoding.", refused=disabled.REFUSED_IN_DECODING, unused=disabled.UNUSED_IN_DECODING
):
    """Beam search (section 6.1 of the paper) and its batches."""

    beam_size: int = bounded(4, between(1, 1000))
    """Hypotheses per sentence in the beam. 1: greedy search."""
    length_penalty: float = bounded(0.6, between(0, 10))
    """GNMT's alpha: scores are divided by ((5 + |Y|) / 6) ** alpha (Wu et al. 2016, eq. 14). 0: no
    division."""
    max_length_offset: int = bounded(50, between(1, 100_000))
    """Longest translation in tokens: this number plus `max_length_factor` times the length of the source."""
    max_length_factor: float = bounded(1.0, between(0, 100))
    """Factor on the source length in the length limit; see `max_length_offset`."""
    nbest: int = bounded(1, between(1, 1000))
    """Hypotheses returned per sentence, best first. At most `beam_size`."""
    samples: int = bounded(0, between(0, 100_000))
    """Translations that are drawn at random for each sentence, in place of beam search. 0: beam search. All
    of them are returned, as with `nbest`."""
    temperature: float = bounded(1.0, above(0, 1000))
    """Divides the log-probabilities from which samples are drawn. Below 1: more probable tokens."""
    top_k: int = bounded(0, between(0, MANY))
    """Samples are drawn from this number of most probable tokens. 0: from all."""
    top_p: float = bounded(1.0, above(0, 1))
    """Samples are drawn from the fewest most probable tokens with this total probability. 1: from all."""
    seed: int = bounded(1, between(0, MANY))
    """Seed of samples. The samples of a line depend on it and on the line alone."""
    mbr: str | None = None
    """Metric of minimum Bayes risk decoding, such as `chrf`: of the samples or of the n-best list, the
    translation is the one that agrees best with all others. null: the translation with the best score."""
    diversity: float = bounded(0.0, between(0, 1000))
    """Makes the n-best list more varied: each extension of a hypothesis is lowered by this number for every
    extension of the same hypothesis that is more probable (Li et al. 2016). 0: no difference."""
    coverage_penalty: float = bounded(0.0, between(0, 1000))
    """GNMT's beta: lowers the scores of translations that attend too little to some source tokens (Wu et al.
    2016, eq. 14). The hypotheses that the beam search returns are ranked again. 0: no penalty."""
    retry_loops: Any = auto_or_truth(False)
    """Translate a line again without repeated sequences of 3 tokens if its translation repeats the same
    tokens again and again, and the source does not. A warning counts such lines. `auto`: in beam search, but
    not with `samples`."""
    no_repeat_ngram: int = bounded(0, between(0, 100))
    """No sequence of this many tokens occurs twice in a translation. 0: repetition is allowed."""
    placeholders: bool = True
    """Copy URLs, e-mail addresses, tags and variables unchanged into the translation. Only for models that
    were trained with `data.placeholders=true`."""
    place_tags: bool = True
    """Translate a line without its XML and HTML tags, and then place them, so that they do not change the
    translation. The line takes twice as long. False: tags are copied like URLs by models that were trained
    with `data.placeholders=true`. Other models place them, addresses and variables, if too few of their
    training sources have any, which `results.json` says; false: they are ordinary text."""
    copy_without_letters: bool = True
    """Copy lines without letters, such as numbers, dates and emoji, unchanged. False: the model translates
    them."""
    case: Casing = Casing.auto
    """Translate lines in CAPITALS or Title Case in ordinary case, and write the translation in their case.
    `auto`: where the training sources of the model have too few such lines, if `results.json` has their
    shares. `always`: all such lines. `never`: none."""
    numbers: Numbers = Numbers.check
    """`check`: report the numbers of a line that its translation lacks or changes. `copy`: copy numbers in
    digits into the translation, unchanged; only for models that were trained with `data.placeholders=true`.
    `ignore`: do nothing."""
    max_tokens: Any = auto_or("auto", between(1, 10_000_000), "a number")
    """Largest number of source tokens per batch, padding included. `auto`: 8,192; on a GPU as many as its
    free memory probably holds."""
    max_sentences: Any = auto_or("auto", between(1, 1_000_000), "a number")
    """Largest number of sentences per batch. `auto`: 512 divided by the hypotheses of a sentence, at least 64
    and at most 256; fewer if worker processes share the sentences. On a GPU 4,096 divided by the hypotheses,
    at most 2,048, and fewer if its memory is small."""
    max_source_tokens: int = bounded(1024, between(1, 100_000))
    """Longest source in tokens. A longer source is cut, with a warning on standard error."""
    split_sentences: Any = auto_or_truth()
    """Translate the sentences of a line one by one. `auto`: in `nmt-serve` always; in `nmt-translate` and
    Python lines of more sentences, or longer ones, than the training had; in `nmt-eval` never. A sentence of
    more than `max_source_tokens` is divided at commas, with a warning."""
    workers: Any = auto_or("auto", between(1, PROCESSES), "a number of processes")
    """Processes that translate batches side by side on the CPU, with one thread each. They share the memory
    of the model. 1: one batch at a time, with all threads. `auto`: one process per thread. A GPU has none."""
    alignment_heads: Any = "auto"
    """Heads of the decoder whose mean attention aligns words: a list of layers and heads from 0, such as
    `[[2,1],[3,0]]`. `auto`: those that `nmt-train` chose for the model, or all heads of the last layer."""
    alignment_shift: Shift = Shift.auto
    """The step whose attention aligns a target piece. `predicting`: the step that predicts it. `reading`: the
    step that reads it. `auto`: as `nmt-train` chose for the model, or `predicting`."""
    alignment_threshold: float = bounded(0.0, between(0, 1))
    """A target word is linked to a source word only if this has at least this share of its attention. 0: all
    target words are linked."""
    processors: dict[str, dict[str, Any] | None] = field(default_factory=dict)
    """Search processors by name, in the order of application; `nmt.decoding.processors` registers them. Each
    has its options: `decoding.processors.mine.strength=2`, or `decoding.processors.mine={}` without any.
    `decoding.processors.mine=null` removes one, `decoding.processors={}` removes all."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_heads(self.alignment_heads)
        if self.nbest > self.beam_size:
            raise UserError(
                f"decoding.nbest={self.nbest}: is more than decoding.beam_size={self.beam_size}. "
                f"Set decoding.beam_size={self.nbest}, or lower decoding.nbest."
            )

    def for_segments(self) -> DecodingConfig:
        """Returns the options for text in segments, such as a test set: `auto` does not divide its lines."""
        return replace(self, split_sentences=False) if self.split_sentences == "auto" else self

    @property
    def sentences_per_batch(self) -> int:
        """The largest number of sentences per batch on the CPU: `max_sentences`, or its choice for `auto`."""
        if self.max_sentences != "auto":
            return int(self.max_sentences)
        return min(max(512 // (self.samples or self.beam_size), 64), 256)

    def max_target_tokens(self, source_tokens: int) -> int:
        """Returns the maximum number of tokens of a translation, EOS counted on both sides."""
        return int(source_tokens * self.max_length_factor) + self.max_length_offset

    @property
    def num_results(self) -> int:
        """The number of translations per sentence: `samples`, or `nbest` in a beam search; 1 with `mbr`."""
        return 1 if self.mbr else self.samples or self.nbest


def _check_heads(value: Any) -> None:
    if value == "auto":
        return
    pairs = value if isinstance(value, list) else []
    if not pairs or not all(_is_pair(pair) for pair in pairs):
        raise UserError(
            f"decoding.alignment_heads={shortened(value)}: must be auto, or a list of layers and heads "
            "from 0, such as [[2,1],[3,0]]."
        )


def _is_pair(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(type(one) is int and one >= 0 for one in value)
