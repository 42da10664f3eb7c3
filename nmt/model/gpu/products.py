"""The differentiable steps of `nmt.model.gpu.layers`: products with what comes before and after them.

Shapes: N tokens of a stream (S source tokens), D d_model, F d_ff, M width of a product; H heads, E = D / H, L
decoder layers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from nmt.model.gpu import layer_kernels, relu_product
from nmt.model.gpu.triton_attention import ProductGradient


class _Fork(torch.autograd.Function):
    """A product, and its input once more; the product of the backward adds up both gradients."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        factor: Tensor,
        weight: Tensor,
        bias: Tensor,
        rounded_bias: Tensor,
        gradient: ProductGradient | None,
    ) -> tuple[Tensor, Tensor]:
        """`x`, `weight` and `bias` receive gradients; `factor` and `rounded_bias` are like `weight`."""
        ctx.save_for_backward(factor, weight)
        ctx.set_materialize_grads(False)
        ctx.dtype, ctx.gradient = x.dtype, gradient
        return x.view_as(x), torch.addmm(rounded_bias, factor, weight.t())

    @staticmethod
    def backward(ctx: Any, grad_x: Tensor | None, grad: Tensor | None) -> tuple[Tensor | None, ...]:
        factor, weight = ctx.saved_tensors
        needs_x, _, needs_weight, *_ = ctx.needs_input_grad  # frozen weights need no gradient
        if grad is None:
            return grad_x, None, None, None, None, None
        grad, grad_bias = _taken(ctx.gradient, grad) or _with_sum(grad)
        grad_weight = grad.t() @ factor if needs_weight else None
        grad_x = _of_fork(grad_x, grad, weight, ctx.dtype) if needs_x else None
        return grad_x, None, grad_weight, grad_bias, None, None


fork: Callable[..., tuple[Tensor, Tensor]] = _Fork.apply


def _taken(gradient: ProductGradient | None, *grads: Tensor) -> tuple[Tensor, Tensor] | None:
    """See `ProductGradient.take`."""
    return None if gradient is None else gradient.take(*grads)


def _with_sum(grad: Tensor) -> tuple[Tensor, Tensor]:
    """Returns a gradient, (N, M), and its sum over tokens, (M,) fp32."""
    return grad.contiguous(), grad.sum(0, dtype=torch.float32)


def _of_fork(grad_x: Tensor | None, grad: Tensor, weight: Tensor, dtype: torch.dtype) -> Tensor:
    """Returns the gradient of the input of a product that is also a residual connection, (N, D).

    `grad_x`, (N, D), is the gradient of the residual connection; None if it is 0. `grad`, (N, M), is that of
    the product with `weight`, (M, D). `dtype` is that of the input.
    """
    return _product(grad, weight, dtype) if grad_x is None else _add_product(grad_x, grad, weight)


