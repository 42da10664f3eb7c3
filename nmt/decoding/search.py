"""Batched beam search over a step function; it knows no model and no text.

Shapes: B sentences still searched, K hypotheses of each, C = min(beam_size, K * V) that survive a step,
V ids, N = nbest, t tokens so far.

Rules, for each sentence by itself:

- At every step the `beam_size` best extensions by one id survive, ordered by log-probability, equal ones by
  the lower hypothesis and then by the lower id. Those that end with EOS are complete, the others stay open.
  With `beam_size` 1 this is greedy search.
- A complete hypothesis is scored by log_prob / ((5 + |Y|) / 6) ** alpha, where |Y| counts EOS (Wu et al.
  2016, equation 14). Of equal scores, the one completed first goes first.
- A hypothesis of `max_length` - 1 tokens can only be extended by EOS, at the model's own log-probability.
- The search ends as soon as no open hypothesis can still beat the worst of the `nbest` best complete ones.
  Log-probabilities only fall and alpha >= 0, so an open one reaches at most log_prob / penalty(max_length).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, Self, TypeVar

import torch
from torch import Tensor

from nmt.config import DecodingConfig


class State(Protocol):
    """What the step function remembers between two steps."""

    def select(self, rows: Tensor) -> Self:
        """Reorders hypotheses.

        Args:
            rows: (B', K') int64, indices into the flattened B * K hypotheses; all in one row belong to one
                sentence. B' < B leaves out sentences; K' may differ from K.
        """
        ...


S = TypeVar("S", bound=State)
Step = Callable[[Tensor, S], tuple[Tensor, S]]
"""Last ids (B, K) int64 and state -> log-probabilities of the next id (B, K, V), none above 0, and state."""


@dataclass(frozen=True)
class Hypothesis:
    """A complete hypothesis.

    Attributes:
        ids: what was chosen, without EOS.
        score: log-probability divided by the length penalty.
        log_prob: natural logarithm of its probability, EOS included.
    """

    ids: tuple[int, ...]
    score: float
    log_prob: float


def beam_search(
    step: Step[S],
    state: S,
    *,
    num_sentences: int,
    max_lengths: Sequence[int],
    config: DecodingConfig,
    bos_id: int,
    eos_id: int,
    forbidden: Sequence[int] = (),
    device: torch.device | str = "cpu",
) -> list[list[Hypothesis]]:
    """Searches the most probable sequences of each sentence.

    Args:
        step: the model.
        state: its state before the first step, one hypothesis a sentence.
        num_sentences: B.
        max_lengths: for each sentence the largest |Y|, EOS counted; 1 or more.
        config: `beam_size`, `length_penalty` and `nbest` are used.
        bos_id: the id every hypothesis is started from.
        eos_id: the id that ends a hypothesis.
        forbidden: ids that are never chosen.
        device: where `step` takes and returns its tensors.

    Returns:
        For each sentence its best hypotheses, best first: `nbest` of them, fewer only where there are no more
        of probability above 0 within `max_lengths`.

    Raises:
        FloatingPointError: a log-probability is NaN.
    """
    assert len(max_lengths) == num_sentences
    assert eos_id not in forbidden
    if num_sentences == 0:
        return []
    assert min(max_lengths) >= 1
    device = torch.device(device)
    never = torch.tensor(list(forbidden), dtype=torch.int64, device=device)
    rules = _Rules(config, eos_id, never, max_lengths)
    beams = _start(bos_id, rules, device)
    sentences = list(range(num_sentences))  # which sentence each row of the batch is
    results: list[list[Hypothesis]] = [[] for _ in sentences]
    interval = check_interval(device)
    last = max(max_lengths)
    for length in range(1, last + 1):
        num_before = beams.ids.shape[1]
        log_probs, state = step(beams.ids[:, :, -1], state)
        beams, rows = _extend(beams, log_probs, length, rules)
        is_identity = num_before == 1 == beams.ids.shape[1]
        if length % interval == 0 or length == last:
            done, broken = beams.flags().tolist()
            if any(broken):
                raise FloatingPointError(f"the log-probability of token {length} is not a number (NaN)")
            if any(done):
                _collect(beams, done, sentences, eos_id, results)
                left = [row for row, is_done in enumerate(done) if not is_done]
                if not left:
                    return results
                sentences = [sentences[row] for row in left]
                picked = torch.tensor(left, device=device)
                beams, rows = beams.take(picked), rows[picked]
                is_identity = False
        if not is_identity:
            state = state.select(rows)
    raise AssertionError("every sentence is done at its maximum length")


def check_interval(device: torch.device) -> int:
    """Steps from one look at which sentences are done to the next: looking makes the host wait for a GPU."""
    return 1 if device.type == "cpu" else 4


@dataclass(frozen=True)
class _Rules:
    """What holds for the whole search."""

    config: DecodingConfig
    eos_id: int
    forbidden: Tensor  # (number of ids,) int64
    max_lengths: Sequence[int]

    def penalty(self, length: int) -> float:
        """GNMT's length penalty."""
        return float(((5.0 + length) / 6.0) ** self.config.length_penalty)


