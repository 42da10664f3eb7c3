"""Optimizers: `Optimizer`, `OPTIMIZERS` by name, Adam; and all gradients in one flat buffer.

A new optimizer derives from `Optimizer` and is registered: `OPTIMIZERS["mine"] = Mine`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn
from torch.optim.adam import adam

from nmt.config import OptimizerConfig, typed_options
from nmt.errors import UserError
from nmt.runtime import Registry

_MOMENTS = ("exp_avg", "exp_avg_sq")
_STORED = (torch.float32, torch.float16, torch.bfloat16)
_ALIGNMENT = 16  # floats: each gradient begins on a cache line, as a tensor of its own would
_BLOCK = 256  # floats whose squares are summed in fp32


def build_optimizer(model: nn.Module, config: OptimizerConfig) -> Optimizer:
    """Builds the optimizer that `training.optimizer.name` selects.

    Args:
        model: whose parameters are trained.
        config: the `training.optimizer` section.

    Raises:
        UserError: as `check_optimizer`, or a checkpoint can't hold its state.
    """
    kind, options = _chosen(config)
    optimizer = kind(options, model, config)
    for name, tensor in optimizer.tensors().items():
        if tensor.dtype not in _STORED or name.startswith("trained."):
            raise UserError(
                f"training.optimizer.name={config.name}: a checkpoint can't hold its state {name} of "
                f"{tensor.dtype}. Use fp32, and names that don't begin with trained."
            )
    return optimizer


def check_optimizer(config: OptimizerConfig) -> type[Optimizer]:
    """Checks name and options; returns the class.

    Raises:
        UserError: no optimizer of that name is registered, or it does not take its options.
    """
    return _chosen(config)[0]


def _chosen(config: OptimizerConfig) -> tuple[type[Optimizer], Any]:
    """The class, and its options."""
    owner = f"training.optimizer.name={config.name}"
    kind = OPTIMIZERS.find(config.name, owner)
    return kind, typed_options(kind.Options, config.options, "training.optimizer.options", owner)


class FlatGradients:
    """One buffer that every `parameter.grad` is a view of.

    Zeroing, scaling, the norm and the sum over processes are then one call each. A few more numbers travel at
    its end, so that one sum over the processes settles the counts of an update too.

    Args:
        parameters: what is trained; their `grad` is set here and must stay.
        num_extras: length of `extras`.

    Attributes:
        buffer: (everything,) fp32: the gradients, then the extras.
        gradients: the part of `buffer` that holds gradients.
        extras: (num_extras,) the numbers that travel with them.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], num_extras: int) -> None:
        parameters = list(parameters)
        starts, end = [], 0
        for parameter in parameters:
            starts.append(end)
            end += -(-parameter.numel() // _ALIGNMENT) * _ALIGNMENT
        end = -(-end // _BLOCK) * _BLOCK
        self.buffer = torch.zeros(end + num_extras, dtype=torch.float32, device=parameters[0].device)
        self.gradients = self.buffer[:end]
        self.extras = self.buffer[end:]
        for parameter, start in zip(parameters, starts, strict=True):
            parameter.grad = self.buffer[start : start + parameter.numel()].view_as(parameter)

    def zero(self) -> None:
        """Sets gradients and extras to 0."""
        self.buffer.zero_()

    def norm(self) -> Tensor:
        """Euclidean norm of all gradients, () fp32.

        In one fp32 sum, as the CPU would do it, the norm of a base model's gradient is wrong by a thousandth,
        and by how much depends on the number of threads.
        """
        blocks = torch.linalg.vector_norm(self.gradients.view(-1, _BLOCK), dim=1)
        norm: Tensor = torch.linalg.vector_norm(blocks, dtype=torch.float64).float()
        return norm


class Optimizer(ABC):
    """Moves the parameters of a model against their gradients.

    Replicated and sharded training and the checkpoints know this interface alone. With
    `training.sharding=full` parameters, gradients and what `zeros_like` makes of them are shares (DTensor):
    each process has a part of every tensor, and arithmetic by element is the same.

    Args:
        options: an instance of `Options`.
        model: whose parameters are trained; they are on their device already.
        config: the `training.optimizer` section.

    Attributes:
        parameters: name → parameter. Each has a `grad` at every step.
        floats_per_weight: fp32 numbers of state for each weight, or fewer. A model that can't fit into memory
            is refused before the data are prepared.
    """

    floats_per_weight: ClassVar[int] = 0

    @dataclass(frozen=True)
    class Options:
        """The options, with types and defaults; `training.optimizer.options` sets them."""

    def __init__(self, options: Any, model: nn.Module, config: OptimizerConfig) -> None:
        self.options, self.config = options, config
        self.parameters = dict(model.named_parameters())

    @abstractmethod
    def step(self, rate: float, finite: Tensor | None = None) -> None:
        """Moves the parameters.

        Args:
            rate: of learning.
            finite: () bool; where it is false, parameters and state stay as they are. The host does not wait
                for its value. None: true.
        """

    @abstractmethod
    def tensors(self) -> dict[str, Tensor]:
        """The state by name: the tensors themselves, all of them from the beginning.

        A checkpoint holds them, and a run that is resumed gets them back by `load`: with the weights they
        decide all later steps. They are fp32, fp16 or bf16. Names don't begin with `trained.`.
        """

    @torch.no_grad()
    def load(self, tensors: Mapping[str, Tensor], where: str) -> None:
        """Restores what `tensors` returned.

        Raises:
            UserError: they belong to another model or optimizer; `where` says where they came from.
        """
        self.check(tensors, where)
        for name, own in self.tensors().items():
            own.copy_(tensors[name])

    def check(self, tensors: Mapping[str, Tensor], where: str) -> None:
        """Checks whether `tensors` are a state of this optimizer; there may be others beside them.

        Raises:
            UserError: they belong to another model or optimizer; `where` says where they came from.
        """
        for name, own in self.tensors().items():
            found = tensors.get(name)
            if found is None or found.shape != own.shape:
                raise UserError(
                    f"{where}: its optimizer state does not fit {name}, so it is of another model or "
                    "optimizer"
                )


class Adam(Optimizer):
    """Adam (Kingma & Ba 2015); weight decay spares biases and norms.

    It calls the function beneath `torch.optim.Adam`, not the class: that imports torch's compiler, for which
    every start would wait a second, and hears of the learning rate, and of a step that is not to be made, by
    attributes alone.
    """

    floats_per_weight = 2
    _decoupled = False

    def __init__(self, options: Any, model: nn.Module, config: OptimizerConfig) -> None:
        super().__init__(options, model, config)
        # Now, so that the first batch finds all memory taken that will be.
        self._moments = {
            f"{key}.{name}": torch.zeros_like(parameter)
            for name, parameter in self.parameters.items()
            for key in _MOMENTS
        }
        self._steps = {name: torch.zeros((), device=p.device) for name, p in self.parameters.items()}
        self._groups = [
            ([name for name, p in self.parameters.items() if p.ndim >= 2], config.weight_decay),
            ([name for name, p in self.parameters.items() if p.ndim < 2], 0.0),
        ]

    @torch.no_grad()
    def step(self, rate: float, finite: Tensor | None = None) -> None:
        """One fused call for the weights with decay and one for those without."""
        config = self.config
        for names, decay in self._groups:
            adam(
                params=[self.parameters[name] for name in names],
                grads=[cast(Tensor, self.parameters[name].grad) for name in names],
                exp_avgs=[self._moments[f"exp_avg.{name}"] for name in names],
                exp_avg_sqs=[self._moments[f"exp_avg_sq.{name}"] for name in names],
                max_exp_avg_sqs=[],
                state_steps=[self._steps[name] for name in names],
                fused=True,
                found_inf=None if finite is None else 1.0 - finite.float(),
                decoupled_weight_decay=self._decoupled,
                amsgrad=False,
                beta1=config.beta1,
                beta2=config.beta2,
                lr=rate,
                weight_decay=decay,
                eps=config.epsilon,
                maximize=False,
            )

    def tensors(self) -> dict[str, Tensor]:
        """The state itself by name: `step`, and `exp_avg.NAME` and `exp_avg_sq.NAME` of each parameter."""
        step = next(iter(self._steps.values()))  # all parameters make the same steps
        return {"step": step, **self._moments}

    def load(self, tensors: Mapping[str, Tensor], where: str) -> None:
        """Also gives the one count of steps to all parameters."""
        super().load(tensors, where)
        for step in self._steps.values():
            step.copy_(tensors["step"])


class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov & Hutter 2019)."""

    _decoupled = True


OPTIMIZERS: Registry[type[Optimizer]] = Registry("optimizer")
"""The optimizers by the name that `training.optimizer.name` selects."""

OPTIMIZERS["adam"] = Adam
OPTIMIZERS["adamw"] = AdamW
