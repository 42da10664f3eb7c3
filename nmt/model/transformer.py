"""The Transformer of Vaswani et al. 2017, "Attention Is All You Need".

Shapes: S source tokens and T target tokens of a batch, N either; B sentences, K hypotheses of one, H heads,
D d_model, E = D / H, V vocabulary. Streams are flat: tokens of all sentences end to end, without padding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nmt.config import Activation, ModelConfig, Norm, Tie
from nmt.data.batching import Batch, Layout
from nmt.errors import UserError
from nmt.model.attention import Pattern, cross_attend, self_attend
from nmt.model.dropout import Dropout, DropoutSource
from nmt.model.flops import training_flops
from nmt.model.incremental import CachedDecoderState
from nmt.model.positions import build_positions, positions_class
from nmt.model.seq2seq import MODELS, Backend, Seq2Seq
from nmt.model.size import num_weights


class Transformer(Seq2Seq):
    """Encoder, decoder, embeddings and softmax weights; see `Seq2Seq` for the methods.

    Args:
        config: the `model` section.
        source_vocab_size: pieces of the source side.
        target_vocab_size: pieces of the target side.

    Raises:
        UserError: `model.tie=all` with two vocabularies.
    """

    def __init__(self, config: ModelConfig, source_vocab_size: int, target_vocab_size: int) -> None:
        super().__init__(config)
        if config.tie is Tie.all and source_vocab_size != target_vocab_size:
            raise UserError(
                f"model.tie=all needs one vocabulary, but the source has {source_vocab_size} pieces and the "
                f"target {target_vocab_size}: set data.tokenizer.joint=true, or model.tie=target"
            )
        self.randomness = DropoutSource()
        d_model = config.d_model
        self.target_embedding = nn.Embedding(target_vocab_size, d_model)
        self.source_embedding = None if config.tie is Tie.all else nn.Embedding(source_vocab_size, d_model)
        self.output = nn.Linear(d_model, target_vocab_size, bias=False) if config.tie is Tie.none else None
        self.positions = build_positions(config.positions, d_model)
        self.word_dropout = Dropout(config.word_dropout, self.randomness, rows=True)
        self.dropout = Dropout(config.dropout, self.randomness)
        self.encoder = nn.ModuleList(
            EncoderLayer(config, self.randomness) for _ in range(config.encoder_layers)
        )
        self.decoder = nn.ModuleList(
            DecoderLayer(config, self.randomness) for _ in range(config.decoder_layers)
        )
        pre = config.norm is Norm.pre
        self.encoder_norm = nn.LayerNorm(d_model) if pre else nn.Identity()
        self.decoder_norm = nn.LayerNorm(d_model) if pre else nn.Identity()
        self._initialise()

    def forward(self, batch: Batch) -> Tensor:
        """Reads the sources and, each position seeing only what stands before it, the targets.

        Returns:
            (T, D) hidden states; `logits` of them tell what comes next.
        """
        memory = self.encode(batch.source_ids, batch.source)
        own = Pattern(batch.target, batch.target, self.config.heads, causal=True)
        cross = Pattern(batch.target, batch.source, self.config.heads, causal=False)
        x = self._embed(self.target_embedding, batch.target_in, batch.target.positions, batch.target.max_len)
        for layer in self.decoder:
            x = layer(x, memory, own, cross)
        hidden: Tensor = self.decoder_norm(x)
        return hidden

    def logits(self, hidden: Tensor) -> Tensor:
        """(N, D) hidden states → (N, V) fp32, scores of the next piece before the softmax."""
        scores = F.linear(hidden, self.output_weight)
        return scores.to(torch.promote_types(scores.dtype, torch.float32))

    def encode(self, source_ids: Tensor, source: Layout) -> Tensor:
        """(S,) ids of the sources that `source` lays out → (S, D), what the decoder reads of them."""
        own = Pattern(source, source, self.config.heads, causal=False)
        x = self._embed(
            self.source_embedding or self.target_embedding, source_ids, source.positions, source.max_len
        )
        for layer in self.encoder:
            x = layer(x, own)
        memory: Tensor = self.encoder_norm(x)
        return memory

    @torch.no_grad()
    def start(self, batch: Batch) -> CachedDecoderState:
        """Encodes the sources and projects the keys and values of cross-attention, once a search."""
        memory = self.encode(batch.source_ids, batch.source)
        keys_values = [layer.cross_attention.keys_values(memory) for layer in self._decoder_layers]
        return CachedDecoderState.start(torch.stack(keys_values), batch.source)

    @torch.no_grad()
    def step(self, ids: Tensor, state: CachedDecoderState) -> tuple[Tensor, CachedDecoderState]:
        """Reads one more piece of every hypothesis.

        Args:
            ids: (B, K) int64, the newest pieces; BOS at first.
            state: what came before; used up by this.

        Returns:
            (B, K, V) fp32 log-probabilities of the next piece, and the state that has read `ids`.
        """
        state = state.grown()
        positions = torch.full((1,), state.length, device=ids.device)
        x = self._embed(self.target_embedding, ids.flatten(), positions, state.length + 1)
        for number, layer in enumerate(self._decoder_layers):
            x = layer.step(x, number, state)
        log_probs = self.logits(self.decoder_norm(x)).log_softmax(-1)
        return log_probs.view(*ids.shape, -1), state.advanced()

    def step_with_attention(
        self, ids: Tensor, state: CachedDecoderState
    ) -> tuple[Tensor, CachedDecoderState, Tensor]:
        """The mean over the heads of the last decoder layer, which is nearest to the choice."""
        log_probs, state = self.step(ids, state.recording())
        assert state.attention is not None
        attention = state.attention[max(state.attention)].mean(1)
        return log_probs, replace(state, attention=None), attention

    def seed_dropout(self, seed: int) -> None:
        """Makes the dropout of what follows a pure function of `seed` and the order of calls."""
        self.randomness.seed(seed, self.output_weight.device)

    @property
    def output_weight(self) -> Tensor:
        """(V, D), the matrix of the softmax."""
        return self.target_embedding.weight if self.output is None else self.output.weight

    def blocks(self) -> list[nn.Module]:
        """The encoder's layers, then the decoder's."""
        return [*self.encoder, *self.decoder]

    def compile_blocks(self, backend: Backend) -> None:
        """Compiles all of a layer but attention; see `nmt.model.compiled`."""
        from nmt.model.compiled import compile_layers  # it compiles the layers of this file

        compile_layers(self, backend)

    def training_flops(self, batch: Batch) -> int:
        """See `nmt.model.flops`."""
        return training_flops(self.config, self.target_embedding.num_embeddings, batch)

    @classmethod
    def check(cls, config: ModelConfig) -> None:
        """The positional encoding must be registered."""
        positions_class(config.positions)

    @classmethod
    def num_weights(cls, config: ModelConfig, source_vocab_size: int, target_vocab_size: int) -> int:
        """See `nmt.model.size`."""
        return num_weights(config, source_vocab_size, target_vocab_size)

    @property
    def _decoder_layers(self) -> Iterable[DecoderLayer]:
        return cast(Iterable[DecoderLayer], self.decoder)

    def _embed(self, embedding: nn.Embedding, ids: Tensor, positions: Tensor, max_len: int) -> Tensor:
        x = self.word_dropout(embedding(ids)) * math.sqrt(self.config.d_model)
        y: Tensor = self.dropout(self.positions(x, positions, max_len))
        return y

    def _initialise(self) -> None:
        """Matrices Xavier-uniform, biases zero; embeddings of variance 1/D, made 1 by their scale.

        The paper does not say. Projections to queries, keys and values begin smaller by the root of 2, as in
        fairseq and `torch.nn.MultiheadAttention`: with post-norm, training is clearly faster off the mark.
        """
        for name, parameter in self.named_parameters():
            if "embedding" in name or name.startswith("output"):
                nn.init.normal_(parameter, std=self.config.d_model**-0.5)
            elif parameter.dim() == 2:
                projection = "attention" in name and not name.endswith("out.weight")
                # Those that stand in one matrix are drawn each by itself, as if they were apart.
                for part in parameter.chunk(len(parameter) // self.config.d_model if projection else 1):
                    nn.init.xavier_uniform_(part, gain=2**-0.5 if projection else 1.0)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)


class _Layer(nn.Module):
    """What encoder and decoder layers share: the residual and the norm around each sub-layer."""

    def __init__(self, config: ModelConfig, randomness: DropoutSource) -> None:
        super().__init__()
        self.pre = config.norm is Norm.pre
        self.dropout = Dropout(config.dropout, randomness)

    def _residual(self, x: Tensor, norm: nn.Module, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        if self.pre:
            y: Tensor = self.dropout(sublayer(norm(x)), x)
        else:
            y = norm(self.dropout(sublayer(x), x))
        return y


class EncoderLayer(_Layer):
    """Self-attention, then a feed-forward layer (section 3.1 of the paper)."""

    def __init__(self, config: ModelConfig, randomness: DropoutSource) -> None:
        super().__init__(config, randomness)
        self.self_attention = SelfAttention(config)
        self.self_attention_norm = nn.LayerNorm(config.d_model)
        self.feed_forward = FeedForward(config, randomness)
        self.feed_forward_norm = nn.LayerNorm(config.d_model)
        self.in_training: Callable[[EncoderLayer, Tensor, Pattern], Tensor] | None = None

    def forward(self, x: Tensor, own: Pattern) -> Tensor:
        """(S, D) → (S, D)."""
        if self.in_training and self.training:
            return self.in_training(self, x, own)
        x = self._residual(x, self.self_attention_norm, lambda y: self.self_attention(y, own))
        return self._residual(x, self.feed_forward_norm, self.feed_forward)


class DecoderLayer(_Layer):
    """Self-attention to what stands before, attention to the source, then a feed-forward layer."""

    def __init__(self, config: ModelConfig, randomness: DropoutSource) -> None:
        super().__init__(config, randomness)
        self.self_attention = SelfAttention(config)
        self.self_attention_norm = nn.LayerNorm(config.d_model)
        self.cross_attention = CrossAttention(config)
        self.cross_attention_norm = nn.LayerNorm(config.d_model)
        self.feed_forward = FeedForward(config, randomness)
        self.feed_forward_norm = nn.LayerNorm(config.d_model)
        self.in_training: Callable[[DecoderLayer, Tensor, Tensor, Pattern, Pattern], Tensor] | None = None

    def forward(self, x: Tensor, memory: Tensor, own: Pattern, cross: Pattern) -> Tensor:
        """(T, D), reading a memory (S, D) → (T, D)."""
        if self.in_training and self.training:
            return self.in_training(self, x, memory, own, cross)
        x = self._residual(x, self.self_attention_norm, lambda y: self.self_attention(y, own))
        x = self._residual(x, self.cross_attention_norm, lambda y: self.cross_attention(y, memory, cross))
        return self._residual(x, self.feed_forward_norm, self.feed_forward)

    def step(self, x: Tensor, layer: int, state: CachedDecoderState) -> Tensor:
        """(B * K, D), the newest tokens of a search → (B * K, D); `layer` is this one's number."""
        x = self._residual(x, self.self_attention_norm, lambda y: self.self_attention.step(y, layer, state))
        x = self._residual(x, self.cross_attention_norm, lambda y: self.cross_attention.step(y, layer, state))
        return self._residual(x, self.feed_forward_norm, self.feed_forward)


