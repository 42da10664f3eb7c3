"""The layers of the Transformer (Vaswani et al. 2017, section 3.1), and how a layer attends.

Shapes: S source tokens and T target tokens of a batch, N either of the two; H heads, D d_model, E = D / H.
Streams are flat: the tokens of all sentences are concatenated without padding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nmt.config import Activation, ModelConfig, Norm
from nmt.model.attention import Score, build_score, flat_attention_weights
from nmt.model.dropout import Dropout, DropoutSource
from nmt.model.kernels import Pattern, cross_attend, self_attend
from nmt.model.linear import Linear

KeysValues: TypeAlias = "Tensor | tuple[Tensor, Tensor]"
"""(S, 2, H, E), the keys and values of the source tokens; or a pair of (S, H, E)."""


class DecoderContext(Protocol):
    """The attention of the decoder: to a flat batch in training, or to the cached state in a search."""

    def attend_targets(self, layer: int, qkv: Tensor, score: Score) -> Tensor:
        """Self-attention: (N, 3, H, E), queries, keys and values of target tokens → (N, D)."""
        ...

    def attend_source(self, layer: int, q: Tensor, keys_values: Tensor | None, score: Score) -> Tensor:
        """Cross-attention: (N, H, E), queries of target tokens → (N, D).

        `keys_values` is (S, 2, H, E), or None if the context already has the keys and values.
        """
        ...


@dataclass(frozen=True)
class FlatContext:
    """The `DecoderContext` of a flat batch.

    Attributes:
        self_pattern: of self-attention.
        cross_pattern: of cross-attention.
        keys_values: those of each layer; None if the layers pass them.
        weights: receives the weights of cross-attention of the layers that it has as keys.
    """

    self_pattern: Pattern
    cross_pattern: Pattern
    keys_values: Sequence[KeysValues] | None = None
    weights: dict[int, Tensor | None] = field(default_factory=dict)

    def attend_targets(self, layer: int, qkv: Tensor, score: Score) -> Tensor:
        """See `DecoderContext.attend_targets`."""
        return self_attend(qkv, self.self_pattern, score, layer)

    def attend_source(self, layer: int, q: Tensor, keys_values: Tensor | None, score: Score) -> Tensor:
        """See `DecoderContext.attend_source`."""
        found = keys_values if self.keys_values is None else self.keys_values[layer]
        assert found is not None
        if layer in self.weights:
            keys = found[0] if isinstance(found, tuple) else found[:, 0]
            pattern = self.cross_pattern
            self.weights[layer] = flat_attention_weights(q, keys, pattern.queries, pattern.keys, score)
        return cross_attend(q[:, None], found, self.cross_pattern, score, layer)


Masks: TypeAlias = "tuple[Tensor | None, Tensor | None, Tensor | None]"
"""Dropout masks that the caller drew; None: the dropout draws its mask."""


class Passes:
    """Calls the methods of a layer; `nmt.model.compiled` and `nmt.model.fused` override it."""

    def project(self, layer: Layer, x: Tensor) -> tuple[Tensor, Tensor]:
        """Returns `x`, (N, D), for the residual connection, and the result of `Layer.project`."""
        return x, layer.project(x)

    def between(self, layer: DecoderLayer, attended: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """See `DecoderLayer.between`."""
        return layer.between(attended, x)

    def finish(self, layer: Layer, attended: Tensor, x: Tensor) -> Tensor:
        """See `Layer.finish`."""
        return layer.finish(attended, x)


_PLAIN = Passes()


def fused_passes(layer: Layer, device: torch.device) -> Passes | None:
    """Returns `nmt.model.fused` if it supports the layer on a device; None if it does not."""
    from nmt.model import fused  # a local import, since that module imports this one

    return fused.PASSES if fused.supports(layer) and fused.runs(device) else None


class Layer(nn.Module):
    """The base class of encoder and decoder layers.

    All operations except attention are in the methods `project`, `between` and `finish`, which can be
    compiled.

    Args:
        config: the `model` section.
        randomness: the source of dropout masks.
        number: index of the layer, from 0.
    """

    feed_forward: FeedForward
    feed_forward_norm: nn.LayerNorm

    def __init__(self, config: ModelConfig, randomness: DropoutSource, number: int) -> None:
        super().__init__()
        self.number = number
        self.pre, self.residual = config.norm is Norm.pre, config.residual
        self.passes = _PLAIN
        """Used in training only; in evaluation the methods are called directly."""
        self.dropout = Dropout(config.dropout, randomness)
        self.self_attention = SelfAttention(config)
        self.self_attention_norm = nn.LayerNorm(config.d_model)

    def project(self, x: Tensor) -> Tensor:
        """(N, D) → (N, 3 D), the queries, keys and values of self-attention."""
        qkv: Tensor = self.self_attention.qkv(self.read(self.self_attention_norm, x))
        return qkv

    def finish(self, attended: Tensor, x: Tensor, masks: Masks = (None, None, None)) -> Tensor:
        """Computes the layer after its last attention: the output projection and the feed-forward network.

        Args:
            attended: (N, D), outputs of the heads.
            x: (N, D), the input of that attention.
            masks: dropout masks for the output of attention, for the hidden layer of the feed-forward network
                and for its output; see `Masks`.

        Returns:
            (N, D).
        """
        x = self.add(self.last_norm, x, self.last_attention.out(attended), masks[0])
        y = self.feed_forward(self.read(self.feed_forward_norm, x), masks[1])
        return self.add(self.feed_forward_norm, x, y, masks[2])

    @property
    def last_attention(self) -> SelfAttention | CrossAttention:
        """The attention before the feed-forward network."""
        return self.self_attention

    @property
    def last_norm(self) -> nn.LayerNorm:
        """The norm of `last_attention`."""
        return self.self_attention_norm

    def read(self, norm: nn.Module, x: Tensor) -> Tensor:
        """Returns the input of a sub-layer: LayerNorm(x) with pre-norm, x with post-norm."""
        return norm(x) if self.pre else x

    def add(self, norm: nn.Module, x: Tensor, y: Tensor, mask: Tensor | None = None) -> Tensor:
        """Adds the residual: x + dropout(y) with pre-norm, LayerNorm(x + dropout(y)) with post-norm.

        Without residual connections (`model.residual=false`) x is not added.

        Args:
            norm: the norm of the sub-layer.
            x: (N, D), the input of the sub-layer, before its norm.
            y: (N, D), the output of the sub-layer.
            mask: a dropout mask that the caller drew.
        """
        added: Tensor = self.dropout(y, x if self.residual else None, mask)
        # Under autocast a norm returns fp32, whatever the format of its input.
        if self.pre:
            return added
        normalised: Tensor = norm(added).to(x.dtype)
        return normalised

    def passes_for(self, x: Tensor) -> Passes:
        """Returns the implementation of the methods for tensors on the device of `x`."""
        if not self.training:
            return _PLAIN
        if self.passes is _PLAIN and x.is_cuda:
            return fused_passes(self, x.device) or _PLAIN
        return self.passes


class EncoderLayer(Layer):
    """Self-attention, then a feed-forward network (section 3.1 of the paper)."""

    def __init__(self, config: ModelConfig, randomness: DropoutSource, number: int) -> None:
        super().__init__(config, randomness, number)
        self.feed_forward = FeedForward(config, randomness)
        self.feed_forward_norm = nn.LayerNorm(config.d_model)

    def forward(self, x: Tensor, self_pattern: Pattern) -> Tensor:
        """(S, D) → (S, D)."""
        passes, attention = self.passes_for(x), self.self_attention
        x, qkv = passes.project(self, x)
        attended = self_attend(attention.split(qkv), self_pattern, attention.score, self.number)
        return passes.finish(self, attended, x)


class DecoderLayer(Layer):
    """Causal self-attention, cross-attention to the source, then a feed-forward network (section 3.1)."""

    def __init__(self, config: ModelConfig, randomness: DropoutSource, number: int) -> None:
        super().__init__(config, randomness, number)
        self.cross_attention = CrossAttention(config)
        self.cross_attention_norm = nn.LayerNorm(config.d_model)
        self.feed_forward = FeedForward(config, randomness)
        self.feed_forward_norm = nn.LayerNorm(config.d_model)

    def forward(self, x: Tensor, context: DecoderContext, memory: Tensor | None = None) -> Tensor:
        """(N, D) → (N, D); `memory` is (S, D), or None if the context already has its keys and values."""
        passes, self_attention, cross_attention = (
            self.passes_for(x),
            self.self_attention,
            self.cross_attention,
        )
        x, qkv = passes.project(self, x)
        attended = context.attend_targets(self.number, self_attention.split(qkv), self_attention.score)
        x, q = passes.between(self, attended, x)
        q = q.view(len(q), cross_attention.heads, -1)
        keys_values = None if memory is None else cross_attention.keys_values(memory)
        return passes.finish(
            self, context.attend_source(self.number, q, keys_values, cross_attention.score), x
        )

    def between(self, attended: Tensor, x: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Computes the layer between self-attention and cross-attention.

        Args:
            attended: (N, D), outputs of the heads of self-attention.
            x: (N, D), the input of self-attention.
            mask: a dropout mask that the caller drew.

        Returns:
            (N, D), the input of cross-attention, and (N, D), its queries.
        """
        x = self.add(self.self_attention_norm, x, self.self_attention.out(attended), mask)
        return x, self.cross_attention.q(self.read(self.cross_attention_norm, x))

    @property
    def last_attention(self) -> SelfAttention | CrossAttention:
        """Cross-attention."""
        return self.cross_attention

    @property
    def last_norm(self) -> nn.LayerNorm:
        """The norm of `last_attention`."""
        return self.cross_attention_norm


