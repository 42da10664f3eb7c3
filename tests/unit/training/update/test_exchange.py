"""Gradients summed in buckets during the backward pass: the bits of one sum after it, in a fixed order."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from nmt.config import Exchange, ModelConfig, OptimizerConfig, Tie, TrainingConfig
from nmt.data.batches.batching import Batch
from nmt.model.transformer import Transformer
from nmt.training.processes.ranks import Ranks
from nmt.training.update import parallel as module
from nmt.training.update.half_weights import HalfWeights
from nmt.training.update.loss import training_loss
from nmt.training.update.optimizer import FlatGradients
from nmt.training.update.parallel import BucketedExchange, Parallel, Replicated

BATCHES = [Batch.of([[4, 5], [6]], [[5], [4, 6]]), Batch.of([[7, 8, 9]], [[9, 8, 7]])]
CPU = torch.device("cpu")
ALONE = Ranks(0, 1, CPU)


class Recorded(Ranks):
    """One of two processes, whose group has only one: a sum changes nothing. Records what is summed."""

    def start_sum(self, tensor: Tensor) -> dist.Work:
        STARTED.append((tensor.dtype, len(tensor)))
        return super().start_sum(tensor)


STARTED: list[tuple[torch.dtype, int]] = []
TOGETHER = Recorded(0, 2, CPU)


@pytest.fixture(autouse=True)
def group() -> Iterator[None]:
    STARTED.clear()
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def model(tie: Tie = Tie.all) -> Transformer:
    torch.manual_seed(1)
    shape = {"encoder_layers": 2, "decoder_layers": 2, "d_model": 16, "d_ff": 32, "heads": 2}
    return Transformer(ModelConfig(**shape, dropout=0.1, tie=tie), 11, 11).train()


def replicated(ranks: Ranks, tie: Tie = Tie.all, gradients: Exchange = Exchange.fp32) -> Replicated:
    options = TrainingConfig(optimizer=OptimizerConfig(epsilon=1e-5), gradient_exchange=gradients)
    return Replicated(model(tie), options, ranks, num_extras=1)


def accumulated(parallel: Parallel) -> None:
    """Adds the gradients of two micro-batches."""
    parallel.zero()
    for place, batch in enumerate(BATCHES):
        parallel.model.seed_dropout(place)
        hidden, weight = parallel.model(batch), parallel.model.output_weight
        losses = training_loss(hidden, weight, batch.target_out, smoothing=0.1)
        parallel.backward(losses.objective, last=place + 1 == len(BATCHES))
        parallel.extras[0] += batch.num_target_tokens


def test_a_sum_that_starts_after_the_backward_passes_has_the_same_bits() -> None:
    alone, together = replicated(ALONE), replicated(TOGETHER)
    for _ in range(2):
        for parallel in (alone, together):
            parallel.zero()
            for batch in BATCHES:
                hidden, weight = parallel.model(batch), parallel.model.output_weight
                objective = training_loss(hidden, weight, batch.target_out, smoothing=0.1).objective
                parallel.backward(objective, last=False)
            parallel.exchange()
        assert len(STARTED) == 1  # all gradients are in one bucket
        assert torch.equal(together.sums(), alone.sums())
        assert torch.equal(together.gradients.buffer, alone.gradients.buffer)
        STARTED.clear()


@pytest.mark.parametrize("tie", list(Tie))
@pytest.mark.parametrize("size", [1, 1000, 1 << 22])
def test_bits_are_those_of_one_sum_at_the_end(size: int, tie: Tie, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BUCKET_SIZE", size)
    alone, together = replicated(ALONE, tie), replicated(TOGETHER, tie)
    for _ in range(3):
        accumulated(alone)
        accumulated(together)
        assert torch.equal(together.sums(), alone.sums())
        assert torch.equal(together.gradients.buffer, alone.gradients.buffer)
        for parallel in (alone, together):
            parallel.step(0.01, torch.tensor(0.1, dtype=torch.float64), torch.tensor(True))
    buckets = len(STARTED) // 3
    assert STARTED == STARTED[:buckets] * 3
    assert sum(length for _, length in STARTED[:buckets]) == len(alone.gradients.gradients)
    assert buckets == {1: len(list(alone.model.parameters())), 1 << 22: 1}.get(size, buckets)


def test_an_update_that_was_only_tried_leaves_nothing() -> None:
    alone, together = replicated(ALONE), replicated(TOGETHER)
    accumulated(together)  # as the memory probe does, without `sums`
    for parallel in (alone, together):
        accumulated(parallel)
    assert torch.equal(together.sums(), alone.sums())


def test_bf16_sends_half_of_the_bytes() -> None:
    alone, together = replicated(ALONE), replicated(TOGETHER, gradients=Exchange.bf16)
    for parallel in (alone, together):
        accumulated(parallel)
    assert together.sums()[0] == alone.sums()[0]  # the extras are exact
    assert torch.equal(together.gradients.gradients, alone.gradients.gradients.bfloat16().float())
    assert {dtype for dtype, _ in STARTED} == {torch.bfloat16}


def chain(monkeypatch: pytest.MonkeyPatch) -> tuple[list[nn.Parameter], BucketedExchange, FlatGradients]:
    """Three parameters of 256 floats, each in a bucket."""
    monkeypatch.setattr(module, "BUCKET_SIZE", 256)
    weights = [nn.Parameter(torch.full((256,), value)) for value in (1.0, 2.0, 3.0)]
    flat = FlatGradients(weights, num_extras=1)
    return weights, BucketedExchange(flat, [[w] for w in weights], TOGETHER, lambda numbers: None), flat


def test_the_first_sum_starts_while_the_backward_pass_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    (a, b, c), exchanged, _ = chain(monkeypatch)
    started = []
    a.register_hook(lambda grad: started.append(len(STARTED)))
    exchanged.backward(((a * 2).tanh() * b * c).sum())
    exchanged.finish()
    assert started == [2] and len(STARTED) == 3  # the gradient of a is computed last
    assert c.grad is not None and torch.equal(c.grad, (a * 2).tanh() * b)


@pytest.mark.parametrize("unused", [0, 1, 2])
def test_the_order_is_fixed_and_unused_parameters_delay_no_sum(
    unused: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights, _, flat = chain(monkeypatch)
    buckets: list[range] = []
    exchanged = BucketedExchange(flat, [[w] for w in weights], TOGETHER, buckets.append)
    used = [weight for number, weight in enumerate(weights) if number != unused]
    seen = []
    used[0].register_hook(lambda grad: seen.append(len(buckets)))
    # The gradient of the second one is computed first, and that of the first one last.
    exchanged.backward((used[0].tanh() * used[1]).sum())
    exchanged.finish()
    assert buckets == [range(2, 3), range(1, 2), range(1)]
    assert seen == [{0: 1, 1: 2, 2: 2}[unused]]


@pytest.mark.parametrize(
    ("starts", "end", "expected"),
    [
        ([0], 16, [range(1)]),
        ([0, 16, 32], 48, [range(1, 3), range(1)]),
        ([0, 100, 116, 132], 148, [range(2, 4), range(2)]),
        ([0, 16, 116], 132, [range(1, 3), range(1)]),
    ],
)
def test_buckets_hold_the_last_parameters_first(
    starts: list[int], end: int, expected: list[range], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BUCKET_SIZE", 32)
    assert module._buckets(starts, end) == expected


@pytest.mark.parametrize("tie", list(Tie))
def test_copies_of_weights_are_added_bucket_by_bucket(tie: Tie, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BUCKET_SIZE", 1000)
    found = []
    for bucketed in (False, True):
        network = model(tie)
        flat = FlatGradients(network.parameters(), 1)
        half = HalfWeights(network, torch.bfloat16)
        exchanged = BucketedExchange(flat, half.leaves(), TOGETHER, half.add_gradients)
        for _ in range(2):
            flat.zero()
            half.begin()
            for place, batch in enumerate(BATCHES):
                network.seed_dropout(place)
                with torch.autocast("cpu", torch.bfloat16):
                    hidden = network(batch)
                weight = network.output_weight
                losses = training_loss(hidden, weight, batch.target_out, smoothing=0.1, dtype=torch.bfloat16)
                if bucketed and place == 1:
                    exchanged.backward(losses.objective)
                else:
                    losses.objective.backward()
                    half.add_gradients()
            if bucketed:
                exchanged.finish()
            half.end()
        found.append(flat.gradients.clone())
    assert torch.equal(*found) and bool(found[0].any())
