"""Copies of weights in 16 bits: the same gradients as autocast, bit for bit."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from nmt.config import ModelConfig, Tie
from nmt.data.batches.batching import Batch
from nmt.model.gpu.half_weights import HalfWeights
from nmt.model.transformer import Transformer
from nmt.training.update.loss import training_loss
from nmt.training.update.optimizer import FlatGradients

BATCHES = [Batch.of([[4, 5], [6]], [[5], [4, 6]]), Batch.of([[7, 8, 9]], [[9, 8, 7]])]


def model(tie: Tie) -> Transformer:
    torch.manual_seed(1)
    shape = {"encoder_layers": 2, "decoder_layers": 2, "d_model": 16, "d_ff": 32, "heads": 2}
    return Transformer(ModelConfig(**shape, dropout=0.1, tie=tie), 11, 11).train()


def gradients(network: Transformer, half: HalfWeights | None, flat: FlatGradients) -> Tensor:
    """Returns the gradients of two micro-batches."""
    flat.zero()
    if half is not None:
        half.begin()
    for number, batch in enumerate(BATCHES):
        network.seed_dropout(number)
        with torch.autocast("cpu", torch.bfloat16):
            hidden = network(batch)
        weight = network.output_weight
        losses = training_loss(hidden, weight, batch.target_out, smoothing=0.1, dtype=torch.bfloat16)
        losses.objective.backward()
        if half is not None:
            half.add_gradients()
    if half is not None:
        half.end()
    for parameter in network.parameters():
        assert parameter.grad is not None
        assert parameter.grad.untyped_storage().data_ptr() == flat.buffer.untyped_storage().data_ptr()
    return flat.gradients.clone()


@pytest.mark.parametrize("tie", list(Tie))
def test_the_gradients_are_those_of_autocast(tie: Tie) -> None:
    plain, copied = model(tie), model(tie)
    flat_plain, flat = (FlatGradients(each.parameters(), 1) for each in (plain, copied))
    half = HalfWeights(copied, torch.bfloat16)
    for _ in range(2):
        expected = gradients(plain, None, flat_plain)
        found = gradients(copied, half, flat)
        assert torch.equal(found, expected) and bool(found.any())
        with torch.no_grad():
            for network in (plain, copied):
                for parameter in network.parameters():
                    assert parameter.grad is not None
                    parameter.sub_(parameter.grad, alpha=0.01)


def test_evaluation_uses_the_weights_themselves() -> None:
    network = model(Tie.all)
    before = network.eval()(BATCHES[0])
    FlatGradients(network.parameters(), 1)
    half = HalfWeights(network, torch.bfloat16)
    half.begin()
    assert torch.equal(network.eval()(BATCHES[0]), before)


def test_a_weight_that_is_used_without_its_copy_too() -> None:
    class Twice(Transformer):
        def forward(self, batch: Batch) -> Tensor:
            hidden = super().forward(batch)
            return hidden + hidden @ self.decoder[0].self_attention.out.weight

    torch.manual_seed(1)
    shape = {"encoder_layers": 1, "decoder_layers": 1, "d_model": 16, "d_ff": 32, "heads": 2}
    plain, copied = (Twice(ModelConfig(**shape, dropout=0.0), 11, 11).train() for _ in range(2))
    copied.load_state_dict(plain.state_dict())
    flat_plain, flat = (FlatGradients(each.parameters(), 1) for each in (plain, copied))
    expected = gradients(plain, None, flat_plain)
    found = gradients(copied, HalfWeights(copied, torch.bfloat16), flat)
    torch.testing.assert_close(found, expected, rtol=1e-2, atol=5e-3)  # in bf16
