"""What training lowers: cross-entropy with label smoothing, summed over the target tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Apply = Callable[[Tensor, Tensor, float], tuple[Tensor, Tensor]]


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
        outer = gradients[0]
        # Reading `outer` would make a GPU wait; on the CPU it saves a pass over the largest tensor there is.
        if outer.device.type != "cpu" or outer.item() != 1.0:
            grad.mul_(outer)
        return grad, None, None
