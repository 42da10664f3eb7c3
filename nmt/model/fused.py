"""Transformer layers with Triton kernels, for training in bf16 or fp16 on a GPU.

The operations between two matrix products (bias, dropout, residual connection, norm, and the conversion to
16 bits) take one kernel in each direction, in place of nine and eleven. Each product adds its gradient to
that of the residual connection, which saves another kernel. The keys and values of all decoder layers are
one product. Unlike `nmt.model.compiled`, this needs no compilation for each model.

Supported are the layers of the paper: post-norm, residual connections and ReLU, and no dropout in the
feed-forward network. All other layers use the plain methods of `nmt.model.layers`.

Shapes: N tokens of a stream (S source tokens), D d_model, F d_ff, M width of a product; H heads, E = D / H, L
decoder layers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from importlib.util import find_spec
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nmt.model.dropout import Dropout
from nmt.model.layers import CrossAttention, DecoderLayer, KeysValues, Layer, Passes
from nmt.model.linear import Linear, note_rounded, rounded

_WIDEST = 8192  # D that one program of the kernels can hold


def supports(layer: Layer) -> bool:
    """Whether this module can compute a layer: its products have copies of the weights, see `Linear`."""
    feed = layer.feed_forward
    return (
        not layer.pre
        and layer.residual
        and feed.activation is torch.relu_
        and feed.dropout.threshold == 0
        and feed.inner.copies is not None
        and feed.outer.out_features <= _WIDEST
        and _has_triton()
    )


@cache
def _has_triton() -> bool:
    return find_spec("triton") is not None


class FusedPasses(Passes):
    """The methods of a layer, with fused kernels; see `Passes`."""

    def project(self, layer: Layer, x: Tensor) -> tuple[Tensor, Tensor]:
        """See `Passes.project`."""
        return _fork(x, layer.self_attention.qkv, relu=False)

    def between(self, layer: DecoderLayer, attended: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """See `DecoderLayer.between`."""
        x = _end(attended, layer.self_attention.out, layer.dropout, x, layer.self_attention_norm)
        return _fork(x, layer.cross_attention.q, relu=False)

    def finish(self, layer: Layer, attended: Tensor, x: Tensor) -> Tensor:
        """See `Layer.finish`."""
        feed = layer.feed_forward
        x = _end(attended, layer.last_attention.out, layer.dropout, x, layer.last_norm)
        x, hidden = _fork(x, feed.inner, relu=True)
        return _end(hidden, feed.outer, layer.dropout, x, layer.feed_forward_norm)


PASSES = FusedPasses()
"""The only instance."""


def _fork(x: Tensor, linear: Linear, *, relu: bool) -> tuple[Tensor, Tensor]:
    """Returns `x` for the residual connection, (N, D), and a product with its bias, (N, M).

    Args:
        x: (N, D).
        linear: has copies.
        relu: whether to apply ReLU to the product.
    """
    weight, bias = _copies(linear)
    factor = rounded(x, weight.dtype)
    forked: tuple[Tensor, Tensor] = _apply_fork(x, factor, weight, linear.bias, bias, relu)
    return forked


def _copies(linear: Linear) -> tuple[Tensor, Tensor]:
    """Returns the copies of weight and bias; that of the bias without a gradient, which the bias gets."""
    assert linear.copies is not None
    weight, bias = linear.copies
    assert bias is not None
    return weight, bias.detach()


class _Fork(torch.autograd.Function):
    """A product, and its input once more; the product of the backward adds up both gradients."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, factor: Tensor, weight: Tensor, bias: Tensor, rounded_bias: Tensor, relu: bool
    ) -> tuple[Tensor, Tensor]:
        """`x` and `bias` receive the gradients; `factor` and `rounded_bias` have the dtype of `weight`."""
        product = torch._addmm_activation if relu else torch.addmm
        out = product(rounded_bias, factor, weight.t())
        ctx.save_for_backward(factor, weight, out if relu else None)
        ctx.set_materialize_grads(False)
        ctx.dtype = x.dtype
        return x.view_as(x), out

    @staticmethod
    def backward(ctx: Any, grad_x: Tensor | None, grad: Tensor | None) -> tuple[Tensor | None, ...]:
        factor, weight, out = ctx.saved_tensors
        needs_x, _, needs_weight, *_ = ctx.needs_input_grad  # frozen weights need no gradient
        if grad is None:
            return grad_x, None, None, None, None, None
        grad = grad.contiguous()
        if out is None:
            grad_bias = grad.sum(0, dtype=torch.float32)
        else:
            from nmt.model.kernels import layer_kernels  # a local import: it needs Triton

            grad_bias = layer_kernels.relu_backward_(grad, out).sum(0)
        grad_weight = grad.t() @ factor if needs_weight else None
        if not needs_x:
            grad_x = None
        elif grad_x is None:
            grad_x = _product(grad, weight, ctx.dtype)
        else:
            grad_x = _add_product(grad_x, grad, weight)
        return grad_x, None, grad_weight, grad_bias, None, None


_apply_fork: Callable[..., Any] = _Fork.apply


def keys_values(memory: Tensor, attentions: Sequence[CrossAttention]) -> list[KeysValues]:
    """Returns the keys and values of all decoder layers.

    Args:
        memory: (S, D), the output of the encoder.
        attentions: the cross-attention of each layer; its projection has copies.
    """
    linears = [attention.kv for attention in attentions]
    weights, biases = zip(*(_copies(linear) for linear in linears), strict=True)
    factor, heads = rounded(memory, weights[0].dtype), attentions[0].heads
    parts = _apply_keys_values(memory, factor, heads, biases, *weights, *(linear.bias for linear in linears))
    return [*zip(parts[::2], parts[1::2], strict=True)]


