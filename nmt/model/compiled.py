"""Layers compiled by `torch.compile`: all that happens to each token between one attention and the next.

Attention alone knows where sentences begin, and it stays as it is. So what is compiled depends on a batch
through its number of tokens only; that is left open, and one compilation does for all batches, as they are.
(Filling all up to one size would serve as well, but there is half as much room again for sources as for
targets, and to fill it would be a third of the encoder's work.)

Shapes: N tokens of a stream, S of the source's, T of the target's; D d_model, F d_ff, H heads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeAlias, TypeVar

import torch
from torch import Tensor, nn

from nmt.model.attention import Pattern, cross_attend, self_attend
from nmt.model.dropout import Dropout
from nmt.model.seq2seq import Backend
from nmt.model.transformer import DecoderLayer, EncoderLayer, Transformer

_Layer: TypeAlias = EncoderLayer | DecoderLayer
_Mask: TypeAlias = Tensor | None  # None: there is no dropout, or CUDA draws its mask where it is needed
_P = ParamSpec("_P")
_T = TypeVar("_T")


def compile_layers(model: Transformer, backend: Backend) -> None:
    """Lets the layers of a model do their training passes by compiled functions; all else stays as it is.

    Weights keep their names, and dropout on the CPU its masks. On CUDA a compiled dropout draws other ones,
    a pure function of the seed too.

    Args:
        model: changed in place; where it is sharded, afterwards.
        backend: what compiles, called once for each graph that is new.
    """
    compiled = _Compiled(backend)
    for layer in model.encoder:
        assert isinstance(layer, EncoderLayer)
        layer.in_training = compiled.encoder_layer
    for layer in model.decoder:
        assert isinstance(layer, DecoderLayer)
        layer.in_training = compiled.decoder_layer


class _Compiled:
    """Forward passes of layers, made of functions that are compiled and of attention, which is not."""

    def __init__(self, backend: Backend) -> None:
        def compiled(function: Callable[_P, _T]) -> Callable[_P, _T]:
            return torch.compile(function, backend=backend)

        self._first = compiled(_first)
        self._middle = compiled(_middle)
        self._last = compiled(_last)

    def encoder_layer(self, layer: EncoderLayer, x: Tensor, own: Pattern) -> Tensor:
        """See `EncoderLayer.forward`."""
        attention = layer.self_attention
        qkv = self._first(layer, _open(x)).view(len(x), 3, attention.heads, -1)
        attended = self_attend(qkv, own)
        return self._last(
            layer, attention.out, layer.self_attention_norm, _open(attended), _open(x), _masks(layer, x)
        )

    def decoder_layer(
        self, layer: DecoderLayer, x: Tensor, memory: Tensor, own: Pattern, cross: Pattern
    ) -> Tensor:
        """See `DecoderLayer.forward`."""
        heads = layer.self_attention.heads
        qkv = self._first(layer, _open(x)).view(len(x), 3, heads, -1)
        attended = self_attend(qkv, own)
        x, q = self._middle(layer, _open(attended), _open(x), _mask(layer.dropout, x))
        keys_values = layer.cross_attention.keys_values(memory)
        attended = cross_attend(q.view(len(x), 1, heads, -1), keys_values, cross)
        out, norm = layer.cross_attention.out, layer.cross_attention_norm
        return self._last(layer, out, norm, _open(attended), _open(x), _masks(layer, x))


def _first(layer: _Layer, x: Tensor) -> Tensor:
    """(N, D) → (N, 3 D), what self-attention is of."""
    y: Tensor = layer.self_attention.qkv(_read(layer, layer.self_attention_norm, x))
    return y


def _middle(layer: DecoderLayer, attended: Tensor, x: Tensor, kept: _Mask) -> tuple[Tensor, Tensor]:
    """(T, D), the heads' outputs, and (T, D), what self-attention read → what goes on, and queries of it."""
    x = _add(layer, layer.self_attention_norm, x, layer.self_attention.out(attended), kept)
    return x, layer.cross_attention.q(_read(layer, layer.cross_attention_norm, x))


def _last(
    layer: _Layer,
    out: nn.Linear,
    norm: nn.Module,
    attended: Tensor,
    x: Tensor,
    kept: tuple[_Mask, _Mask, _Mask],
) -> Tensor:
    """(N, D), the heads' outputs, and (N, D), what attention read → (N, D), what the layer makes of it."""
    x = _add(layer, norm, x, out(attended), kept[0])
    feed = layer.feed_forward
    inner = feed.activation(feed.inner(_read(layer, layer.feed_forward_norm, x)))
    y = feed.outer(_drop(feed.dropout, inner, None, kept[1]))
    return _add(layer, layer.feed_forward_norm, x, y, kept[2])


def _read(layer: _Layer, norm: nn.Module, x: Tensor) -> Tensor:
    return norm(x) if layer.pre else x


def _add(layer: _Layer, norm: nn.Module, x: Tensor, y: Tensor, kept: _Mask) -> Tensor:
    x = _drop(layer.dropout, y, x, kept)
    return x if layer.pre else norm(x)


def _drop(dropout: Dropout, x: Tensor, residual: Tensor | None, kept: _Mask) -> Tensor:
    if kept is None:
        y: Tensor = dropout(x, residual)
        return y
    x = x * kept * dropout.scale
    return x if residual is None else residual + x


def _masks(layer: _Layer, x: Tensor) -> tuple[_Mask, _Mask, _Mask]:
    """The masks of `_last`, in the order in which `forward` draws them."""
    feed = layer.feed_forward
    first, inner = _mask(layer.dropout, x), _mask(feed.dropout, x, feed.inner.out_features)
    return first, inner, _mask(layer.dropout, x)


def _mask(dropout: Dropout, x: Tensor, width: int | None = None) -> _Mask:
    """A mask for (N, `width` or D), drawn beforehand, since the CPU's generator can't be compiled."""
    if x.device.type != "cpu" or not dropout.threshold:
        return None
    return _open(dropout.source.kept(torch.Size((len(x), width or x.shape[1])), dropout.threshold))


def _open(x: Tensor) -> Tensor:
    """Leaves the number of tokens open in what is compiled for this; one is never asked for by itself."""
    torch._dynamo.maybe_mark_dynamic(x, 0)
    return x
