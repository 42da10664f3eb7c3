"""Scorers of complete hypotheses, which combine log-probability and length.

Shapes: B sentences, N complete hypotheses per sentence.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor


class HypothesisScorer(ABC):
    """The score of complete hypotheses, and its upper bound for open hypotheses.

    Both must increase with the log-probability. The score of the log-probability -inf must be -inf. The
    length |Y| is the number of tokens, EOS counted.
    """

    @abstractmethod
    def score(self, log_probs: Tensor, length: int) -> Tensor:
        """Scores complete hypotheses of one length.

        Args:
            log_probs: (B, N) float32.
            length: |Y| of all of them.

        Returns:
            (B, N) float32.
        """

    @abstractmethod
    def bound(self, log_probs: Tensor, max_lengths: tuple[int, ...]) -> Tensor:
        """Returns an upper bound of the scores of all extensions of an open hypothesis.

        An extension never increases the log-probability. If the bound is too low, the search stops too early.

        Args:
            log_probs: (B,) float32, of the most probable open hypothesis of each sentence; -inf if a sentence
                has none.
            max_lengths: for each sentence the maximum |Y|.

        Returns:
            (B,) float32.
        """


@dataclass(frozen=True)
class LengthPenalty(HypothesisScorer):
    """The length penalty of GNMT: score = log_prob / ((5 + |Y|) / 6)^alpha (Wu et al. 2016, equation 14).

    With alpha 0 the score is the log-probability.
    """

    alpha: float

    def score(self, log_probs: Tensor, length: int) -> Tensor:
        """See `HypothesisScorer.score`."""
        return log_probs / self.penalty(length)

    def bound(self, log_probs: Tensor, max_lengths: tuple[int, ...]) -> Tensor:
        """Returns the score at the maximum length.

        It is a bound because log-probabilities are at most 0, and the divisor increases with the length.
        """
        return log_probs / _penalties(self, max_lengths, log_probs.device)

    def penalty(self, length: int) -> float:
        """Returns the divisor for a length: ((5 + |Y|) / 6)^alpha."""
        return float(((5.0 + length) / 6.0) ** self.alpha)


@lru_cache(maxsize=4)  # the lengths change only when sentences leave the search
def _penalties(scorer: LengthPenalty, lengths: tuple[int, ...], device: torch.device) -> Tensor:
    return torch.tensor([scorer.penalty(length) for length in lengths], device=device)