class _KeysValues(torch.autograd.Function):
    """One product for L layers; in the backward pass, one each for the memory and for the weights."""

    @staticmethod
    def forward(
        ctx: Any,
        memory: Tensor,
        factor: Tensor,
        heads: int,
        rounded_biases: Sequence[Tensor],
        *weights: Tensor,
    ) -> tuple[Tensor, ...]:
        """Returns keys and values in turn, (S, H, E) each.

        `memory`, the L weights and the L biases after them receive the gradients.
        """
        joined = torch.cat(weights[: len(rounded_biases)])  # (L * 2 * D, D)
        out = torch.addmm(torch.cat([*rounded_biases]), factor, joined.t())
        ctx.save_for_backward(factor, joined)
        ctx.dtype, ctx.count = memory.dtype, len(rounded_biases)
        return out.view(len(out), 2 * ctx.count, heads, -1).unbind(1)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        factor, joined = ctx.saved_tensors
        count = ctx.count
        needs_memory, _, _, _, *needs_weights = ctx.needs_input_grad
        grad = torch.cat([part.flatten(1) for part in grads], 1)  # (S, L * 2 * D)
        grad_memory = _product(grad, joined, ctx.dtype) if needs_memory else None
        found: list[Tensor | None] = [None] * 2 * count
        if any(needs_weights[:count]):
            found[:count] = (grad.t() @ factor).chunk(count)
        if any(needs_weights[count:]):
            found[count:] = grad.sum(0, dtype=torch.float32).chunk(count)
        needed = [one if needs else None for one, needs in zip(found, needs_weights, strict=True)]
        return grad_memory, None, None, None, *needed


_apply_keys_values: Callable[..., Any] = _KeysValues.apply


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


def _end(inner: Tensor, linear: Linear, dropout: Dropout, x: Tensor, norm: nn.LayerNorm) -> Tensor:
    """Ends a sub-layer: LayerNorm(x + dropout(linear(inner))), (N, D).

    Args:
        inner: (N, M), what the sub-layer has computed before its last product.
        linear: its last product; has copies.
        dropout: of the sub-layer.
        x: (N, D), the input of the sub-layer.
        norm: of the sub-layer.
    """
    assert linear.copies is not None
    rate, seed = _rate_and_seed(dropout, x.device)
    y = F.linear(inner, linear.copies[0])
    ended: Tensor
    ended, in_16_bits = _apply_end(y, linear.bias, x, norm.weight, norm.bias, norm.eps, rate, seed)
    if len(in_16_bits):
        note_rounded(ended, in_16_bits)
    return ended


def _rate_and_seed(dropout: Dropout, device: torch.device) -> tuple[float, tuple[Tensor, int]]:
    """Returns the rate of a dropout, and the seed and number of its next mask."""
    if dropout.threshold:
        return dropout.rate, dropout.source.draw_seed(device)
    return 0.0, (dropout.source.on_device(device), 0)


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
        from nmt.model.kernels import layer_kernels  # a local import: it needs Triton

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
        from nmt.model.kernels import layer_kernels

        if grad is None:
            return (None,) * 8
        total, statistics, weight = ctx.saved_tensors
        grad_y, grad_x, sums = layer_kernels.residual_norm_backward(
            grad.contiguous(), total, statistics, weight, ctx.y_dtype, ctx.rate, *ctx.seed
        )
        of_bias, of_weight, of_shift = sums.sum(0).unbind(0)
        return grad_y, of_bias, grad_x, of_weight, of_shift, None, None, None


_apply_end: Callable[..., Any] = _End.apply


def embed(
    weight: Tensor,
    ids: Tensor,
    table: Tensor,
    positions: Tensor,
    factor: float,
    dropout: Dropout,
    dtype: torch.dtype,
    rounded_dtype: torch.dtype,
) -> Tensor:
    """Returns dropout(factor * weight[ids] + table[positions]), (N, D).

    Args:
        weight: (V, D), the embeddings.
        ids: (N,) int64.
        table: (L, D), the encodings of positions.
        positions: (N,) int64.
        factor: on the embeddings.
        dropout: of the sum.
        dtype: of the result.
        rounded_dtype: of the products that read the result; see `nmt.model.linear.rounded`.
    """
    rate, seed = _rate_and_seed(dropout, weight.device)
    embedded: Tensor
    embedded, in_16_bits = _apply_embed(
        weight, ids, table, positions, factor, rate, seed, dtype, rounded_dtype
    )
    if len(in_16_bits):
        note_rounded(embedded, in_16_bits)
    return embedded


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
        from nmt.model.kernels import layer_kernels  # a local import: it needs Triton

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
        from nmt.model.kernels import layer_kernels

        if grad is None:
            return (None,) * 9
        (ids,) = ctx.saved_tensors
        rows = layer_kernels.embed_backward(grad.contiguous(), ctx.factor, ctx.rate, *ctx.seed)
        grad_weight = torch.ops.aten.embedding_dense_backward(rows, ids, ctx.pieces, -1, False)
        return grad_weight, *(None,) * 8


_apply_embed: Callable[..., Any] = _Embed.apply
