"""Batched beam search over a step function, independent of models and text.

Shapes: B unfinished sentences, K hypotheses per sentence, V ids, N = nbest, t tokens so far, S positions of
the longest source.

These rules apply to each sentence separately:

- Each step retains the `beam_size` extensions by one id with the highest log-probabilities. Ties are broken
  by the lower hypothesis, then by the lower id. An extension that ends with EOS is complete; the others are
  open. `beam_size` 1 is greedy search.
- Processors lower the log-probabilities of the model before the selection. Each processor reads the output of
  the processor before it. The log-probability of a hypothesis is the sum of the processed values of its ids.
- A complete hypothesis is scored by its log-probability and its length |Y|, EOS counted; the default is the
  length penalty of GNMT. Among equal scores, the hypothesis that was completed first is better.
- A hypothesis of `max_length` - 1 tokens can only be extended by EOS.
- Some ids are always forbidden, and some in their place, because the text would not be UTF-8 (see
  `nmt.decoding.utf8`). They remain forbidden where the processors are not used.
- Processors may forbid all extensions of all open hypotheses, for example by forbidding EOS at the maximum
  length. Then the search of the sentence ends with its complete hypotheses. If it has none, this step uses
  the log-probabilities of the model without processors.
- Constraints add candidates and divide the beam (see `nmt.decoding.constraints`). They also apply to
  the selection among the candidates of the processors.
- The search ends when no open hypothesis can exceed the score of the N-th best complete hypothesis.
  Log-probabilities never increase, so the scorer can bound the score of an open hypothesis.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

from nmt.config import DecodingConfig
from nmt.decoding.beams import AttentionTrace, Beams, Rules, extend
from nmt.decoding.constraints import Automaton, Banks
from nmt.decoding.processors import SearchInput, SearchProcessor
from nmt.decoding.scorers import HypothesisScorer, LengthPenalty
from nmt.decoding.utf8 import Characters
from nmt.model import DecoderState

S = TypeVar("S", bound=DecoderState)
"""The type of the state of a search; it has a method `select`."""


class StepOutput(NamedTuple, Generic[S]):
    """The output of a step.

    Attributes:
        log_probs: (B, K, V), the log-probabilities of the next id, at most 0. The caller may overwrite them.
        state: the state after the newest ids.
        attention: (B, K, S), the attention weights of the source positions for the choice of the next id. S
            is the same in all steps of a search. None if it was not requested.
    """

    log_probs: Tensor
    state: S
    attention: Tensor | None = None


class Step(Protocol[S]):
    """The step function: the interface of a model to a search."""

    def __call__(self, ids: Tensor, state: S, /, *, attention: bool = False) -> StepOutput[S]:
        """Reads the newest id of every hypothesis.

        Args:
            ids: (B, K) int64; BOS in the first step.
            state: the state before `ids`; the step may overwrite it.
            attention: whether to compute and return attention.
        """
        ...


@dataclass(frozen=True)
class Hypothesis:
    """A complete hypothesis.

    Attributes:
        ids: its ids, without BOS and EOS.
        score: the score from the scorer.
        log_prob: natural logarithm of its probability, EOS included.
        attention: (|Y|, S) on the CPU, the attention weights of the source positions for each token, EOS
            included. S is the length of the longest source in the batch. None if it was not requested.
        unmet: the indices of the phrases of the sentence that it does not contain.
    """

    ids: tuple[int, ...]
    score: float
    log_prob: float
    attention: Tensor | None = field(default=None, compare=False, repr=False)
    unmet: tuple[int, ...] = ()


def beam_search(
    step: Step[S],
    state: S,
    search: SearchInput,
    config: DecodingConfig,
    *,
    forbidden: Sequence[int] = (),
    processors: Sequence[SearchProcessor] = (),
    scorer: HypothesisScorer | None = None,
    constraints: Sequence[Automaton | None] = (),
    characters: Characters | None = None,
    attention: bool = False,
) -> list[list[Hypothesis]]:
    """Searches for the hypotheses of each sentence with the highest scores.

    Args:
        step: the model.
        state: the state before the first step, with one hypothesis per sentence.
        search: the sentences; their maximum lengths are 1 or more.
        config: only `beam_size`, `length_penalty` and `nbest` are used.
        forbidden: ids that a hypothesis must not have.
        processors: applied in this order; see `SearchProcessor`.
        scorer: None: `LengthPenalty(config.length_penalty)`.
        constraints: the phrases of each sentence, None for a sentence without phrases; empty: none at all.
        characters: forbids ids that are not UTF-8; None: none is forbidden.
        attention: whether to return the attention of the hypotheses.

    Returns:
        For each sentence its best hypotheses, best first: `nbest` of them, or fewer if the search finds fewer
        within `max_lengths`. The list is empty only if the model gives the probability 0 to every complete
        hypothesis that the search finds.

    Raises:
        FloatingPointError: a log-probability is NaN.
    """
    num_sentences, max_lengths, device = search.num_sentences, search.max_lengths, search.device
    assert len(max_lengths) == num_sentences
    assert len(constraints) in (0, num_sentences)
    assert search.eos_id not in forbidden
    if num_sentences == 0:
        return []
    assert min(max_lengths) >= 1
    forbidden_ids = torch.tensor(list(forbidden), dtype=torch.int64, device=device)
    scorer = scorer or LengthPenalty(config.length_penalty)
    rules = Rules(
        config.beam_size, config.nbest, scorer, search.bos_id, search.eos_id, forbidden_ids, max_lengths
    )
    running = [processor.start(search) for processor in processors]
    beams = Beams.start(rules, device)
    banks = Banks.start(constraints, max_lengths, search.eos_id, forbidden)
    trace: AttentionTrace | None = None
    sentences = list(range(num_sentences))  # the sentence of each row of the batch
    limits = tuple(max_lengths)  # the maximum length of each row
    results: list[list[Hypothesis]] = [[] for _ in sentences]
    interval = check_interval(device)
    last = max(max_lengths)
    for length in range(1, last + 1):
        width = beams.ids.shape[1]
        newest = characters and characters.read(beams.ids)
        output = step(beams.ids[:, :, -1], state, attention=attention)
        state = output.state
        if characters and newest:
            characters.mask(output.log_probs, newest, length, sentences)
        processed = _processed(output.log_probs, beams.ids, running)
        extension = extend(beams, output.log_probs, length, rules, processed, banks)
        beams, banks, rows = extension.beams, extension.banks, extension.rows(width)
        if attention:
            assert output.attention is not None, "the step function returns no attention"
            trace = trace or AttentionTrace.start(output.attention, rules.nbest)
            trace = trace.extended(output.attention, extension)
        del output, processed, extension  # so that the next step can use their memory
        is_identity = width == 1 == beams.ids.shape[1]
        if length % interval == 0 or length == last:
            done, broken = beams.flags(scorer, limits).tolist()
            if any(broken):
                raise FloatingPointError(f"the log-probability of token {length} is not a number (NaN)")
            if many_done(done):
                _collect(beams, trace, done, sentences, search.eos_id, constraints, results)
                left = remaining(done)
                if not left:
                    return results
                sentences, limits = [sentences[row] for row in left], tuple(limits[row] for row in left)
                picked = torch.tensor(left, device=device)
                beams, rows = beams.take(picked), rows[picked]
                trace, banks = trace and trace.take(picked), banks and banks.take(left)
                is_identity = False
        if not is_identity:
            state = state.select(rows)
            running = [processor.select(rows) for processor in running]
    raise AssertionError("every sentence is done at its maximum length")


_MANY = 16  # finished sentences leave the batch when they are this fraction of it


def many_done(done: Sequence[bool]) -> bool:
    """Returns whether the finished sentences should leave the batch: to move the others costs time too."""
    return all(done) or sum(done) * _MANY >= len(done)


def remaining(done: Sequence[bool]) -> list[int]:
    """Returns the rows that are not done, in an order that leaves most of them in their place.

    The last rows fill the places of those that are done, so that few rows have to be moved.
    """
    left = [row for row, is_done in enumerate(done) if not is_done]
    last = [row for row in left if row >= len(left)]
    return [last.pop() if done[row] else row for row in range(len(left))]


def check_interval(device: torch.device) -> int:
    """Returns the number of steps per check for finished sentences; a check synchronises host and GPU."""
    return 1 if device.type == "cpu" else 4


def _processed(log_probs: Tensor, ids: Tensor, processors: Sequence[SearchProcessor]) -> Tensor | None:
    """Applies the processors to a copy of the (B, K, V) log-probabilities; None if there are none."""
    if not processors:
        return None
    processed = log_probs.float().clone()
    for processor in processors:
        processed = processor(processed, ids)
    return processed


def _collect(
    beams: Beams,
    trace: AttentionTrace | None,
    done: list[bool],
    sentences: list[int],
    eos_id: int,
    constraints: Sequence[Automaton | None],
    results: list[list[Hypothesis]],
) -> None:
    """Stores the complete hypotheses of the finished ones of B sentences in `results`.

    `sentences` has the index in `results` of each of the B sentences; `constraints` and `results` are those
    of all.
    """
    rows = [row for row, is_done in enumerate(done) if is_done]
    picked = torch.tensor(rows, device=beams.ids.device)
    ended = beams.take(picked)
    attention = None if trace is None else trace.take(picked).complete.cpu()  # (rows, N, t, S)
    all_ids = ended.complete_ids[:, :, 1:].tolist()
    all_scores, all_log_probs = ended.complete_scores.tolist(), ended.complete_log_probs.tolist()
    for place, row in enumerate(rows):
        automaton = constraints[sentences[row]] if constraints else None
        for number, log_prob in enumerate(all_log_probs[place]):
            if log_prob == float("-inf"):
                continue
            num_ids = all_ids[place][number].index(eos_id)
            ids = tuple(all_ids[place][number][:num_ids])
            results[sentences[row]].append(
                Hypothesis(
                    ids=ids,
                    score=all_scores[place][number],
                    log_prob=log_prob,
                    attention=None if attention is None else attention[place, number, : num_ids + 1].clone(),
                    unmet=() if automaton is None else tuple(automaton.unmet(ids)),
                )
            )


def ranked_by_coverage(
    hypotheses: Sequence[Hypothesis], num_pieces: int, weight: float, count: int
) -> list[Hypothesis]:
    """Returns the best hypotheses by their score plus the coverage penalty.

    The penalty is weight * sum over i of log(min(sum over j of p[j, i], 1)), where p[j, i] is the attention
    of target token j to source token i (Wu et al. 2016, equation 14). Each sum is at least the smallest
    normal number, so that the logarithm is finite.

    Args:
        hypotheses: complete hypotheses with attention (|Y|, S), best first.
        num_pieces: number of source tokens that must be covered: those before EOS.
        weight: beta of the equation.
        count: the number of hypotheses to return.

    Returns:
        At most `count` hypotheses with their new scores, best first. Among equal scores the order remains.
    """
    smallest = torch.finfo(torch.float32).tiny
    scored = []
    for hypothesis in hypotheses:
        assert hypothesis.attention is not None
        covered = hypothesis.attention[:, :num_pieces].float().sum(0).clamp(smallest, 1.0)
        penalty = weight * float(covered.log().sum())
        scored.append(replace(hypothesis, score=hypothesis.score + penalty))
    return sorted(scored, key=lambda hypothesis: -hypothesis.score)[:count]
