"""What the rest of the program knows of a model: `Seq2Seq`, and `MODELS`, the architectures by name.

Bundle, training loop, search, ensemble, sharding, compilation and memory probe use this interface alone.
Shapes: T target tokens of a batch, B sentences, K hypotheses of one, D d_model, V target vocabulary.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self, TypeAlias

from torch import Tensor, nn

from nmt.config import ModelConfig, typed_options
from nmt.data.batches.batching import Batch
from nmt.errors import UserError
from nmt.runtime import Registry

Backend: TypeAlias = Callable[..., Callable[..., Any]]
"""Compiles a graph for inputs like the given ones; a backend of `torch.compile`."""


class DecoderState(Protocol):
    """What a model remembers between two steps of a search."""

    def select(self, rows: Tensor) -> Self:
        """Keeps some hypotheses, in a new order, any of them more than once.

        Args:
            rows: (B', K') int64 into the B * K hypotheses; each row from one sentence, the sentences in their
                order and none twice.

        Returns:
            The state of B' sentences with K' hypotheses each.
        """
        ...


class Seq2Seq(nn.Module, ABC):
    """A model that reads source tokens and predicts target tokens one by one.

    A subclass is built by `MODELS[name](config, source_vocab_size, target_vocab_size)`. All that it draws at
    random in `__init__` comes from torch's default generator, which the caller seeds.

    Args:
        config: the `model` section.

    Attributes:
        config: the `model` section.
        options: an instance of `Options`.

    Raises:
        UserError: `model.options` has an option that `Options` has not, or a value of the wrong type.
    """

    @dataclass(frozen=True)
    class Options:
        """Options of this architecture alone, with types and defaults; `model.options` sets them."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.options: Any = self.typed_options(config)

    @classmethod
    def typed_options(cls, config: ModelConfig) -> Any:
        """The `Options` that `model.options` sets.

        Raises:
            UserError: an option is unknown, or its value has the wrong type.
        """
        owner = f"model.architecture={config.architecture}"
        return typed_options(cls.Options, config.options, "model.options", owner)

    @abstractmethod
    def forward(self, batch: Batch) -> Tensor:
        """Reads the sources and, each position seeing only its predecessors, the targets.

        Returns:
            (T, D) hidden states; `logits` of them predict `batch.target_out`.
        """

    @property
    @abstractmethod
    def output_weight(self) -> Tensor:
        """(V, D), the matrix of the softmax: logits are `hidden @ output_weight.T`."""

    @abstractmethod
    def start(self, batch: Batch) -> DecoderState:
        """Prepares a search, one empty hypothesis a sentence; the targets of the batch are not read."""

    @abstractmethod
    def step(self, ids: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Reads one more piece of every hypothesis.

        Args:
            ids: (B, K) int64, the newest pieces; BOS at first.
            state: from `start`, `step` or `DecoderState.select`; this call may overwrite it.

        Returns:
            (B, K, V) fp32 log-probabilities of the next piece, none above 0, and the state after `ids`.
        """

    def step_with_attention(self, ids: Tensor, state: Any) -> tuple[Tensor, Any, Tensor]:
        """`step`, and the attention to the source.

        Returns:
            What `step` returns, and (B, K, S): how much the choice of the next piece looks at each place of
            the source, padded to the longest, S. The values of a hypothesis sum to 1.

        Raises:
            UserError: the architecture has no attention to the source.
        """
        raise UserError(f"model.architecture={self.config.architecture}: has no attention to the source.")

    @abstractmethod
    def seed_dropout(self, seed: int) -> None:
        """Makes the dropout of all later calls a pure function of `seed` and the order of calls."""

    @abstractmethod
    def blocks(self) -> Sequence[nn.Module]:
        """The layers, in order: the units that sharding gathers one at a time. None contains another."""

    @abstractmethod
    def compile_blocks(self, backend: Backend) -> None:
        """Lets the blocks do their training passes by functions that `backend` compiles.

        The names of the weights must not change. Where a model is sharded, this is called afterwards.
        """

    @abstractmethod
    def training_flops(self, batch: Batch) -> int:
        """Floating-point operations of the matrix products in a forward and a backward pass over `batch`."""

    @classmethod
    def check(cls, config: ModelConfig) -> None:  # noqa: B027 (most architectures have nothing to check)
        """Checks the options before the data are prepared, without making the model.

        Raises:
            UserError: an option has a value that this architecture does not know.
        """

    @classmethod
    @abstractmethod
    def num_weights(cls, config: ModelConfig, source_vocab_size: int, target_vocab_size: int) -> int:
        """A lower bound of the number of weights, computed without making the model.

        It lets a model that does not fit into memory, or whose weights are another model's, be refused early.
        """

    @property
    def max_source_len(self) -> int | None:
        """Tokens of the longest source, EOS included; None: any length. Translation cuts longer ones."""
        return None

    @property
    def max_target_len(self) -> int | None:
        """Tokens of the longest target, EOS included; None: any length. A search ends there."""
        return None

    @property
    def num_parameters(self) -> int:
        """Number of trained values; a shared matrix counts once."""
        return sum(parameter.numel() for parameter in self.parameters())


MODELS: Registry[type[Seq2Seq]] = Registry("architecture")
"""The architectures by the name that `model.architecture` selects."""


def model_class(config: ModelConfig) -> type[Seq2Seq]:
    """The class of `model.architecture`.

    Raises:
        UserError: no architecture of that name is registered.
    """
    return MODELS.find(config.architecture, f"model.architecture={config.architecture}")


def check_model(config: ModelConfig) -> None:
    """Checks the `model` section before the data are prepared, without making the model.

    Raises:
        UserError: the architecture is unknown, or an option has a value that it does not know.
    """
    kind = model_class(config)
    kind.typed_options(config)
    kind.check(config)


def build_model(config: ModelConfig, source_vocab_size: int, target_vocab_size: int) -> Seq2Seq:
    """A model with random weights.

    Args:
        config: the `model` section.
        source_vocab_size: pieces of the source side.
        target_vocab_size: pieces of the target side.

    Raises:
        UserError: the architecture is unknown, or its options don't fit together.
    """
    # ABCs are not callable by their constructor's signature: each architecture has this one.
    build: Callable[[ModelConfig, int, int], Seq2Seq] = model_class(config)
    return build(config, source_vocab_size, target_vocab_size)
