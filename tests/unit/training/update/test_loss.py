"""The losses against their formulas, and their hand-written gradients against autograd's."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import nmt.training.update.loss as module
from nmt.training.update.loss import Losses, training_loss


def naive_loss(logits: Tensor, target: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    """Returns the sum over tokens of -sum_v q(v) log p(v), q = (1 - smoothing) one-hot + smoothing / V."""
    log_probs = logits - logits.logsumexp(-1, keepdim=True)
    q = (1 - smoothing) * F.one_hot(target, logits.shape[1]).to(logits) + smoothing / logits.shape[1]
    return -(q * log_probs).sum(), -log_probs[torch.arange(len(target)), target].sum()


def naive(
    hidden: Tensor,
    weight: Tensor,
    target: Tensor,
    bias: Tensor | None = None,
    *,
    smoothing: float,
    rdrop: float = 0.0,
    simcut: float = 0.0,
    scale: float = 1.0,
    cap: float | None = None,
) -> Losses:
    """The formulas of the docstring, with all logits at once; the R-Drop term is half of the paper's."""
    logits = F.linear(hidden, weight, bias).to(torch.promote_types(hidden.dtype, torch.float32))
    logits = logits if cap is None else cap * (logits / cap).tanh()
    passes = logits.chunk(2) if rdrop or simcut else [logits]
    learning = passes[:1] if simcut else passes
    losses, nlls = zip(*(naive_loss(part, target, smoothing) for part in learning), strict=True)
    loss, nll = (torch.stack(parts).mean() for parts in (losses, nlls))
    objective = loss
    if simcut:
        p, q = (part.softmax(-1) for part in passes)
        objective = loss + simcut * (p * (p / q).log()).sum()
    if rdrop:
        a, b = (part.log_softmax(-1) for part in passes)
        divergences = [F.kl_div(x, y, log_target=True, reduction="sum") for x, y in ((a, b), (b, a))]
        objective = loss + rdrop / 2 * torch.stack(divergences).mean()
    return Losses(objective * scale, loss.detach(), nll.detach())


def run(
    function: Callable[..., Losses],
    hidden: Tensor,
    weight: Tensor,
    target: Tensor,
    outer: float,
    bias: Tensor | None = None,
    **options: Any,
) -> list[Tensor]:
    """Returns all sums, and the gradients of hidden states, weights and bias."""
    leaves = [x.detach().clone().requires_grad_() for x in (hidden, weight, bias) if x is not None]
    losses = function(*leaves[:2], target, *leaves[2:], **options)
    gradients = torch.autograd.grad(losses.objective * outer, leaves)
    return [x.detach() for x in (*losses, *gradients)]


TARGET = torch.tensor([0, 10, 3, 3, 7, 1, 0])


