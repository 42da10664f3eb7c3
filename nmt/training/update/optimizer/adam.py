"""Adam and AdamW."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn

from nmt.config import OptimizerConfig
from nmt.training.update.optimizer.base import OPTIMIZERS, Optimizer

_MOMENTS = ("exp_avg", "exp_avg_sq")


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
        names = self.by_element()
        self._moments = {
            f"{key}.{name}": torch.zeros_like(self.parameters[name]) for name in names for key in _MOMENTS
        }
        self._step = torch.zeros((), device=next(iter(self.parameters.values())).device)
        decaying = [name for name in names if config.weight_decay and self.parameters[name].ndim >= 2]
        others = [name for name in names if name not in set(decaying)]
        self._groups = [each for each in ((decaying, config.weight_decay), (others, 0.0)) if each[0]]

    def by_element(self) -> list[str]:
        """Returns the names of the parameters that Adam updates."""
        return list(self.parameters)

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


OPTIMIZERS["adam"] = Adam
OPTIMIZERS["adamw"] = AdamW
