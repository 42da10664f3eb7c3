"""Sampling of translations: each id is drawn from the distribution of the model.

Shapes: B unfinished sentences, K samples per sentence, V ids, S positions of the longest source.

The random numbers of a sample depend on the seed, the ids of its source and its number alone. So a line has
the same samples alone, among other lines, and in any batch, unless two ids are equally good up to rounding.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from nmt.decoding.beams import top_candidates
from nmt.decoding.processors import SearchInput, SearchProcessor
from nmt.decoding.scorers import HypothesisScorer
from nmt.decoding.search import Hypothesis, S, Step, check_interval, many_done, remaining
from nmt.decoding.utf8 import Characters


@dataclass(frozen=True)
class Sampling:
    """The distribution to draw from.

    Attributes:
        samples: K, the number of samples per sentence.
        temperature: divides the log-probabilities: below 1 the probable ids are drawn more often.
        top_k: draws from this number of most probable ids; 0: from all.
        top_p: draws from the smallest set of most probable ids with this total probability (nucleus sampling,
            Holtzman et al. 2020, section 3.1); 1: from all.
        seed: of the random numbers.
    """

    samples: int
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 1


def sample(
    step: Step[S],
    state: S,
    search: SearchInput,
    options: Sampling,
    *,
    scorer: HypothesisScorer,
    forbidden: Sequence[int] = (),
    processors: Sequence[SearchProcessor] = (),
    characters: Characters | None = None,
    attention: bool = False,
) -> list[list[Hypothesis]]:
    """Draws translations of each sentence.

    Args:
        step: the model.
        state: the state before the first step, with one hypothesis per sentence.
        search: the sentences; their maximum lengths are 1 or more. The last id is always EOS.
        options: the number of samples and their distribution.
        scorer: scores the samples.
        forbidden: ids that are never drawn.
        processors: change the log-probabilities before the distribution is formed; see `SearchProcessor`.
        characters: forbids ids that are not UTF-8; None: none is forbidden.
        attention: whether to return the attention of the samples.

    Returns:
        For each sentence its samples, the highest score first; a translation may occur several times. Their
        log-probabilities are those of the model, after the processors, without temperature, `top_k`, `top_p`.

    Raises:
        FloatingPointError: a log-probability is NaN.
    """
    num_sentences, count, eos_id = search.num_sentences, options.samples, search.eos_id
    max_lengths, device = search.max_lengths, search.device
    assert num_sentences == len(max_lengths) == len(search.sources)
    if num_sentences == 0:
        return []
    last = max(max_lengths)
    keys = torch.stack([_keys(options, source, last) for source in search.sources]).to(device)  # (B, K, last)
    limits = torch.tensor(max_lengths, device=device)
    banned = torch.tensor(list(forbidden), dtype=torch.int64, device=device)
    running = [processor.start(search) for processor in processors]
    drawn = torch.full((num_sentences, 1, 1), search.bos_id, device=device)  # (B, K, t)
    totals = torch.zeros(num_sentences, count, device=device)
    lengths = torch.zeros(num_sentences, count, dtype=torch.int64, device=device)  # |Y|; 0: not complete
    weights: list[Tensor] = []  # of each step, (B, K, S)
    sentences = list(range(num_sentences))  # the sentence of each row of the batch
    results: list[list[Hypothesis]] = [[] for _ in sentences]
    interval = check_interval(device)
    for length in range(1, last + 1):
        newest = characters and characters.read(drawn)
        output = step(drawn[:, :, -1], state, attention=attention)
        state, log_probs = output.state, output.log_probs.float()
        if characters and newest:
            characters.mask(log_probs, newest, length, sentences)
        allowed = _allowed(log_probs, drawn, running, banned)
        if length >= min(max_lengths[row] for row in sentences):
            must_end = (limits <= length)[:, None, None]
            is_end = torch.arange(log_probs.shape[2], device=device) == eos_id
            end = torch.where(is_end, log_probs.clamp(min=_LOWEST), -torch.inf)
            allowed = torch.where(must_end, end, allowed)
        chosen, values = _draw(allowed, keys[:, :, length - 1], options)
        values = torch.where(allowed.amax(2).isnan(), torch.nan, values)  # even if another id was drawn
        open_ = lengths == 0
        totals = torch.where(open_, totals + values, totals)
        chosen = torch.where(open_, chosen, eos_id)
        lengths = torch.where(open_ & (chosen == eos_id), length, lengths)
        if attention:
            assert output.attention is not None, "the step function returns no attention"
            weights.append(output.attention.expand(-1, count, -1))
        width = drawn.shape[1]
        drawn = torch.cat((drawn.expand(-1, count, -1), chosen[:, :, None]), 2)
        left = list(range(len(sentences)))
        if length % interval == 0 or length == last:
            flags = torch.stack(((lengths > 0).all(1), totals.isnan().any(1)))
            done, broken = flags.tolist()
            if any(broken):
                raise FloatingPointError(f"the log-probability of token {length} is not a number (NaN)")
            if many_done(done):
                ended = [row for row, is_done in enumerate(done) if is_done]
                for row in ended:
                    attended = (
                        torch.stack([step_weights[row] for step_weights in weights], 1).cpu()
                        if attention
                        else None
                    )
                    results[sentences[row]] = _hypotheses(
                        drawn[row, :, 1:], totals[row], lengths[row], attended, scorer
                    )
                left = remaining(done)
                if not left:
                    return results
        if len(left) < len(sentences) or width != count:
            picked = torch.tensor(left, device=device)
            parents = picked[:, None] * width + torch.arange(count, device=device).clamp(max=width - 1)
            state = state.select(parents)
            running = [processor.select(parents) for processor in running]
            sentences = [sentences[row] for row in left]
            drawn, totals, lengths = drawn[picked], totals[picked], lengths[picked]
            keys, limits, weights = (
                keys[picked],
                limits[picked],
                [step_weights[picked] for step_weights in weights],
            )
    raise AssertionError("every sample ends at its maximum length")


_COLDEST = 1e-30  # a log-probability that is divided by less may be infinite in fp32
_LOWEST = -1e30  # EOS at the maximum length is drawn even if its probability is 0


def _keys(options: Sampling, source: Sequence[int], count: int) -> Tensor:
    """Returns (K, count) int32, random keys of each token; they depend on seed, source and sample number."""
    rows = []
    for number in range(options.samples):
        text = f"{options.seed} {number} {' '.join(map(str, source))}"
        key = int.from_bytes(hashlib.sha256(text.encode()).digest()[:16], "little")
        drawn = np.random.Generator(np.random.Philox(key=key)).integers(0, 2**32, count, dtype=np.uint32)
        rows.append(drawn.view(np.int32))
    return torch.from_numpy(np.stack(rows))


def _mix(x: Tensor) -> Tensor:
    """Mixes the bits of int32 values, in place: each depends on all bits it had (the end of MurmurHash3)."""
    x.bitwise_xor_((x >> 16).bitwise_and_(0xFFFF)).mul_(-2048144789)
    x.bitwise_xor_((x >> 13).bitwise_and_(0x7FFFF)).mul_(-1028477387)
    return x.bitwise_xor_((x >> 16).bitwise_and_(0xFFFF))


def _gumbel(keys: Tensor, ids: Tensor) -> Tensor:
    """Returns fp32 random numbers with the Gumbel distribution, one for each key and id.

    Args:
        keys: (B, K, 1) int32.
        ids: broadcasts to (B, K, N), int64.
    """
    bits = _mix(_mix(ids.int() + 1) ^ keys)
    # Uniform in (0, 1]. Small ones, which make large results, have all their bits in fp32.
    uniform = bits.float().abs_().add_(0.5).mul_(2.0**-31)
    return uniform.neg_().log1p_().neg_().log_().neg_()


def _allowed(log_probs: Tensor, ids: Tensor, processors: Sequence[SearchProcessor], banned: Tensor) -> Tensor:
    """Returns the log-probabilities after the processors; without them where they forbid all ids."""
    plain = log_probs.index_fill(2, banned, -torch.inf)
    if not processors:
        return plain
    processed = log_probs.clone()
    for processor in processors:
        processed = processor(processed, ids)
    processed = processed.index_fill(2, banned, -torch.inf)
    stuck = processed.amax(2, keepdim=True) == -torch.inf
    return torch.where(stuck, plain, processed)


def _draw(log_probs: Tensor, keys: Tensor, options: Sampling) -> tuple[Tensor, Tensor]:
    """Draws an id per sample: the one with the largest sum of log-probability and a Gumbel number.

    That is a draw from the distribution (Gumbel 1954; Maddison et al. 2014, section 2). Rounding errors of
    log-probabilities, which differ from batch to batch, change the id only where two sums are equal up to
    rounding. By inversion of the distribution function, the error of each id would move the intervals of
    all ids after it, and one token in a thousand would depend on the batch.

    Args:
        log_probs: (B, K, V), or (B, 1, V) if all samples share them; -inf for ids that are not allowed.
        keys: (B, K) int32, random.
        options: the distribution.

    Returns:
        (B, K) ids, and (B, K) their log-probabilities.
    """
    sentences, _, vocab = log_probs.shape
    values, ids = log_probs, torch.arange(vocab, device=log_probs.device)[None, None]
    if options.top_k or options.top_p < 1:
        count = min(options.top_k or vocab, vocab)
        values, ids = top_candidates(log_probs.flatten(0, 1), count)
        values, ids = values.view(sentences, -1, count), ids.view(sentences, -1, count)
    scores = values / max(options.temperature, _COLDEST)
    if options.top_p < 1:
        shares = scores.double().softmax(-1)
        # The id that reaches top_p belongs to the nucleus.
        scores = scores.masked_fill(shares.cumsum(-1) - shares >= options.top_p, -torch.inf)
    samples = keys.shape[1]
    places = _gumbel(keys[:, :, None], ids).add_(scores).argmax(-1, keepdim=True)  # (B, K, 1)
    values = values.expand(-1, samples, -1).gather(2, places)
    return ids.expand(sentences, samples, -1).gather(2, places)[..., 0], values[..., 0]


def _hypotheses(
    ids: Tensor, log_probs: Tensor, lengths: Tensor, attention: Tensor | None, scorer: HypothesisScorer
) -> list[Hypothesis]:
    """Returns the samples of a sentence, the highest score first.

    Args:
        ids: (K, t), padded with EOS.
        log_probs: (K,) float32.
        lengths: (K,), |Y|.
        attention: (K, t, S) or None.
        scorer: scores them.
    """
    samples = []
    for number, (row, length) in enumerate(zip(ids.tolist(), lengths.tolist(), strict=True)):
        log_prob = log_probs[number].view(1, 1)
        samples.append(
            Hypothesis(
                ids=tuple(row[: length - 1]),
                score=float(scorer.score(log_prob, length)),
                log_prob=float(log_prob),
                attention=None if attention is None else attention[number, :length].clone(),
            )
        )
    return sorted(samples, key=lambda hypothesis: -hypothesis.score)
