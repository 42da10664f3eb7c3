"""The Transformer of Vaswani et al. 2017, "Attention Is All You Need".

Shapes: S source tokens and T target tokens of a batch, N either of the two; B sentences, K hypotheses per
sentence, H heads, D d_model, E = D / H, V vocabulary. Streams are flat: the tokens of all sentences are
concatenated without padding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeAlias, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nmt.config import Activation, ModelConfig, Norm, Tie
from nmt.data.batches.batching import Batch, Layout
from nmt.errors import UserError
from nmt.model.attention import Score, build_score, score_class
from nmt.model.dropout import Dropout, DropoutSource
from nmt.model.flops import training_flops
from nmt.model.kernels import Pattern, cross_attend, self_attend
from nmt.model.kernels.cached import CachedDecoderState
from nmt.model.linear import Linear, rounded
from nmt.model.positions import Places, Positions, Shape, build_positions
from nmt.model.positions.sinusoidal import Sinusoidal
from nmt.model.seq2seq import Backend, Seq2Seq
from nmt.model.size import num_weights


class Transformer(Seq2Seq):
    """Encoder, decoder, embeddings and output projection; see `Seq2Seq` for the methods.

    Args:
        config: the `model` section.
        source_vocab_size: number of source pieces.
        target_vocab_size: number of target pieces.

    Raises:
        UserError: `model.tie=all` with two vocabularies.
    """

    def __init__(self, config: ModelConfig, source_vocab_size: int, target_vocab_size: int) -> None:
        super().__init__(config)
        if config.tie is Tie.all and source_vocab_size != target_vocab_size:
            raise UserError(
                f"model.tie=all: needs one vocabulary, but the source has {source_vocab_size} pieces and the "
                f"target {target_vocab_size}. Set data.tokenizer.joint=true, or model.tie=target."
            )
        d_model = config.d_model
        self.target_embedding = nn.Embedding(target_vocab_size, d_model)
        self.source_embedding = None if config.tie is Tie.all else nn.Embedding(source_vocab_size, d_model)
        self.output = nn.Linear(d_model, target_vocab_size, bias=False) if config.tie is Tie.none else None
        self.logit_bias = nn.Parameter(torch.zeros(target_vocab_size)) if config.output_bias else None
        self.encoder_positions = build_positions(config.positions, _shape(config, causal=False))
        self.decoder_positions = build_positions(config.positions, _shape(config, causal=True))
        self.word_dropout = Dropout(config.word_dropout, self.randomness, rows=True)
        self.dropout = Dropout(config.dropout, self.randomness)
        self.encoder = nn.ModuleList(
            EncoderLayer(config, self.randomness, number) for number in range(config.encoder_layers)
        )
        self.decoder = nn.ModuleList(
            DecoderLayer(config, self.randomness, number) for number in range(config.decoder_layers)
        )
        pre = config.norm is Norm.pre
        self.encoder_norm = nn.LayerNorm(d_model) if pre else nn.Identity()
        self.decoder_norm = nn.LayerNorm(d_model) if pre else nn.Identity()
        self._initialise()

    def forward(self, batch: Batch) -> Tensor:
        """Encodes the sources and decodes the targets with teacher forcing and a causal mask.

        Returns:
            (T, D) hidden states; `logits` turns them into the logits of `batch.target_out`.
        """
        memory = self.encode(batch.source_ids, batch.source)
        self_pattern = self._pattern(batch.target, self.decoder_positions, causal=True)
        cross_pattern = Pattern(batch.target, batch.source, self.config.heads, causal=False)
        keys_values = self._keys_values(memory)
        context = FlatContext(self_pattern, cross_pattern, keys_values)
        memories = _for_layers(None if keys_values else memory, len(self.decoder))
        x = self._embed_targets(batch.target_in, Places.of_targets(batch))
        for layer, shared in zip(self.decoder, memories, strict=True):
            x = layer(x, context, shared)
        hidden: Tensor = self.decoder_norm(x)
        return hidden

    def encode(self, source_ids: Tensor, source: Layout) -> Tensor:
        """Encodes the sources.

        Args:
            source_ids: (S,) int64.
            source: the layout of `source_ids`.

        Returns:
            (S, D), the memory that cross-attention reads.
        """
        self_pattern = self._pattern(source, self.encoder_positions, causal=False)
        embedding = self.source_embedding or self.target_embedding
        x = self._embed(embedding, source_ids, self.encoder_positions, Places.of_sources(source))
        for layer in self.encoder:
            x = layer(x, self_pattern)
        memory: Tensor = self.encoder_norm(x)
        return memory

    @torch.no_grad()
    def start(self, batch: Batch) -> CachedDecoderState:
        """Encodes the sources and projects the keys and values of cross-attention, once per search."""
        memory = self.encode(batch.source_ids, batch.source)
        keys_values = [layer.cross_attention.keys_values(memory) for layer in self._decoder_layers]
        return CachedDecoderState.start(
            torch.stack(keys_values), batch.source, self.decoder_positions, self.config.attention_window
        )

    @torch.no_grad()
    def step(self, ids: Tensor, state: CachedDecoderState) -> tuple[Tensor, CachedDecoderState]:
        """Reads the newest id of every hypothesis.

        Args:
            ids: (B, K) int64; BOS in the first step.
            state: the state before `ids`; this call overwrites it.

        Returns:
            (B, K, V) fp32, the log-probabilities of the next id, and the state after `ids`.
        """
        state = state.grown()
        x = self._embed_targets(ids.flatten(), state.places)
        for layer in self.decoder:
            x = layer(x, state)
        log_probs = self.log_probs(self.decoder_norm(x))
        return log_probs.view(*ids.shape, -1), state.advanced()

    @property
    def attention_shape(self) -> tuple[int, int]:
        """See `Seq2Seq.attention_shape`."""
        return len(self.decoder), self.config.heads

    def step_with_heads(
        self, ids: Tensor, state: CachedDecoderState
    ) -> tuple[Tensor, CachedDecoderState, Tensor]:
        """See `Seq2Seq.step_with_heads`."""
        log_probs, state = self.step(ids, state.recording())
        assert state.attention is not None
        weights = torch.stack([state.attention[layer] for layer in range(len(self.decoder))], 1)
        return log_probs, replace(state, attention=None), weights.permute(0, 3, 1, 2, 4)

    @property
    def output_weight(self) -> Tensor:
        """(V, D), the weights of the output projection."""
        return self.target_embedding.weight if self.output is None else self.output.weight

    @property
    def output_bias(self) -> Tensor | None:
        """(V,), the bias of the output projection with `model.output_bias`."""
        return self.logit_bias

    @property
    def max_source_len(self) -> int | None:
        """See `Positions.max_len`."""
        return self.encoder_positions.max_len

    @property
    def max_target_len(self) -> int | None:
        """See `Positions.max_len`."""
        return self.decoder_positions.max_len

    def blocks(self) -> list[nn.Module]:
        """Returns the layers of the encoder, then those of the decoder."""
        return [*self.encoder, *self.decoder]

    def compile_blocks(self, backend: Backend) -> None:
        """Compiles the layers except attention; see `nmt.model.compiled`."""
        from nmt.model.compiled import compile_layers  # a local import, since that module imports this one

        compile_layers(self, backend)

    def training_flops(self, batch: Batch) -> int:
        """See `nmt.model.flops`."""
        return training_flops(self.config, self.target_embedding.num_embeddings, batch)

    @classmethod
    def check(cls, config: ModelConfig) -> None:
        """Checks that encodings and score are registered, accept their options, and fit together.

        Raises:
            UserError: they are not or do not.
        """
        for causal in (False, True):
            positions = build_positions(config.positions, _shape(config, causal=causal))
            if (
                positions.needs_products
                and score_class(config).factor(config.d_model // config.heads) is None
            ):
                name = (causal and config.positions.decoder) or config.positions.name
                raise UserError(
                    f"model.attention={config.attention}: the positional encoding {name} needs dot-product "
                    "scores. Choose model.attention=scaled_dot, or another encoding."
                )

    @classmethod
    def num_weights(cls, config: ModelConfig, source_vocab_size: int, target_vocab_size: int) -> int:
        """See `nmt.model.size`."""
        return num_weights(config, source_vocab_size, target_vocab_size)

    @property
    def _decoder_layers(self) -> Iterable[DecoderLayer]:
        return cast(Iterable[DecoderLayer], self.decoder)

    def _embed_targets(self, ids: Tensor, places: Places) -> Tensor:
        return self._embed(self.target_embedding, ids, self.decoder_positions, places)

    def _embed(self, embedding: nn.Embedding, ids: Tensor, positions: Positions, places: Places) -> Tensor:
        if self._embeds_fused(embedding.weight, positions):
            return self._embed_fused(embedding.weight, ids, positions, places)
        x = self.word_dropout(embedding(ids)) * math.sqrt(self.config.d_model)
        y: Tensor = self.dropout(positions.embed(x, places))
        return y.to(self.residual_dtype) if self.training and self.residual_dtype else y

    def _embeds_fused(self, weight: Tensor, positions: Positions) -> bool:
        """Whether `nmt.model.fused` computes the embeddings: where it computes the layers of the encoder."""
        from nmt.model import fused  # a local import, since that module imports this one

        return (
            cast(Layer, self.encoder[0]).passes_for(weight) is fused.PASSES
            and type(positions) is Sinusoidal
            and self.word_dropout.threshold == 0
        )

    def _embed_fused(self, weight: Tensor, ids: Tensor, positions: Positions, places: Places) -> Tensor:
        from nmt.model import fused

        copies = cast(Layer, self.encoder[0]).self_attention.qkv.copies
        assert copies is not None and isinstance(positions, Sinusoidal)
        return fused.embed(
            weight,
            ids,
            positions.rows(places),
            places.positions,
            math.sqrt(self.config.d_model),
            self.dropout,
            self.residual_dtype or weight.dtype,
            copies[0].dtype,
        )

    def _keys_values(self, memory: Tensor) -> list[KeysValues] | None:
        """Returns the keys and values of all decoder layers; None if each layer computes its own."""
        from nmt.model import fused

        if any(layer.passes_for(memory) is not fused.PASSES for layer in self._decoder_layers):
            return None
        return fused.keys_values(memory, [layer.cross_attention for layer in self._decoder_layers])

    def _pattern(self, layout: Layout, positions: Positions, *, causal: bool) -> Pattern:
        config = self.config
        return Pattern(
            layout, layout, config.heads, causal=causal, positions=positions, window=config.attention_window
        )

    def _initialise(self) -> None:
        """Initialises matrices Xavier-uniform, biases with 0, embeddings with variance 1/D.

        The paper does not specify an initialisation. The factor sqrt(D) on the embeddings gives them variance
        1. The projections to queries, keys and values have the gain 1/sqrt(2), as in fairseq and
        `torch.nn.MultiheadAttention`: with post-norm, the loss then falls clearly faster at the start.
        """
        for name, parameter in self.named_parameters():
            if name.startswith(("encoder_positions.", "decoder_positions.")) or ".score." in name:
                continue  # their constructors initialise these
            if "embedding" in name or name.startswith("output"):
                nn.init.normal_(parameter, std=self.config.d_model**-0.5)
            elif parameter.dim() == 2:
                projection = "attention" in name and not name.endswith("out.weight")
                # A fused matrix is initialised part by part, as if its parts were separate matrices.
                for part in parameter.chunk(len(parameter) // self.config.d_model if projection else 1):
                    nn.init.xavier_uniform_(part, gain=2**-0.5 if projection else 1.0)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)


def _shape(config: ModelConfig, *, causal: bool) -> Shape:
    """The `Shape` for the positional encoding of the encoder or, if `causal`, of the decoder."""
    scale = score_class(config).factor(config.d_model // config.heads)
    layers = config.decoder_layers if causal else config.encoder_layers
    return Shape(config.d_model, config.heads, layers, causal, 1.0 if scale is None else scale)


def _for_layers(memory: Tensor | None, count: int) -> tuple[Tensor | None, ...]:
    """Returns the memory for each of `count` decoder layers; under autocast, converted once for all."""
    if memory is None:
        return (None,) * count
    device = memory.device.type
    if not torch.is_autocast_enabled(device):
        return (memory,) * count
    return _convert_once(memory, count, torch.get_autocast_dtype(device))


class _ConvertedOnce(torch.autograd.Function):
    """Converts a tensor once for several users; sums their gradients in the number format of the tensor."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, count: int, dtype: torch.dtype) -> tuple[Tensor, ...]:
        ctx.dtype = x.dtype
        converted = rounded(x, dtype)
        return tuple(converted.view_as(converted) for _ in range(count))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        # From the last user to the first: in the order in which autograd would sum them.
        total = grads[-1].to(ctx.dtype)
        for grad in reversed(grads[:-1]):
            total = total + grad
        return total, None, None


_convert_once: Callable[..., tuple[Tensor, ...]] = _ConvertedOnce.apply


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
    """

    self_pattern: Pattern
    cross_pattern: Pattern
    keys_values: Sequence[KeysValues] | None = None

    def attend_targets(self, layer: int, qkv: Tensor, score: Score) -> Tensor:
        """See `DecoderContext.attend_targets`."""
        return self_attend(qkv, self.self_pattern, score, layer)

    def attend_source(self, layer: int, q: Tensor, keys_values: Tensor | None, score: Score) -> Tensor:
        """See `DecoderContext.attend_source`."""
        found: KeysValues | None = keys_values
        if self.keys_values is not None:
            found = self.keys_values[layer]
        assert found is not None
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


def fused_passes(layer: Layer) -> Passes | None:
    """Returns `nmt.model.fused` if it supports the layer; None if it does not."""
    from nmt.model import fused  # a local import, since that module imports this one

    return fused.PASSES if fused.supports(layer) else None


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
            return fused_passes(self) or _PLAIN
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
    Activation.relu: F.relu,
    Activation.gelu: F.gelu,
    Activation.silu: F.silu,
}
