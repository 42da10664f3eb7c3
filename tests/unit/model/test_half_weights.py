"""Copies of weights in 16 bits: the same gradients as autocast, bit for bit."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from toy_training import BATCHES, gradients_in_bf16, tiny_model

from nmt.config import Tie
from nmt.data.batches.batching import Batch
from nmt.model import MODELS, Transformer
from nmt.model.gpu.half_weights import HalfWeights
from nmt.training.update.gradients import FlatGradients


@pytest.mark.parametrize("tie", list(Tie))
def test_the_gradients_are_those_of_autocast(tie: Tie) -> None:
    plain, copied = tiny_model(tie=tie), tiny_model(tie=tie)
    flat_plain, flat = (FlatGradients(each.parameters(), 1) for each in (plain, copied))
    half = HalfWeights(copied, torch.bfloat16)
    for _ in range(2):
        expected = gradients_in_bf16(plain, flat_plain)
        found = gradients_in_bf16(copied, flat, half)
        assert torch.equal(found, expected) and bool(found.any())
        with torch.no_grad():
            for network, sums in ((plain, flat_plain), (copied, flat)):
                for parameter in network.parameters():
                    assert parameter.grad is not None
                    storage = parameter.grad.untyped_storage()
                    assert storage.data_ptr() == sums.buffer.untyped_storage().data_ptr()
                    parameter.sub_(parameter.grad, alpha=0.01)


def test_evaluation_uses_the_weights_themselves() -> None:
    network = tiny_model()
    before = network.eval()(BATCHES[0])
    FlatGradients(network.parameters(), 1)
    half = HalfWeights(network, torch.bfloat16)
    half.begin()
    assert torch.equal(network.eval()(BATCHES[0]), before)


def test_a_weight_that_is_used_without_its_copy_too(monkeypatch: pytest.MonkeyPatch) -> None:
    class Twice(Transformer):
        def forward(self, batch: Batch) -> Tensor:
            hidden = super().forward(batch)
            return hidden + hidden @ self.decoder[0].self_attention.out.weight

    monkeypatch.setitem(MODELS, "twice", Twice)
    plain, copied = (tiny_model(architecture="twice", dropout=0.0) for _ in range(2))
    expected = gradients_in_bf16(plain, FlatGradients(plain.parameters(), 1))
    flat = FlatGradients(copied.parameters(), 1)
    found = gradients_in_bf16(copied, flat, HalfWeights(copied, torch.bfloat16))
    torch.testing.assert_close(found, expected, rtol=1e-2, atol=5e-3)  # in bf16
