"""The loss against its formula, and its hand-written gradient against autograd's."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import nmt.training.objective as module
from nmt.training.objective import label_smoothed_loss, rdrop_loss


def naive_loss(logits: Tensor, target: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    """Sum over tokens of -sum_v q(v) log p(v), q = (1 - smoothing) one-hot + smoothing / V."""
    log_probs = logits - logits.exp().sum(-1, keepdim=True).log()
    q = (1 - smoothing) * F.one_hot(target, logits.shape[1]).to(logits) + smoothing / logits.shape[1]
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


def naive_rdrop(
    logits: Tensor, target: Tensor, smoothing: float, alpha: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Half of the paper's: the mean of both losses and alpha / 2 times the mean of both divergences."""
    a, b = (half.log_softmax(-1) for half in logits.chunk(2))
    losses, nlls = zip(*(naive_loss(half, target, smoothing) for half in (a, b)), strict=True)
    loss, nll = sum(losses) / 2, sum(nlls) / 2
    divergences = [F.kl_div(x, y, log_target=True, reduction="sum") for x, y in ((a, b), (b, a))]
    return loss + alpha / 2 * sum(divergences) / 2, loss.detach(), nll.detach()


@pytest.mark.parametrize("chunk", [1, 30, 10_000])
@pytest.mark.parametrize(("smoothing", "alpha"), [(0.0, 5.0), (0.1, 5.0), (0.1, 0.5), (0.9, 0.0)])
@pytest.mark.parametrize("outer", [1.0, 3.5])
def test_rdrop_matches_the_formula(
    chunk: int, smoothing: float, alpha: float, outer: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_chunk_values", lambda logits: chunk)
    torch.manual_seed(3)
    hidden, weight = torch.randn(14, 5, requires_grad=True), torch.randn(11, 5, requires_grad=True)
    target = torch.tensor([0, 10, 3, 3, 7, 1, 0])

    def run(function: Any) -> list[Tensor]:
        objective, loss, nll = function(F.linear(hidden, weight), target, smoothing, alpha)
        grads = torch.autograd.grad(objective * outer, (hidden, weight))
        return [objective.detach(), loss, nll, *grads]

    for fast, naive in zip(run(rdrop_loss), run(naive_rdrop), strict=True):
        assert (fast - naive).abs().max() <= 1e-6 * naive.abs().max()
    hidden, weight = (x.detach().double().requires_grad_() for x in (hidden, weight))
    for fast, naive in zip(run(rdrop_loss), run(naive_rdrop), strict=True):
        torch.testing.assert_close(fast, naive, rtol=1e-12, atol=1e-12)


def test_rdrop_of_literal_values() -> None:
    """p1 = 1/2, 1/2 and p2 = 1/4, 3/4; the target is the first."""
    logits = torch.tensor([[0.0, 0.0], [0.0, math.log(3)]], requires_grad=True)
    objective, loss, nll = rdrop_loss(logits * 1.0, torch.tensor([0]), 0.0, 5.0)
    divergence = 0.25 * math.log(3)  # KL(p1 || p2) + KL(p2 || p1) = sum of (p1 - p2) (log p1 - log p2)
    assert nll.item() == loss.item() == pytest.approx((math.log(2) + math.log(4)) / 2)
    assert objective.item() == pytest.approx(loss.item() + 5 / 4 * divergence)


def test_rdrop_of_equal_passes_is_the_plain_loss() -> None:
    torch.manual_seed(4)
    logits, target = torch.randn(6, 9), torch.randint(9, (6,))
    plain, twice = (logits.clone().requires_grad_() for _ in range(2))
    loss, nll = label_smoothed_loss(plain * 1.0, target, 0.1)
    both = rdrop_loss(torch.cat([twice, twice]), target, 0.1, 5.0)
    torch.testing.assert_close(torch.stack(both), torch.stack([loss, loss, nll]))
    loss.backward()
    both[0].backward()
    torch.testing.assert_close(plain.grad, twice.grad)


def test_rdrop_of_bf16_products() -> None:
    """As under autocast: logits and gradients of the weights from bf16, the loss and its gradient in fp32."""
    torch.manual_seed(5)
    hidden, weight = torch.randn(40, 8), torch.randn(50, 8)
    target, grads = torch.randint(50, (20,)), []
    for function in (rdrop_loss, naive_rdrop):
        leaves = [x.clone().requires_grad_() for x in (hidden, weight)]
        with torch.autocast("cpu", torch.bfloat16):
            logits = F.linear(*leaves).float()
        objective, loss, nll = function(logits, target, 0.1, 5.0)
        assert objective.dtype == loss.dtype == nll.dtype == torch.float32
        objective.backward()
        grads.append([leaf.grad for leaf in leaves])
    for fast, naive in zip(*grads, strict=True):
        torch.testing.assert_close(fast, naive, rtol=1e-2, atol=1e-2)


def test_rdrop_of_huge_logits_stays_finite() -> None:
    logits = torch.tensor([[80.0, -80.0, 0.0], [-80.0, 80.0, 0.0]], requires_grad=True)
    objective, _, nll = rdrop_loss(logits * 1.0, torch.tensor([1]), 0.1, 5.0)
    objective.backward()
    assert nll.item() == pytest.approx(80)
    assert math.isfinite(objective.item())
    assert logits.grad is not None and logits.grad.isfinite().all()