@pytest.mark.parametrize(
    ("smoothing", "rdrop", "simcut", "cap"),
    [
        *((0.0, 0.0, 0.0, None), (0.1, 0.0, 0.0, None), (0.9, 0.0, 0.0, None), (0.0, 5.0, 0.0, None)),
        *((0.1, 0.5, 0.0, None), (0.0, 0.0, 1.0, None), (0.1, 0.0, 0.5, None)),
        *((0.1, 0.0, 0.0, 2.0), (0.1, 0.5, 0.0, 2.0), (0.1, 0.0, 0.5, 2.0)),
    ],
)
@pytest.mark.parametrize(("outer", "scale"), [(1.0, 1.0), (3.5, 1.0), (1.0, 64.0)])
@pytest.mark.parametrize(("products", "losses"), [(1, 1), (3, 2), (512, 2), (512, 512)])
@pytest.mark.parametrize("biased", [False, True])
def test_losses_and_gradients_match_the_formulas(
    biased: bool,
    smoothing: float,
    rdrop: float,
    simcut: float,
    cap: float | None,
    outer: float,
    scale: float,
    products: int,
    losses: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_rows_of_products", lambda weight: products)
    monkeypatch.setattr(module, "_rows_of_losses", lambda weight: losses)
    torch.manual_seed(1)
    hidden, weight = torch.randn(14 if rdrop or simcut else 7, 5), torch.randn(11, 5)
    bias = torch.randn(11) if biased else None
    options = {"smoothing": smoothing, "rdrop": rdrop, "simcut": simcut, "scale": scale, "cap": cap}
    fast = run(training_loss, hidden, weight, TARGET, outer, bias, **options)
    hidden, weight, bias = hidden.double(), weight.double(), None if bias is None else bias.double()
    exact = run(naive, hidden, weight, TARGET, outer, bias, **options)
    assert len(fast) == (6 if biased else 5)
    for found, expected in zip(fast, exact, strict=True):
        torch.testing.assert_close(found.double(), expected, rtol=2e-6, atol=2e-6 * scale)
    pairs = zip(
        *(run(f, hidden, weight, TARGET, outer, bias, **options) for f in (training_loss, naive)), strict=True
    )
    for fast, slow in pairs:
        torch.testing.assert_close(fast, slow, rtol=1e-12, atol=1e-12 * scale)


@pytest.mark.parametrize(
    ("smoothing", "loss", "nll"),
    [
        (0.0, math.log(4), math.log(4)),
        # logits 0, log 2, 0 give p = 1/4, 1/2, 1/4; the target is the first
        (0.3, 0.7 * math.log(4) + 0.1 * (2 * math.log(4) + math.log(2)), math.log(4)),
    ],
)
def test_literal_values(smoothing: float, loss: float, nll: float) -> None:
    for grad in (False, True):
        weight = torch.tensor([[0.0], [math.log(2)], [0.0]], requires_grad=grad)
        found = training_loss(torch.ones(1, 1), weight, torch.tensor([0]), smoothing=smoothing)
        assert [x.item() for x in found] == pytest.approx([loss, loss, nll], rel=1e-6)


def test_rdrop_of_literal_values() -> None:
    """p1 = 1/2, 1/2 and p2 = 1/4, 3/4; the target is the first."""
    logits = torch.tensor([[0.0, 0.0], [0.0, math.log(3)]], requires_grad=True)
    found = training_loss(logits, torch.eye(2), torch.tensor([0]), smoothing=0.0, rdrop=5.0)
    divergence = 0.25 * math.log(3)  # KL(p1 || p2) + KL(p2 || p1) = sum of (p1 - p2) (log p1 - log p2)
    assert found.nll.item() == found.loss.item() == pytest.approx((math.log(2) + math.log(4)) / 2)
    assert found.objective.item() == pytest.approx(found.loss.item() + 5 / 4 * divergence)


@pytest.mark.parametrize("rdrop", [0.0, 5.0])
@pytest.mark.parametrize("biased", [False, True])
def test_products_in_bf16(rdrop: float, biased: bool) -> None:
    """As under autocast: logits and weight gradients from bf16; the loss and its gradient in fp32."""
    torch.manual_seed(5)
    hidden, weight, target = torch.randn(40, 8), torch.randn(50, 8), torch.randint(50, (20 if rdrop else 40,))
    bias = torch.randn(50) if biased else None

    def bf16(*args: Tensor, **options: float) -> Losses:
        return training_loss(*args, **options, dtype=torch.bfloat16)

    def under_autocast(*args: Tensor, **options: float) -> Losses:
        with torch.autocast("cpu", torch.bfloat16):
            return naive(*args, **options)

    results = [
        run(f, hidden, weight, target, 1.0, bias, smoothing=0.1, rdrop=rdrop) for f in (bf16, under_autocast)
    ]
    for fast, slow in zip(*results, strict=True):
        assert fast.dtype is torch.float32
        assert (fast - slow).norm() <= 1e-2 * slow.norm()
    exact = run(naive, hidden, weight, target, 1.0, bias, smoothing=0.1, rdrop=rdrop)
    assert (results[0][0] - exact[0]).abs() > 0  # the products were not in fp32


@pytest.mark.parametrize(("mean", "spread"), [(0.0, 2.0), (-30.0, 5.0), (0.0, 40.0)])
def test_a_large_vocabulary_is_summed_up_in_fp32_as_in_fp64(mean: float, spread: float) -> None:
    generator = torch.Generator().manual_seed(7)
    logits = torch.randn(64, 8000, generator=generator) * spread + mean
    ids = torch.randint(8000, (64, 1), generator=generator)
    exact, weight = -logits.double().log_softmax(-1), logits.T.contiguous()
    for one, id, log_p in zip(torch.eye(64), ids, exact, strict=True):
        found = training_loss(one[None], weight, id, smoothing=0.1)
        torch.testing.assert_close(found.nll.double(), log_p[id][0], rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(
            found.loss.double(), 0.9 * log_p[id][0] + 0.1 * log_p.mean(), rtol=1e-6, atol=0
        )


@pytest.mark.parametrize("rdrop", [0.0, 5.0])
def test_huge_logits_stay_finite(rdrop: float) -> None:
    hidden = torch.tensor([[80.0, -80.0, 0.0], [-80.0, 80.0, 0.0]][: 2 if rdrop else 1])
    *sums, by_hidden, by_weight = run(
        training_loss, hidden, torch.eye(3), torch.tensor([1]), 1.0, smoothing=0.1, rdrop=rdrop
    )
    assert sums[2].item() == pytest.approx(80 if rdrop else 160)
    assert all(x.isfinite().all() for x in (*sums, by_hidden, by_weight))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("biased", "cap"), [(False, None), (True, None), (True, 2.0)])
def test_ignored_targets_count_for_nothing(
    biased: bool, cap: float | None, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_rows_of_products", lambda weight: 4)
    torch.manual_seed(6)
    hidden, weight, bias = torch.randn(7, 5), torch.randn(11, 5), torch.randn(11) if biased else None
    places = torch.tensor([0, 2, 3, 4, 6, 7, 9])  # of the targets among ten
    filled, target = torch.full((10, 5), 100.0), torch.full((10,), module.IGNORED_ID)
    filled[places], target[places] = hidden, TARGET

    def loss(*args: Tensor, ignores: bool = False, **options: float) -> Losses:
        return training_loss(*args, **options, dtype=dtype, ignores=ignores)

    def ignoring(*args: Tensor, **options: float) -> Losses:
        return loss(*args, **options, ignores=True)

    options = {"smoothing": 0.1, "scale": 4.0, "cap": cap}
    plain = run(loss, hidden, weight, TARGET, 1.0, bias, **options)
    found = run(ignoring, filled, weight, target, 1.0, bias, **options)
    assert found[3][[1, 5, 8]].abs().max() == 0
    found[3] = found[3][places]
    tolerance = 1e-5 if dtype is torch.float32 else 2e-2
    for a, b in zip(found, plain, strict=True):
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


def test_rows_at_a_time() -> None:
    for size in (100, 8_000, 37_000, 250_000):
        weight = torch.empty(size, 1)
        products, losses = module._rows_of_products(weight), module._rows_of_losses(weight.T)
        assert products >= 512 and 1 <= losses <= max(products, 1 << 17)
        assert products * size <= max(1 << 21, 512 * size)


class Products(TorchDispatchMode):
    """Counts multiplications by a scalar."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += func is torch.ops.aten.mul.Tensor
        return func(*args, **(kwargs or {}))


def test_gradients_are_multiplied_unless_the_backward_pass_begins_with_the_announced_tensor() -> None:
    torch.manual_seed(1)
    hidden, weight, target = torch.randn(6, 4), torch.randn(9, 4), torch.randint(9, (5,))
    one = torch.ones(())
    gradients = []
    for outer, factor, multiplications in (
        (one, 1, 0),
        (torch.ones(()), 1, 2),  # equal, but its value is not read
        (torch.tensor(2.0), 2, 2),
        (None, 1, 2),
    ):
        leaves = [x.clone().requires_grad_() for x in (hidden, weight)]
        losses = training_loss(*leaves, target, smoothing=0.1, initial_gradient=one)
        with Products() as products:
            torch.autograd.backward(losses.objective, outer)
        assert products.count == multiplications
        gradients.append([x.grad / factor for x in leaves if x.grad is not None])
    for other in gradients[1:]:
        assert all(map(torch.equal, other, gradients[0]))


def test_a_term_is_part_of_the_objective_alone_and_has_the_loss_scale() -> None:
    torch.manual_seed(1)
    hidden, weight, target = torch.randn(6, 4, requires_grad=True), torch.randn(9, 4), torch.randint(9, (5,))
    one = torch.ones(())
    plain = training_loss(hidden, weight, target, smoothing=0.1, scale=8.0, initial_gradient=one)
    losses = plain.plus(hidden.sum() / 2, 8.0)
    assert losses.loss is plain.loss and losses.nll is plain.nll
    torch.testing.assert_close(losses.objective, plain.objective + 4 * hidden.sum())
    (alone,) = torch.autograd.grad(plain.objective, hidden, one, retain_graph=True)
    with Products() as products:
        (both,) = torch.autograd.grad(losses.objective, hidden, one)
    torch.testing.assert_close(both, alone + 4)
    assert products.count <= 1  # of the term; the sum hands the tensor on


@pytest.mark.parametrize("rdrop", [0.0, 5.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("tokens", [0, 1, 5, 9])
def test_the_padding_of_a_batch_counts_for_nothing(
    tokens: int, dtype: torch.dtype, rdrop: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_rows_of_products", lambda weight: 2)
    passes, weight = torch.randn(2 if rdrop else 1, 9, 4), torch.randn(7, 4)
    passes[:, tokens:] = 100.0

    def losses(hidden: Tensor) -> list[Tensor]:
        options = {"smoothing": 0.1, "rdrop": rdrop, "dtype": dtype}
        target = torch.zeros(tokens, dtype=torch.int64)
        return run(training_loss, hidden.flatten(0, 1), weight, target, 1.0, **options)

    plain = losses(passes[:, :tokens])
    monkeypatch.setattr(torch, "empty_like", lambda x, **options: torch.full_like(x, math.nan, **options))
    found = losses(passes)
    gradient = found[3].view_as(passes)
    assert not gradient[:, tokens:].any()
    found[3] = gradient[:, :tokens].flatten(0, 1)
    torch.testing.assert_close(found, plain)
    assert bool(found[3].any()) == (tokens > 0)
