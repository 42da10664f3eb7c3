"""Transformer layers with Triton kernels, for training in bf16 or fp16 on a GPU.

The operations between two matrix products (bias, dropout, residual connection, norm, and the conversion to
16 bits) take one kernel in each direction, in place of nine and eleven. Each product adds its gradient to
that of the residual connection, which saves another kernel. The gradient of a ReLU is part of a product, and
those of the biases before attention are summed by its kernels. The keys and values of all decoder layers are
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
from nmt.model.kernels.product_gradient import ProductGradient, note_gradient
from nmt.model.kernels.trial import right
from nmt.model.layers import CrossAttention, DecoderLayer, FeedForward, KeysValues, Layer, Passes
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


@cache
def runs(device: torch.device) -> bool:
    """Whether the kernels run on a device, tried once with `residual_norm`.

    Triton may be installed but unable to compile, because it lacks a C compiler.
    """

    def is_right() -> bool:
        from nmt.model.kernels.layer_kernels import residual_norm  # a local import: it needs Triton

        x = torch.tensor([[0.0, 2.0] * 8, [4.0, 4.0] * 8], device=device)
        ones, zeros = torch.ones(16, device=device), torch.zeros(16, device=device)
        seed = torch.zeros(1, dtype=torch.int64, device=device)
        out, total, _, in_16_bits = residual_norm(x.half() / 2, ones, x / 2, ones, zeros, 1e-9, 0.0, seed, 0)
        exact = torch.tensor([[-1.0, 1.0] * 8, [0.0, 0.0] * 8], device=device)
        return (
            torch.equal(total, x + 1) and torch.allclose(out, exact) and torch.equal(in_16_bits, out.half())
        )

    return right("kernels between products", device, is_right)


class FusedPasses(Passes):
    """The methods of a layer, with fused kernels; see `Passes`."""

    def project(self, layer: Layer, x: Tensor) -> tuple[Tensor, Tensor]:
        """See `Passes.project`."""
        return _fork(x, layer.self_attention.qkv, parts=3)

    def between(self, layer: DecoderLayer, attended: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """See `DecoderLayer.between`."""
        x = _end_attention(layer.self_attention.out, attended, layer.dropout, x, layer.self_attention_norm)
        return _fork(x, layer.cross_attention.q, parts=1)

    def finish(self, layer: Layer, attended: Tensor, x: Tensor) -> Tensor:
        """See `Layer.finish`."""
        x = _end_attention(layer.last_attention.out, attended, layer.dropout, x, layer.last_norm)
        feed = layer.feed_forward
        x, y = _feed_forward(x, feed)
        return _end(y, feed.outer.bias, layer.dropout, x, layer.feed_forward_norm)


PASSES = FusedPasses()
"""The only instance."""


def _fork(x: Tensor, linear: Linear, parts: int) -> tuple[Tensor, Tensor]:
    """Returns `x` for the residual connection, (N, D), and a product with its bias, (N, parts * D).

    Args:
        x: (N, D).
        linear: has copies.
        parts: of the product: queries, or queries, keys and values.
    """
    weight, bias = _copies(linear)
    gradient = ProductGradient(parts)
    x, product = _apply_fork(x, rounded(x, weight.dtype), weight, linear.bias, bias, gradient)
    note_gradient(product, gradient)
    return x, product


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
        ctx: Any,
        x: Tensor,
        factor: Tensor,
        weight: Tensor,
        bias: Tensor,
        rounded_bias: Tensor,
        gradient: ProductGradient,
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
        grad, grad_bias = ctx.gradient.take(grad) or _with_sum(grad)
        grad_weight = grad.t() @ factor if needs_weight else None
        grad_x = _of_fork(grad_x, grad, weight, ctx.dtype) if needs_x else None
        return grad_x, None, grad_weight, grad_bias, None, None


_apply_fork: Callable[..., tuple[Tensor, Tensor]] = _Fork.apply


def _with_sum(grad: Tensor) -> tuple[Tensor, Tensor]:
    """Returns a gradient, (N, M), and its sum over tokens, (M,) fp32."""
    return grad.contiguous(), grad.sum(0, dtype=torch.float32)


def _of_fork(grad_x: Tensor | None, grad: Tensor, weight: Tensor, dtype: torch.dtype) -> Tensor:
    """Returns the gradient of the input of a product that is also a residual connection, (N, D).

    Args:
        grad_x: (N, D), the gradient of the residual connection; None if it is 0.
        grad: (N, M), that of the product.
        weight: (M, D), of the product.
        dtype: of the input.
    """
    return _product(grad, weight, dtype) if grad_x is None else _add_product(grad_x, grad, weight)


def _feed_forward(x: Tensor, feed: FeedForward) -> tuple[Tensor, Tensor]:
    """Returns `x` for the residual connection, and the feed-forward network without its last bias, (N, D)."""
    weight, bias = _copies(feed.inner)
    factor, (outer_weight, _) = rounded(x, weight.dtype), _copies(feed.outer)
    return _apply_feed_forward(x, factor, weight, feed.inner.bias, bias, outer_weight)


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
    ) -> tuple[Tensor, Tensor]:
        """See `_Fork.forward`; `outer_weight`, (D, F), receives a gradient, too."""
        hidden = torch._addmm_activation(rounded_bias, factor, weight.t())
        ctx.save_for_backward(factor, weight, outer_weight, hidden)
        ctx.set_materialize_grads(False)
        ctx.dtype = x.dtype
        return x.view_as(x), hidden @ outer_weight.t()

    @staticmethod
    def backward(ctx: Any, grad_x: Tensor | None, grad: Tensor | None) -> tuple[Tensor | None, ...]:
        factor, weight, outer_weight, hidden = ctx.saved_tensors
        needs_x, _, needs_weight, needs_bias, _, needs_outer = ctx.needs_input_grad
        if grad is None:
            return grad_x, None, None, None, None, None
        grad = grad.contiguous()
        grad_outer = grad.t() @ hidden if needs_outer else None
        if not (needs_x or needs_weight or needs_bias):
            return None, None, None, None, None, grad_outer
        grad, sums = _before_relu(grad, outer_weight, hidden)
        grad_weight = grad.t() @ factor if needs_weight else None
        grad_x = _of_fork(grad_x, grad, weight, ctx.dtype) if needs_x else None
        return grad_x, None, grad_weight, sums.sum(0), None, grad_outer


_apply_feed_forward: Callable[..., tuple[Tensor, Tensor]] = _FeedForward.apply


def _before_relu(grad: Tensor, weight: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the gradient before a ReLU, (N, F), and sums of it over some tokens each, (P, F) fp32.

    Args:
        grad: (N, D), the gradient of the product that reads the hidden layer.
        weight: (D, F), its weights.
        hidden: (N, F), the results of the ReLU.
    """
    from nmt.model.kernels import layer_kernels, relu_product  # local imports: they need Triton

    if relu_product.supports(weight) and relu_product.runs(grad.device, grad.dtype):
        return relu_product.relu_product(grad, weight, hidden)
    grad = grad @ weight
    return grad, layer_kernels.relu_backward_(grad, hidden)


