"""Optimizers: the base class `Optimizer` and the registry `OPTIMIZERS`.

A new optimizer derives from `Optimizer` and is registered: `OPTIMIZERS["mine"] = Mine`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from nmt.config import OptimizerConfig, Sharding, TrainingConfig, typed_options
from nmt.errors import UserError
from nmt.runtime.plugins import Registry

_STORED = (torch.float32, torch.float16, torch.bfloat16)


def trained_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """Returns the parameters that are trained, by name: all except the frozen ones (`training.freeze`)."""
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


def build_optimizer(
    model: nn.Module, config: OptimizerConfig, products: torch.dtype = torch.float32, processes: int = 1
) -> Optimizer:
    """Builds the optimizer that `training.optimizer.name` selects, for the trained weights of a model.

    `products` and `processes`: see the attributes of `Optimizer`.

    Raises:
        UserError: see `check_optimizer`; or a checkpoint can't hold its state.
    """
    kind, options = _chosen(config)
    optimizer = kind(options, model, config)
    optimizer.products, optimizer.processes = products, processes
    for name, tensor in optimizer.tensors().items():
        if tensor.dtype not in _STORED or name.startswith("trained."):
            raise UserError(
                f"training.optimizer.name={config.name}: a checkpoint can't hold its state {name} of "
                f"{tensor.dtype}. Use fp32, and names that don't begin with trained."
            )
    return optimizer


def check_optimizer(training: TrainingConfig) -> type[Optimizer]:
    """Checks name, options and sharding, and returns the class.

    Raises:
        UserError: no optimizer of that name is registered, it does not take its options, or the weights are
            sharded and it needs whole matrices.
    """
    kind, _ = _chosen(training.optimizer)
    if kind.needs_whole_matrices and training.sharding is Sharding.full and training.devices != "1":
        raise UserError(
            f"training.optimizer.name={training.optimizer.name}: needs whole matrices, but with "
            "training.sharding=full each process has a part of them. Set training.sharding=none, or choose "
            "another optimizer."
        )
    return kind


def _chosen(config: OptimizerConfig) -> tuple[type[Optimizer], Any]:
    """Returns the class and its options."""
    owner = f"training.optimizer.name={config.name}"
    kind = OPTIMIZERS.find(config.name, owner)
    return kind, typed_options(kind.Options, config.options, "training.optimizer.options", owner)


class Optimizer(ABC):
    """Base class of the optimizers: updates the parameters of a model by their gradients.

    Replicated training, sharded training and checkpoints use only this interface. With
    `training.sharding=full`, parameters, gradients and their `zeros_like` are shards (DTensor): each process
    has a part of every tensor. Elementwise arithmetic is unchanged.

    Args:
        options: an instance of `Options`.
        model: the model to train; its parameters are on their device already.
        config: the `training.optimizer` section.

    Attributes:
        parameters: name → parameter, without the frozen ones. Each has a `grad` at every step.
        floats_per_weight: lower bound of the fp32 numbers of state per weight. A model that can't fit into
            memory is rejected before the data are prepared.
        needs_whole_matrices: whether a step reads whole matrices and does not gather them itself. Such an
            optimizer can't be used with sharded weights.
        products: the number format of the training's matrix products, in which a step may compute its own.
        processes: how many make the same step, in the default group of `torch.distributed` if several.
    """

    floats_per_weight: ClassVar[int] = 0
    needs_whole_matrices: ClassVar[bool] = False
    products: torch.dtype = torch.float32
    processes: int = 1

    @dataclass(frozen=True)
    class Options:
        """The options, with types and defaults; `training.optimizer.options` sets them."""

    def __init__(self, options: Any, model: nn.Module, config: OptimizerConfig) -> None:
        self.options, self.config = options, config
        self.parameters = trained_parameters(model)

    @abstractmethod
    def step(self, rate: float, finite: Tensor | None = None) -> None:
        """Updates the parameters.

        Args:
            rate: the learning rate.
            finite: () bool; if false, parameters and state do not change. The host does not wait for its
                value. None: true.
        """

    @abstractmethod
    def tensors(self) -> dict[str, Tensor]:
        """Returns the state by name: the tensors themselves, not copies; all exist before the first step.

        A checkpoint holds them, and a resumed run restores them by `load`. Together with the weights they
        determine all later steps. They are fp32, fp16 or bf16. Names don't begin with `trained.`.
        """

    @torch.no_grad()
    def load(self, tensors: Mapping[str, Tensor], where: str) -> None:
        """Restores the state that `tensors` returned.

        Raises:
            UserError: it belongs to another model or optimizer; `where` names its origin in the message.
        """
        self.check(tensors, where)
        for name, tensor in self.tensors().items():
            tensor.copy_(tensors[name])

    def check(self, tensors: Mapping[str, Tensor], where: str) -> None:
        """Checks whether `tensors` contain a state of this optimizer; other tensors are ignored.

        Raises:
            UserError: they belong to another model or optimizer; `where` names their origin in the message.
        """
        for name, tensor in self.tensors().items():
            saved = tensors.get(name)
            if saved is None or saved.shape != tensor.shape:
                raise UserError(
                    f"{where}: its optimizer state does not match {name}, so it belongs to another model or "
                    "optimizer."
                )


OPTIMIZERS: Registry[type[Optimizer]] = Registry("optimizer")
"""The optimizers by the name that `training.optimizer.name` selects."""
