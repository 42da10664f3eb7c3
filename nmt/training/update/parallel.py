"""What each process holds of model, gradients and optimizer: all of it, or (see `sharding`) a share."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol, TypeAlias

import torch
from torch import Tensor

from nmt.bundle import load_weights
from nmt.config import Sharding, TrainingConfig
from nmt.model import Seq2Seq
from nmt.training.processes.ranks import Ranks
from nmt.training.update.optimizer import FlatGradients, build_optimizer

State: TypeAlias = tuple[dict[str, Tensor], dict[str, Tensor]]
"""Whole weights by name, and the optimizer's tensors as `Optimizer.tensors` names them."""


class Parallel(Protocol):
    """A model in training, shared by the processes of a run. All of them call each method together.

    Attributes:
        model: what micro-batches go through.
        extras: (num_extras,) fp32, numbers that `sums` adds up with the gradients.
        whole: the model to validate, in the main process; after `state` its weights are those of `model`.
    """

    model: Seq2Seq
    extras: Tensor
    whole: Seq2Seq

    def held(self) -> dict[str, Tensor]:
        """The weights by name, or of each the share that this process holds: to read or change."""

    def zero(self) -> None:
        """Begins an update: gradients and extras are 0."""

    def backward(self, loss: Tensor, *, last: bool) -> None:
        """Adds the gradient of a micro-batch; `last` is this process's last one of the update."""

    def sums(self) -> Tensor:
        """Adds up gradients and extras over the processes.

        Returns:
            (num_extras + 1,): the extras, and the Euclidean norm of the gradient.
        """

    def step(self, rate: float, factor: Tensor, finite: Tensor) -> None:
        """Makes a step of the optimizer.

        Args:
            rate: of learning.
            factor: () fp64, which the gradient is multiplied by before.
            finite: () bool; where it is false, nothing changes.
        """

    def state(self, *, optimizer: bool) -> State:
        """The whole weights, and if wanted the optimizer; for the main process to read.

        They may be the very tensors that the next update changes.
        """

    def restore(self, state: State | None, begun: bool, where: Path) -> None:
        """Gives all processes what the main one read from a checkpoint.

        Args:
            state: as `state` gave it; None in the other processes, and where the run begins.
            begun: whether there is one; where a run begins there is none, and nothing but first weights.
            where: what the main process read, for the error.

        Raises:
            UserError: it belongs to another model.
        """


def spread(model: Seq2Seq, options: TrainingConfig, ranks: Ranks, num_extras: int) -> Parallel:
    """Makes a model ready to be trained by the processes of a run, as `training.sharding` says."""
    if options.sharding is Sharding.full and ranks.world > 1:
        from nmt.training.update.sharding import (
            Sharded,  # which takes half a second that others need not wait for
        )

        # With one micro-batch for each, nothing is ever whole; with more, the weights are fetched once.
        always = options.micro_batches == ranks.world
        return Sharded(model, options.optimizer, ranks, num_extras, always=always)
    return Replicated(model, options, ranks, num_extras)


class Replicated:
    """Every process holds everything; gradients meet once an update, in one buffer. See `Parallel`."""

    def __init__(self, model: Seq2Seq, options: TrainingConfig, ranks: Ranks, num_extras: int) -> None:
        self.model = self.whole = model.to(ranks.device)
        self._optimizer = build_optimizer(self.model, options.optimizer)
        self.gradients = FlatGradients(self.model.parameters(), num_extras)
        self.extras = self.gradients.extras
        self._ranks = ranks

    def held(self) -> dict[str, Tensor]:
        """All of them."""
        return {name: weight.detach() for name, weight in self.model.named_parameters()}

    def zero(self) -> None:
        """One call for all gradients."""
        self.gradients.zero()

    def backward(self, loss: Tensor, *, last: bool) -> None:
        """Leaves the gradient in this process."""
        torch.autograd.backward(loss)

    def sums(self) -> Tensor:
        """One sum over the processes."""
        self._ranks.sum_(self.gradients.buffer)
        return torch.cat([self.extras, self.gradients.norm()[None]])

    def step(self, rate: float, factor: Tensor, finite: Tensor) -> None:
        """The host does not wait for either tensor to be known."""
        self.gradients.gradients.mul_(factor.float())
        self._optimizer.step(rate, finite)

    def state(self, *, optimizer: bool) -> State:
        """The tensors themselves, not copies."""
        return self.model.state_dict(), self._optimizer.tensors() if optimizer else {}

    def restore(self, state: State | None, begun: bool, where: Path) -> None:
        """Loads in the main process, then overwrites the others'; so it is at the beginning too."""
        if state:
            load_weights(self.model, state[0], where)
            self._optimizer.load(state[1], str(where))
        self._ranks.copy_(self.model.state_dict().values())
        if begun:
            tensors = self._optimizer.tensors()
            self._ranks.copy_(tensors.values())
            self._optimizer.load(tensors, "the main process")  # the one step to those of all parameters
