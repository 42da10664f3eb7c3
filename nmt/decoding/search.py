"""Batched beam search over a step function; it knows no model and no text.

Shapes: B sentences still searched, K hypotheses of each, V ids, N = nbest, t tokens so far, S places of the
longest source.

Rules, for each sentence by itself:

- At every step the `beam_size` best extensions by one id survive, ordered by log-probability, equal ones by
  the lower hypothesis and then by the lower id. Those that end with EOS are complete, the others stay open.
  With `beam_size` 1 this is greedy search.
- Processors lower the model's log-probabilities before the choice, each what the one before it returned. The
  log-probability of a hypothesis is the sum of what they return.
- A complete hypothesis is scored by its log-probability and |Y|, which counts EOS. The default is GNMT's
  length penalty. Of equal scores, the one completed first goes first.
- A hypothesis of `max_length` - 1 tokens can only be extended by EOS.
- Processors can leave the open hypotheses of a sentence without any extension, at the latest when they forbid
  EOS at the maximum length. Then the sentence ends with the complete hypotheses that it has. If it has none,
  this step chooses by the model's own log-probabilities, for all its open hypotheses.
- The search ends as soon as no open hypothesis can still beat the worst of the `nbest` best complete ones.
  Log-probabilities only fall, so the scorer knows the best score that an open one can reach.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from nmt.config import DecodingConfig
from nmt.decoding.beams import AttentionTrace, Beams, Rules, extend
from nmt.decoding.processors import SearchInput, SearchProcessor
from nmt.decoding.scorers import HypothesisScorer, LengthPenalty
from nmt.decoding.step import S, Step


@dataclass(frozen=True)
class Hypothesis:
    """A complete hypothesis.

    Attributes:
        ids: what was chosen, without EOS.
        score: what the scorer makes of its log-probability and length.
        log_prob: natural logarithm of its probability, EOS included.
        attention: (|Y|, S) on the CPU, how much the choice of each token, EOS included, looked at each place
            of the source. S is that of the longest source in the batch. None if nobody asked for it.
    """

    ids: tuple[int, ...]
    score: float
    log_prob: float
    attention: Tensor | None = field(default=None, compare=False, repr=False)


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
    processors: Sequence[SearchProcessor] = (),
    scorer: HypothesisScorer | None = None,
    sources: Sequence[Sequence[int]] = (),
    attention: bool = False,
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
        processors: applied in this order; see `SearchProcessor`.
        scorer: None: `LengthPenalty(config.length_penalty)`.
        sources: ids of each sentence, for the processors alone.
        attention: whether to collect the attention of the hypotheses returned.
        device: where `step` takes and returns its tensors.

    Returns:
        For each sentence its best hypotheses, best first: `nbest` of them, or fewer if the search finds no
        more within `max_lengths`. None at all only if the model gives every complete hypothesis that the
        search meets the probability 0.

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
    scorer = scorer or LengthPenalty(config.length_penalty)
    rules = Rules(config.beam_size, config.nbest, scorer, bos_id, eos_id, never, max_lengths)
    start = SearchInput(num_sentences, sources, max_lengths, bos_id, eos_id, device)
    running = [processor.start(start) for processor in processors]
    beams = Beams.start(rules, device)
    trace: AttentionTrace | None = None
    sentences = list(range(num_sentences))  # which sentence each row of the batch is
    limits = tuple(max_lengths)  # of each row
    results: list[list[Hypothesis]] = [[] for _ in sentences]
    interval = check_interval(device)
    last = max(max_lengths)
    for length in range(1, last + 1):
        width = beams.ids.shape[1]
        output = step(beams.ids[:, :, -1], state, attention=attention)
        state = output.state
        processed = _processed(output.log_probs, beams.ids, running)
        extension = extend(beams, output.log_probs, length, rules, processed)
        beams, rows = extension.beams, extension.rows(width)
        if attention:
            assert output.attention is not None, "the step function returns no attention"
            trace = trace or AttentionTrace.start(output.attention, rules.nbest)
            trace = trace.extended(output.attention, extension)
        is_identity = width == 1 == beams.ids.shape[1]
        if length % interval == 0 or length == last:
            done, broken = beams.flags(scorer, limits).tolist()
            if any(broken):
                raise FloatingPointError(f"the log-probability of token {length} is not a number (NaN)")
            if any(done):
                _collect(beams, trace, done, sentences, eos_id, results)
                left = [row for row, is_done in enumerate(done) if not is_done]
                if not left:
                    return results
                sentences, limits = [sentences[row] for row in left], tuple(limits[row] for row in left)
                picked = torch.tensor(left, device=device)
                beams, rows = beams.take(picked), rows[picked]
                trace = trace and trace.take(picked)
                is_identity = False
        if not is_identity:
            state = state.select(rows)
            running = [processor.select(rows) for processor in running]
    raise AssertionError("every sentence is done at its maximum length")


def check_interval(device: torch.device) -> int:
    """Steps from one look at which sentences are done to the next: looking makes the host wait for a GPU."""
    return 1 if device.type == "cpu" else 4


def _processed(log_probs: Tensor, ids: Tensor, processors: Sequence[SearchProcessor]) -> Tensor | None:
    """What the processors make of a copy of (B, K, V) log-probabilities; None if there are none."""
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
    results: list[list[Hypothesis]],
) -> None:
    """Writes the complete hypotheses of the sentences that are done to their place in `results`."""
    rows = [row for row, is_done in enumerate(done) if is_done]
    picked = torch.tensor(rows, device=beams.ids.device)
    ended = beams.take(picked)
    attention = None if trace is None else trace.take(picked).complete.cpu()  # (rows, N, t, S)
    all_ids = ended.complete_ids[:, :, 1:].tolist()
    all_scores, all_log_probs = ended.complete_scores.tolist(), ended.complete_log_probs.tolist()
    for place, row in enumerate(rows):
        for number, log_prob in enumerate(all_log_probs[place]):
            if log_prob == float("-inf"):
                continue
            ids = all_ids[place][number]
            num_ids = ids.index(eos_id)
            results[sentences[row]].append(
                Hypothesis(
                    ids=tuple(ids[:num_ids]),
                    score=all_scores[place][number],
                    log_prob=log_prob,
                    attention=None if attention is None else attention[place, number, : num_ids + 1].clone(),
                )
            )
