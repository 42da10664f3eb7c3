"""Options of beam search, for validation, testing and translating alike."""

from __future__ import annotations

from dataclasses import dataclass

from nmt.config.checks import at_least, check
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
    max_tokens: int = 4096
    """Source tokens a batch holds at most, padding included."""
    max_sentences: int = 64
    """Sentences a batch holds at most."""
    max_source_tokens: int = 1024
    """A longer source is cut to this many tokens, and told on standard error."""

    def __post_init__(self) -> None:
        """Checks the values."""
        for key in ("beam_size", "nbest", "max_tokens", "max_sentences", "max_source_tokens"):
            check(f"decoding.{key}", getattr(self, key), at_least(1))
        check("decoding.length_penalty", self.length_penalty, at_least(0.0))
        check("decoding.max_length_offset", self.max_length_offset, at_least(1))
        check("decoding.max_length_factor", self.max_length_factor, at_least(0.0))
        if self.nbest > self.beam_size:
            raise UserError(
                f"decoding.nbest={self.nbest} is more than decoding.beam_size={self.beam_size}: "
                f"set decoding.beam_size={self.nbest} or lower decoding.nbest"
            )