@dataclass(frozen=True, slots=True)
class _Beams:
    """The search of each sentence between two steps; a slot of log-probability -inf is empty."""

    ids: Tensor  # (B, K, t) int64: open hypotheses, BOS first
    log_probs: Tensor  # (B, K) float32
    complete_ids: Tensor  # (B, N, t) int64: BOS first, filled up with EOS
    complete_log_probs: Tensor  # (B, N) float32
    complete_scores: Tensor  # (B, N) float32, best first
    max_lengths: Tensor  # (B,) int64
    max_penalties: Tensor  # (B,) float32: the length penalty at the maximum length

    def flags(self) -> Tensor:
        """(2, B) bool: which sentences are done, and which have met NaN."""
        best = self.log_probs.amax(1)  # NaN wins, and comparing with it is never true
        done = self.complete_scores[:, -1] >= best / self.max_penalties
        broken = best.isnan() | self.complete_scores.isnan().any(1)
        return torch.stack((done, broken))

    def take(self, rows: Tensor) -> _Beams:
        """The sentences of `rows`, (B',) int64."""
        return _Beams(
            ids=self.ids[rows],
            log_probs=self.log_probs[rows],
            complete_ids=self.complete_ids[rows],
            complete_log_probs=self.complete_log_probs[rows],
            complete_scores=self.complete_scores[rows],
            max_lengths=self.max_lengths[rows],
            max_penalties=self.max_penalties[rows],
        )


def _start(bos_id: int, rules: _Rules, device: torch.device) -> _Beams:
    size, nbest = len(rules.max_lengths), rules.config.nbest
    nothing = torch.full((size, nbest), -torch.inf, device=device)
    return _Beams(
        ids=torch.full((size, 1, 1), bos_id, device=device),
        log_probs=torch.zeros((size, 1), device=device),
        complete_ids=torch.full((size, nbest, 1), bos_id, device=device),
        complete_log_probs=nothing,
        complete_scores=nothing,
        max_lengths=torch.tensor(rules.max_lengths, device=device),
        max_penalties=torch.tensor([rules.penalty(length) for length in rules.max_lengths], device=device),
    )


