"""The models that the Transformer replaced: a recurrent encoder and decoder with attention.

`bahdanau` is Bahdanau et al. 2015, `luong` is the dot product with input feeding of Luong et al. 2015.
Shapes: S source tokens and T target tokens of a batch, B sentences, K hypotheses of one, L tokens of the
longest source, D d_model, V target vocabulary, R rows of one step: sentences that have not ended, or
hypotheses. Streams are flat.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from nmt.config import ModelConfig, Tie
from nmt.data.batches.batching import Batch, Layout
from nmt.errors import UserError
from nmt.model.attention import normalised
from nmt.model.dropout import Dropout, DropoutSource
from nmt.model.kernels.packed import Packing, padded_rows
from nmt.model.seq2seq import Backend, Seq2Seq


class Cell(Enum):
    """The recurrent unit."""

    gru = "gru"
    """Cho et al. 2014."""
    lstm = "lstm"
    """Hochreiter and Schmidhuber 1997, with forget gates."""


class Attention(Enum):
    """How the decoder reads the source."""

    bahdanau = "bahdanau"
    """An additive score of the previous state; the context is an input of the unit."""
    luong = "luong"
    """The dot product with the new state; the attentional output is an input of the next step."""


class RecurrentModel(Seq2Seq):
    """A bidirectional encoder, and a decoder that reads the source by attention, token by token.

    Of the `model` section it uses the numbers of layers, `d_model`, `tie`, `dropout` and `word_dropout`.

    Args:
        config: the `model` section.
        source_vocab_size: pieces of the source side.
        target_vocab_size: pieces of the target side.

    Raises:
        UserError: `model.tie=all` with two vocabularies, or an odd `model.d_model`.
    """

    @dataclass(frozen=True)
    class Options:
        """The options, with types and defaults."""

        cell: Cell = Cell.gru
        attention: Attention = Attention.bahdanau

    def __init__(self, config: ModelConfig, source_vocab_size: int, target_vocab_size: int) -> None:
        super().__init__(config)
        self.check(config)
        if config.tie is Tie.all and source_vocab_size != target_vocab_size:
            raise UserError(
                f"model.tie=all needs one vocabulary, but the source has {source_vocab_size} pieces and the "
                f"target {target_vocab_size}. Set data.tokenizer.joint=true, or model.tie=target."
            )
        d_model, cell = config.d_model, self.options.cell
        self.randomness = DropoutSource()
        self.target_embedding = nn.Embedding(target_vocab_size, d_model)
        self.source_embedding = None if config.tie is Tie.all else nn.Embedding(source_vocab_size, d_model)
        self.output = nn.Linear(d_model, target_vocab_size, bias=False) if config.tie is Tie.none else None
        self.word_dropout = Dropout(config.word_dropout, self.randomness, rows=True)
        self.dropout = Dropout(config.dropout, self.randomness)
        self.encoder = nn.ModuleList(
            EncoderLayer(cell, d_model, self.dropout if number else None)
            for number in range(config.encoder_layers)
        )
        kind = BahdanauDecoder if self.options.attention is Attention.bahdanau else LuongDecoder
        self.decoder = kind(cell, d_model, config.decoder_layers, self.dropout)
        for name, parameter in self.named_parameters():
            if "embedding" in name or name.startswith("output"):
                nn.init.normal_(parameter, std=d_model**-0.5)

    @classmethod
    def check(cls, config: ModelConfig) -> None:
        """Each direction of the encoder has half of the width."""
        if config.d_model % 2:
            raise UserError(f"model.d_model={config.d_model}: must be even for a bidirectional encoder.")

    def forward(self, batch: Batch) -> Tensor:
        """Reads the sources and, each position seeing only its predecessors, the targets: (T, D)."""
        source, target = Packing.of(batch.source), Packing.of(batch.target)
        memory = self._encode(batch.source_ids, source)
        embedded = target.packed(self._embed(self.target_embedding, batch.target_in))
        order = torch.from_numpy(target.order).to(memory.device)
        hidden = self.decoder(embedded, Memory.of(memory, batch.source).sentences(order), target.sizes)
        return target.flat(self.dropout(hidden))

    def _encode(self, source_ids: Tensor, packing: Packing) -> Tensor:
        """(S,) → (S, D)."""
        x = packing.packed(self._embed(self.source_embedding or self.target_embedding, source_ids))
        for layer in self.encoder:
            x = layer(x, packing.batch_sizes)
        return packing.flat(self.dropout(x))

    def _embed(self, embedding: nn.Embedding, ids: Tensor) -> Tensor:
        x = self.word_dropout(embedding(ids)) * math.sqrt(self.config.d_model)
        y: Tensor = self.dropout(x)
        return y

    @property
    def output_weight(self) -> Tensor:
        """(V, D), the matrix of the softmax."""
        return self.target_embedding.weight if self.output is None else self.output.weight

    @torch.no_grad()
    def start(self, batch: Batch) -> RecurrentState:
        """Encodes the sources, once a search."""
        memory = Memory.of(self._encode(batch.source_ids, Packing.of(batch.source)), batch.source)
        memory = self.decoder.prepared(memory)
        return RecurrentState(memory, self.decoder.first(memory), num_hypotheses=1)

    @torch.no_grad()
    def step(self, ids: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        """See `Seq2Seq.step`."""
        log_probs, state, _ = self.step_with_attention(ids, state)
        return log_probs, state

    @torch.no_grad()
    def step_with_attention(
        self, ids: Tensor, state: RecurrentState
    ) -> tuple[Tensor, RecurrentState, Tensor]:
        """See `Seq2Seq.step_with_attention`."""
        embedded = self._embed(self.target_embedding, ids.flatten())
        hidden, recurrent, weights = self.decoder.step(embedded, state.recurrent, state.memory)
        scores = nn.functional.linear(hidden, self.output_weight)
        log_probs = scores.to(torch.promote_types(scores.dtype, torch.float32)).log_softmax(-1)
        after = replace(state, recurrent=recurrent)
        return log_probs.view(*ids.shape, -1), after, weights.view(*ids.shape, -1)

    def seed_dropout(self, seed: int) -> None:
        """Makes the dropout of all later calls a pure function of `seed` and the order of calls."""
        self.randomness.seed(seed, self.output_weight.device)

    def blocks(self) -> list[nn.Module]:
        """The encoder's layers, then the decoder."""
        return [*self.encoder, self.decoder]

    def compile_blocks(self, backend: Backend) -> None:
        """Refuses: each step of the decoder has another number of rows.

        Raises:
            UserError: always.
        """
        raise UserError(
            f"training.compile=true: model.architecture={self.config.architecture} can't be compiled. "
            "Set training.compile=false."
        )

    def training_flops(self, batch: Batch) -> int:
        """Three times those of the forward pass; see `Seq2Seq.training_flops`."""
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
        """The embeddings and the recurrent matrices; biases and attention are not counted."""
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


