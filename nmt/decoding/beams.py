"""The hypotheses of a batch between two steps of beam search, and how one step extends them.

Shapes: B sentences still searched, K hypotheses of each, C = min(beam_size, K * V) that survive a step,
V ids, N = nbest, t tokens so far, S places of the longest source.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from nmt.decoding.scorers import HypothesisScorer


@dataclass(frozen=True)
class Rules:
    """What holds for the whole search."""

    beam_size: int
    nbest: int
    scorer: HypothesisScorer
    bos_id: int
    eos_id: int
    forbidden: Tensor  # (number of ids,) int64
    max_lengths: Sequence[int]  # of all sentences, those that have left the search included


@dataclass(frozen=True, slots=True)
class Beams:
    """The search of each sentence between two steps; a slot of log-probability -inf is empty."""

    ids: Tensor  # (B, K, t) int64: open hypotheses, BOS first
    log_probs: Tensor  # (B, K) float32
    complete_ids: Tensor  # (B, N, t) int64: BOS first, filled up with EOS
    complete_log_probs: Tensor  # (B, N) float32
    complete_scores: Tensor  # (B, N) float32, best first
    max_lengths: Tensor  # (B,) int64

    @classmethod
    def start(cls, rules: Rules, device: torch.device) -> Beams:
        """One open hypothesis a sentence, which holds BOS alone."""
        size, nbest = len(rules.max_lengths), rules.nbest
        nothing = torch.full((size, nbest), -torch.inf, device=device)
        return cls(
            ids=torch.full((size, 1, 1), rules.bos_id, device=device),
            log_probs=torch.zeros((size, 1), device=device),
            complete_ids=torch.full((size, nbest, 1), rules.bos_id, device=device),
            complete_log_probs=nothing,
            complete_scores=nothing,
            max_lengths=torch.tensor(rules.max_lengths, device=device),
        )

    def flags(self, scorer: HypothesisScorer, max_lengths: tuple[int, ...]) -> Tensor:
        """(2, B) bool: which sentences are done, and which have met NaN; `max_lengths` of the B sentences."""
        best = self.log_probs.amax(1)  # NaN wins, and comparing with it is never true
        done = self.complete_scores[:, -1] >= scorer.bound(best, max_lengths)
        broken = best.isnan() | self.complete_scores.isnan().any(1)
        return torch.stack((done, broken))

    def take(self, rows: Tensor) -> Beams:
        """The sentences of `rows`, (B',) int64."""
        return Beams(
            ids=self.ids[rows],
            log_probs=self.log_probs[rows],
            complete_ids=self.complete_ids[rows],
            complete_log_probs=self.complete_log_probs[rows],
            complete_scores=self.complete_scores[rows],
            max_lengths=self.max_lengths[rows],
        )


@dataclass(frozen=True, slots=True)
class Extension:
    """What one step makes of `Beams`."""

    beams: Beams  # with C open hypotheses of t + 1 tokens
    parents: Tensor  # (B, C) int64: of the K hypotheses, the one that each of the C extends
    order: Tensor  # (B, N) int64: the new complete ones among the N old ones followed by the C extensions

    def rows(self, width: int) -> Tensor:
        """(B, C) int64, the parents as rows of the flattened B * K hypotheses; `width` is K."""
        first = torch.arange(0, len(self.parents) * width, width, device=self.parents.device)
        return first[:, None] + self.parents


def extend(
    beams: Beams, log_probs: Tensor, length: int, rules: Rules, processed: Tensor | None = None
) -> Extension:
    """One step: K open hypotheses become C.

    Args:
        beams: with K hypotheses of t tokens.
        log_probs: (B, K, V) of the next id, from the model.
        length: t, the number of ids chosen after this step.
        rules: of the search.
        processed: (B, K, V), what processors made of `log_probs`; None if there are none.
    """
    _, width, vocab = log_probs.shape
    totals = _totals(beams, log_probs if processed is None else processed, length, rules)  # (B, K, V)
    if processed is not None:
        totals = _freed(totals, beams, log_probs, length, rules)

    best, places = top_candidates(totals.flatten(1), min(rules.beam_size, width * vocab))  # (B, C)
    parents, chosen = places // vocab, places % vocab
    ids = torch.cat((_rows(beams.ids, parents), chosen[:, :, None]), 2)  # (B, C, t + 1)
    ends = chosen == rules.eos_id

    complete_log_probs = torch.cat((beams.complete_log_probs, best.masked_fill(~ends, -torch.inf)), 1)
    new_scores = rules.scorer.score(complete_log_probs[:, rules.nbest :], length)
    scores = torch.cat((beams.complete_scores, new_scores), 1)
    scores, order = scores.sort(dim=1, descending=True, stable=True)
    order = order[:, : rules.nbest]
    longer = F.pad(beams.complete_ids, (0, 1), value=rules.eos_id)
    extended = Beams(
        ids=ids,
        log_probs=best.masked_fill(ends, -torch.inf),
        complete_ids=_rows(torch.cat((longer, ids), 1), order),
        complete_log_probs=complete_log_probs.gather(1, order),
        complete_scores=scores[:, : rules.nbest],
        max_lengths=beams.max_lengths,
    )
    return Extension(extended, parents, order)


def _totals(beams: Beams, log_probs: Tensor, length: int, rules: Rules) -> Tensor:
    """(B, K, V) log-probability of every extension; -inf for those that the rules exclude."""
    totals = log_probs.float() + beams.log_probs[:, :, None]
    totals.index_fill_(2, rules.forbidden, -torch.inf)
    if length in rules.max_lengths:
        must_end = (beams.max_lengths == length)[:, None, None]
        is_other = torch.arange(totals.shape[2], device=totals.device) != rules.eos_id
        totals.masked_fill_(must_end & is_other, -torch.inf)
    return totals


def _freed(totals: Tensor, beams: Beams, log_probs: Tensor, length: int, rules: Rules) -> Tensor:
    """`totals` of processed log-probabilities; the model's own where a sentence would end without a result.

    Such a sentence has no complete hypothesis, and the processors leave its open ones no extension.
    """
    impossible = -torch.inf
    stuck = (totals.amax((1, 2)) == impossible) & (beams.complete_scores[:, 0] == impossible)
    # Looking costs a CUDA device more than the work below.
    if totals.is_cuda or bool(stuck.any()):
        totals = torch.where(stuck[:, None, None], _totals(beams, log_probs, length, rules), totals)
    return totals


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


@dataclass(frozen=True, slots=True)
class AttentionTrace:
    """The attention of every hypothesis to its source, a row for each token; follows its `Beams`."""

    open: Tensor  # (B, K, t, S)
    complete: Tensor  # (B, N, t, S), filled up with 0

    @classmethod
    def start(cls, attention: Tensor, nbest: int) -> AttentionTrace:
        """No tokens yet.

        Args:
            attention: (B, K, S) of the first step.
            nbest: N.
        """
        size, width, places = attention.shape
        return cls(attention.new_zeros(size, width, 0, places), attention.new_zeros(size, nbest, 0, places))

    def extended(self, attention: Tensor, extension: Extension) -> AttentionTrace:
        """Adds the (B, K, S) attention of the step whose result is `extension`."""
        rows = torch.cat((self.open, attention[:, :, None]), 2)  # (B, K, t + 1, S)
        rows = _rows(rows, extension.parents)
        longer = F.pad(self.complete, (0, 0, 0, 1))
        return AttentionTrace(rows, _rows(torch.cat((longer, rows), 1), extension.order))

    def take(self, rows: Tensor) -> AttentionTrace:
        """The sentences of `rows`, (B',) int64."""
        return AttentionTrace(self.open[rows], self.complete[rows])


def _rows(values: Tensor, rows: Tensor) -> Tensor:
    """(B, K, ...) values and (B, K') rows of each sentence -> (B, K', ...)."""
    index = rows.view(*rows.shape, *[1] * (values.dim() - 2))
    return values.gather(1, index.expand(-1, -1, *values.shape[2:]))
