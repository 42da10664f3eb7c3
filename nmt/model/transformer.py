"""The Transformer of Vaswani et al. 2017, "Attention Is All You Need", section 3.

Read it top-down: the model, its layers, their sub-layers. Equation 1 and the other scores are in
`nmt.model.attention`, positional encodings in `nmt.model.positions`. How attention is computed, and on a GPU
whole layers in training, is the matter of a `Backend`.

Shapes:
    S, T    source and target tokens of a batch; N is either of the two
    B, K    sentences of a batch, hypotheses per sentence in a search
    L       layers of the encoder or of the decoder
    D, F    d_model, d_ff
    H, E    heads, and the width of their queries and keys, D / H by default
    Ev      the width of their values, D / H by default
    V       pieces of the target vocabulary

Streams are flat: the tokens of all sentences are concatenated without padding. Only attention knows where a
sentence begins and ends.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from nmt.config import ModelConfig, Norm, Tie
from nmt.data.batches.batching import Batch, Layout
from nmt.errors import UserError
from nmt.model import additions
from nmt.model.additions import Skips, build_norm, embedded
from nmt.model.attention import Attention, ObservedAttention, Pattern, build_score, score_class, split
from nmt.model.backend import converted_once
from nmt.model.cpu.cached import CachedDecoderState
from nmt.model.dropout import Dropout, DropoutSource, cut_out
from nmt.model.initial import initialise
from nmt.model.positions import Places, Positions, Shape, build_positions
from nmt.model.seq2seq import Linear, ModelOutput, Seq2Seq
from nmt.model.size import num_weights, training_flops
from nmt.model.weighed import AttentionWeights, weighed


class Transformer(Seq2Seq):
    """Encoder, decoder, embeddings and output projection; see `Seq2Seq` for the methods."""

    cuts_tokens = True

    def __init__(self, config: ModelConfig, source_vocab_size: int, target_vocab_size: int) -> None:
        super().__init__(config)
        d_model = config.d_model
        # Section 3.4: one matrix for both embeddings and the softmax, by default.
        self.target_embedding = nn.Embedding(target_vocab_size, d_model)
        self.source_embedding = None if config.tie is Tie.all else nn.Embedding(source_vocab_size, d_model)
        self.output = nn.Linear(d_model, target_vocab_size, bias=False) if config.tie is Tie.none else None
        self.logit_bias = nn.Parameter(torch.zeros(target_vocab_size)) if config.output_bias else None
        self.encoder_positions = build_positions(config.positions, _shape(config, causal=False))
        self.decoder_positions = build_positions(config.positions, _shape(config, causal=True))
        self.source_bigrams, self.target_bigrams = (additions.bigram_table(config) for _ in range(2))
        self.word_dropout = Dropout(config.word_dropout, self.randomness, rows=True, fixed=True)
        self.dropout = Dropout(config.dropout, self.randomness)
        self.encoder = nn.ModuleList(
            EncoderLayer(config, self.randomness, number) for number in range(config.encoder_layers)
        )
        self.decoder = nn.ModuleList(
            DecoderLayer(config, self.randomness, number) for number in range(config.decoder_layers)
        )
        pre = config.norm is Norm.pre
        self.encoder_norm = build_norm(config) if pre else nn.Identity()
        self.decoder_norm = build_norm(config) if pre else nn.Identity()
        initialise(self, config)

    def forward(self, batch: Batch, attention_layers: Sequence[int] = ()) -> Tensor | ModelOutput:
        """Encodes the sources and decodes the targets with teacher forcing and a causal mask.

        Args:
            batch: the sentence pairs.
            attention_layers: the decoder layers whose cross-attention weights are returned too; -1: the last.

        Returns:
            (T, D) hidden states; `logits` turns them into the logits of `batch.target_out`. With
            `attention_layers` an output that has the weights of these layers, too.
        """
        sources, observed = [self.attention_to_sources(batch)] * len(self.decoder), []
        for layer in attention_layers:
            observed.append(ObservedAttention(sources[layer], batch.target, batch.source))
            sources[layer] = observed[-1]
        kernels = self.backend.layers if self.training else None
        hidden = self._hidden(batch, sources) if kernels is None else kernels.hidden(self, batch, sources)
        return ModelOutput(hidden, tuple(each.weights for each in observed)) if observed else hidden

    def _hidden(self, batch: Batch, sources: Sequence[Attention]) -> Tensor:
        """Returns the hidden states, (T, D); `sources` is the cross-attention of each layer."""
        memory = self.encode(batch.source_ids, batch.source)
        memories = converted_once(memory, len(self.decoder))
        targets = self.attention_of_targets(batch)
        x = self.embed_targets(batch.target_in, Places.of_targets(batch))
        skips = Skips(x)
        for layer, source, shared in zip(self.decoder, sources, memories, strict=True):
            x = layer(x, targets, source, shared, skips)
        hidden: Tensor = self.decoder_norm(x)
        return hidden

    def encode(self, source_ids: Tensor, source: Layout) -> Tensor:
        """Encodes the sources, (S,) int64.

        Returns:
            (S, D), the memory that cross-attention reads.
        """
        attention = self.attention_of_sources(source)
        x = self.embed_sources(source_ids, Places.of_sources(source))
        skips = Skips(x)
        for layer in self.encoder:
            x = layer(x, attention, skips)
        memory: Tensor = self.encoder_norm(x)
        return memory

    @torch.no_grad()
    def start(self, batch: Batch) -> CachedDecoderState:
        """Encodes the sources and projects the keys and values of cross-attention, once per search."""
        memory = self.encode(batch.source_ids, batch.source)
        keys_values = [layer.cross_attention.keys_values(memory) for layer in self.decoder_layers]
        return CachedDecoderState.start(
            keys_values, batch.source, self.decoder_positions, self.config.attention_window
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
        x = self.embed_targets(ids.flatten(), state.places)
        skips = Skips(x)
        for layer in self.decoder:
            x = layer(x, state, state, skips=skips)
        log_probs = self.log_probs(self.decoder_norm(x))
        return log_probs.view(*ids.shape, -1), state.advanced(ids)

    def step_with_heads(
        self, ids: Tensor, state: CachedDecoderState
    ) -> tuple[Tensor, CachedDecoderState, Tensor]:
        """See `Seq2Seq.step_with_heads`."""
        log_probs, state = self.step(ids, state.recording())
        assert state.attention is not None
        weights = torch.stack([state.attention[layer] for layer in range(len(self.decoder))], 1)
        return log_probs, replace(state, attention=None), weights.permute(0, 3, 1, 2, 4)

    def embed_sources(self, ids: Tensor, places: Places) -> Tensor:
        """(S,) source ids and their positions → (S, D), the input of the encoder."""
        table = self.source_embedding or self.target_embedding
        return self._embed(embedded(table, self.source_bigrams, ids, places), self.encoder_positions, places)

    def embed_targets(self, ids: Tensor, places: Places) -> Tensor:
        """(N,) target ids and their positions → (N, D), the input of the decoder."""
        x = embedded(self.target_embedding, self.target_bigrams, ids, places)
        return self._embed(x, self.decoder_positions, places)

    def _embed(self, x: Tensor, positions: Positions, places: Places) -> Tensor:
        """Embeddings times sqrt(D), plus positions, with dropout (sections 3.4, 3.5 and 5.4)."""
        x = cut_out(self.word_dropout(x), places.cut) * math.sqrt(self.config.d_model)
        y: Tensor = self.dropout(positions.embed(x, places))
        return y.to(self.residual_dtype) if self.training and self.residual_dtype else y

    def attention_of_sources(self, source: Layout) -> Attention:
        """Returns the self-attention of the encoder for the sources of a batch."""
        return self._attention(source, source, self.encoder_positions, self.config.attention_window)

    def attention_of_targets(self, batch: Batch) -> Attention:
        """Returns the causal self-attention of the decoder for the targets of a batch."""
        window = self.config.attention_window
        return self._attention(batch.target, batch.target, self.decoder_positions, window, causal=True)

    def attention_to_sources(self, batch: Batch) -> Attention:
        """Returns the attention from the targets of a batch to its sources."""
        return self._attention(batch.target, batch.source)

    def _attention(
        self,
        queries: Layout,
        keys: Layout,
        positions: Positions | None = None,
        window: int | None = None,
        *,
        causal: bool = False,
    ) -> Attention:
        heads, device = self.config.heads, self.backend.device.type
        width, value_width = self.config.head_widths
        scale = score_class(self.config).factor(width)
        autocast = torch.is_autocast_enabled(device)
        dtype = torch.get_autocast_dtype(device) if autocast else self.target_embedding.weight.dtype
        pattern = Pattern(queries, keys, heads, width, scale, causal, positions, window, value_width)
        return self.backend.attention(pattern, dtype)

    def attention_weights(self, batch: Batch) -> AttentionWeights:
        """See `Seq2Seq.attention_weights`."""
        cross, encoder, decoder = (attention.weights for attention in weighed(self, batch))
        return AttentionWeights(cross, encoder, decoder)

    @property
    def attention_shape(self) -> tuple[int, int]:
        """See `Seq2Seq.attention_shape`."""
        return len(self.decoder), self.config.heads

    @property
    def output_weight(self) -> Tensor:
        """(V, D), the weights of the output projection."""
        return self.target_embedding.weight if self.output is None else self.output.weight

    @property
    def output_bias(self) -> Tensor | None:
        """(V,), the bias of the output projection with `model.output_bias`."""
        return self.logit_bias

    @property
    def can_be_captured(self) -> bool:
        """See `Seq2Seq.can_be_captured`; the kernels of a backend promise it."""
        return self.backend.captures(self)

    @property
    def max_source_len(self) -> int | None:
        """See `Positions.max_len`."""
        return self.encoder_positions.max_len

    @property
    def max_target_len(self) -> int | None:
        """See `Positions.max_len`."""
        return self.decoder_positions.max_len

    @property
    def encoder_layers(self) -> list[EncoderLayer]:
        """The layers of the encoder."""
        return [layer for layer in self.encoder if isinstance(layer, EncoderLayer)]

    @property
    def decoder_layers(self) -> list[DecoderLayer]:
        """The layers of the decoder."""
        return [layer for layer in self.decoder if isinstance(layer, DecoderLayer)]

    def blocks(self) -> list[nn.Module]:
        """Returns the layers of the encoder, then those of the decoder."""
        return [*self.encoder, *self.decoder]

    def training_flops(self, batch: Batch) -> int:
        """See `nmt.model.size`."""
        return training_flops(self.config, self.target_embedding.num_embeddings, batch)

    @classmethod
    def check(cls, config: ModelConfig) -> None:
        """Checks that encodings and score are registered, accept their options, and fit together.

        Raises:
            UserError: they are not or do not.
        """
        for causal in (False, True):
            positions = build_positions(config.positions, _shape(config, causal=causal))
            if positions.needs_products and score_class(config).factor(config.head_widths[0]) is None:
                name = (causal and config.positions.decoder) or config.positions.name
                raise UserError(
                    f"model.attention={config.attention}: the positional encoding {name} needs dot-product "
                    "scores. Choose model.attention=scaled_dot, or another encoding."
                )

    @classmethod
    def num_weights(cls, config: ModelConfig, source_vocab_size: int, target_vocab_size: int) -> int:
        """See `nmt.model.size`."""
        return num_weights(config, source_vocab_size, target_vocab_size)


def _shape(config: ModelConfig, *, causal: bool) -> Shape:
    """The `Shape` for the positional encoding of the encoder or, if `causal`, of the decoder."""
    scale = score_class(config).factor(config.head_widths[0])
    layers = config.decoder_layers if causal else config.encoder_layers
    return Shape(config.d_model, config.heads, layers, causal, scale or 1.0, *config.head_widths)


class Layer(nn.Module):
    """The base class of encoder and decoder layers: sub-layers, each with a residual connection and a norm.

    `number` is the index of the layer, from 0.
    """

    def __init__(self, config: ModelConfig, randomness: DropoutSource, number: int) -> None:
        super().__init__()
        self.pre, self.residual = config.norm is Norm.pre, config.residual
        self.dropout = Dropout(config.dropout, randomness)
        self.skip = additions.EmbeddingSkip() if config.embedding_skip and number else None
        self.self_attention = SelfAttention(config, number)
        self.self_attention_norm = build_norm(config)

    def sublayer(self, x: Tensor, norm: nn.Module, function: Callable[[Tensor], Tensor]) -> Tensor:
        """Computes a sub-layer (sections 3.1 and 5.4).

        It is LayerNorm(x + dropout(f(x))) with post-norm, as in the paper, and x + dropout(f(LayerNorm(x)))
        with pre-norm. Without residual connections (`model.residual=false`), x is not added.

        Args:
            x: (N, D), the input.
            norm: its norm.
            function: f, (N, D) → (N, D).

        Returns:
            (N, D).
        """
        y = function(norm(x) if self.pre else x)
        added: Tensor = self.dropout(y, x if self.residual else None)
        # Under autocast a norm returns fp32, whatever the format of its input.
        return added if self.pre else norm(added).to(x.dtype)


class EncoderLayer(Layer):
    """Self-attention, then a feed-forward network (section 3.1)."""

    def __init__(self, config: ModelConfig, randomness: DropoutSource, number: int) -> None:
        super().__init__(config, randomness, number)
        self.feed_forward = FeedForward(config, randomness)
        self.feed_forward_norm = build_norm(config)

    def forward(self, x: Tensor, attention: Attention, skips: Skips | None = None) -> Tensor:
        """(S, D) → (S, D)."""
        x = x if self.skip is None else self.skip(x, skips)
        x = self.sublayer(x, self.self_attention_norm, lambda y: self.self_attention(y, attention, skips))
        return self.sublayer(x, self.feed_forward_norm, self.feed_forward)


class DecoderLayer(Layer):
    """Causal self-attention, cross-attention to the source, then a feed-forward network (section 3.1)."""

    def __init__(self, config: ModelConfig, randomness: DropoutSource, number: int) -> None:
        super().__init__(config, randomness, number)
        self.cross_attention = CrossAttention(config, number)
        self.cross_attention_norm = build_norm(config)
        self.feed_forward = FeedForward(config, randomness)
        self.feed_forward_norm = build_norm(config)

    def forward(
        self,
        x: Tensor,
        targets: Attention,
        source: Attention,
        memory: Tensor | None = None,
        skips: Skips | None = None,
    ) -> Tensor:
        """Computes the layer for a batch in training, or for the newest tokens in a search.

        Args:
            x: (N, D).
            targets: self-attention.
            source: cross-attention.
            memory: (S, D), the output of the encoder; None: `source` has its keys and values already.
            skips: what options of later papers read; None: the model has none of them.

        Returns:
            (N, D).
        """
        x = x if self.skip is None else self.skip(x, skips)
        x = self.sublayer(x, self.self_attention_norm, lambda y: self.self_attention(y, targets, skips))
        x = self.sublayer(x, self.cross_attention_norm, lambda y: self.cross_attention(y, source, memory))
        return self.sublayer(x, self.feed_forward_norm, self.feed_forward)


class SelfAttention(nn.Module):
    """Multi-head self-attention (section 3.2.2); one product computes queries, keys and values."""

    def __init__(self, config: ModelConfig, number: int) -> None:
        super().__init__()
        self.heads, self.number = config.heads, number
        self.widths = (config.head_widths[0], *config.head_widths)
        self.qkv = Linear(config.d_model, [self.heads * width for width in self.widths])
        self.out = Linear(self.heads * self.widths[-1], config.d_model)
        self.score = build_score(config)
        self.norm = additions.query_key_norm(config)
        self.skip = additions.ValueSkip(number) if config.value_skip else None

    def forward(self, x: Tensor, attention: Attention, skips: Skips | None = None) -> Tensor:
        """(N, D) → (N, D)."""
        y: Tensor = self.out(attention.self_attend(self.projected(x, skips), self.score, self.number))
        return y

    def projected(self, x: Tensor, skips: Skips | None = None) -> Tensor | tuple[Tensor, ...]:
        """(N, D) → queries, keys and values; see `Projected`."""
        qkv = split(self.qkv(x), self.heads, self.widths)
        qkv = qkv if self.norm is None else self.norm(qkv)
        return qkv if self.skip is None else self.skip(qkv, skips)


class CrossAttention(nn.Module):
    """Multi-head attention to the source (section 3.2.2); one product computes keys and values."""

    def __init__(self, config: ModelConfig, number: int) -> None:
        super().__init__()
        self.heads, self.number = config.heads, number
        self.widths = config.head_widths
        self.q = Linear(config.d_model, self.heads * self.widths[0])
        self.kv = Linear(config.d_model, [self.heads * width for width in self.widths])
        self.out = Linear(self.heads * self.widths[-1], config.d_model)
        self.score = build_score(config)
        self.norm = additions.query_key_norm(config)

    def forward(self, x: Tensor, attention: Attention, memory: Tensor | None) -> Tensor:
        """(N, D) → (N, D); for `memory` see `DecoderLayer.forward`."""
        q = self.q(x).view(len(x), self.heads, -1)
        q = q if self.norm is None else self.norm.of_queries(q)
        keys_values = None if memory is None else self.keys_values(memory)
        y: Tensor = self.out(attention.cross_attend(q, keys_values, self.score, self.number))
        return y

    def keys_values(self, memory: Tensor) -> Tensor | tuple[Tensor, ...]:
        """(S, D) → keys and values; see `Projected`."""
        kv = split(self.kv(memory), self.heads, self.widths)
        return kv if self.norm is None else self.norm(kv)


class FeedForward(nn.Module):
    """The position-wise feed-forward network W2 f(W1 x + b1) + b2 (section 3.3); `model.gated` changes f."""

    def __init__(self, config: ModelConfig, randomness: DropoutSource) -> None:
        super().__init__()
        self.inner = Linear(config.d_model, [config.d_ff] * (2 if config.gated else 1))
        self.outer = Linear(config.d_ff, config.d_model)
        self.activation = additions.feed_forward_function(config)
        self.dropout = Dropout(config.ffn_dropout, randomness, fixed=True)

    def forward(self, x: Tensor) -> Tensor:
        """(N, D) → (N, D)."""
        y: Tensor = self.outer(self.dropout(self.activation(self.inner(x))))
        return y
