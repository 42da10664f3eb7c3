"""Forced scoring: the log-probabilities of given targets, with the same step function as a search.

Shapes: B sentences, T tokens of the longest target, EOS counted, V ids.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from nmt.decoding.step import S, Step


def forced_score(
    step: Step[S],
    state: S,
    targets: Sequence[Sequence[int]],
    *,
    bos_id: int,
    eos_id: int,
    device: torch.device | str = "cpu",
) -> list[tuple[float, ...]]:
    """Scores targets token by token.

    Args:
        step: the model.
        state: the state before the first step, with one hypothesis per sentence.
        targets: target ids of each sentence, without BOS and EOS; a target may be empty.
        bos_id: the id before every target.
        eos_id: the id that ends a target.
        device: the device of the tensors of `step`.

    Returns:
        For each target the log-probabilities of its tokens, EOS last.

    Raises:
        FloatingPointError: a log-probability is NaN.
    """
    if not targets:
        return []
    device = torch.device(device)
    lengths = [len(target) + 1 for target in targets]
    longest = max(lengths)
    padded = [[bos_id, *target, *[eos_id] * (longest - len(target))] for target in targets]
    ids = torch.tensor(padded, device=device)  # (B, T + 1)
    log_probs = torch.zeros((len(targets), longest), device=device)
    rows = list(range(len(targets)))  # the targets that have not ended
    selected = torch.arange(len(targets), device=device)
    for place in range(longest):
        output = step(ids[selected, place : place + 1], state)
        state = output.state
        following = ids[selected, place + 1 : place + 2]
        log_probs[selected, place] = output.log_probs[:, 0].float().gather(1, following)[:, 0]
        unfinished = [number for number, row in enumerate(rows) if lengths[row] > place + 1]
        if unfinished and len(unfinished) < len(rows):
            rows = [rows[number] for number in unfinished]
            indices = torch.tensor(unfinished, device=device)
            selected, state = selected[indices], state.select(indices[:, None])
    found: list[list[float]] = log_probs.tolist()
    scores = [tuple(row[:length]) for row, length in zip(found, lengths, strict=True)]
    if any(log_prob != log_prob for score in scores for log_prob in score):
        raise FloatingPointError("the log-probability of a target's token is not a number (NaN)")
    return scores


@dataclass(frozen=True)
class ScoredTarget:
    """The score of a given translation.

    Attributes:
        token_log_probs: log p(y_i | y_1, ..., y_{i-1}, x) of each token, natural logarithm; EOS last.
        truncated: number of source tokens if the source was cut to `decoding.max_source_tokens`, otherwise 0.
    """

    token_log_probs: tuple[float, ...]
    truncated: int = 0

    @classmethod
    def of_blank_source(cls, target: Sequence[int]) -> ScoredTarget:
        """Returns the score for a blank source: an empty target has the probability 1, any other target 0."""
        return cls((-math.inf,) * (len(target) + 1) if target else (0.0,))

    @property
    def log_prob(self) -> float:
        """The natural logarithm of p(y | x) for the whole target, EOS included."""
        return math.fsum(self.token_log_probs)
