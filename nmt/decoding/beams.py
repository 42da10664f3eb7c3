"""The state of a beam search, and the step that extends its hypotheses.

Shapes: B unfinished sentences, K open hypotheses per sentence, C = min(beam_size, K * V) candidates that a
step retains, V ids, N = nbest, t tokens so far (BOS counted), S positions of the longest source.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
import torch.nn.functional as F
from torch import Tensor

from nmt.decoding.constraints import Banks
from nmt.decoding.scorers import HypothesisScorer


@dataclass(frozen=True)
class Rules:
    """The settings of a search, constant in all steps."""

    beam_size: int
    nbest: int
    scorer: HypothesisScorer
    bos_id: int
    eos_id: int
    forbidden: Tensor  # (number of ids,) int64
    max_lengths: Sequence[int]  # of all sentences, finished ones included


@dataclass(frozen=True, slots=True)
class Beams:
    """The open and complete hypotheses of each sentence; a log-probability of -inf marks an empty slot."""

    ids: Tensor  # (B, K, t) int64: open hypotheses, BOS first
    log_probs: Tensor  # (B, K) float32
    complete_ids: Tensor  # (B, N, t) int64: BOS first, padded with EOS
    complete_log_probs: Tensor  # (B, N) float32
    complete_scores: Tensor  # (B, N) float32, best first
    max_lengths: Tensor  # (B,) int64

    @classmethod
    def start(cls, rules: Rules, device: torch.device) -> Beams:
        """Returns one open hypothesis per sentence: BOS alone."""
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
        """Returns the flags of the B sentences, (2, B) bool: whether it is done, whether a value is NaN."""
        best = self.log_probs.amax(1)  # NaN if any is NaN; then the comparison below is false
        done = self.complete_scores[:, -1] >= scorer.bound(best, max_lengths)
        broken = best.isnan() | self.complete_scores.isnan().any(1)
        return torch.stack((done, broken))

    def take(self, rows: Tensor) -> Beams:
        """Returns the beams of the sentences `rows`, (B',) int64."""
        return Beams(*(getattr(self, field.name)[rows] for field in fields(self)))


@dataclass(frozen=True, slots=True)
class Extension:
    """The result of one step of the search."""

    beams: Beams  # C open hypotheses of t + 1 tokens
    parents: Tensor  # (B, C) int64: for each of the C candidates the hypothesis that it extends, below K
    order: Tensor  # (B, N) int64: the N best complete ones, as indices into N old ones and C candidates
    banks: Banks | None  # the constraints after the step

    def rows(self, width: int) -> Tensor:
        """Returns the parents as indices into the B * K hypotheses, (B, C) int64; `width` is K."""
        first = torch.arange(0, len(self.parents) * width, width, device=self.parents.device)
        return first[:, None] + self.parents


def extend(
    beams: Beams,
    log_probs: Tensor,
    length: int,
    rules: Rules,
    processed: Tensor | None = None,
    banks: Banks | None = None,
) -> Extension:
    """Does one step: extends K open hypotheses to C.

    Args:
        beams: K open hypotheses of t tokens.
        log_probs: (B, K, V), the log-probabilities of the next id from the model; this call overwrites those
            of forbidden ids.
        length: t, the number of ids after BOS that a hypothesis has after this step.
        rules: the settings of the search.
        processed: (B, K, V), `log_probs` after all processors, overwritten like them; None if there are no
            processors.
        banks: the constraints of the sentences; None: there are none.
    """
    allowed = log_probs if processed is None else processed
    totals, ids_of = _candidates(beams, allowed, length, rules)
    if processed is not None:
        totals, ids_of = _replace_stuck(totals, ids_of, beams, log_probs, length, rules)

    width, per_hypothesis = log_probs.shape[1], totals.shape[1] // log_probs.shape[1]
    best, places = top_candidates(totals, min(rules.beam_size, width * log_probs.shape[2]))  # (B, C)
    parents, chosen = places // per_hypothesis, ids_of.gather(1, places)
    if banks is not None:
        (best, parents, chosen), banks = banks.select(
            (best, parents, chosen), totals, ids_of, allowed, beams.log_probs, beams.complete_scores, length
        )
    ids = torch.cat((_gather_rows(beams.ids, parents), chosen[:, :, None]), 2)  # (B, C, t + 1)
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
        complete_ids=_gather_rows(torch.cat((longer, ids), 1), order),
        complete_log_probs=complete_log_probs.gather(1, order),
        complete_scores=scores[:, : rules.nbest],
        max_lengths=beams.max_lengths,
    )
    return Extension(extended, parents, order, banks)


def _candidates(beams: Beams, log_probs: Tensor, length: int, rules: Rules) -> tuple[Tensor, Tensor]:
    """Returns the best extensions of each hypothesis: enough to contain the best C of the sentence.

    Those of forbidden ids in `log_probs` (B, K, V) are overwritten.

    Returns:
        (B, K * M) log-probabilities of the extended hypotheses, -inf for extensions that are not allowed; and
        (B, K * M) their newest ids. The extensions of a hypothesis are in the order of their
        log-probabilities, the lower id first among equal ones.
    """
    sentences, width, vocab = log_probs.shape
    count = min(rules.beam_size, vocab)
    log_probs.index_fill_(2, rules.forbidden, -torch.inf)
    values, ids = top_of_rows(log_probs.flatten(0, 1).float(), count)  # (B * K, M)
    values, ids = values.view(sentences, width, count), ids.view(sentences, width, count)
    if length in rules.max_lengths:
        must_end = (beams.max_lengths == length)[:, None, None]
        end = torch.full_like(values, -torch.inf)
        end[:, :, 0] = log_probs[:, :, rules.eos_id]
        values, ids = torch.where(must_end, end, values), ids.masked_fill(must_end, rules.eos_id)
    return (values + beams.log_probs[:, :, None]).flatten(1), ids.flatten(1)