class EncoderLayer(nn.Module):
    """A bidirectional layer, run by torch over a packed stream.

    Args:
        cell: the unit.
        d_model: D; each direction has half of it.
        dropout: on the input; None for the first layer, whose input has had its own.
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
    """What the decoder reads: padded sources, (B, L, D), and what each decoder projects of them once.

    Attributes:
        values: (B, L, D).
        mask: (B, L), 0, or -inf where a source has ended.
        summary: (B, D / 2), the backward state at the first token.
        keys: (B, L, D), once a decoder has prepared them.
    """

    values: Tensor
    mask: Tensor
    summary: Tensor
    keys: Tensor | None = None

    @classmethod
    def of(cls, flat: Tensor, source: Layout) -> Memory:
        """Pads the encoder's outputs (S, D)."""
        lengths = np.array(source.lengths)
        starts = np.cumsum(lengths) - lengths
        places = np.arange(source.max_len)
        rows = starts[:, None] + np.minimum(places, np.maximum(lengths[:, None] - 1, 0))
        rows = np.minimum(rows, max(len(flat) - 1, 0))  # an empty sentence stands after all tokens
        index = torch.from_numpy(rows).to(flat.device)
        mask = torch.zeros(rows.shape, dtype=torch.float32, device=flat.device)
        ended = torch.from_numpy(places >= np.maximum(lengths, 1)[:, None]).to(flat.device)
        summary = flat.index_select(0, index[:, 0])[:, flat.shape[1] // 2 :]
        return cls(padded_rows(flat, index), mask.masked_fill_(ended, -math.inf), summary)

    def sentences(self, rows: Tensor) -> Memory:
        """Those of some sentences."""
        keys = None if self.keys is None else self.keys.index_select(0, rows)
        values, mask, summary = (x.index_select(0, rows) for x in (self.values, self.mask, self.summary))
        return Memory(values, mask, summary, keys)

    def first(self, count: int) -> Memory:
        """Those of the first sentences."""
        keys = None if self.keys is None else self.keys[:count]
        return Memory(self.values[:count], self.mask[:count], self.summary[:count], keys)


Recurrent = tuple[Tensor, ...]
"""The state of a decoder: (R, D) each; first what is fed to the next step."""


class RecurrentDecoder(nn.Module, ABC):
    """What both decoders share: a stack of units with attention to the source.

    Args:
        cell: the unit.
        d_model: D.
        layers: units one above the other.
        dropout: between them.
    """

    key: nn.Linear
    """Projects the memory for attention."""

    def __init__(self, cell: Cell, d_model: int, layers: int, dropout: Dropout) -> None:
        super().__init__()
        self.cell, self.d_model, self.dropout = cell, d_model, dropout
        self.units = nn.ModuleList(
            _CELLS[cell](2 * d_model if number == 0 else d_model, d_model) for number in range(layers)
        )
        self.initial = nn.Linear(d_model // 2, layers * d_model)

    def forward(self, embedded: Tensor, memory: Memory, sizes: list[int]) -> Tensor:
        """Reads target tokens step by step.

        Args:
            embedded: (T, D), packed: the first tokens of all sentences, then the second ones, ...
            memory: of the sentences, the longest target first.
            sizes: sentences with a token at each step.

        Returns:
            (T, D), packed.
        """
        memory = self.prepared(memory)
        state, outputs = self.first(memory), []
        for x in torch.split(embedded, sizes):
            if len(x) < len(state[0]):  # the shortest have ended
                state, memory = tuple(part[: len(x)] for part in state), memory.first(len(x))
            output, state, _ = self.step(x, state, memory)
            outputs.append(output)
        return torch.cat(outputs)

    def prepared(self, memory: Memory) -> Memory:
        """The memory with the keys of attention."""
        return replace(memory, keys=self.key(memory.values))

    def first(self, memory: Memory) -> Recurrent:
        """The state before the first token."""
        states = self.initial(memory.summary).tanh().chunk(len(self.units), 1)
        fed = states[0].new_zeros(len(memory.summary), self.d_model)
        if self.cell is Cell.lstm:
            return (fed, *states, *(torch.zeros_like(state) for state in states))
        return (fed, *states)

    @abstractmethod
    def step(self, x: Tensor, state: Recurrent, memory: Memory) -> tuple[Tensor, Recurrent, Tensor]:
        """Reads one more token of every row.

        Args:
            x: (R, D), embeddings.
            state: of the rows.
            memory: of R sentences, or of B, each of which has R / B rows side by side.

        Returns:
            (R, D), the output; the state; (R, L), the weights of attention.
        """

    def _units(self, x: Tensor, state: Recurrent) -> tuple[Tensor, list[Tensor]]:
        """Runs the stack on (R, 2 D); returns its output and the states of all units."""
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
    """The context is read with the previous state, by an additive score (Bahdanau et al. 2015, A.1.2)."""

    def __init__(self, cell: Cell, d_model: int, layers: int, dropout: Dropout) -> None:
        super().__init__(cell, d_model, layers, dropout)
        self.query = nn.Linear(d_model, d_model, bias=False)
        self.key = nn.Linear(d_model, d_model)
        self.score = nn.Parameter(torch.empty(d_model).uniform_(-1, 1) / math.sqrt(d_model))
        self.out = nn.Linear(3 * d_model, d_model)

    def step(self, x: Tensor, state: Recurrent, memory: Memory) -> tuple[Tensor, Recurrent, Tensor]:
        """See `RecurrentDecoder.step`."""
        assert memory.keys is not None
        top = state[len(self.units)]
        query = self.query(top).view(len(memory.keys), -1, 1, self.d_model)
        scores = torch.tanh(query + memory.keys[:, None]) @ self.score.to(query.dtype)  # (B, R / B, L)
        context, weights = _read(scores, memory)
        hidden, states = self._units(torch.cat([x, context], 1), state)
        output = self.out(torch.cat([hidden, x, context], 1)).tanh()
        return output, (state[0], *states), weights


class LuongDecoder(RecurrentDecoder):
    """The source is read with the new state, by a dot product; the output is fed to the next step."""

    def __init__(self, cell: Cell, d_model: int, layers: int, dropout: Dropout) -> None:
        super().__init__(cell, d_model, layers, dropout)
        self.key = nn.Linear(d_model, d_model, bias=False)
        self.out = nn.Linear(2 * d_model, d_model, bias=False)

    def step(self, x: Tensor, state: Recurrent, memory: Memory) -> tuple[Tensor, Recurrent, Tensor]:
        """See `RecurrentDecoder.step`."""
        assert memory.keys is not None
        hidden, states = self._units(torch.cat([x, state[0]], 1), state)
        scores = hidden.view(len(memory.keys), -1, self.d_model) @ memory.keys.transpose(1, 2)
        context, weights = _read(scores, memory)
        output = self.out(torch.cat([context, hidden], 1)).tanh()
        return output, (output, *states), weights


def _read(scores: Tensor, memory: Memory) -> tuple[Tensor, Tensor]:
    """(B, R / B, L) scores → (R, D), means of the values, and (R, L), their weights."""
    weights = normalised(scores + memory.mask[:, None].to(scores.dtype))
    return (weights @ memory.values.to(weights.dtype)).flatten(0, 1), weights.flatten(0, 1)


@dataclass(frozen=True, eq=False)
class RecurrentState:
    """The state of a search; see `DecoderState`.

    Attributes:
        memory: of B sentences.
        recurrent: of B * K hypotheses.
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
