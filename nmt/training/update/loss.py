"""Cross-entropy with label smoothing, R-Drop and SimCut, summed over the target tokens, with gradients.

The logits of a whole batch would be the largest tensor of all: 25,000 tokens and a vocabulary of 37,000 need
3.7 GB. So the softmax's matrix product, the loss and their gradient are computed together, for some tokens at
a time. The forward pass computes the gradient, and only some hundred rows of logits exist at once.

Shapes: N target tokens, M with the padding of the batch; R rows of logits at a time; D d_model, V vocabulary
size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from nmt.data.batches.batching import IGNORED_ID
from nmt.model.backend import LossKernel


class Losses(NamedTuple):
    """Sums over the target tokens; () fp32 each."""

    objective: Tensor
    """The training loss times the loss scale. The other fields are for the log and have no gradient."""
    loss: Tensor
    """The label-smoothed cross-entropy; with R-Drop the mean of the two passes, with SimCut the first."""
    nll: Tensor
    """-log p[target], for the perplexity; of the same passes."""

    def plus(self, term: Tensor, scale: float) -> Losses:
        """Returns the losses with a term added to the objective.

        Args:
            term: (), summed over the target tokens, without the loss scale; autograd computes its gradient.
            scale: the loss scale.
        """
        return self._replace(objective=self.objective + term * scale)


def training_loss(
    hidden: Tensor,
    weight: Tensor,
    target: Tensor,
    bias: Tensor | None = None,
    *,
    smoothing: float,
    rdrop: float = 0.0,
    simcut: float = 0.0,
    scale: float = 1.0,
    dtype: torch.dtype | None = None,
    ignores: bool = False,
    initial_gradient: Tensor | None = None,
    kernel: LossKernel | None = None,
    cap: float | None = None,
) -> Losses:
    """Returns the losses of the decoder's hidden states.

    With label smoothing (Szegedy et al. 2016, section 7), a token's loss is
    (1 - smoothing) * -log p[target] + smoothing * mean over v of -log p[v].

    With R-Drop (Liang et al. 2021), each token has two passes with different dropout. Both learn the target
    and are trained to agree. With p1 and p2 their distributions and L1 and L2 their label-smoothed losses,

        objective = (L1 + L2) / 2 + rdrop / 4 * (KL(p1 || p2) + KL(p2 || p1)),

    where rdrop is the alpha of the paper. This is half of the objective of the paper, its authors' code and
    fairseq, so that loss and gradient have the same size as without R-Drop.

    With SimCut (Gao et al. 2022), the second pass reads the pairs with tokens cut out:

        objective = L1 + simcut * KL(p1 || p2).

    The gradient reaches both passes, as in the paper.

    Args:
        hidden: (M, D), of which the first N are used; with R-Drop or SimCut (2M, D): the first pass, then the
            second, the first N of each.
        weight: (V, D), of the softmax.
        target: (N,) int64 ids; `IGNORED_ID` only with `ignores`.
        bias: (V,), of the softmax; None: it has none.
        smoothing: share of the probability that is distributed uniformly; 0: plain cross-entropy.
        rdrop: weight of the divergence; 0: no R-Drop.
        simcut: weight of the divergence; 0: no SimCut.
        scale: factor of the objective, and so of its gradient, applied before it is rounded to `dtype`.
        dtype: of the matrix products; default: that of `hidden`. Softmax and loss use at least fp32.
        ignores: whether `target` has ids `IGNORED_ID`; not with two passes.
        initial_gradient: () 1, the tensor with which the backward pass will begin. If it is the gradient of
            the objective, nothing is multiplied by it. To read the value of a tensor, the host would wait
            for the GPU.
        kernel: replaces logits by their gradients, not with SimCut or `cap`; None: operators of torch do.
        cap: bound c of the logits, as in `Seq2Seq.logits`; None: they have none.
    """
    assert not (rdrop and simcut) and not (ignores and (rdrop or simcut))
    dtype = dtype or hidden.dtype
    kernel = None if simcut or cap else kernel
    options = _Options(smoothing, rdrop, simcut, scale, dtype, ignores, initial_gradient, kernel, cap)
    inputs = (x for x in (hidden, weight, bias) if x is not None)
    if torch.is_grad_enabled() and any(x.requires_grad for x in inputs):
        return Losses(*_apply(hidden, weight, bias, target, options))
    losses, _ = _losses(hidden, weight, bias, target, options, (False, False, False))
    return losses


class _Options(NamedTuple):
    smoothing: float
    rdrop: float
    simcut: float
    scale: float
    dtype: torch.dtype
    ignores: bool
    initial_gradient: Tensor | None
    kernel: LossKernel | None
    cap: float | None


class _Loss(torch.autograd.Function):
    """The forward pass computes the gradients; the backward pass returns them."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, options: _Options
    ) -> Losses:
        losses, gradients = _losses(hidden, weight, bias, target, options, ctx.needs_input_grad[:3])
        ctx.save_for_backward(*gradients)
        ctx.dtypes = [None if x is None else x.dtype for x in (hidden, weight, bias)]
        ctx.initial_gradient = options.initial_gradient
        ctx.mark_non_differentiable(losses.loss, losses.nll)
        return losses

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        gradients = [
            None if gradient is None else gradient.to(dtype)
            for gradient, dtype in zip(ctx.saved_tensors, ctx.dtypes, strict=True)
        ]
        if outer[0] is not ctx.initial_gradient:
            gradients = [None if gradient is None else gradient * outer[0] for gradient in gradients]
        return *gradients, None, None


