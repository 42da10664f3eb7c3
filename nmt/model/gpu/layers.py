"""Transformer layers with Triton kernels, for training in bf16 or fp16 on a GPU.

The operations between two matrix products (bias, dropout, residual connection, norm, and the conversion to
16 bits) take one kernel in each direction, in place of nine and eleven. Each product adds its gradient to
that of the residual connection, which saves another kernel. The keys and values of all decoder layers are one
product.

Supported are the layers of the paper: post-norm, residual connections and ReLU, heads of width D / H, and no
dropout in the feed-forward network. All other layers are computed by `nmt.model.transformer`. This module
needs Triton, so it is imported only where the kernels are used.

Shapes: N tokens of a stream (S source tokens), D d_model, F d_ff, M width of a product; H heads, E = D / H, L
decoder layers.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nmt.config import Activation, Kernel, Norm, NormKind
from nmt.data.batches.batching import Batch
from nmt.model.attention import Attention
from nmt.model.dropout import Dropout
from nmt.model.gpu import products
from nmt.model.gpu.kernel import right
from nmt.model.gpu.layer_kernels import residual_norm
from nmt.model.gpu.triton_attention import ProductGradient, Slot, TritonAttention, sums_biases
from nmt.model.positions import Places, Positions, Sinusoidal
from nmt.model.seq2seq import Linear, Seq2Seq
from nmt.model.transformer import DecoderLayer, EncoderLayer, Layer, Transformer
from nmt.runtime.streams import log

_WIDEST = 8192  # D that one program of the kernels can hold


@dataclass(frozen=True)
class Stream:
    """Hidden states between two layers.

    Attributes:
        x: (N, D).
        rounded: (N, D), the same in the number format of the next product, without a gradient. The kernel
            that computed `x` wrote it.
    """

    x: Tensor
    rounded: Tensor


class FusedLayers:
    """Computes a Transformer in training; see `nmt.model.backend.Layers`."""

    def __init__(self, model: Transformer, dtype: torch.dtype, kernels: Collection[Kernel]) -> None:
        self._dtype = dtype
        self._relu_product = Kernel.relu_product in kernels
        self._sums_biases = Kernel.attention_biases in kernels
        plain = model.word_dropout.threshold == 0 and model.config.bigram_rows == 0
        self._embeds_sources = plain and _adds_table(model.encoder_positions)
        self._embeds_targets = plain and _adds_table(model.decoder_positions)

    @property
    def is_complete(self) -> bool:
        """See `Layers.is_complete`."""
        return self._embeds_sources and self._embeds_targets

    def hidden(self, model: Transformer, batch: Batch, sources: Sequence[Attention]) -> Tensor:
        """See `Layers.hidden`."""
        attention = model.attention_of_sources(batch.source)
        stream = self._embed(model, batch.source_ids, Places.of_sources(batch.source), targets=False)
        for encoder_layer in model.encoder_layers:
            stream = self._self_attend(encoder_layer, stream, attention)
            stream = self._feed_forward(encoder_layer, stream)
        keys_values, slots = self._keys_values(stream, model, sources)
        attention = model.attention_of_targets(batch)
        stream = self._embed(model, batch.target_in, Places.of_targets(batch), targets=True)
        for number, (layer, source) in enumerate(zip(model.decoder_layers, sources, strict=True)):
            part = slice(2 * number, 2 * number + 2)
            stream = self._self_attend(layer, stream, attention)
            stream = self._cross_attend(layer, stream, source, keys_values[part], slots[part])
            stream = self._feed_forward(layer, stream)
        return stream.x

    def _embed(self, model: Transformer, ids: Tensor, places: Places, *, targets: bool) -> Stream:
        """Returns the input of the encoder or, if `targets`, of the decoder; see `Transformer`."""
        fused = (self._embeds_targets if targets else self._embeds_sources) and places.cut is None
        if not fused:
            x = model.embed_targets(ids, places) if targets else model.embed_sources(ids, places)
            return Stream(x, x.detach().to(self._dtype))
        positions = model.decoder_positions if targets else model.encoder_positions
        assert isinstance(positions, Sinusoidal)
        of_sources = None if targets else model.source_embedding
        weight = (of_sources or model.target_embedding).weight
        rate, seed = _rate_and_seed(model.dropout, weight.device)
        dtype, factor = model.residual_dtype or weight.dtype, math.sqrt(model.config.d_model)
        table = positions.rows(places)
        return self._stream(
            *products.embed(weight, ids, table, places.positions, factor, rate, seed, dtype, self._dtype)
        )

    def _self_attend(self, layer: Layer, stream: Stream, attention: Attention) -> Stream:
        module = layer.self_attention
        x, qkv, gradient = self._fork(stream, module.qkv, attention, parts=3)
        qkv = qkv.view(len(qkv), 3, module.heads, -1)
        if gradient is not None and isinstance(attention, TritonAttention):
            y = attention.self_attend(qkv, module.score, module.number, gradient)
        else:
            y = attention.self_attend(qkv, module.score, module.number)
        return self._end_attention(module.out, y, layer.dropout, x, layer.self_attention_norm)

    def _cross_attend(
        self,
        layer: DecoderLayer,
        stream: Stream,
        attention: Attention,
        keys_values: Sequence[Tensor],
        slots: Sequence[Slot],
    ) -> Stream:
        """Attends to the sources; `slots` are for the gradients of `keys_values`, or empty."""
        module = layer.cross_attention
        x, q, gradient = self._fork(stream, module.q, attention, parts=1)
        q, (k, v) = q.view(len(q), module.heads, -1), keys_values
        if gradient is not None and isinstance(attention, TritonAttention):
            y = attention.attend(q, k, v, [Slot(gradient, 0), *(slots or (None, None))]).flatten(1)
        else:
            y = attention.cross_attend(q, (k, v), module.score, module.number)
        return self._end_attention(module.out, y, layer.dropout, x, layer.cross_attention_norm)

    def _feed_forward(self, layer: EncoderLayer | DecoderLayer, stream: Stream) -> Stream:
        feed = layer.feed_forward
        weight, bias = _copies(feed.inner)
        outer_weight, _ = _copies(feed.outer)
        x, y = products.feed_forward(
            *(stream.x, stream.rounded, weight, feed.inner.bias, bias, outer_weight, self._relu_product)
        )
        return self._end(y, feed.outer.bias, layer.dropout, x, layer.feed_forward_norm)

    def _keys_values(
        self, memory: Stream, model: Transformer, sources: Sequence[Attention]
    ) -> tuple[Sequence[Tensor], Sequence[Slot]]:
        """Returns the keys and values of all decoder layers in turn, and slots for their gradients."""
        linears = [layer.cross_attention.kv for layer in model.decoder_layers]
        weights, biases = zip(*(_copies(linear) for linear in linears), strict=True)
        gradient = self._gradient(sources[0], 2 * len(linears))
        inputs = (memory.x, memory.rounded, model.config.heads, biases, gradient)
        parts = products.keys_values(*inputs, *weights, *(linear.bias for linear in linears))
        return parts, [] if gradient is None else [Slot(gradient, part) for part in range(len(parts))]

    def _fork(
        self, stream: Stream, linear: Linear, attention: Attention, parts: int
    ) -> tuple[Tensor, Tensor, ProductGradient | None]:
        """Computes a product whose input is also a residual connection.

        `attention` reads the product of `linear`, which has `parts`: queries, or queries, keys and values.

        Returns:
            `stream.x` for the residual connection, (N, D); the product with its bias, (N, parts * D); and the
            object that receives its gradient, if `attention` sums it.
        """
        weight, bias = _copies(linear)
        gradient = self._gradient(attention, parts)
        x, product = products.fork(stream.x, stream.rounded, weight, linear.bias, bias, gradient)
        return x, product, gradient

    def _gradient(self, attention: Attention, parts: int) -> ProductGradient | None:
        if not self._sums_biases or not isinstance(attention, TritonAttention):
            return None
        pattern = attention.pattern
        runs_here = sums_biases(pattern.queries.positions.device, self._dtype, pattern.width)
        return ProductGradient(parts) if runs_here else None

    def _end_attention(
        self, linear: Linear, attended: Tensor, dropout: Dropout, x: Tensor, norm: nn.Module
    ) -> Stream:
        """Ends an attention: the product `linear` of `attended`, (N, D), then `_end`."""
        return self._end(F.linear(attended, _copies(linear)[0]), linear.bias, dropout, x, norm)

    def _end(self, y: Tensor, bias: Tensor, dropout: Dropout, x: Tensor, norm: nn.Module) -> Stream:
        """Ends a sub-layer: LayerNorm(x + dropout(y + bias)).

        `y`, (N, D), is its last product, and `bias`, (D,), the bias of that; `x`, (N, D), is its input.
        """
        assert isinstance(norm, nn.LayerNorm)
        rate, seed = _rate_and_seed(dropout, x.device)
        return self._stream(*products.end_sublayer(y, bias, x, norm.weight, norm.bias, norm.eps, rate, seed))

    def _stream(self, x: Tensor, rounded: Tensor) -> Stream:
        """Returns a stream; `rounded` is empty if the kernel did not write it, since `x` has that format."""
        return Stream(x, rounded if len(rounded) else x.detach().to(self._dtype))


def fused_layers(
    model: Seq2Seq, device: torch.device, dtype: torch.dtype, kernels: Collection[Kernel]
) -> FusedLayers | None:
    """Returns the fused layers of a model; None, with a line in the log, if they can't compute it."""
    reason = unsupported(model)
    if reason is not None:
        log.info("the layers are computed by the operators of torch: %s", reason)
    elif isinstance(model, Transformer) and runs(device):
        return FusedLayers(model, dtype, kernels)
    return None


