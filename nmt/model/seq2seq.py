"""`Seq2Seq`, the interface of all models, and `MODELS`, the registry of architectures.

Model folders, training loop, beam search, ensembles, sharding and memory probe use a model only
through this interface.

Shapes: T target tokens of a batch, B sentences, K hypotheses per sentence, D d_model, V target vocabulary, L
decoder layers, H heads, S tokens of the longest source.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from operator import attrgetter
from typing import Any, ClassVar, NamedTuple, Protocol, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nmt.config import ModelConfig, Tie, typed_options
from nmt.data.batches.batching import Batch, Longest
from nmt.errors import UserError
from nmt.model.backend import Backend
from nmt.model.dropout import Dropout, DropoutSource
from nmt.model.weighed import AttentionWeights
from nmt.runtime.plugins import Registry


class DecoderState(Protocol):
    """The state of a model between two steps of a search."""

    def select(self, rows: Tensor) -> Self:
        """Selects hypotheses in a new order; a hypothesis may be repeated. It may overwrite this state.

        Args:
            rows: (B', K') int64, indices into the B * K hypotheses. All indices of a row belong to one
                sentence, and each sentence occurs in one row at most. If all sentences occur, they are in
                their order.

        Returns:
            The state of B' sentences with K' hypotheses each.
        """
        ...


class ModelOutput(NamedTuple):
    """The result of a forward pass in training, for a training objective.

    A tuple of tensors and of tuples or dictionaries of tensors: sharding looks for the tensors in it.
    """

    hidden: Tensor
    """(T, D) hidden states."""
    attention: tuple[Tensor, ...] = ()
    """For each layer that the objective asked for: (T, H, S), the attention weights of each target token to
    the source positions of its sentence, 0 after its end; S is the length of the longest source."""
    added: Mapping[str, Tensor] = {}
    """Other tensors of an architecture, by name, for an objective that knows them."""


def as_output(result: Tensor | ModelOutput) -> ModelOutput:
    """Returns the result of `Seq2Seq.forward` as an output; it may be hidden states alone."""
    return result if isinstance(result, ModelOutput) else ModelOutput(result)


class Linear(nn.Linear):
    """`torch.nn.Linear`, which in training may multiply with copies of its weights.

    `Seq2Seq.copy_weights` makes the copies; the trainer fills them once per update. `torch.nn.Linear` works
    in a model too, but then autocast converts its weights for every micro-batch.

    Attributes:
        stacked: the rows of each matrix in the weight, which may stack several.
        copies: copies of weight and bias (None without bias), used in training mode; None: there are none.
    """

    def __init__(self, in_features: int, out_features: int | Sequence[int], bias: bool = True) -> None:
        stacked = [out_features] if isinstance(out_features, int) else list(out_features)
        super().__init__(in_features, sum(stacked), bias)
        self.stacked = stacked
        self.copies: tuple[Tensor, Tensor | None] | None = None

    def forward(self, input: Tensor) -> Tensor:
        """(..., in_features) → (..., out_features)."""
        if self.copies is None or not self.training:
            return super().forward(input)
        weight, bias = self.copies
        return F.linear(input, weight, bias)


class Seq2Seq(nn.Module, ABC):
    """A model that reads source tokens and predicts target tokens one at a time.

    `MODELS[name](config, source_vocab_size, target_vocab_size)` builds a subclass. Its `__init__` must draw
    all random numbers from torch's default generator, which the caller seeds.

    Args:
        config: the `model` section.

    Attributes:
        config: the `model` section.
        options: an instance of `Options`.
        backend: how the device of the weights computes the model; `nmt.model.put_on` chooses it.
        randomness: the generator for the `Dropout` modules of this model.
        residual_dtype: number format of hidden states between sub-layers in training; None: that of the
            weights. An architecture may ignore it.

    Raises:
        UserError: `model.options` has an option that `Options` does not define, or a value of the wrong type.
    """

    @dataclass(frozen=True)
    class Options:
        """Options that only this architecture has, with types and defaults; `model.options` sets them."""

    unused: ClassVar[Mapping[str, Any]] = {}
    """The options of the `model` section that the architecture ignores, and values that cause no warning."""
    cuts_tokens: ClassVar[bool] = False
    """Whether `forward` replaces the embeddings of the tokens `Layout.cut` by zero, for `training.simcut`."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.options: Any = self.typed_options(config)
        self.backend = Backend(torch.device("cpu"))
        self.randomness = DropoutSource()
        self.residual_dtype: torch.dtype | None = None

    @classmethod
    def typed_options(cls, config: ModelConfig) -> Any:
        """Returns the `Options` with the values of `model.options`.

        Raises:
            UserError: an option is unknown, or its value has the wrong type.
        """
        owner = f"model.architecture={config.architecture}"
        return typed_options(cls.Options, config.options, "model.options", owner)

    @abstractmethod
    def forward(self, batch: Batch) -> Tensor | ModelOutput:
        """Encodes the sources and decodes the targets with teacher forcing and a causal mask.

        A subclass may take keyword arguments, such as the `attention_layers` of `Transformer`; a training
        objective gives them.

        Returns:
            (T, D) hidden states, or an output with them. `logits` turns them into the logits of
            `batch.target_out`.
        """

    @property
    @abstractmethod
    def output_weight(self) -> Tensor:
        """(V, D), the weights of the output projection; see `logits`."""

    @property
    def output_bias(self) -> Tensor | None:
        """(V,), the bias of the output projection; None: it has none."""
        return None

    def logits(self, hidden: Tensor) -> Tensor:
        """(N, D) hidden states → (N, V), the logits of the next piece, in fp32 or wider.

        They are `hidden @ output_weight.T + output_bias`, as the training loss computes them. With
        `model.logit_cap` they are bounded.
        """
        scores = F.linear(hidden, self.output_weight, self.output_bias)
        scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
        cap = self.config.logit_cap
        return scores if cap is None else torch.tanh(scores / cap) * cap

    def log_probs(self, hidden: Tensor) -> Tensor:
        """(N, D) hidden states → (N, V), the log-probabilities of the next piece; without a gradient.

        They overwrite the logits, because memory for another (N, V) costs more time than the softmax.
        """
        scores = self.logits(hidden)
        return torch.log_softmax(scores, -1, out=scores)

    @abstractmethod
    def start(self, batch: Batch) -> DecoderState:
        """Encodes the sources for a search.

        The targets of the batch are not read.

        Returns:
            The state of one empty hypothesis per sentence.
        """

    @abstractmethod
    def step(self, ids: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Reads the newest id of every hypothesis.

        Args:
            ids: (B, K) int64; BOS in the first step.
            state: from `start`, `step` or `DecoderState.select`; this call may overwrite it.

        Returns:
            (B, K, V) fp32, the log-probabilities of the next id, at most 0; and the state after `ids`.
        """

    @property
    def attention_shape(self) -> tuple[int, int] | None:
        """The numbers of decoder layers and of heads with attention to the source; None: it has none."""
        return None

    def step_with_heads(self, ids: Tensor, state: Any) -> tuple[Tensor, Any, Tensor]:
        """Does a `step` and returns the attention of every head to the source.

        Returns:
            The two values of `step`, and (B, K, L, H, S), the attention weights of each source position for
            the choice of the next id; (L, H) is `attention_shape`. The sources are padded to S, the longest.
            The weights of a head sum to 1.

        Raises:
            UserError: the architecture has no attention to the source.
        """
        raise UserError(
            f"model.architecture={self.config.architecture}: this model has no attention to the source."
        )

    @torch.no_grad()
    def attention_weights(self, batch: Batch) -> AttentionWeights:
        """Returns the attention weights of a batch of one pair, whose target is given (teacher forcing).

        Here those to the source alone, step by step as in a search.

        Raises:
            UserError: the architecture has no attention to the source.
        """
        state, rows = self.start(batch), []
        for identifier in batch.target_in:
            _, state, weights = self.step_with_heads(identifier.view(1, 1), state)
            rows.append(weights[0, 0])
        return AttentionWeights(torch.stack(rows, 2).float())

    def seed_dropout(self, seed: int) -> None:
        """Makes the dropout of all later calls a pure function of `seed` and the order of calls.

        By default it seeds `randomness`, from which every `nmt.model.dropout.Dropout` draws.
        """
        self.randomness.seed(seed, self.output_weight.device)

    def set_dropout(self, rate: float) -> None:
        """Changes the rate of `model.dropout` in all later calls.

        By default it sets that of all modules `nmt.model.dropout.Dropout` that are not `fixed`.
        """
        for module in self.modules():
            if isinstance(module, Dropout) and not module.fixed:
                module.set_rate(rate)

    @abstractmethod
    def blocks(self) -> Sequence[nn.Module]:
        """Returns the layers, in order: the units that sharding gathers one at a time.

        No block may contain another block.
        """

    def copy_weights(self, dtype: torch.dtype) -> list[tuple[Tensor, Tensor]]:
        """Makes training multiply with copies of weights in another number format; see `Linear`.

        Returns:
            Each copied weight with its copy, a leaf with a gradient of its own. The caller fills the copies,
            and adds their gradients to those of the weights. By default these are the weights of all
            instances of `Linear`; layers that share a weight share its copy.
        """
        copies: dict[Tensor, Tensor] = {}
        for layer in self.modules():
            if isinstance(layer, Linear):
                for weight in (layer.weight, layer.bias):
                    if weight is not None and weight not in copies:
                        copies[weight] = weight.detach().to(dtype, copy=True).requires_grad_()
                bias = None if layer.bias is None else copies[layer.bias]
                layer.copies = copies[layer.weight], bias
        return list(copies.items())

    @abstractmethod
    def training_flops(self, batch: Batch) -> int:
        """Returns the floating-point operations of a forward and a backward pass: the matrix products."""

    @classmethod
    def check(cls, config: ModelConfig) -> None:  # noqa: B027 (most architectures have nothing to check)
        """Checks the options before the data are prepared, without building the model.

        Raises:
            UserError: an option has a value that this architecture does not support.
        """

    @classmethod
    def num_weights(cls, config: ModelConfig, source_vocab_size: int, target_vocab_size: int) -> int:
        """Returns a lower bound of the number of weights, without building the model; by default 0.

        It serves to reject early a model that does not fit into memory, or weights of another model.
        """
        return 0

    @property
    def can_be_captured(self) -> bool:
        """Whether a CUDA graph of forward and backward pass, in bf16, is right for all batches of its shape.

        The passes must neither read a tensor on the host nor depend on other properties of the batch than its
        tensors, and draw random numbers by `DropoutSource.draw_seed` only. By default they do not promise it.
        """
        return False

    @property
    def max_source_len(self) -> int | None:
        """The maximum number of source tokens, EOS included; None: no limit. Translation cuts the rest."""
        return None

    @property
    def max_target_len(self) -> int | None:
        """The maximum number of target tokens, EOS included; None: no limit. A search ends there."""
        return None

    @property
    def longest(self) -> Longest:
        """`max_source_len` and `max_target_len`."""
        return self.max_source_len, self.max_target_len

    @property
    def num_parameters(self) -> int:
        """The number of weights; a shared matrix counts once."""
        return sum(parameter.numel() for parameter in self.parameters())


MODELS: Registry[type[Seq2Seq]] = Registry("architecture")
"""The architectures by name; `model.architecture` selects one."""


def model_class(config: ModelConfig) -> type[Seq2Seq]:
    """Returns the class of `model.architecture`.

    Raises:
        UserError: no architecture of that name is registered.
    """
    return MODELS.find(config.architecture, f"model.architecture={config.architecture}")


def check_model(config: ModelConfig) -> None:
    """Checks the `model` section before the data are prepared, without building the model.

    Raises:
        UserError: the architecture is unknown, or does not support the value of an option.
    """
    kind = model_class(config)
    kind.typed_options(config)
    kind.check(config)


def ignored_options(config: ModelConfig) -> list[str]:
    """Returns the options of the `model` section that the architecture ignores, with their values.

    Those with the values of `Seq2Seq.unused` are left out.
    """
    unused = model_class(config).unused
    values = {name: attrgetter(name)(config) for name in unused}
    return [
        f"model.{name}={value.value if isinstance(value, Enum) else value}"
        for name, value in values.items()
        if value != unused[name]
    ]


def check_tie(config: ModelConfig, *, joint: bool) -> None:
    """Checks that a model with one embedding for both sides has one vocabulary (`joint`).

    Raises:
        UserError: it has one for each side.
    """
    if config.tie is Tie.all and not joint and "tie" not in model_class(config).unused:
        raise UserError(
            "model.tie=all: both sides have one embedding, but each side has its own vocabulary. Set "
            "model.tie=target, or learn one vocabulary with data.tokenizer.joint=true."
        )


def build_model(config: ModelConfig, source_vocab_size: int, target_vocab_size: int) -> Seq2Seq:
    """Builds a model with random weights.

    Raises:
        UserError: the architecture is unknown, or its options contradict each other or the vocabularies.
    """
    check_tie(config, joint=source_vocab_size == target_vocab_size)
    # `Seq2Seq.__init__` takes other arguments; every registered subclass takes these.
    build: Callable[[ModelConfig, int, int], Seq2Seq] = model_class(config)
    return build(config, source_vocab_size, target_vocab_size)
