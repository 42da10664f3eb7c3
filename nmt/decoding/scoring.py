"""Forced scoring: the log-probabilities of given targets, by the step function that a search uses.

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
    """Reads targets token by token.

    Args:
        step: the model.
        state: its state before the first step, one hypothesis a sentence.
        targets: ids of each sentence without BOS and EOS; may be none.
        bos_id: the id every target is started from.
        eos_id: the id that ends a target.
        device: where `step` takes and returns its tensors.

    Returns:
        For each target the log-probability of each of its tokens, that of EOS last.

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
    picked = torch.arange(len(targets), device=device)
    for place in range(longest):
        output = step(ids[picked, place : place + 1], state)
        state = output.state
        following = ids[picked, place + 1 : place + 2]
        log_probs[picked, place] = output.log_probs[:, 0].float().gather(1, following)[:, 0]
        kept = [number for number, row in enumerate(rows) if lengths[row] > place + 1]
        if kept and len(kept) < len(rows):
            rows = [rows[number] for number in kept]
            left = torch.tensor(kept, device=device)
            picked, state = picked[left], state.select(left[:, None])
    found: list[list[float]] = log_probs.tolist()
    scores = [tuple(row[:length]) for row, length in zip(found, lengths, strict=True)]
    if any(log_prob != log_prob for score in scores for log_prob in score):
        raise FloatingPointError("the log-probability of a target's token is not a number (NaN)")
    return scores


@dataclass(frozen=True)
class ScoredTarget:
    """How probable the model finds a given translation.

    Attributes:
        token_log_probs: natural logarithm of the probability of each token given those before it; EOS last.
        truncated: 0, or the number of tokens of a source that was cut to `decoding.max_source_tokens`.
    """

    token_log_probs: tuple[float, ...]
    truncated: int = 0

    @classmethod
    def of_blank_source(cls, target: Sequence[int]) -> ScoredTarget:
        """The score beside a source with nothing to translate: the empty target has probability 1."""
        return cls((-math.inf,) * (len(target) + 1) if target else (0.0,))

    @property
    def log_prob(self) -> float:
        """Natural logarithm of the probability of the whole target, EOS included."""
        return math.fsum(self.token_log_probs)