def unsupported(model: nn.Module) -> str | None:
    """Returns the reason why `FusedLayers` can't compute a model whose products have copies; else None."""
    if type(model) is not Transformer:  # a subclass may override anything
        return f"the model is a {type(model).__name__}"
    layers = [*model.encoder_layers, *model.decoder_layers]
    for key in ("query_key_norm", "value_skip", "embedding_skip"):
        if getattr(model.config, key):
            return f"model.{key}=true"
    if len(layers) != len(model.blocks()) or any(map(_other_weights, layers)):
        return "its layers have other parts"
    config = model.config
    if config.norm is not Norm.post:
        return "model.norm=pre"
    if config.norm_kind is not NormKind.layer:
        return f"model.norm_kind={config.norm_kind.value}"
    if not config.residual:
        return "model.residual=false"
    if config.activation is not Activation.relu:
        return f"model.activation={config.activation.value}"
    if config.gated:
        return "model.gated=true"
    if model.decoder_layers[0].feed_forward.dropout.threshold:
        return f"model.ffn_dropout={config.ffn_dropout}"
    if not config.splits_d_model:
        return "model.key_width or model.value_width is not d_model / heads"
    if config.d_model > _WIDEST:
        return f"model.d_model is above {_WIDEST}"
    return None


def _other_weights(layer: nn.Module) -> bool:
    """Whether a layer has weights that this module does not know, such as those of a gate."""
    modules = {name.rpartition(".")[0] for name, _ in layer.named_parameters()}
    return any(name not in _MODULES and not name.endswith(".score") for name in modules)


