"""Transformer layers compiled by `torch.compile`, all operations except attention.

Only attention depends on the sentence boundaries, and it is not compiled. The compiled functions depend on a
batch only through its number of tokens. That dimension is dynamic, so one compilation serves all batches,
without padding. (Padding all batches to one size would also avoid recompilation. But batches have room for
1.5 times as many source tokens as target tokens, so padding would be a third of the encoder's work.)

Shapes: N tokens of a stream, S source tokens, T target tokens; D d_model, F d_ff, H heads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor

from nmt.model.dropout import Dropout
from nmt.model.layers import DecoderLayer, Layer, Masks, Passes
from nmt.model.seq2seq import Backend
from nmt.model.transformer import Transformer

_P = ParamSpec("_P")
_T = TypeVar("_T")


def compile_layers(model: Transformer, backend: Backend) -> None:
    """Makes the layers of a model use compiled functions in training; changes nothing else.

    The names of the weights do not change. On the CPU, dropout draws the same masks as without compilation.
    On CUDA, compiled dropout draws different masks, which are also a pure function of the seed.

    Args:
        model: changed in place. Shard a model before compiling it.
        backend: a backend of `torch.compile`; called once for each new graph.
    """
    passes = _CompiledPasses(backend)
    for layer in model.blocks():
        assert isinstance(layer, Layer)
        layer.passes = passes


class _CompiledPasses(Passes):
    """The compiled methods of the layers."""

    def __init__(self, backend: Backend) -> None:
        def compiled(function: Callable[_P, _T]) -> Callable[_P, _T]:
            return torch.compile(function, backend=backend)

        self._project = compiled(Layer.project)
        self._between = compiled(DecoderLayer.between)
        self._finish = compiled(Layer.finish)

    def project(self, layer: Layer, x: Tensor) -> tuple[Tensor, Tensor]:
        """See `Passes.project`."""
        return x, self._project(layer, _mark_dynamic(x))

    def between(self, layer: DecoderLayer, attended: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """See `DecoderLayer.between`."""
        return self._between(layer, _mark_dynamic(attended), _mark_dynamic(x), _mask(layer.dropout, x))

    def finish(self, layer: Layer, attended: Tensor, x: Tensor) -> Tensor:
        """See `Layer.finish`."""
        return self._finish(layer, _mark_dynamic(attended), _mark_dynamic(x), _masks(layer, x))


def _masks(layer: Layer, x: Tensor) -> Masks:
    """The dropout masks of `Layer.finish`, in the order in which it draws them."""
    feed = layer.feed_forward
    first, inner = _mask(layer.dropout, x), _mask(feed.dropout, x, feed.inner.out_features)
    return first, inner, _mask(layer.dropout, x)


def _mask(dropout: Dropout, x: Tensor, width: int | None = None) -> Tensor | None:
    """Draws a dropout mask, (N, `width`) or (N, D) uint8, because the CPU's generator can't be compiled.

    Returns None on CUDA and if the dropout rate is 0.
    """
    if x.device.type != "cpu" or not dropout.threshold:
        return None
    return _mark_dynamic(dropout.source.mask(torch.Size((len(x), width or x.shape[1])), dropout.threshold))


def _mark_dynamic(x: Tensor) -> Tensor:
    """Marks the number of tokens of `x` as dynamic; it is no error if the compiler specialises it."""
    torch._dynamo.maybe_mark_dynamic(x, 0)
    return x
