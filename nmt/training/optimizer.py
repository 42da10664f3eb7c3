"""Adam, and all gradients in one flat buffer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import cast

import torch
from torch import Tensor, nn
from torch.optim.adam import adam

from nmt.config import OptimizerConfig, OptimizerName
from nmt.errors import UserError

_MOMENTS = ("exp_avg", "exp_avg_sq")
_ALIGNMENT = 16  # floats: each gradient begins on a cache line, as a tensor of its own would
_BLOCK = 256  # floats whose squares are summed in fp32


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


class Adam:
    """Adam (Kingma & Ba 2015) or AdamW (Loshchilov & Hutter 2019); weight decay spares biases and norms.

    It calls the function beneath `torch.optim.Adam`, not the class: that imports torch's compiler, for which
    every start would wait a second, and hears of the learning rate, and of a step that is not to be made, by
    attributes alone.

    Args:
        model: whose parameters are moved against their `grad`.
        config: the options.
    """

    def __init__(self, model: nn.Module, config: OptimizerConfig) -> None:
        self._config = config
        self._parameters = dict(model.named_parameters())
        # Now, so that the first batch finds all memory taken that will be.
        self._moments = {
            f"{key}.{name}": torch.zeros_like(parameter)
            for name, parameter in self._parameters.items()
            for key in _MOMENTS
        }
        self._steps = {name: torch.zeros((), device=p.device) for name, p in self._parameters.items()}
        self._groups = [
            ([name for name, p in self._parameters.items() if p.ndim >= 2], config.weight_decay),
            ([name for name, p in self._parameters.items() if p.ndim < 2], 0.0),
        ]

    @torch.no_grad()
    def step(self, rate: float, finite: Tensor | None = None) -> None:
        """Moves the parameters.

        Args:
            rate: of learning.
            finite: () bool; where it is false, parameters and state stay as they are. Nobody waits to know.
        """
        config = self._config
        for names, decay in self._groups:
            adam(
                params=[self._parameters[name] for name in names],
                grads=[cast(Tensor, self._parameters[name].grad) for name in names],
                exp_avgs=[self._moments[f"exp_avg.{name}"] for name in names],
                exp_avg_sqs=[self._moments[f"exp_avg_sq.{name}"] for name in names],
                max_exp_avg_sqs=[],
                state_steps=[self._steps[name] for name in names],
                fused=True,
                found_inf=None if finite is None else 1.0 - finite.float(),
                decoupled_weight_decay=config.name is OptimizerName.adamw,
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
        """Puts back what `tensors` gave.

        Raises:
            UserError: they belong to another model; `where` says where they came from.
        """
        self.check(tensors, where)
        for step in self._steps.values():
            step.copy_(tensors["step"])
        for name, moment in self._moments.items():
            moment.copy_(tensors[name])

    def check(self, tensors: Mapping[str, Tensor], where: str) -> None:
        """Raises `UserError`, which names `where`, if such a state belongs to another model."""
        for name, moment in self._moments.items():
            found = tensors.get(name)
            if "step" not in tensors or found is None or found.shape != moment.shape:
                weight = name.partition(".")[2]
                raise UserError(
                    f"{where}: its optimizer state does not fit {weight}, so it is of another model"
                )
