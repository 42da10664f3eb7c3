"""What training lowers, summed over the target tokens: cross-entropy with label smoothing, and R-Drop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Apply = Callable[[Tensor, Tensor, float], tuple[Tensor, Tensor]]
ApplyRDrop = Callable[[Tensor, Tensor, float, float], tuple[Tensor, Tensor, Tensor]]


def label_smoothed_loss(logits: Tensor, target: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    """Cross-entropy against targets smoothed over the whole vocabulary (Szegedy et al. 2016, section 7).

    A token's loss is (1 - smoothing) * -log p[target] + smoothing * mean over v of -log p[v].

    The logits of a batch are the largest tensor there is, so this works in their memory: they are
    overwritten, first by log-probabilities and on the way back by their gradient. Only one backward pass is
    possible.

    Args:
        logits: (N, V) fp32, overwritten when a gradient is asked for.
        target: (N,) int64 ids.
        smoothing: share of the probability that is spread evenly; 0 leaves plain cross-entropy.

    Returns:
        The sum of the losses, and, without gradient, the sum of -log p[target] for the perplexity; () fp32.
    """
    if torch.is_grad_enabled() and logits.requires_grad:
        apply: Apply = _LabelSmoothedLoss.apply
        return apply(logits, target, smoothing)
    return _sums(torch.log_softmax(logits, dim=-1), target, smoothing)


def rdrop_loss(
    logits: Tensor, target: Tensor, smoothing: float, alpha: float
) -> tuple[Tensor, Tensor, Tensor]:
    """R-Drop (Liang et al. 2021): two passes with different dropout, both to learn the targets and to agree.

    With p1 and p2 what the passes predict for a token, and L1 and L2 the label-smoothed losses of the two,

        objective = (L1 + L2) / 2 + alpha / 4 * (KL(p1 || p2) + KL(p2 || p1)),

    half of what the paper, its authors' program and fairseq lower: alpha is theirs, and the loss and its
    gradient are of the size they have without R-Drop.

    Works in the memory of the logits, as `label_smoothed_loss` does; there has to be a gradient.

    Args:
        logits: (2N, V) fp32, those of the first pass before those of the second; overwritten.
        target: (N,) int64 ids.
        smoothing: as in `label_smoothed_loss`.
        alpha: weight of the divergence.

    Returns:
        The sum of the objective, to be lowered; and for comparison with training without R-Drop the sums of
        the label-smoothed loss and of -log p[target], each the mean of both passes; () fp32.
    """
    apply: ApplyRDrop = _RDropLoss.apply
    return apply(logits, target, smoothing, alpha)


def _sums(log_probs: Tensor, target: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    nll = -log_probs.gather(1, target[:, None]).sum()
    if smoothing == 0.0:
        return nll, nll
    spread = -log_probs.sum(dim=-1).sum() / log_probs.shape[1]
    return (1.0 - smoothing) * nll + smoothing * spread, nll


class _LabelSmoothedLoss(torch.autograd.Function):
    """A fraction of the time of `F.cross_entropy`: no second (N, V) tensor is ever made."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
        log_probs = torch.log_softmax(logits, dim=-1, out=logits.detach())
        ctx.save_for_backward(log_probs, target)
        ctx.smoothing = smoothing
        loss, nll = _sums(log_probs, target, smoothing)
        nll = nll.clone()
        ctx.mark_non_differentiable(nll)
        return loss, nll

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        """Softmax minus the smoothed one-hot target."""
        log_probs, target = ctx.saved_tensors
        grad = log_probs.exp_()
        if ctx.smoothing:
            grad.sub_(ctx.smoothing / grad.shape[1])
        grad.scatter_add_(1, target[:, None], grad.new_full((len(target), 1), ctx.smoothing - 1.0))
        return _scaled(grad, gradients[0]), None, None


class _RDropLoss(torch.autograd.Function):
    """The gradient is made on the way forward, a few rows at a time: all but the logits stays in cache.

    With d = log p1 - log p2, K1 = KL(p1 || p2) of a row and k = alpha / 4, the gradient of the objective by
    the logits of the first pass is (p1 - smoothed one-hot) / 2 + k (p1 (d + 1 - K1) - p2); of the second, the
    same with its own.
    """

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, target: Tensor, smoothing: float, alpha: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        count, size = len(target), logits.shape[1]
        k, uniform = alpha / 4, smoothing / size
        first, second = torch.split(logits.detach(), count)
        hit, spread, divergence = logits.new_zeros(3, count)  # log p of the target, of all ids; k times KL
        rows = max(1, _chunk_values(logits) // size)
        for start in range(0, count, rows):
            part = slice(start, start + rows)
            ids = target[part, None]
            a, b = first[part].log_softmax(-1), second[part].log_softmax(-1)
            p, q = first[part].softmax(-1), second[part].softmax(-1)  # cheaper than `exp` of a and b
            hit[part] = (a.gather(1, ids) + b.gather(1, ids))[:, 0]
            if smoothing:
                spread[part] = a.sum(-1) + b.sum(-1)
            kd = a.sub_(b).mul_(k)
            grad_a = torch.mul(p, kd, out=b)
            grad_b = kd.mul_(q).neg_()
            kl_a, kl_b = grad_a.sum(-1, keepdim=True), grad_b.sum(-1, keepdim=True)
            divergence[part] = (kl_a + kl_b)[:, 0]
            grad_a.addcmul_(p, 0.5 + k - kl_a).sub_(q, alpha=k)
            grad_b.addcmul_(q, 0.5 + k - kl_b).sub_(p, alpha=k)
            peak = grad_a.new_full((1, 1), (smoothing - 1.0) / 2).expand_as(ids)
            for grad, out in ((grad_a, first[part]), (grad_b, second[part])):
                torch.sub(grad, uniform / 2, out=out).scatter_add_(1, ids, peak)
        ctx.save_for_backward(logits.detach())
        nll = -hit.sum() / 2
        loss = (1.0 - smoothing) * nll - uniform * spread.sum() / 2
        objective = loss + divergence.sum()
        ctx.mark_non_differentiable(loss, nll)
        return objective, loss, nll

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        """What the way forward left in the logits' memory."""
        (grad,) = ctx.saved_tensors
        return _scaled(grad, gradients[0]), None, None, None


def _chunk_values(logits: Tensor) -> int:
    """Logits of one pass to work on at a time: few enough for a core's cache, or for a GPU's spare memory."""
    return (1 << 17) * torch.get_num_threads() if logits.device.type == "cpu" else 1 << 26


def _scaled(grad: Tensor, outer: Tensor) -> Tensor:
    # Reading `outer` would make a GPU wait; on the CPU it saves a pass over the largest tensor there is.
    return grad.mul_(outer) if outer.device.type != "cpu" or outer.item() != 1.0 else grad
