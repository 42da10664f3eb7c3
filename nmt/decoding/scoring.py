"""Forced decoding: log-probabilities and attention of given targets, with the step function of a search.

Shapes: B sentences, T tokens of the longest target, EOS counted, V ids.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from nmt.decoding.search import S, Step, StepOutput


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
    forced = _Forced(targets, bos_id, eos_id, torch.device(device))
    log_probs = torch.zeros(len(targets), forced.longest, device=forced.device)
    for position, rows, output in forced.steps(step, state):
        following = forced.ids[rows, position + 1 : position + 2]
        log_probs[rows, position] = output.log_probs[:, 0].float().gather(1, following)[:, 0]
    rows_of_floats: list[list[float]] = log_probs.tolist()
    scores = [tuple(row[:length]) for row, length in zip(rows_of_floats, forced.lengths, strict=True)]
    if any(log_prob != log_prob for score in scores for log_prob in score):
        raise FloatingPointError("the log-probability of a target's token is not a number (NaN)")
    return scores


def forced_attention(
    step: Step[S],
    state: S,
    targets: Sequence[Sequence[int]],
    *,
    bos_id: int,
    eos_id: int,
    device: torch.device | str = "cpu",
) -> list[Tensor]:
    """Returns the attention of each step that reads a given target; the arguments are as for `forced_score`.

    Returns:
        For each target (|Y|, ...) on the CPU: the attention of `step` for each token, EOS included.
    """
    forced = _Forced(targets, bos_id, eos_id, torch.device(device))
    collected: list[list[Tensor]] = [[] for _ in targets]
    if targets:
        for _, rows, output in forced.steps(step, state, attention=True):
            assert output.attention is not None, "the step function returns no attention"
            for row, weights in zip(rows.tolist(), output.attention[:, 0].cpu(), strict=True):
                collected[row].append(weights)
    return [torch.stack(weights) for weights in collected]


class _Forced:
    """Feeds targets, one or more without BOS and EOS, to a model, token by token.

    Attributes:
        ids: (B, T + 1) int64, BOS first, padded with EOS.
        lengths: tokens of each target, EOS counted.
        longest: T.
        device: the device of `ids`.
    """

    def __init__(
        self, targets: Sequence[Sequence[int]], bos_id: int, eos_id: int, device: torch.device
    ) -> None:
        self.device = device
        self.lengths = [len(target) + 1 for target in targets]
        self.longest = max(self.lengths, default=0)
        padded = [[bos_id, *target, *[eos_id] * (self.longest - len(target))] for target in targets]
        self.ids = torch.tensor(padded, device=device)

    def steps(
        self, step: Step[S], state: S, *, attention: bool = False
    ) -> Iterator[tuple[int, Tensor, StepOutput[S]]]:
        """Yields for each step its number, the (B',) targets that have not ended, and its output for them."""
        rows = list(range(len(self.lengths)))
        selected = torch.arange(len(rows), device=self.device)
        for position in range(self.longest):
            output = step(self.ids[selected, position : position + 1], state, attention=attention)
            yield position, selected, output
            state = output.state
            unfinished = [number for number, row in enumerate(rows) if self.lengths[row] > position + 1]
            if unfinished and len(unfinished) < len(rows):
                rows = [rows[number] for number in unfinished]
                indices = torch.tensor(unfinished, device=self.device)
                selected, state = selected[indices], state.select(indices[:, None])


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