class SelfAttention(nn.Module):
    """Attention within a stream; one product makes queries, keys and values."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.qkv = nn.Linear(config.d_model, 3 * config.d_model)
        self.out = nn.Linear(config.d_model, config.d_model)

    def forward(self, x: Tensor, pattern: Pattern) -> Tensor:
        """(N, D) → (N, D)."""
        y: Tensor = self.out(self_attend(self.qkv(x).view(len(x), 3, self.heads, -1), pattern))
        return y

    def step(self, x: Tensor, layer: int, state: CachedDecoderState) -> Tensor:
        """(B * K, D) → (B * K, D), attending to all that the hypotheses hold so far."""
        q, k, v = self.qkv(x).view(len(x), 3, self.heads, -1).unbind(1)
        y: Tensor = self.out(state.attend_targets(layer, q, k, v))
        return y


class CrossAttention(nn.Module):
    """Attention from the decoder's stream to the encoder's; one product makes keys and values."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.q = nn.Linear(config.d_model, config.d_model)
        self.kv = nn.Linear(config.d_model, 2 * config.d_model)
        self.out = nn.Linear(config.d_model, config.d_model)

    def forward(self, x: Tensor, memory: Tensor, pattern: Pattern) -> Tensor:
        """(T, D), reading (S, D) → (T, D)."""
        q = self.q(x).view(len(x), 1, self.heads, -1)
        y: Tensor = self.out(cross_attend(q, self.keys_values(memory), pattern))
        return y

    def keys_values(self, memory: Tensor) -> Tensor:
        """(S, D) → (S, 2, H, E)."""
        kv: Tensor = self.kv(memory)
        return kv.view(len(memory), 2, self.heads, -1)

    def step(self, x: Tensor, layer: int, state: CachedDecoderState) -> Tensor:
        """(B * K, D) → (B * K, D), attending to the sources."""
        q = self.q(x).view(len(x), self.heads, -1)
        y: Tensor = self.out(state.attend_source(layer, q))
        return y


class FeedForward(nn.Module):
    """Two layers, each position by itself (section 3.3)."""

    def __init__(self, config: ModelConfig, randomness: DropoutSource) -> None:
        super().__init__()
        self.inner = nn.Linear(config.d_model, config.d_ff)
        self.outer = nn.Linear(config.d_ff, config.d_model)
        self.activation = _ACTIVATIONS[config.activation]
        self.dropout = Dropout(config.ffn_dropout, randomness)

    def forward(self, x: Tensor) -> Tensor:
        """(N, D) → (N, D)."""
        y: Tensor = self.outer(self.dropout(self.activation(self.inner(x))))
        return y


_ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    Activation.relu: F.relu,
    Activation.gelu: F.gelu,
    Activation.silu: F.silu,
}

MODELS["transformer"] = Transformer
