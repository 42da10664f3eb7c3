"""The Transformer of Vaswani et al. 2017, "Attention Is All You Need".

Shapes: S source tokens and T target tokens of a batch, N either of the two; B sentences, K hypotheses per
sentence, H heads, D d_model, E = D / H, V vocabulary. Streams are flat: the tokens of all sentences are
concatenated without padding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor, nn

from nmt.config import ModelConfig, Norm, Tie
from nmt.data.batches.batching import Batch, Layout
from nmt.errors import UserError
from nmt.model import fused
from nmt.model.attention import score_class
from nmt.model.dropout import Dropout
from nmt.model.flops import training_flops
from nmt.model.kernels import Pattern
from nmt.model.kernels.cached import CachedDecoderState
from nmt.model.kernels.flat import supports_flat
from nmt.model.layers import DecoderLayer, EncoderLayer, FlatContext, KeysValues, Layer
from nmt.model.linear import rounded
from nmt.model.positions import Places, Positions, Shape, build_positions
from nmt.model.positions.sinusoidal import Sinusoidal
from nmt.model.seq2seq import ModelOutput, Seq2Seq
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

    def forward(self, batch: Batch, attention_layers: Sequence[int] = ()) -> Tensor | ModelOutput:
        """Encodes the sources and decodes the targets with teacher forcing and a causal mask.

        Args:
            batch: the sentence pairs.
            attention_layers: the decoder layers whose cross-attention weights are returned too; -1: the last.

        Returns:
            (T, D) hidden states; `logits` turns them into the logits of `batch.target_out`. With
            `attention_layers` an output that has the weights of these layers, too.
        """
        memory = self.encode(batch.source_ids, batch.source)
        self_pattern = self._pattern(batch.target, self.decoder_positions, causal=True)
        cross_pattern = Pattern(batch.target, batch.source, self.config.heads, causal=False)
        keys_values = self._keys_values(memory)
        layers = [range(len(self.decoder))[number] for number in attention_layers]
        weights: dict[int, Tensor | None] = dict.fromkeys(layers)
        context = FlatContext(self_pattern, cross_pattern, keys_values, weights)
        memories = _for_layers(None if keys_values else memory, len(self.decoder))
        x = self._embed_targets(batch.target_in, Places.of_targets(batch))
        for layer, shared in zip(self.decoder, memories, strict=True):
            x = layer(x, context, shared)
        hidden: Tensor = self.decoder_norm(x)
        if not layers:
            return hidden
        return ModelOutput(hidden, tuple(cast(Tensor, weights[layer]) for layer in layers))

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
    def can_be_captured(self) -> bool:
        """See `Seq2Seq.can_be_captured`: the fused layers and kernels of attention promise it."""
        weight, width = self.target_embedding.weight, self.config.d_model // self.config.heads
        return (
            type(self) is Transformer  # another class may override what is promised here
            and all(cast(Layer, layer).passes_for(weight) is fused.PASSES for layer in self.blocks())
            and self._embeds_fused(weight, self.encoder_positions)
            and self._embeds_fused(weight, self.decoder_positions)
            and score_class(self.config).factor(width) is not None
            and supports_flat(weight.new_empty(0, width, dtype=torch.bfloat16))
        )

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
        return (
            cast(Layer, self.encoder[0]).passes_for(weight) is fused.PASSES
            and type(positions) is Sinusoidal
            and self.word_dropout.threshold == 0
        )

    def _embed_fused(self, weight: Tensor, ids: Tensor, positions: Positions, places: Places) -> Tensor:
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
