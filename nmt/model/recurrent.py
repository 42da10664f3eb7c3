"""Recurrent encoder-decoder models with attention, the predecessors of the Transformer.

`bahdanau` is the attention of Bahdanau et al. 2015. `luong` is the dot product of Luong et al. 2015 with a
projection of the source (their `general` score), and their input feeding.

Shapes: S source tokens and T target tokens of a batch, B sentences, K hypotheses per sentence, L tokens of
the longest source, D d_model, V target vocabulary; R rows of a step, which are the sentences that have not
ended, or the hypotheses. Streams are flat.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from nmt.config import Activation, ModelConfig, Norm, NormKind, Tie
from nmt.data.batches.batching import Batch, Layout
from nmt.errors import UserError
from nmt.model.attention import normalised
from nmt.model.dropout import Dropout, cut_out
from nmt.model.packed import Packing
from nmt.model.seq2seq import Linear, Seq2Seq


class Cell(Enum):
    """The recurrent unit."""

    gru = "gru"
    """Cho et al. 2014."""
    lstm = "lstm"
    """Hochreiter and Schmidhuber 1997, with forget gates."""


class DecoderAttention(Enum):
    """The attention of the decoder to the source."""

    bahdanau = "bahdanau"
    """Additive score with the previous state; the context is an input of the unit."""
    luong = "luong"
    """Dot product with the new state; the attentional output is an input of the next step."""


class RecurrentModel(Seq2Seq):
    """A bidirectional encoder and a unidirectional decoder with attention.

    It uses these options of the `model` section: the numbers of layers, `d_model`, `tie`, `dropout` and
    `word_dropout`.

    Raises:
        UserError: an odd `model.d_model`.
    """

    @dataclass(frozen=True)
    class Options:
        """The options, with types and defaults."""

        cell: Cell = Cell.gru
        attention: DecoderAttention = DecoderAttention.bahdanau

    cuts_tokens = True

    # Those of configs/model/rnn.yaml.
    unused: ClassVar[Mapping[str, Any]] = {
        "positions.name": "none",
        "d_ff": 256,
        "heads": 1,
        "key_width": None,
        "value_width": None,
        "attention": "scaled_dot",
        "attention_window": None,
        "norm": Norm.post,
        "norm_kind": NormKind.layer,
        "residual": True,
        "activation": Activation.relu,
        "gated": False,
        "bigram_rows": 0,
        "value_skip": False,
        "embedding_skip": False,
        "zero_init": False,
        "query_key_norm": False,
        "ffn_dropout": 0.0,
    }

    def __init__(self, config: ModelConfig, source_vocab_size: int, target_vocab_size: int) -> None:
        super().__init__(config)
        self.check(config)
        d_model, cell = config.d_model, self.options.cell
        self.target_embedding = nn.Embedding(target_vocab_size, d_model)
        self.source_embedding = None if config.tie is Tie.all else nn.Embedding(source_vocab_size, d_model)
        self.output = nn.Linear(d_model, target_vocab_size, bias=False) if config.tie is Tie.none else None
        self.logit_bias = nn.Parameter(torch.zeros(target_vocab_size)) if config.output_bias else None
        self.word_dropout = Dropout(config.word_dropout, self.randomness, rows=True, fixed=True)
        self.dropout = Dropout(config.dropout, self.randomness)
        self.encoder = nn.ModuleList(
            BidirectionalLayer(cell, d_model, self.dropout if number else None)
            for number in range(config.encoder_layers)
        )
        kind = BahdanauDecoder if self.options.attention is DecoderAttention.bahdanau else LuongDecoder
        self.decoder = kind(cell, d_model, config.decoder_layers, self.dropout)
        for name, parameter in self.named_parameters():
            if "embedding" in name or name.startswith("output"):
                nn.init.normal_(parameter, std=d_model**-0.5)

    @classmethod
    def check(cls, config: ModelConfig) -> None:
        """Checks that d_model is even: each direction of the encoder has d_model / 2 dimensions.

        Raises:
            UserError: it is odd.
        """
        if config.d_model % 2:
            raise UserError(f"model.d_model={config.d_model}: must be even for a bidirectional encoder.")

    def forward(self, batch: Batch) -> Tensor:
        """Encodes the sources and decodes the targets with teacher forcing; returns (T, D) hidden states."""
        source, target = Packing.of(batch.source), Packing.of(batch.target)
        memory = self._encode(batch, source)
        embedded = target.packed(self._embed(self.target_embedding, batch.target_in, batch.target.cut))
        order = torch.from_numpy(target.order).to(memory.device)
        hidden = self.decoder(embedded, Memory.of(memory, batch.source).sentences(order), target.batch_sizes)
        return target.flat(self.dropout(hidden))

    def _encode(self, batch: Batch, packing: Packing) -> Tensor:
        """Encodes the sources of a batch; returns (S, D)."""
        embedding = self.source_embedding or self.target_embedding
        x = packing.packed(self._embed(embedding, batch.source_ids, batch.source.cut))
        for layer in self.encoder:
            x = layer(x, packing.batch_sizes)
        return packing.flat(self.dropout(x))

    def _embed(self, embedding: nn.Embedding, ids: Tensor, cut: Tensor | None = None) -> Tensor:
        x = cut_out(self.word_dropout(embedding(ids)), cut) * math.sqrt(self.config.d_model)
        y: Tensor = self.dropout(x)
        return y

    @property
    def output_weight(self) -> Tensor:
        """(V, D), the weights of the output projection."""
        return self.target_embedding.weight if self.output is None else self.output.weight

    @property
    def output_bias(self) -> Tensor | None:
        """(V,), the bias of the output projection with `model.output_bias`."""
        return self.logit_bias

    @torch.no_grad()
    def start(self, batch: Batch) -> RecurrentState:
        """Encodes the sources, once per search."""
        memory = Memory.of(self._encode(batch, Packing.of(batch.source)), batch.source)
        memory = self.decoder.with_keys(memory)
        return RecurrentState(memory, self.decoder.first(memory), num_hypotheses=1)

    @torch.no_grad()
    def step(self, ids: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        """See `Seq2Seq.step`."""
        log_probs, state, _ = self.step_with_heads(ids, state)
        return log_probs, state

    @property
    def attention_shape(self) -> tuple[int, int]:
        """One layer with one head; see `Seq2Seq.attention_shape`."""
        return 1, 1

    @torch.no_grad()
    def step_with_heads(self, ids: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState, Tensor]:
        """See `Seq2Seq.step_with_heads`."""
        embedded = self._embed(self.target_embedding, ids.flatten())
        hidden, recurrent, weights = self.decoder.step(embedded, state.recurrent, state.memory)
        log_probs = self.log_probs(hidden)
        after = replace(state, recurrent=recurrent)
        return log_probs.view(*ids.shape, -1), after, weights.view(*ids.shape, 1, 1, -1)

    def blocks(self) -> list[nn.Module]:
        """Returns the layers of the encoder, then the decoder."""
        return [*self.encoder, self.decoder]

    def training_flops(self, batch: Batch) -> int:
        """Returns three times the operations of the forward pass; see `Seq2Seq.training_flops`."""
        d, gates = self.config.d_model, _GATES[self.options.cell]
        sides = batch.source.lengths, batch.target.lengths
        source, target = (np.array(side[: batch.num_sentences], np.int64) for side in sides)
        direction = gates * (d * d // 2 + d * d // 4)
        encoder = 2 * int(source.sum()) * self.config.encoder_layers * 2 * direction
        cells = gates * 2 * d * d * self.config.decoder_layers + gates * d * d
        step = cells + 3 * d * d + d * self.target_embedding.num_embeddings
        decoder = 2 * int(target.sum()) * step + 2 * int(source.sum()) * d * d
        return 3 * (encoder + decoder + 4 * d * int(target @ source))

    @classmethod
    def num_weights(cls, config: ModelConfig, source_vocab_size: int, target_vocab_size: int) -> int:
        """Counts the embeddings and the recurrent matrices, without biases and attention."""
        options, d = cls.typed_options(config), config.d_model
        gates = _GATES[options.cell]
        encoder = config.encoder_layers * 2 * gates * (d * d // 2 + d * d // 4)
        decoder = config.decoder_layers * gates * 2 * d * d
        sources = 0 if config.tie is Tie.all else source_vocab_size
        targets = target_vocab_size * (2 if config.tie is Tie.none else 1)
        return encoder + decoder + (sources + targets) * d


_GATES = {Cell.gru: 3, Cell.lstm: 4}
_UNITS: dict[Cell, Callable[..., Any]] = {Cell.gru: nn.GRU, Cell.lstm: nn.LSTM}
_CELLS: dict[Cell, Callable[..., Any]] = {Cell.gru: nn.GRUCell, Cell.lstm: nn.LSTMCell}


class BidirectionalLayer(nn.Module):
    """A bidirectional recurrent layer over a packed stream.

    Each direction has D / 2 dimensions. `dropout` is on the input; None for the first layer, whose input is
    the result of a dropout.
    """

    def __init__(self, cell: Cell, d_model: int, dropout: Dropout | None) -> None:
        super().__init__()
        self.dropout = dropout
        self.unit = _UNITS[cell](d_model, d_model // 2, bidirectional=True)

    def forward(self, x: Tensor, batch_sizes: Tensor) -> Tensor:
        """(S, D), packed → (S, D), packed."""
        if self.dropout is not None:
            x = self.dropout(x)
        packed: Tensor = self.unit(PackedSequence(x, batch_sizes))[0].data
        return packed


@dataclass(frozen=True)
class Memory:
    """The padded outputs of the encoder, and the keys that the decoder projects from them once.

    Attributes:
        values: (B, L, D), the outputs of the encoder.
        mask: (B, L), -inf at padding, otherwise 0.
        summary: (B, D / 2), the state of the backward direction at the first token.
        keys: (B, L, D), the keys of attention; None until the decoder has computed them.
    """

    values: Tensor
    mask: Tensor
    summary: Tensor
    keys: Tensor | None = None

    @classmethod
    def of(cls, flat: Tensor, source: Layout) -> Memory:
        """Pads the outputs of the encoder, (S, D)."""
        lengths = np.array(source.lengths)
        starts = np.cumsum(lengths) - lengths
        places = np.arange(source.max_len)
        rows = starts[:, None] + np.minimum(places, np.maximum(lengths[:, None] - 1, 0))
        rows = np.minimum(rows, max(len(flat) - 1, 0))  # empty sentences start after the last token
        index = torch.from_numpy(rows).to(flat.device)
        mask = torch.zeros(rows.shape, dtype=torch.float32, device=flat.device)
        ended = torch.from_numpy(places >= np.maximum(lengths, 1)[:, None]).to(flat.device)
        summary = flat.index_select(0, index[:, 0])[:, flat.shape[1] // 2 :]
        values = flat.index_select(0, index.flatten()).view(*index.shape, -1)
        return cls(values, mask.masked_fill_(ended, -math.inf), summary)

    def sentences(self, rows: Tensor) -> Memory:
        """Returns the memory of the sentences `rows`, (B',) int64."""
        keys = None if self.keys is None else self.keys.index_select(0, rows)
        values, mask, summary = (x.index_select(0, rows) for x in (self.values, self.mask, self.summary))
        return Memory(values, mask, summary, keys)

    def first(self, count: int) -> Memory:
        """Returns the memory of the first `count` sentences."""
        keys = None if self.keys is None else self.keys[:count]
        return Memory(self.values[:count], self.mask[:count], self.summary[:count], keys)


Recurrent = tuple[Tensor, ...]
"""The state of a decoder, tensors of (R, D): the input feed, the hidden state of each unit, and the
cell state of each LSTM unit."""


class RecurrentDecoder(nn.Module, ABC):
    """The base class of the decoders: a stack of recurrent units with attention to the source.

    `layers` is the number of units in the stack; `dropout` is between them.
    """

    key: Linear
    """The projection of the memory to the keys of attention."""

    def __init__(self, cell: Cell, d_model: int, layers: int, dropout: Dropout) -> None:
        super().__init__()
        self.cell, self.d_model, self.dropout = cell, d_model, dropout
        self.units = nn.ModuleList(
            _CELLS[cell](2 * d_model if number == 0 else d_model, d_model) for number in range(layers)
        )
        self.initial = Linear(d_model // 2, [d_model] * layers)

    def forward(self, embedded: Tensor, memory: Memory, sizes: Tensor) -> Tensor:
        """Decodes with teacher forcing, step by step.

        `embedded`, (T, D), is packed: the first tokens of all sentences, then the second tokens, and so on.
        `memory` has the sentences in descending order of target length. `sizes`, (L,) int64 on the CPU, are
        the numbers of sentences that have a token at each step.

        Returns:
            (T, D), packed.
        """
        memory = self.with_keys(memory)
        state, outputs = self.first(memory), []
        for x in torch.split(embedded, sizes.tolist()):
            if len(x) < len(state[0]):  # the shortest sentences have ended
                state, memory = tuple(part[: len(x)] for part in state), memory.first(len(x))
            output, state, _ = self.step(x, state, memory)
            outputs.append(output)
        return torch.cat(outputs)

    def with_keys(self, memory: Memory) -> Memory:
        """Returns the memory with the keys of attention."""
        return replace(memory, keys=self.key(memory.values))

    def first(self, memory: Memory) -> Recurrent:
        """Returns the state before the first token: hidden states tanh(W s + b) of the summary s, else 0."""
        states = self.initial(memory.summary).tanh().chunk(len(self.units), 1)
        feed = states[0].new_zeros(len(memory.summary), self.d_model)
        if self.cell is Cell.lstm:
            return (feed, *states, *(torch.zeros_like(state) for state in states))
        return (feed, *states)

    @abstractmethod
    def step(self, x: Tensor, state: Recurrent, memory: Memory) -> tuple[Tensor, Recurrent, Tensor]:
        """Reads the next token of every row.

        Args:
            x: (R, D), embeddings.
            state: of the R rows.
            memory: of B sentences; each has R / B adjacent rows. In training B = R.

        Returns:
            The output, (R, D); the new state; the attention weights, (R, L).
        """

    def _units(self, x: Tensor, state: Recurrent) -> tuple[Tensor, list[Tensor]]:
        """Runs the stack on (R, 2 D); returns its output, (R, D), and the states of all units."""
        layers = len(self.units)
        hidden, cells = list(state[1 : 1 + layers]), list(state[1 + layers :])
        for number, unit in enumerate(self.units):
            if number:
                x = self.dropout(x)
            if self.cell is Cell.lstm:
                hidden[number], cells[number] = unit(x, (hidden[number], cells[number]))
            else:
                hidden[number] = unit(x, hidden[number])
            x = hidden[number]
        return x, hidden + cells


class BahdanauDecoder(RecurrentDecoder):
    """The decoder of Bahdanau et al. 2015 (appendices A.1.2 and A.2.2) with embeddings x_t and memory h_j.

    e_tj = v tanh(W s_{t-1} + U h_j), c_t = sum_j softmax(e_t)_j h_j, s_t = unit([x_t; c_t], s_{t-1}).
    The output is tanh(W_o [s_t; x_t; c_t]).
    """

    def __init__(self, cell: Cell, d_model: int, layers: int, dropout: Dropout) -> None:
        super().__init__(cell, d_model, layers, dropout)
        self.query = Linear(d_model, d_model, bias=False)
        self.key = Linear(d_model, d_model)
        self.score = nn.Parameter(torch.empty(d_model).uniform_(-1, 1) / math.sqrt(d_model))
        self.out = Linear(3 * d_model, d_model)

    def step(self, x: Tensor, state: Recurrent, memory: Memory) -> tuple[Tensor, Recurrent, Tensor]:
        """See `RecurrentDecoder.step`."""
        assert memory.keys is not None
        top = state[len(self.units)]
        query = self.query(top).view(len(memory.keys), -1, 1, self.d_model)
        scores = torch.tanh(query + memory.keys[:, None]) @ self.score.to(query.dtype)  # (B, R / B, L)
        context, weights = _attend(scores, memory)
        hidden, states = self._units(torch.cat([x, context], 1), state)
        output = self.out(torch.cat([hidden, x, context], 1)).tanh()
        return output, (state[0], *states), weights


class LuongDecoder(RecurrentDecoder):
    """The decoder of Luong et al. 2015: `general` score (section 3.1) and input feeding (section 3.3).

    s_t = unit([x_t; o_{t-1}], s_{t-1}), e_tj = s_t W h_j, c_t = sum_j softmax(e_t)_j h_j.
    The output is o_t = tanh(W_o [c_t; s_t]).
    """

    def __init__(self, cell: Cell, d_model: int, layers: int, dropout: Dropout) -> None:
        super().__init__(cell, d_model, layers, dropout)
        self.key = Linear(d_model, d_model, bias=False)
        self.out = Linear(2 * d_model, d_model, bias=False)

    def step(self, x: Tensor, state: Recurrent, memory: Memory) -> tuple[Tensor, Recurrent, Tensor]:
        """See `RecurrentDecoder.step`."""
        assert memory.keys is not None
        hidden, states = self._units(torch.cat([x, state[0]], 1), state)
        scores = hidden.view(len(memory.keys), -1, self.d_model) @ memory.keys.transpose(1, 2)
        context, weights = _attend(scores, memory)
        output = self.out(torch.cat([context, hidden], 1)).tanh()
        return output, (output, *states), weights


def _attend(scores: Tensor, memory: Memory) -> tuple[Tensor, Tensor]:
    """Scores (B, R / B, L) → contexts (R, D), the weighted means of the values, and weights (R, L)."""
    weights = normalised(scores + memory.mask[:, None].to(scores.dtype))
    return (weights @ memory.values.to(weights.dtype)).flatten(0, 1), weights.flatten(0, 1)


@dataclass(frozen=True, eq=False)
class RecurrentState:
    """The state of a search; see `DecoderState`.

    Attributes:
        memory: of the B sentences.
        recurrent: the state of the decoder for B * K hypotheses.
        num_hypotheses: K.
    """

    memory: Memory
    recurrent: Recurrent
    num_hypotheses: int

    def select(self, rows: Tensor) -> RecurrentState:
        """See `DecoderState.select`."""
        memory = self.memory
        if len(rows) < len(memory.mask):
            memory = memory.sentences(rows[:, 0] // self.num_hypotheses)
        flat = rows.flatten()
        recurrent = tuple(part.index_select(0, flat) for part in self.recurrent)
        return RecurrentState(memory, recurrent, rows.shape[1])
