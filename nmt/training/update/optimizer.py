"""Optimizers: the base class `Optimizer`, the registry `OPTIMIZERS`, Adam; and the flat buffer of gradients.

A new optimizer derives from `Optimizer` and is registered: `OPTIMIZERS["mine"] = Mine`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn

from nmt.config import OptimizerConfig, Sharding, TrainingConfig, typed_options
from nmt.errors import UserError
from nmt.runtime.plugins import Registry

_MOMENTS = ("exp_avg", "exp_avg_sq")
_STORED = (torch.float32, torch.float16, torch.bfloat16)
_ALIGNMENT = 16  # floats: each gradient begins on a cache line, as a separate tensor would
_BLOCK = 256  # floats whose squares are summed in fp32


def trained_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """Returns the parameters that are trained, by name: all except the frozen ones (`training.freeze`)."""
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


def build_optimizer(model: nn.Module, config: OptimizerConfig) -> Optimizer:
    """Builds the optimizer that `training.optimizer.name` selects, for the trained weights of a model.

    Raises:
        UserError: see `check_optimizer`; or a checkpoint can't hold its state.
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


class StartPenalty:
    """`training.l2_to_start`: the penalty strength / 2 * ||weights - start||^2, which weakens forgetting.

    It is added to the loss per target token (Barone et al. 2017, "Regularization techniques for fine-tuning
    in neural machine translation"). Its gradient is added after the division by the number of target tokens
    and after clipping, where Adam adds weight decay. So `training.clip_norm` and the logged gradient norm
    concern the loss alone, and neither loss scale nor number of processes matters.

    `weights` are the trained weights by name, or the shards of them in this process, with their starting
    values, which are copied.
    """

    def __init__(self, weights: Mapping[str, Tensor], strength: float) -> None:
        self._weights, self._strength = list(weights.values()), strength
        self._start = [weight.clone() for weight in self._weights]

    @torch.no_grad()
    def add_to(self, gradients: Sequence[Tensor]) -> None:
        """Adds the gradient of the penalty to the mean gradients of the weights, in their order."""
        distances = torch._foreach_sub(self._weights, self._start)
        torch._foreach_add_(list(gradients), distances, alpha=self._strength)


class FlatGradients:
    """One buffer of all gradients: every `parameter.grad` is a view of it.

    Zeroing, scaling, the norm and the sum over processes are then one call each. The buffer ends with extra
    numbers, so that the same sum over processes also sums the counters of an update.

    The `grad` of the parameters is set here and must not be replaced.

    Attributes:
        buffer: (size,) fp32: the gradients, then the extras.
        gradients: the part of `buffer` that holds gradients.
        extras: (num_extras,), the extra numbers.
        starts: the place of the gradient of each parameter in `buffer`.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], num_extras: int) -> None:
        parameters = list(parameters)
        starts: list[int] = []
        end = 0
        for parameter in parameters:
            starts.append(end)
            end += -(-parameter.numel() // _ALIGNMENT) * _ALIGNMENT
        end = -(-end // _BLOCK) * _BLOCK
        self.buffer = torch.zeros(end + num_extras, dtype=torch.float32, device=parameters[0].device)
        self.gradients = self.buffer[:end]
        self.extras = self.buffer[end:]
        self.starts = starts
        for parameter, start in zip(parameters, starts, strict=True):
            parameter.grad = self.buffer[start : start + parameter.numel()].view_as(parameter)

    def zero(self) -> None:
        """Sets gradients and extras to 0."""
        self.buffer.zero_()

    def norm(self) -> Tensor:
        """Returns the Euclidean norm of all gradients, () fp32.

        The sum is split into blocks: with a single fp32 sum on the CPU, the norm of a base model's gradient
        has a relative error of 1e-3, which depends on the number of threads.
        """
        blocks = torch.linalg.vector_norm(self.gradients.view(-1, _BLOCK), dim=1)
        norm: Tensor = torch.linalg.vector_norm(blocks, dtype=torch.float64).float()
        return norm


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
        needs_whole_matrices: whether a step reads whole matrices, as Muon does, not only single elements.
            Such an optimizer can't be used with sharded weights.
    """

    floats_per_weight: ClassVar[int] = 0
    needs_whole_matrices: ClassVar[bool] = False

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


class Adam(Optimizer):
    """Adam (Kingma & Ba 2015), without weight decay for biases and norms.

    Calls the operators that `torch.optim.Adam` calls, not the class. The class imports torch's compiler,
    which takes a second at every start, and takes the learning rate and the flag to skip a step as attributes
    only. It also counts the steps of each parameter separately, in some hundred tensors.
    """

    floats_per_weight = 2
    _decoupled = False

    def __init__(self, options: Any, model: nn.Module, config: OptimizerConfig) -> None:
        super().__init__(options, model, config)
        # Allocated now, so that the memory probe of the first batch includes them.
        self._moments = {
            f"{key}.{name}": torch.zeros_like(parameter)
            for name, parameter in self.parameters.items()
            for key in _MOMENTS
        }
        self._step = torch.zeros((), device=next(iter(self.parameters.values())).device)
        self._groups = [(list(self.parameters), 0.0)]
        if config.weight_decay:
            self._groups = [
                ([name for name, p in self.parameters.items() if p.ndim >= 2], config.weight_decay),
                ([name for name, p in self.parameters.items() if p.ndim < 2], 0.0),
            ]

    @torch.no_grad()
    def step(self, rate: float, finite: Tensor | None = None, divisor: Tensor | None = None) -> None:
        """Makes one fused call; with weight decay, one for the weights that decay and one for the others.

        `divisor`, () fp32: the gradients are divided by it first, in the same pass over them.
        """
        config = self.config
        self._step.add_(1.0 if finite is None else finite)
        fused = torch._fused_adamw_ if self._decoupled else torch._fused_adam_
        skipped = None if finite is None else torch.logical_not(finite, out=torch.empty_like(self._step))
        for names, decay in self._groups:
            fused(
                [self.parameters[name] for name in names],
                [cast(Tensor, self.parameters[name].grad) for name in names],
                [self._moments[f"exp_avg.{name}"] for name in names],
                [self._moments[f"exp_avg_sq.{name}"] for name in names],
                [],
                [self._step] * len(names),
                lr=rate,
                beta1=config.beta1,
                beta2=config.beta2,
                weight_decay=decay,
                eps=config.epsilon,
                amsgrad=False,
                maximize=False,
                grad_scale=divisor,
                found_inf=skipped,
            )

    def tensors(self) -> dict[str, Tensor]:
        """Returns the state by name: `step`, and `exp_avg.NAME` and `exp_avg_sq.NAME` of each parameter."""
        return {"step": self._step, **self._moments}


class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov & Hutter 2019)."""

    _decoupled = True


OPTIMIZERS: Registry[type[Optimizer]] = Registry("optimizer")
"""The optimizers by the name that `training.optimizer.name` selects."""

OPTIMIZERS["adam"] = Adam
OPTIMIZERS["adamw"] = AdamW