class SelfAttention(nn.Module):
    """The projections of self-attention; one product computes queries, keys and values."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.qkv = Linear(config.d_model, 3 * config.d_model)
        self.out = Linear(config.d_model, config.d_model)
        self.score = build_score(config)

    def split(self, qkv: Tensor) -> Tensor:
        """(N, 3 D) → (N, 3, H, E)."""
        return qkv.view(len(qkv), 3, self.heads, -1)


class CrossAttention(nn.Module):
    """The projections of cross-attention; one product computes keys and values."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.q = Linear(config.d_model, config.d_model)
        self.kv = Linear(config.d_model, 2 * config.d_model)
        self.out = Linear(config.d_model, config.d_model)
        self.score = build_score(config)

    def keys_values(self, memory: Tensor) -> Tensor:
        """(S, D) → (S, 2, H, E), keys and values."""
        kv: Tensor = self.kv(memory)
        return kv.view(len(memory), 2, self.heads, -1)


class FeedForward(nn.Module):
    """The position-wise feed-forward network W2 f(W1 x + b1) + b2 (section 3.3 of the paper)."""

    def __init__(self, config: ModelConfig, randomness: DropoutSource) -> None:
        super().__init__()
        self.inner = Linear(config.d_model, config.d_ff)
        self.outer = Linear(config.d_ff, config.d_model)
        self.activation = _ACTIVATIONS[config.activation]
        self.dropout = Dropout(config.ffn_dropout, randomness)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """(N, D) → (N, D); `mask` is a dropout mask, (N, d_ff), that the caller drew."""
        y: Tensor = self.outer(self.dropout(self.activation(self.inner(x)), None, mask))
        return y


_ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    Activation.relu: torch.relu_,  # overwrites its input, which nothing else reads
    Activation.gelu: F.gelu,
    Activation.silu: F.silu,
}
