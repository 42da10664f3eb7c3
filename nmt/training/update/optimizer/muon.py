"""Muon: steps along the nearest orthogonal matrix (Jordan et al. 2024), with the scaling of NorMuon."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn

from nmt.config import OptimizerConfig
from nmt.config.checks import above, bounded, decay
from nmt.model import Linear, Seq2Seq
from nmt.training.update.optimizer.adam import Adam
from nmt.training.update.optimizer.base import OPTIMIZERS
from nmt.training.update.optimizer.shards import gathered, local, shard_of

_MARGIN = 1.01
_PUBLISHED = (
    (8.28721201814563, -23.595886519098837, 17.300387312530933),
    (4.107059111542203, -2.9478499167379106, 0.5448431082926601),
    (3.9486908534822946, -2.908902115962949, 0.5518191394370137),
    (3.3184196573706015, -2.488488024314874, 0.51004894012372),
    (2.300652019954817, -1.6689039845747493, 0.4188073119525673),
)
POLYNOMIALS = (
    *((a / _MARGIN, b / _MARGIN**3, c / _MARGIN**5) for a, b, c in _PUBLISHED[:-1]),
    _PUBLISHED[-1],
)
"""Coefficients of x, x^3 and x^5 of each iteration: Polar Express (Amsel et al. 2025, algorithm 1), the best
polynomials of degree 5 for singular values from 0.001 to 1. All but the last are those of x / 1.01: then
rounding in bf16 raises no singular value above the range of the next polynomial."""
_RMS = 0.2  # of a step at rate 1: about that of Adam (Liu et al. 2025, section 2.2)
_TINY = 1e-20  # keeps 0 / 0 from being NaN


class Muon(Adam):
    """Muon for the matrices of the layers, Adam for all other parameters: embeddings, softmax, norms, biases.

    A matrix is the weight of an `nn.Linear` in one of the model's `blocks`. A weight that stacks several,
    such as a projection to queries, keys and values, counts as several (`Linear.stacked`). For a matrix W of
    n rows and m columns with the gradient G, a step is

        M = a M + (1 - a) G                                 a: `momentum`
        O = U V^T, where U S V^T = a M + (1 - a) G          see `orthogonal`
        v = b v + (1 - b) mean of O^2 over the columns      b: `row_decay`; v has n rows
        N = O / sqrt(v)
        W = W - 0.2 rate sqrt(n m) N / ||N||

    So the root mean square of a step is 0.2 rate. That of Adam is similar, and they share a learning rate.
    The scaling of rows is from NorMuon (Li et al. 2025, algorithm 1). `training.optimizer.weight_decay` is
    decoupled for all parameters, as in AdamW.

    With sharded weights, each process gathers the directions of all matrices.
    """

    floats_per_weight: ClassVar[int] = 1
    _decoupled = True

    @dataclass(frozen=True)
    class Options:
        """The options, with types and defaults; `training.optimizer.options` sets them."""

        momentum: float = bounded(0.95, decay())
        """Decay of the running mean of the gradients of matrices."""
        row_decay: float = bounded(0.95, decay())
        """Decay of the running mean of the squares of each row of a step."""
        adam_rate: float = bounded(1.0, above(0, 1000))
        """Learning rate of the other parameters, as a factor of that of the matrices."""

    def __init__(self, options: Any, model: nn.Module, config: OptimizerConfig) -> None:
        self._stacked = matrices(model)
        super().__init__(options, model, config)
        weights = {name: weight for name, weight in self.parameters.items() if name in self._stacked}
        self._momentum = {name: torch.zeros_like(weight) for name, weight in weights.items()}
        # Whole in every process, also if weights are sharded.
        self._rows = {name: torch.zeros(len(each), 1, device=each.device) for name, each in weights.items()}

    def by_element(self) -> list[str]:
        """Returns the parameters that are not matrices."""
        return [name for name in self.parameters if name not in self._stacked]

    @torch.no_grad()
    def step(self, rate: float, finite: Tensor | None = None, divisor: Tensor | None = None) -> None:
        """Makes a step; all matrices of the same shape are orthogonalised in one call.

        `divisor`: see `Adam.step`.
        """
        super().step(rate * self.options.adam_rate, finite, divisor)
        by_shape: dict[torch.Size, list[_Matrix]] = defaultdict(list)
        changes = {}
        for name, direction in self._directions(finite, divisor).items():
            changes[name] = torch.empty_like(direction)
            weights = direction, self._rows[name], changes[name]
            for part in map(_Matrix, *(torch.split(each, self._stacked[name]) for each in weights)):
                by_shape[part.direction.shape].append(part)
        groups = list(by_shape.values())
        stacks = [torch.stack([part.direction for part in group]) for group in groups]
        for group, steps in zip(groups, self._orthogonal(stacks), strict=True):
            self._scale(group, steps, finite)
        kept = 1 - rate * self.config.weight_decay
        for name, change in changes.items():
            weight = self.parameters[name]
            mine = local(weight)
            fresh = (mine * kept).sub_(shard_of(change, weight), alpha=rate)
            mine.copy_(_chosen(finite, fresh, mine))

    def _directions(self, finite: Tensor | None, divisor: Tensor | None) -> dict[str, Tensor]:
        """Updates the running means of gradients, and returns the matrices to orthogonalise."""
        directions, weight = {}, 1 - self.options.momentum
        for name, momentum in self._momentum.items():
            gradient, mean = local(self.parameters[name].grad), local(momentum)
            if divisor is not None:
                gradient = gradient / divisor
            fresh = mean.lerp(gradient, weight)
            mean.copy_(_chosen(finite, fresh, mean))
            directions[name] = gathered(fresh.lerp_(gradient, weight), momentum)
        return directions

    def _orthogonal(self, stacks: list[Tensor]) -> list[Tensor]:
        """Returns `orthogonal` of each stack, (K, n, m) each, in fp32.

        On CPUs this takes as long as the passes of a small update. So it is done in bf16 there if the
        training is, and each process does a part of every stack. On GPUs neither has been measured.
        """
        if any(stack.device.type != "cpu" for stack in stacks):
            return list(map(orthogonal, stacks))
        dtype = torch.bfloat16 if self.products is torch.bfloat16 else torch.float32
        if self.processes == 1:
            return [orthogonal(stack, dtype).float() for stack in stacks]
        steps = list(map(torch.empty_like, stacks))
        parts = [_parts(steps, rank, self.processes) for rank in range(self.processes)]
        own = _parts(stacks, dist.get_rank(), self.processes)
        found = torch.cat([orthogonal(part, dtype).flatten() for part in own])
        most = max(sum(part.numel() for part in of_rank) for of_rank in parts)
        found = nn.functional.pad(found, (0, most - len(found)))
        gathered = [torch.empty_like(found) for _ in parts]
        dist.all_gather([each.view(torch.uint8) for each in gathered], found.view(torch.uint8))
        for values, of_rank in zip(gathered, parts, strict=True):
            for part in of_rank:
                part.copy_(values[: part.numel()].view_as(part))
                values = values[part.numel() :]
        return steps

    def _scale(self, group: list[_Matrix], steps: Tensor, finite: Tensor | None) -> None:
        """Fills in the changes of matrices of the same shape, and updates the running means of their rows."""
        means = torch.stack([part.rows for part in group])
        fresh = means.lerp(steps.square().mean(2, keepdim=True), 1 - self.options.row_decay)
        steps /= fresh.sqrt().clamp_min_(_TINY)
        steps *= _RMS * (steps.shape[1] * steps.shape[2]) ** 0.5 / _norm(steps)
        for part, step, mean in zip(group, steps, _chosen(finite, fresh, means), strict=True):
            part.change.copy_(step)
            part.rows.copy_(mean)

    def tensors(self) -> dict[str, Tensor]:
        """Returns those of Adam, and `momentum.NAME` and `rows.NAME` of each matrix."""
        own = {"momentum": self._momentum, "rows": self._rows}
        named = {f"{key}.{name}": each for key, by_name in own.items() for name, each in by_name.items()}
        return {**super().tensors(), **named}


class _Matrix(NamedTuple):
    """Views of one matrix in a weight: direction and change, (n, m), and the mean of its rows, (n, 1)."""

    direction: Tensor
    rows: Tensor
    change: Tensor


def orthogonal(matrices: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Returns U V^T for the singular value decomposition U S V^T of each matrix, nearly.

    Singular values of at least a thousandth of the norm become 0.86 to 1.14; smaller ones less, and in bf16
    inexact.

    Args:
        matrices: (K, n, m).
        dtype: the number format of the products and of the result.

    Returns:
        (K, n, m).
    """
    is_tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.mT if is_tall else matrices
    x = (x / (_norm(x) * _MARGIN)).to(dtype).contiguous()
    for linear, cubic, quintic in POLYNOMIALS:
        square = x @ x.mT
        polynomial = torch.baddbmm(square, square, square, beta=cubic, alpha=quintic)
        x = torch.baddbmm(x, polynomial, x, beta=linear)
    return x.mT if is_tall else x


def _parts(stacks: Sequence[Tensor], rank: int, processes: int) -> list[Tensor]:
    """Returns views of the matrices of each stack that a process computes; those left over are spread."""
    return [stack[(rank + number) % processes :: processes] for number, stack in enumerate(stacks)]


def matrices(model: nn.Module) -> dict[str, list[int]]:
    """Returns the weights that consist of matrices: name → the rows of each matrix."""
    blocks = list(model.blocks()) if isinstance(model, Seq2Seq) else [model]
    inside = {module for block in blocks for module in block.modules()}
    return {
        f"{name}.weight": module.stacked if isinstance(module, Linear) else [module.out_features]
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and module in inside
    }


def _norm(matrices: Tensor) -> Tensor:
    norm: Tensor = torch.linalg.vector_norm(matrices, dim=(1, 2), keepdim=True)
    return norm.clamp_min_(_TINY)


def _chosen(finite: Tensor | None, fresh: Tensor, old: Tensor) -> Tensor:
    return fresh if finite is None else torch.where(finite, fresh, old)


OPTIMIZERS["muon"] = Muon
