"""The seam between a model and the device that computes it: `Backend`, and its `Attention`.

`nmt.model.put_on` moves a model to a device and gives it the backend of that device, once. Whatever a backend
has no code of its own for is computed by the model itself, with the operators of PyTorch.

Shapes: N tokens of a stream of queries and S of a stream of keys; H heads, E width of a head, D = H * E.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import torch
from torch import Tensor

from nmt.config import Kernel
from nmt.data.batches.batching import Batch, Layout
from nmt.model.attention import Score, flat_attention_weights
from nmt.model.positions import Positions

KeysValues: TypeAlias = "Tensor | tuple[Tensor, Tensor]"
"""(S, 2, H, E), keys and values; or a pair of (S, H, E)."""


@dataclass(frozen=True, eq=False)
class Pattern:
    """The keys that each query of a batch sees, all in the same sentence, and how scores are computed.

    Attributes:
        queries: layout of the stream of the queries.
        keys: layout of the stream of the keys: the same number of sentences, in the same order.
        heads: H.
        width: E.
        scale: factor on the dot products of queries and keys; None: the score of a layer computes them.
        causal: whether a query sees only the keys up to its position; requires that both streams are the
            same.
        positions: the positional encoding that acts in attention; None: no encoding does.
        window: the number of keys that a query sees on either side; requires that both streams are the same.
            None: all.
    """

    queries: Layout
    keys: Layout
    heads: int
    width: int
    scale: float | None
    causal: bool = False
    positions: Positions | None = None
    window: int | None = None

    @property
    def acts_on_scores(self) -> bool:
        """Whether the positional encoding adds to scores or outputs."""
        return self.positions is not None and self.positions.acts_on_scores

    @property
    def rotates(self) -> bool:
        """Whether the positional encoding rotates queries and keys."""
        return self.positions is not None and self.positions.rotates

    def rotated(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """Queries and keys, (N, H, E) each → the same, rotated by the positional encoding if it rotates."""
        if self.positions is None or not self.positions.rotates:
            return q, k
        return self.positions.rotate(q, k, self.queries.positions)


class Attention(ABC):
    """The attention of one pattern, or of one step of a search; all layers use the same object.

    Equation 1 of the paper for every sentence of a batch: softmax(score(Q, K)) V. Each device has members
    that are fast there; `nmt.model.reference` is the naive version of all.
    """

    @abstractmethod
    def self_attend(self, qkv: Tensor, score: Score, layer: int) -> Tensor:
        """Self-attention.

        Args:
            qkv: (N, 3, H, E), contiguous; queries, keys and values of a stream.
            score: the score of the layer.
            layer: index of the layer, from 0.

        Returns:
            (N, D), the concatenated outputs of the heads.
        """

    @abstractmethod
    def cross_attend(self, q: Tensor, keys_values: KeysValues | None, score: Score, layer: int) -> Tensor:
        """Attention from each sentence of one stream to the same sentence of another stream.

        Args:
            q: (N, H, E), queries.
            keys_values: keys and values of the other stream; None: this object has them already.
            score: the score of the layer.
            layer: index of the layer, from 0.

        Returns:
            (N, D), the concatenated outputs of the heads.
        """


class ObservedAttention(Attention):
    """Another cross-attention, whose weights are computed too, as autograd differentiates them.

    Args:
        attention: the other one.
        queries: layout of the stream of the queries.
        keys: layout of the stream of the keys.
    """

    def __init__(self, attention: Attention, queries: Layout, keys: Layout) -> None:
        self._attention, self._queries, self._keys = attention, queries, keys
        self._weights: Tensor | None = None

    @property
    def weights(self) -> Tensor:
        """The weights of the layer; see `flat_attention_weights`."""
        assert self._weights is not None
        return self._weights

    def self_attend(self, qkv: Tensor, score: Score, layer: int) -> Tensor:
        """See `Attention.self_attend`; without weights."""
        return self._attention.self_attend(qkv, score, layer)

    def cross_attend(self, q: Tensor, keys_values: KeysValues | None, score: Score, layer: int) -> Tensor:
        """See `Attention.cross_attend`."""
        assert keys_values is not None
        keys = keys_values[0] if isinstance(keys_values, tuple) else keys_values[:, 0]
        self._weights = flat_attention_weights(q, keys, self._queries, self._keys, score)
        return self._attention.cross_attend(q, keys_values, score, layer)


class Layers(Protocol):
    """The layers of a Transformer in training, computed by kernels of a device."""

    @property
    def is_complete(self) -> bool:
        """Whether the embeddings of both sides are computed by kernels, too."""
        ...

    def hidden(self, model: Any, batch: Batch, sources: Sequence[Attention]) -> Tensor:
        """Returns the hidden states of a batch.

        Args:
            model: the Transformer.
            batch: the sentence pairs.
            sources: the cross-attention of each layer.

        Returns:
            (T, D), for T target tokens.
        """
        ...


class LossKernel(Protocol):
    """Replaces logits by their gradients, for `nmt.training.update.loss`."""

    def __call__(
        self, logits: Sequence[Tensor], ids: Tensor, figures: Tensor, peak: float, rdrop: float, scale: float
    ) -> None:
        """Overwrites logits and figures.

        Args:
            logits: (R, V), those of each pass; two with R-Drop.
            ids: (R,) int64, the targets.
            figures: (3, R) fp32, receives for each token -log p, its logit, and the divergence.
            peak: 1 - label smoothing.
            rdrop: the weight of the divergence; 0: one pass.
            scale: the loss scale.
        """
        ...


class Backend(ABC):
    """How a device computes a model. Each model has an instance of its own.

    A subclass is registered in `nmt.model.BACKENDS` under the type of its device.

    Args:
        device: the device of the model.
        kernels: those of `training.unmeasured_kernels`.

    Attributes:
        device: the device.
        layers: computes the layers in training; None: the model does.
    """

    layers: Layers | None = None

    def __init__(self, device: torch.device, kernels: Collection[Kernel] = ()) -> None:
        self.device = device

    @property
    def loss_kernel(self) -> LossKernel | None:
        """A kernel for the training loss; None: there is none."""
        return None

    @abstractmethod
    def attention(self, pattern: Pattern, dtype: torch.dtype) -> Attention:
        """Returns the attention of a batch.

        Args:
            pattern: the keys that each query sees.
            dtype: of queries, keys and values.
        """

    def half_weights(self, model: Any, dtype: torch.dtype) -> Any:
        """Gives a model copies of its weights for the matrix products of training, and chooses `layers`.

        Args:
            model: a `Seq2Seq` on the device. Gradients are summed in the `grad` of each trained weight.
            dtype: of matrix products.

        Returns:
            The `nmt.model.gpu.half_weights.HalfWeights`; None: training multiplies with the weights.
        """
        return None

    def captures(self, model: Any) -> bool:
        """Whether `layers` and `attention` of a model promise what `Seq2Seq.can_be_captured` requires."""
        return False


def converted_once(x: Tensor, count: int) -> tuple[Tensor, ...]:
    """Returns a tensor for several users; under autocast, it is converted once for all of them.

    Args:
        x: operand of a matrix product of each user.
        count: number of users.
    """
    device = x.device.type
    if not torch.is_autocast_enabled(device):
        return (x,) * count
    return _convert_once(x, count, torch.get_autocast_dtype(device))


class _ConvertedOnce(torch.autograd.Function):
    """Sums the gradients of the users in the number format of the tensor."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, count: int, dtype: torch.dtype) -> tuple[Tensor, ...]:
        ctx.dtype = x.dtype
        converted = x.detach().to(dtype)
        return tuple(converted.view_as(converted) for _ in range(count))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        # From the last user to the first: in the order in which autograd would sum them.
        total = grads[-1].to(ctx.dtype)
        for grad in reversed(grads[:-1]):
            total = total + grad
        return total, None, None


_convert_once: Callable[..., tuple[Tensor, ...]] = _ConvertedOnce.apply