def keys_values(memory: Tensor, attentions: Sequence[CrossAttention]) -> list[KeysValues]:
    """Returns the keys and values of all decoder layers.

    Args:
        memory: (S, D), the output of the encoder.
        attentions: the cross-attention of each layer; its projection has copies.
    """
    linears = [attention.kv for attention in attentions]
    weights, biases = zip(*(_copies(linear) for linear in linears), strict=True)
    factor, heads = rounded(memory, weights[0].dtype), attentions[0].heads
    gradient = ProductGradient(2 * len(linears))
    given = (memory, factor, heads, biases, gradient)
    parts = _apply_keys_values(*given, *weights, *(linear.bias for linear in linears))
    for number, part in enumerate(parts):
        note_gradient(part, gradient, number)
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
        gradient: ProductGradient,
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
        taken = ctx.gradient.take(*grads)
        # (S, L * 2 * D)
        grad, added = taken or _with_sum(torch.cat([part.flatten(1) for part in grads], 1))
        grad_memory = _product(grad, joined, ctx.dtype) if needs_memory else None
        found: list[Tensor | None] = [None] * 2 * count
        if any(needs_weights[:count]):
            found[:count] = (grad.t() @ factor).chunk(count)
        if any(needs_weights[count:]):
            found[count:] = added.chunk(count)
        needed = [one if needs else None for one, needs in zip(found, needs_weights, strict=True)]
        return grad_memory, None, None, None, None, *needed


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


def _end_attention(
    linear: Linear, attended: Tensor, dropout: Dropout, x: Tensor, norm: nn.LayerNorm
) -> Tensor:
    """Ends an attention: its last product, then `_end`.

    Args:
        linear: the product; has copies.
        attended: (N, D), the outputs of the heads.
        dropout: see `_end`.
        x: see `_end`.
        norm: see `_end`.
    """
    assert linear.copies is not None
    return _end(F.linear(attended, linear.copies[0]), linear.bias, dropout, x, norm)


def _end(y: Tensor, bias: Tensor, dropout: Dropout, x: Tensor, norm: nn.LayerNorm) -> Tensor:
    """Ends a sub-layer: LayerNorm(x + dropout(y + bias)), (N, D).

    Args:
        y: (N, D), its last product.
        bias: (D,), of the product.
        dropout: of the sub-layer.
        x: (N, D), the input of the sub-layer.
        norm: of the sub-layer.
    """
    rate, seed = _rate_and_seed(dropout, x.device)
    ended: Tensor
    ended, in_16_bits = _apply_end(y, bias, x, norm.weight, norm.bias, norm.eps, rate, seed)
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
