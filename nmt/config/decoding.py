"""Options of beam search, for validation, testing and translating alike."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from nmt.config.checks import between, check
from nmt.errors import UserError


@dataclass
class DecodingConfig:
    """Beam search (section 6.1 of the paper) and its batches."""

    beam_size: int = 4
    """1 is greedy search."""
    length_penalty: float = 0.6
    """GNMT's alpha: scores are divided by ((5 + |Y|) / 6) ** alpha (Wu et al. 2016, eq. 14)."""
    max_length_offset: int = 50
    """A translation has at most this many tokens more than `max_length_factor` times its source."""
    max_length_factor: float = 1.0
    nbest: int = 1
    """Hypotheses returned for each sentence, best first; at most `beam_size`."""
    no_repeat_ngram: int = 0
    """No translation holds the same sequence of this many tokens twice; 0: repetition is allowed."""
    max_tokens: int = 4096
    """Source tokens a batch holds at most, padding included."""
    max_sentences: int = 64
    """Sentences a batch holds at most."""
    max_source_tokens: int = 1024
    """A longer source is cut to this many tokens, and told on standard error."""
    processors: dict[str, dict[str, Any] | None] = field(default_factory=dict)
    """Search processors by the names they are registered under in `nmt.decoding.processors`, in the order of
    their application, each with its options: `decoding.processors.mine.strength=2`, or
    `decoding.processors.mine={}`. null leaves one out; `decoding.processors={}` leaves out all."""

    def __post_init__(self) -> None:
        """Checks the values."""
        for key, high in (
            ("beam_size", 1000),
            ("nbest", 1000),
            ("max_tokens", 10_000_000),
            ("max_sentences", 1_000_000),
            ("max_source_tokens", 100_000),
            ("max_length_offset", 100_000),
        ):
            check(f"decoding.{key}", getattr(self, key), between(1, high))
        check("decoding.no_repeat_ngram", self.no_repeat_ngram, between(0, 100))
        check("decoding.length_penalty", self.length_penalty, between(0, 10))
        check("decoding.max_length_factor", self.max_length_factor, between(0, 100))
        if self.nbest > self.beam_size:
            raise UserError(
                f"decoding.nbest={self.nbest} is more than decoding.beam_size={self.beam_size}: "
                f"set decoding.beam_size={self.nbest} or lower decoding.nbest"
            )