_MODULES = frozenset(
    f"{module}{part}"
    for module, parts in {
        "self_attention": (".qkv", ".out", "_norm"),
        "cross_attention": (".q", ".kv", ".out", "_norm"),
        "feed_forward": (".inner", ".outer", "_norm"),
    }.items()
    for part in parts
)


def _adds_table(positions: Positions) -> bool:
    """Whether an encoding adds the rows of `Sinusoidal`, and does nothing else to the embeddings."""
    return isinstance(positions, Sinusoidal) and type(positions).embed is Sinusoidal.embed


@cache
def runs(device: torch.device) -> bool:
    """Whether the kernels run on a device, tried once with `residual_norm`.

    Triton may be installed but unable to compile, because it lacks a C compiler.
    """

    def is_right() -> bool:
        x = torch.tensor([[0.0, 2.0] * 8, [4.0, 4.0] * 8], device=device)
        ones, zeros = torch.ones(16, device=device), torch.zeros(16, device=device)
        seed = torch.zeros(1, dtype=torch.int64, device=device)
        out, total, _, in_16_bits = residual_norm(x.half() / 2, ones, x / 2, ones, zeros, 1e-9, 0.0, seed, 0)
        exact = torch.tensor([[-1.0, 1.0] * 8, [0.0, 0.0] * 8], device=device)
        return (
            torch.equal(total, x + 1) and torch.allclose(out, exact) and torch.equal(in_16_bits, out.half())
        )

    return right("kernels between products", device, is_right)


def _copies(linear: Linear) -> tuple[Tensor, Tensor]:
    """Returns the copies of weight and bias; that of the bias without a gradient, which the bias gets."""
    assert linear.copies is not None
    weight, bias = linear.copies
    assert bias is not None
    return weight, bias.detach()


def _rate_and_seed(dropout: Dropout, device: torch.device) -> tuple[float, tuple[Tensor, int]]:
    """Returns the rate of a dropout, and the seed and number of its next mask."""
    if dropout.threshold:
        return dropout.rate, dropout.source.draw_seed(device)
    return 0.0, (dropout.source.on_device(device), 0)
