"""Layers compiled by `torch.compile`: all that happens to each token between one attention and the next.

Attention alone knows where sentences begin, and it stays as it is. So what is compiled depends on a batch
through its number of tokens only; that is left open, and one compilation does for all batches, as they are.
(Filling all up to one size would serve as well, but there is half as much room again for sources as for
targets, and to fill it would be a third of the encoder's work.)

Shapes: N tokens of a stream, S of the source's, T of the target's; D d_model, F d_ff, H heads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor

from nmt.model.dropout import Dropout
from nmt.model.seq2seq import Backend
from nmt.model.transformer import DecoderLayer, Layer, Masks, Passes, Transformer

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
    passes = _CompiledPasses(backend)
    for layer in model.blocks():
        assert isinstance(layer, Layer)
        layer.passes = passes


class _CompiledPasses(Passes):
    """The methods of layers, compiled."""

    def __init__(self, backend: Backend) -> None:
        def compiled(function: Callable[_P, _T]) -> Callable[_P, _T]:
            return torch.compile(function, backend=backend)

        self._project = compiled(Layer.project)
        self._between = compiled(DecoderLayer.between)
        self._finish = compiled(Layer.finish)

    def project(self, layer: Layer, x: Tensor) -> Tensor:
        """See `Layer.project`."""
        return self._project(layer, _open(x))

    def between(self, layer: DecoderLayer, attended: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """See `DecoderLayer.between`."""
        return self._between(layer, _open(attended), _open(x), _mask(layer.dropout, x))

    def finish(self, layer: Layer, attended: Tensor, x: Tensor) -> Tensor:
        """See `Layer.finish`."""
        return self._finish(layer, _open(attended), _open(x), _masks(layer, x))


def _masks(layer: Layer, x: Tensor) -> Masks:
    """The masks of `Layer.finish`, in the order in which it draws them."""
    feed = layer.feed_forward
    first, inner = _mask(layer.dropout, x), _mask(feed.dropout, x, feed.inner.out_features)
    return first, inner, _mask(layer.dropout, x)


def _mask(dropout: Dropout, x: Tensor, width: int | None = None) -> Tensor | None:
    """A mask for (N, `width` or D), drawn beforehand, since the CPU's generator can't be compiled."""
    if x.device.type != "cpu" or not dropout.threshold:
        return None
    return _open(dropout.source.kept(torch.Size((len(x), width or x.shape[1])), dropout.threshold))


def _open(x: Tensor) -> Tensor:
    """Leaves the number of tokens open in what is compiled for this; one is never asked for by itself."""
    torch._dynamo.maybe_mark_dynamic(x, 0)
    return x