_apply: Callable[..., tuple[Tensor, ...]] = _Loss.apply


def _losses(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    options: _Options,
    needed: tuple[bool, bool, bool],
) -> tuple[Losses, tuple[Tensor | None, ...]]:
    """Returns the losses, and the objective's gradients with respect to `hidden`, `weight` and the bias.

    A gradient that is not `needed` is None, and not computed: frozen weights need none.

    Label smoothing needs no pass over the logits. With h a token's hidden state and w_v the rows of `weight`,
    its part of the loss is smoothing * h . (w_target - mean over v of w_v). Its gradient is the same row for
    every h, and the same row for every w_v except the target's. With a bias b, the logit of the target has
    b_target, and the mean of all logits has the mean of b. Bounded logits are not linear in h, so that
    `_through_cap` smooths them.
    """
    smoothing, rdrop, simcut, scale, dtype, ignores, _, kernel, cap = options
    linear = 0.0 if cap else smoothing  # the smoothing that needs no pass over the logits
    needs_hidden, needs_weight, needs_bias = needed
    passes = hidden.detach().to(dtype).view(2 if rdrop or simcut else 1, -1, hidden.shape[1])
    left_out = (target == IGNORED_ID)[:, None] if ignores else None
    num_tokens: int | Tensor = len(target)
    if left_out is not None:
        passes = passes.clone()
        passes[:, : len(target)].masked_fill_(left_out, 0.0)
        num_tokens = len(target) - left_out.sum()
    weight = weight.detach().to(dtype)
    mean = weight.mean(0, dtype=_wide(dtype))
    num_learning = 2 if rdrop else 1  # passes that learn the target
    summed = passes[:num_learning, : len(target)].sum((0, 1), dtype=_wide(dtype))
    if rdrop:
        summed = summed / 2
    added = None if bias is None else bias.detach().to(dtype)
    mean_added = None if added is None else added.mean(dtype=_wide(dtype))
    size = _rows_of_products(weight)
    grad_hidden = torch.empty_like(passes) if needs_hidden else None
    if grad_hidden is not None:
        grad_hidden[:, -(-len(target) // size) * size :] = 0.0  # the padding that no part below contains
    grad_weight = grad_bias = None
    each_hidden = (mean * (-linear * scale / num_learning)).to(dtype)
    if needs_weight:
        grad_weight = (summed * (-linear * scale / len(weight))).expand_as(weight).contiguous()
    if needs_bias and added is not None:
        grad_bias = torch.zeros_like(added, dtype=_wide(dtype))
        grad_bias += -linear * scale * num_tokens / len(weight)
    tokens = summed.new_zeros(3, len(target))  # for each token: -log p, its logit, the divergence
    for part in _parts(len(target), size):
        scores = [F.linear(x[part], weight, added) for x in passes]
        count = len(target[part])
        logits = [score[:count] for score in scores]
        if kernel is None:
            _in_parts(logits, target[part], tokens[:, part], options, gradient=any(needed))
        else:
            kernel(logits, target[part], tokens[:, part], 1.0 - smoothing, rdrop, scale)
        if any(needed):
            for number, (x, grad) in enumerate(zip(passes, scores, strict=True)):
                grad[count:].zero_()
                if grad_hidden is not None:
                    out = grad_hidden[number, part]
                    torch.addmm(each_hidden, grad, weight, beta=number < num_learning, out=out)
                    out[count:].zero_()
                    if left_out is not None:
                        out[:count].masked_fill_(left_out[part], 0.0)
                if grad_weight is not None:
                    _add_product(grad_weight, grad, x[part])
                if grad_bias is not None:
                    grad_bias += grad.sum(0, dtype=grad_bias.dtype)
    nll, target_logit, divergence = tokens.sum(1)
    mean_logit = summed @ mean  # summed over the tokens
    if mean_added is not None:
        mean_logit = mean_logit + mean_added * num_tokens
    loss = nll + smoothing * (target_logit - (0.0 if cap else mean_logit))
    flat = None if grad_hidden is None else grad_hidden.flatten(0, 1)
    objective = loss + divergence if len(passes) > 1 else loss.clone()  # no output may be another one
    return Losses(objective * scale if scale != 1.0 else objective, loss, nll), (flat, grad_weight, grad_bias)


def _in_parts(
    scores: list[Tensor], ids: Tensor, figures: Tensor, options: _Options, *, gradient: bool
) -> None:
    """Replaces the logits of each pass, (R, V), by their gradients, a part of the rows at a time.

    It does what a `LossKernel` does. Without `gradient`, `scores` have no meaning afterwards.
    """
    for rows in _parts(len(ids), _rows_of_losses(scores[0])):
        logits = [score[rows] for score in scores]
        differentiate = _rdrop if options.rdrop else _simcut if options.simcut else _cross_entropy
        compute = differentiate if options.cap is None else partial(_through_cap, differentiate)
        grads = compute(logits, ids[rows, None], figures[:, rows], options)
        if gradient:
            for logit, grad in zip(logits, grads, strict=True):
                if options.scale != 1.0:
                    grad.mul_(options.scale)
                if grad is not logit:
                    logit.copy_(grad)


def _through_cap(
    differentiate: Callable[..., list[Tensor]],
    logits: list[Tensor],
    ids: Tensor,
    figures: Tensor,
    options: _Options,
) -> list[Tensor]:
    """Differentiates the loss of bounded logits c tanh(z / c), with its label smoothing.

    The derivative of a bounded logit is 1 - tanh(z / c)^2. The second figure of a token is its bounded logit
    less the mean of its bounded logits.
    """
    assert options.cap is not None
    tanhs = [(logit.to(_wide(logit.dtype)) / options.cap).tanh_() for logit in logits]
    grads = differentiate([tanh * options.cap for tanh in tanhs], ids, figures, options)
    learning = 1 if options.simcut else len(tanhs)  # passes that learn the target
    figures[1] -= torch.stack([tanh.mean(1) for tanh in tanhs[:learning]]).mean(0) * options.cap
    for grad in grads[:learning]:
        grad -= options.smoothing / grad.shape[1] / learning
    for grad, tanh in zip(grads, tanhs, strict=True):
        grad *= tanh.square_().neg_().add_(1.0)
    if options.ignores:
        figures[1].masked_fill_(ids[:, 0] < 0, 0.0)
        grads[0].masked_fill_(ids < 0, 0.0)
    return grads


def _add_product(total: Tensor, grad: Tensor, x: Tensor) -> None:
    """Adds `grad.T @ x` to `total`, which may be wider than the factors.

    A GPU adds up in fp32 without rounding in between: in fp16 the sum over thousands of tokens can exceed the
    largest number.
    """
    if total.dtype is grad.dtype:
        total.addmm_(grad.T, x)
    elif total.device.type == "cuda":
        torch.addmm(total, grad.T, x, out_dtype=total.dtype, out=total)
    else:
        total += grad.T @ x


def _cross_entropy(logits: list[Tensor], ids: Tensor, figures: Tensor, options: _Options) -> list[Tensor]:
    """Writes `figures` and returns the gradient with respect to the logits (R, V), in place if possible.

    The gradient is softmax minus the one-hot target; `_losses` adds the part of label smoothing.
    """
    # Converted once: a softmax with an fp32 result would convert bf16 too, and allocate memory for its
    # result.
    scores = logits[0].to(_wide(logits[0].dtype))
    left_out = ids < 0 if options.ignores else None
    ids = ids.clamp(min=0) if options.ignores else ids
    target_logit = scores.gather(1, ids)
    highest, log_p, grad = _softmax(scores, out=scores)
    figures[0], figures[1] = (highest - target_logit - log_p)[:, 0], target_logit[:, 0]
    grad.scatter_add_(1, ids, grad.new_full(ids.shape, options.smoothing - 1.0))
    if left_out is not None:
        grad.masked_fill_(left_out, 0.0)
        figures[:2].masked_fill_(left_out[:, 0], 0.0)
    return [grad]


def _rdrop(logits: list[Tensor], ids: Tensor, figures: Tensor, options: _Options) -> list[Tensor]:
    """Writes `figures` and returns the gradients with respect to the logits of both passes (R, V).

    With d = log p1 - log p2, K1 = KL(p1 || p2) of a row and k = alpha / 4, the gradient with respect to the
    logits of the first pass is (p1 - one-hot) / 2 + k (p1 (d + 1 - K1) - p2). That of the second pass is
    symmetric. `_losses` adds the part of label smoothing.
    """
    a, b = (scores.to(_wide(scores.dtype)) for scores in logits)
    k, target_logit_a, target_logit_b = options.rdrop / 4, a.gather(1, ids), b.gather(1, ids)
    (highest_a, log_p, p), (highest_b, log_q, q) = _softmax(a), _softmax(b)
    figures[0] = ((highest_a - target_logit_a - log_p) + (highest_b - target_logit_b - log_q))[:, 0] / 2
    figures[1] = (target_logit_a + target_logit_b)[:, 0] / 2
    kd = torch.sub(a, b).sub_((highest_a - highest_b) - (log_p - log_q)).mul_(k)
    grad_a = torch.mul(p, kd, out=a)
    grad_b = torch.mul(q, kd.neg_(), out=b)
    kl_a, kl_b = grad_a.sum(-1, keepdim=True), grad_b.sum(-1, keepdim=True)  # times k
    figures[2] = (kl_a + kl_b)[:, 0]
    grad_a.addcmul_(p, 0.5 + k - kl_a).sub_(q, alpha=k)
    grad_b.addcmul_(q, 0.5 + k - kl_b).sub_(p, alpha=k)
    peak = p.new_full((1, 1), (options.smoothing - 1.0) / 2).expand_as(ids)
    return [grad.scatter_add_(1, ids, peak) for grad in (grad_a, grad_b)]


def _simcut(logits: list[Tensor], ids: Tensor, figures: Tensor, options: _Options) -> list[Tensor]:
    """Writes `figures` and returns the gradients with respect to the logits of both passes (R, V).

    With d = log p1 - log p2, K = KL(p1 || p2) of a row and alpha the weight, the gradient with respect to the
    logits of the first pass is p1 - one-hot + alpha p1 (d - K), and alpha (p2 - p1) for the second.
    """
    a, b = (scores.to(_wide(scores.dtype)) for scores in logits)
    target_logit = a.gather(1, ids)
    (highest_a, log_p, p), (highest_b, log_q, q) = _softmax(a), _softmax(b)
    figures[0], figures[1] = (highest_a - target_logit - log_p)[:, 0], target_logit[:, 0]
    d = torch.sub(a, b).sub_((highest_a - highest_b) - (log_p - log_q))
    grad = d.mul_(p).mul_(options.simcut)
    divergence = grad.sum(-1, keepdim=True)
    figures[2] = divergence[:, 0]
    grad.addcmul_(p, 1 - divergence)
    grad.scatter_add_(1, ids, grad.new_full(ids.shape, options.smoothing - 1.0))
    return [grad, q.sub_(p).mul_(options.simcut)]


def _softmax(scores: Tensor, out: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """Returns each row's highest logit and the log of its probability, (R, 1), and the softmax, (R, V).

    log p[v] = logit[v] - (highest logit - log of its p), where that p is 1 / V or more. So the log-softmax is
    not computed.

    `out` receives the softmax; it may be `scores`.
    """
    highest = scores.amax(-1, keepdim=True)
    p = torch.softmax(scores, dim=-1, out=out)
    return highest, p.amax(-1, keepdim=True).log_(), p


def _wide(dtype: torch.dtype) -> torch.dtype:
    """Returns fp32, or `dtype` if that is wider."""
    return torch.promote_types(dtype, torch.float32)


def _parts(count: int, size: int) -> Iterator[slice]:
    return (slice(start, start + size) for start in range(0, count, size))


def _rows_of_products(weight: Tensor) -> int:
    """Returns how many rows of logits exist at a time: enough to justify a pass over `weight`'s gradient."""
    return max(512, (1 << 21 if weight.device.type == "cpu" else 1 << 28) // len(weight))


def _rows_of_losses(logits: Tensor) -> int:
    """Returns how many rows are processed at a time: they fit the cores' caches, or a GPU's free memory."""
    values = (1 << 17) * torch.get_num_threads() if logits.device.type == "cpu" else 1 << 26
    return max(1, values // logits.shape[1])
