"""Scorers: from a hypothesis' log-probability and length to the score that orders complete hypotheses.

Shapes: B sentences, N complete hypotheses of each.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor


class HypothesisScorer(ABC):
    """The score of a complete hypothesis and the bound of an open one.

    Both rise with the log-probability, and a log-probability of -inf has the score -inf. A length is |Y|: the
    number of tokens, EOS counted.
    """

    @abstractmethod
    def score(self, log_probs: Tensor, length: int) -> Tensor:
        """Scores complete hypotheses of one length.

        Args:
            log_probs: (B, N) float32.
            length: their |Y|.

        Returns:
            (B, N) float32.
        """

    @abstractmethod
    def bound(self, log_probs: Tensor, max_lengths: tuple[int, ...]) -> Tensor:
        """The highest score that any extension of an open hypothesis can reach.

        An extension never raises the log-probability. If the bound is too low, the search stops too early.

        Args:
            log_probs: (B,) float32, of the most probable open hypothesis of each sentence; -inf if it has
                none.
            max_lengths: for each sentence the largest |Y|.

        Returns:
            (B,) float32.
        """


@dataclass(frozen=True)
class LengthPenalty(HypothesisScorer):
    """GNMT's: log_prob / ((5 + |Y|) / 6) ** alpha (Wu et al. 2016, equation 14).

    Attributes:
        alpha: 0 or more; 0 leaves the log-probability as it is.
    """

    alpha: float

    def score(self, log_probs: Tensor, length: int) -> Tensor:
        """See `HypothesisScorer.score`."""
        return log_probs / self.penalty(length)

    def bound(self, log_probs: Tensor, max_lengths: tuple[int, ...]) -> Tensor:
        """The score at the maximum length: the penalty grows with the length, and log_prob is below 0."""
        return log_probs / _penalties(self, max_lengths, log_probs.device)

    def penalty(self, length: int) -> float:
        """The divisor for a length."""
        return float(((5.0 + length) / 6.0) ** self.alpha)


@lru_cache(maxsize=4)  # the lengths change only when sentences leave the search
def _penalties(scorer: LengthPenalty, lengths: tuple[int, ...], device: torch.device) -> Tensor:
    return torch.tensor([scorer.penalty(length) for length in lengths], device=device)