def _extend(beams: _Beams, log_probs: Tensor, length: int, rules: _Rules) -> tuple[_Beams, Tensor]:
    """One step: K open hypotheses become C.

    Args:
        beams: with K hypotheses of t tokens.
        log_probs: (B, K, V) of the next id.
        length: t, the number of ids chosen after this step.
        rules: of the search.

    Returns:
        The beams with C hypotheses of t + 1 tokens, and the rows they came from, (B, C) int64, for
        `State.select`.
    """
    size, width, vocab = log_probs.shape
    totals = log_probs.float() + beams.log_probs[:, :, None]  # (B, K, V)
    totals.index_fill_(2, rules.forbidden, -torch.inf)
    if length in rules.max_lengths:
        must_end = (beams.max_lengths == length)[:, None, None]
        is_other = torch.arange(vocab, device=totals.device) != rules.eos_id
        totals.masked_fill_(must_end & is_other, -torch.inf)

    best, places = top_candidates(totals.flatten(1), min(rules.config.beam_size, width * vocab))  # (B, C)
    parents, chosen = places // vocab, places % vocab
    ids = torch.cat((_rows(beams.ids, parents), chosen[:, :, None]), 2)  # (B, C, t + 1)
    ends = chosen == rules.eos_id

    complete_log_probs = torch.cat((beams.complete_log_probs, best.masked_fill(~ends, -torch.inf)), 1)
    new_scores = complete_log_probs[:, rules.config.nbest :] / rules.penalty(length)
    scores = torch.cat((beams.complete_scores, new_scores), 1)
    scores, order = scores.sort(dim=1, descending=True, stable=True)
    order = order[:, : rules.config.nbest]
    longer = torch.nn.functional.pad(beams.complete_ids, (0, 1), value=rules.eos_id)
    extended = _Beams(
        ids=ids,
        log_probs=best.masked_fill(ends, -torch.inf),
        complete_ids=_rows(torch.cat((longer, ids), 1), order),
        complete_log_probs=complete_log_probs.gather(1, order),
        complete_scores=scores[:, : rules.config.nbest],
        max_lengths=beams.max_lengths,
        max_penalties=beams.max_penalties,
    )
    first = torch.arange(0, size * width, width, device=places.device)
    return extended, first[:, None] + parents


def top_candidates(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The largest scores of each row, best first and of equal ones the lower index first.

    `torch.topk` alone leaves open which of equal scores it takes, so that it may depend on the batch.

    Args:
        scores: (B, M) floating point.
        count: C, at most M.

    Returns:
        (B, C) scores and (B, C) int64 indices. Rows with NaN have it first, the rest of them is arbitrary.
    """
    num_scores = scores.shape[1]
    values, indices = scores.topk(min(count + 1, num_scores))
    if num_scores > count:
        border, next_best = values[:, count - 1 : count], values[:, count:]
        values, indices = values[:, :count], indices[:, :count]
        # Looking costs a CUDA device more than the work below.
        if scores.is_cuda or bool((border == next_best).any()):
            is_above = ~(values <= border)  # so that NaN stays
            from_end = torch.arange(num_scores - 1, -1, -1, device=scores.device)
            equal = num_scores - 1 - torch.where(scores == border, from_end, 0).topk(count).values
            rank = torch.arange(count, device=scores.device) - is_above.sum(1, keepdim=True)
            indices = torch.where(is_above, indices, equal.gather(1, rank.clamp(min=0)))
    indices = indices.sort(1).values
    values, order = scores.gather(1, indices).sort(dim=1, descending=True, stable=True)
    return values, indices.gather(1, order)


def _rows(ids: Tensor, rows: Tensor) -> Tensor:
    """(B, K, t) ids and (B, K') rows of each sentence -> (B, K', t)."""
    return ids.gather(1, rows[:, :, None].expand(-1, -1, ids.shape[2]))


def _collect(
    beams: _Beams, done: list[bool], sentences: list[int], eos_id: int, results: list[list[Hypothesis]]
) -> None:
    """Writes the complete hypotheses of the sentences that are done to their place in `results`."""
    rows = [row for row, is_done in enumerate(done) if is_done]
    picked = beams.take(torch.tensor(rows, device=beams.ids.device))
    all_ids = picked.complete_ids[:, :, 1:].tolist()
    all_scores, all_log_probs = picked.complete_scores.tolist(), picked.complete_log_probs.tolist()
    for row, ids, scores, log_probs in zip(rows, all_ids, all_scores, all_log_probs, strict=True):
        results[sentences[row]] = [
            Hypothesis(tuple(one[: one.index(eos_id)]), score, log_prob)
            for one, score, log_prob in zip(ids, scores, log_probs, strict=True)
            if log_prob > float("-inf")
        ]