def _replace_stuck(
    totals: Tensor, ids: Tensor, beams: Beams, log_probs: Tensor, length: int, rules: Rules
) -> tuple[Tensor, Tensor]:
    """Replaces the candidates (B, K * M) of stuck sentences by those without processors.

    A sentence is stuck if it has no complete hypothesis, and the processors allow no extension of its open
    ones. Otherwise it would end without a result. `log_probs` (B, K, V) are those of the model.
    """
    impossible = -torch.inf
    stuck = (totals.amax(1) == impossible) & (beams.complete_scores[:, 0] == impossible)
    # On CUDA the synchronisation of `any` is slower than the work below.
    if totals.is_cuda or bool(stuck.any()):
        plain, plain_ids = _candidates(beams, log_probs, length, rules)
        totals = torch.where(stuck[:, None], plain, totals)
        ids = torch.where(stuck[:, None], plain_ids, ids)
    return totals, ids


_CHUNK = 128  # neighbouring ids whose maximum is computed first


def top_of_rows(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Returns the same as `top_candidates` for scores (R, M), in less time for long rows.

    The best `count` scores are in the `count` chunks of a row with the highest maxima. So one pass computes
    the maxima, and only these chunks are searched.
    """
    rows, num_scores = scores.shape
    num_chunks = num_scores // _CHUNK
    if num_chunks <= 2 * count:
        return top_candidates(scores, count)
    chunks = scores[:, : num_chunks * _CHUNK].view(rows, num_chunks, _CHUNK)
    best = top_candidates(chunks.amax(2), count)[1].sort(1).values  # (R, C), in the order of the ids
    inside = best[:, :, None].expand(-1, -1, _CHUNK)
    rest = scores[:, num_chunks * _CHUNK :]
    values, places = top_candidates(torch.cat((chunks.gather(1, inside).flatten(1), rest), 1), count)
    chunk, offset = places // _CHUNK, places % _CHUNK  # the chunk `count` is the rest
    start = torch.cat((best, best.new_full((rows, 1), num_chunks)), 1).gather(1, chunk.clamp(max=count))
    return values, start * _CHUNK + offset


def top_candidates(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Returns the largest C of (B, M) scores, in descending order; the lower index first among equal ones.

    `torch.topk` does not define which of several equal scores it returns, so that may depend on the batch.

    Returns:
        (B, C) scores and (B, C) int64 indices. A row with NaN has NaN first; its other values are arbitrary.
    """
    num_scores = scores.shape[1]
    if count == 1:
        values, indices = scores.max(1, keepdim=True)  # the first index among equal scores
        return values, indices
    if scores.is_cuda and num_scores <= _SORTED:
        return _sorted(scores, count)
    values, indices = scores.topk(min(count + 1, num_scores))
    if num_scores > count:
        border, next_best = values[:, count - 1 : count], values[:, count:]
        values, indices = values[:, :count], indices[:, :count]
        # On CUDA the synchronisation of `any` is slower than the work below.
        if scores.is_cuda or bool((border == next_best).any()):
            is_above = ~(values <= border)  # true for NaN
            from_end = torch.arange(num_scores - 1, -1, -1, device=scores.device)
            equal = num_scores - 1 - torch.where(scores == border, from_end, 0).topk(count).values
            rank = torch.arange(count, device=scores.device) - is_above.sum(1, keepdim=True)
            indices = torch.where(is_above, indices, equal.gather(1, rank.clamp(min=0)))
    indices = indices.sort(1).values
    values, order = scores.gather(1, indices).sort(dim=1, descending=True, stable=True)
    return values, indices.gather(1, order)


_SORTED = 4096  # a GPU sorts rows up to this length faster than it launches the kernels of the other method


def _sorted(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Returns the same as `top_candidates`, by sorting whole rows."""
    values, indices = scores.sort(dim=1, descending=True, stable=True)
    return values[:, :count], indices[:, :count]


@dataclass(frozen=True, slots=True)
class AttentionTrace:
    """The attention weights of the hypotheses in `Beams`, one row per token."""

    open: Tensor  # (B, K, t, S), with t tokens after BOS
    complete: Tensor  # (B, N, t, S), padded with 0

    @classmethod
    def start(cls, attention: Tensor, nbest: int) -> AttentionTrace:
        """Returns a trace without tokens, with the shape of the attention (B, K, S) of the first step."""
        size, width, places = attention.shape
        return cls(attention.new_zeros(size, width, 0, places), attention.new_zeros(size, nbest, 0, places))

    def extended(self, attention: Tensor, extension: Extension) -> AttentionTrace:
        """Returns the trace with the (B, K, S) attention of the step whose result is `extension`."""
        rows = torch.cat((self.open, attention[:, :, None]), 2)  # (B, K, t + 1, S)
        rows = _gather_rows(rows, extension.parents)
        longer = F.pad(self.complete, (0, 0, 0, 1))
        return AttentionTrace(rows, _gather_rows(torch.cat((longer, rows), 1), extension.order))

    def take(self, rows: Tensor) -> AttentionTrace:
        """Returns the trace of the sentences `rows`, (B',) int64."""
        return AttentionTrace(self.open[rows], self.complete[rows])


def _gather_rows(values: Tensor, rows: Tensor) -> Tensor:
    """Values (B, K, ...) and row indices (B, K') → (B, K', ...)."""
    index = rows.view(*rows.shape, *[1] * (values.dim() - 2))
    return values.gather(1, index.expand(-1, -1, *values.shape[2:]))
