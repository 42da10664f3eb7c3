"""The loss against its formula, and its hand-written gradient against autograd's."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from nmt.training.objective import label_smoothed_loss


def naive_loss(logits: Tensor, target: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    """Sum over tokens of -sum_v q(v) log p(v), q = (1 - smoothing) one-hot + smoothing / V."""
    log_probs = logits - logits.exp().sum(-1, keepdim=True).log()
    q = (1 - smoothing) * F.one_hot(target, logits.shape[1]) + smoothing / logits.shape[1]
    return -(q * log_probs).sum(), -log_probs[torch.arange(len(target)), target].sum()


@pytest.mark.parametrize(
    ("smoothing", "loss", "nll"),
    [
        (0.0, math.log(4), math.log(4)),
        # logits 0, log 2, 0 give p = 1/4, 1/2, 1/4; the target is the first
        (0.3, 0.7 * math.log(4) + 0.1 * (2 * math.log(4) + math.log(2)), math.log(4)),
    ],
)
def test_literal_values(smoothing: float, loss: float, nll: float) -> None:
    logits = torch.tensor([[0.0, math.log(2), 0.0]])
    for grad in (False, True):
        found = label_smoothed_loss(logits.clone().requires_grad_(grad), torch.tensor([0]), smoothing)
        assert [x.item() for x in found] == pytest.approx([loss, nll], rel=1e-6)


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.9])
@pytest.mark.parametrize("outer", [1.0, 3.5])
def test_loss_and_gradient_match_the_formula(smoothing: float, outer: float) -> None:
    torch.manual_seed(1)
    hidden, weight = torch.randn(7, 5, requires_grad=True), torch.randn(11, 5, requires_grad=True)
    target = torch.tensor([0, 10, 3, 3, 7, 1, 0])

    def run(function: object) -> list[Tensor]:
        loss, nll = function(F.linear(hidden, weight), target, smoothing)  # type: ignore[operator]
        grads = torch.autograd.grad(loss * outer, (hidden, weight))
        return [loss.detach(), nll.detach(), *grads]

    for fast, naive in zip(run(label_smoothed_loss), run(naive_loss), strict=True):
        torch.testing.assert_close(fast, naive, rtol=2e-6, atol=2e-6)


def test_loss_matches_cross_entropy_of_torch() -> None:
    torch.manual_seed(2)
    logits, target = torch.randn(20, 30), torch.randint(30, (20,))
    loss, nll = label_smoothed_loss(logits.clone(), target, 0.1)
    torch.testing.assert_close(loss, F.cross_entropy(logits, target, label_smoothing=0.1, reduction="sum"))
    torch.testing.assert_close(nll, F.cross_entropy(logits, target, reduction="sum"))


def test_huge_logits_stay_finite() -> None:
    logits = torch.tensor([[1e4, -1e4, 0.0]], requires_grad=True)
    loss, nll = label_smoothed_loss(logits * 1.0, torch.tensor([1]), 0.1)
    loss.backward()
    assert nll.item() == pytest.approx(2e4)
    assert math.isfinite(loss.item())
    assert logits.grad is not None and logits.grad.isfinite().all()


def test_without_gradient_the_logits_are_left_alone() -> None:
    logits = torch.randn(3, 4)
    before = logits.clone()
    label_smoothed_loss(logits, torch.tensor([0, 1, 2]), 0.1)
    assert torch.equal(logits, before)
