"""Adam, and all gradients in one flat buffer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

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


def build_optimizer(model: nn.Module, config: OptimizerConfig) -> torch.optim.Adam:
    """Adam or AdamW over the model's parameters, in one fused call; weight decay spares biases and norms."""
    decayed = [p for p in model.parameters() if p.ndim >= 2]
    spared = [p for p in model.parameters() if p.ndim < 2]
    groups = [
        {"params": decayed, "weight_decay": config.weight_decay},
        {"params": spared, "weight_decay": 0.0},
    ]
    kind = torch.optim.AdamW if config.name is OptimizerName.adamw else torch.optim.Adam
    # The learning rate is set before every step: this one is never used.
    optimizer = kind(groups, lr=1.0, betas=(config.beta1, config.beta2), eps=config.epsilon, fused=True)
    for parameter in model.parameters():  # now, so that the first batch finds all memory taken that will be
        moments = {key: torch.zeros_like(parameter) for key in _MOMENTS}
        optimizer.state[parameter] = {"step": torch.zeros((), device=parameter.device), **moments}
    return optimizer


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Sets the learning rate of the next step."""
    for group in optimizer.param_groups:
        group["lr"] = rate


def step_where(finite: Tensor, optimizer: Any) -> None:
    """Makes a step of `build_optimizer`'s Adam if `finite`, () bool, is true; nobody waits to know.

    As torch's gradient scaler does it: where `found_inf` is 1, the fused step leaves weights, moments and the
    count of steps as they are.
    """
    optimizer.found_inf = 1.0 - finite.float()
    try:
        optimizer.step()
    finally:
        del optimizer.found_inf


def optimizer_tensors(optimizer: torch.optim.Optimizer, model: nn.Module) -> dict[str, Tensor]:
    """The optimizer's state by name: `step`, and `exp_avg.NAME` and `exp_avg_sq.NAME` of each parameter."""
    tensors = {}
    for name, parameter in model.named_parameters():
        state = optimizer.state[parameter]
        tensors["step"] = state["step"]  # all parameters make the same steps
        tensors[f"exp_avg.{name}"] = state["exp_avg"]
        tensors[f"exp_avg_sq.{name}"] = state["exp_avg_sq"]
    return tensors


def load_optimizer_tensors(
    optimizer: torch.optim.Optimizer, model: nn.Module, tensors: Mapping[str, Tensor], where: str
) -> None:
    """Puts back what `optimizer_tensors` gave.

    Raises:
        UserError: the tensors belong to another model; `where` says where they came from.
    """
    check_optimizer_tensors(model, tensors, where)
    for name, parameter in model.named_parameters():
        state = {"step": tensors["step"], **{key: tensors[f"{key}.{name}"] for key in _MOMENTS}}
        optimizer.state[parameter] = {k: t.to(parameter.device, copy=True) for k, t in state.items()}


def check_optimizer_tensors(model: nn.Module, tensors: Mapping[str, Tensor], where: str) -> None:
    """Raises `UserError`, which names `where`, if the optimizer's tensors belong to another model."""
    for name, parameter in model.named_parameters():
        pair = [tensors.get(f"{key}.{name}") for key in _MOMENTS]
        if "step" not in tensors or any(t is None or t.shape != parameter.shape for t in pair):
            raise UserError(f"{where}: its optimizer state does not fit {name}, so it is of another model")