class _FeedForward(torch.autograd.Function):
    """Two products with a ReLU in between, and their input once more; see `_Fork`."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        factor: Tensor,
        weight: Tensor,
        bias: Tensor,
        rounded_bias: Tensor,
        outer_weight: Tensor,
        relu_in_product: bool,
    ) -> tuple[Tensor, Tensor]:
        """See `_Fork.forward`; `outer_weight`, (D, F), receives a gradient, too.

        `relu_in_product`: whether `relu_product` computes the gradient before the ReLU.
        """
        hidden = torch._addmm_activation(rounded_bias, factor, weight.t())
        ctx.save_for_backward(factor, weight, outer_weight, hidden)
        ctx.set_materialize_grads(False)
        ctx.dtype, ctx.relu_in_product = x.dtype, relu_in_product
        return x.view_as(x), hidden @ outer_weight.t()

    @staticmethod
    def backward(ctx: Any, grad_x: Tensor | None, grad: Tensor | None) -> tuple[Tensor | None, ...]:
        factor, weight, outer_weight, hidden = ctx.saved_tensors
        needs_x, _, needs_weight, needs_bias, _, needs_outer, _ = ctx.needs_input_grad
        if grad is None:
            return grad_x, *(None,) * 6
        grad = grad.contiguous()
        grad_outer = grad.t() @ hidden if needs_outer else None
        if not (needs_x or needs_weight or needs_bias):
            return *(None,) * 5, grad_outer, None
        grad, sums = _before_relu(grad, outer_weight, hidden, ctx.relu_in_product)
        grad_weight = grad.t() @ factor if needs_weight else None
        grad_x = _of_fork(grad_x, grad, weight, ctx.dtype) if needs_x else None
        return grad_x, None, grad_weight, sums.sum(0), None, grad_outer, None


feed_forward: Callable[..., tuple[Tensor, Tensor]] = _FeedForward.apply


def _before_relu(grad: Tensor, weight: Tensor, hidden: Tensor, in_product: bool) -> tuple[Tensor, Tensor]:
    """Returns the gradient before a ReLU, (N, F), and sums of it over some tokens each, (P, F) fp32.

    `grad`, (N, D), is the gradient of the product that reads `hidden`, (N, F), the results of the ReLU;
    `weight`, (D, F), is its weights.
    """
    if in_product and relu_product.supports(weight) and relu_product.runs(grad.device, grad.dtype):
        return relu_product.relu_product(grad, weight, hidden)
    grad = grad @ weight
    return grad, layer_kernels.relu_backward_(grad, hidden)


class _KeysValues(torch.autograd.Function):
    """One product for L layers; in the backward pass, one each for the memory and for the weights."""

    @staticmethod
    def forward(
        ctx: Any,
        memory: Tensor,
        factor: Tensor,
        heads: int,
        rounded_biases: Sequence[Tensor],
        gradient: ProductGradient | None,
        *weights: Tensor,
    ) -> tuple[Tensor, ...]:
        """Returns keys and values in turn, (S, H, E) each.

        `memory`, the L weights and the L biases after them receive the gradients.
        """
        joined = torch.cat(weights[: len(rounded_biases)])  # (L * 2 * D, D)
        out = torch.addmm(torch.cat([*rounded_biases]), factor, joined.t())
        ctx.save_for_backward(factor, joined)
        ctx.dtype, ctx.count, ctx.gradient = memory.dtype, len(rounded_biases), gradient
        return out.view(len(out), 2 * ctx.count, heads, -1).unbind(1)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        factor, joined = ctx.saved_tensors
        count = ctx.count
        needs_memory, _, _, _, _, *needs_weights = ctx.needs_input_grad
        taken = _taken(ctx.gradient, *grads)
        # (S, L * 2 * D)
        grad, added = taken or _with_sum(torch.cat([part.flatten(1) for part in grads], 1))
        grad_memory = _product(grad, joined, ctx.dtype) if needs_memory else None
        gradients: list[Tensor | None] = [None] * 2 * count
        if any(needs_weights[:count]):
            gradients[:count] = (grad.t() @ factor).chunk(count)
        if any(needs_weights[count:]):
            gradients[count:] = added.chunk(count)
        needed = [
            gradient if needs else None for gradient, needs in zip(gradients, needs_weights, strict=True)
        ]
        return grad_memory, None, None, None, None, *needed


keys_values: Callable[..., Any] = _KeysValues.apply


def _product(a: Tensor, b: Tensor, dtype: torch.dtype) -> Tensor:
    """Returns a @ b in a number format, rounded once."""
    if dtype is a.dtype or a.device.type != "cuda":
        return (a @ b).to(dtype)
    product: Tensor = torch.mm(a, b, out_dtype=dtype)
    return product


def _add_product(total: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Returns total + a @ b, with the dtype of `total`; the sum is rounded once."""
    if total.dtype is a.dtype:
        return torch.addmm(total, a, b)
    if total.device.type == "cuda":
        summed: Tensor = torch.addmm(total, a, b, out_dtype=total.dtype)
        return summed
    return total + a @ b


class _End(torch.autograd.Function):
    """`layer_kernels.residual_norm`."""

    @staticmethod
    def forward(
        ctx: Any,
        y: Tensor,
        bias: Tensor,
        x: Tensor,
        weight: Tensor,
        shift: Tensor,
        epsilon: float,
        rate: float,
        seed: tuple[Tensor, int],
    ) -> tuple[Tensor, Tensor]:
        out, total, statistics, rounded = layer_kernels.residual_norm(
            y, bias, x, weight, shift, epsilon, rate, *seed
        )
        ctx.save_for_backward(total, statistics, weight)
        ctx.mark_non_differentiable(rounded)
        ctx.set_materialize_grads(False)
        ctx.y_dtype, ctx.rate, ctx.seed = y.dtype, rate, seed
        return out, rounded

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, _: None) -> tuple[Tensor | None, ...]:
        if grad is None:
            return (None,) * 8
        total, statistics, weight = ctx.saved_tensors
        grad_y, grad_x, sums = layer_kernels.residual_norm_backward(
            grad.contiguous(), total, statistics, weight, ctx.y_dtype, ctx.rate, *ctx.seed
        )
        of_bias, of_weight, of_shift = sums.sum(0).unbind(0)
        return grad_y, of_bias, grad_x, of_weight, of_shift, None, None, None


end_sublayer: Callable[..., Any] = _End.apply


class _Embed(torch.autograd.Function):
    """`layer_kernels.embed`, with a gradient for the embeddings only."""

    @staticmethod
    def forward(
        ctx: Any,
        weight: Tensor,
        ids: Tensor,
        table: Tensor,
        positions: Tensor,
        factor: float,
        rate: float,
        seed: tuple[Tensor, int],
        dtype: torch.dtype,
        rounded_dtype: torch.dtype,
    ) -> tuple[Tensor, Tensor]:
        out, rounded = layer_kernels.embed(
            weight, ids, table, positions, factor, rate, *seed, dtype, rounded_dtype
        )
        ctx.save_for_backward(ids)
        ctx.pieces, ctx.factor, ctx.rate, ctx.seed = len(weight), factor, rate, seed
        ctx.mark_non_differentiable(rounded)
        ctx.set_materialize_grads(False)
        return out, rounded

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, _: None) -> tuple[Tensor | None, ...]:
        if grad is None:
            return (None,) * 9
        (ids,) = ctx.saved_tensors
        rows = layer_kernels.embed_backward(grad.contiguous(), ctx.factor, ctx.rate, *ctx.seed)
        grad_weight = torch.ops.aten.embedding_dense_backward(rows, ids, ctx.pieces, -1, False)
        return grad_weight, *(None,) * 8


embed: Callable[..., Any] = _Embed.apply
