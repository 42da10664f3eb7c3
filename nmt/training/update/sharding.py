"""Sharding of model, gradients and optimizer over the processes, with FSDP2 (Zhao et al. 2023)."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from nmt.bundle import load_weights
from nmt.config import TrainingConfig
from nmt.model import ModelOutput, Seq2Seq, as_output, backend_of, put_on
from nmt.training.processes.ranks import Ranks
from nmt.training.update.gradients import StartPenalty
from nmt.training.update.optimizer import build_optimizer, trained_parameters
from nmt.training.update.optimizer.shards import gathered, local
from nmt.training.update.precision import exchange_dtype, product_dtype


class Sharded:
    """A shard of each tensor in every process; the weights of a layer are gathered when they are used.

    A layer is one unit of communication. Embeddings, softmax and final norms, whose weights may be tied, form
    another unit. See `nmt.training.update.parallel.Parallel` for the methods.

    With one micro-batch per process, weights are resharded as soon as a layer is done, which needs least
    memory. Otherwise weights and gradients stay unsharded from the first micro-batch of an update to the
    last. Processes may then have unequal numbers of micro-batches, since they communicate in the first and
    the last only.

    The model is unsharded and on the CPU, so that no device ever holds more of it than it needs.
    """

    def __init__(self, model: Seq2Seq, options: TrainingConfig, ranks: Ranks, num_extras: int) -> None:
        self._ranks, self.initial_gradient = ranks, torch.ones((), device=ranks.device)
        # Beam search needs unsharded weights.
        self.whole = put_on(copy.deepcopy(model), ranks.device)
        mesh = init_device_mesh(ranks.device.type, (ranks.world,))
        formats = MixedPrecisionPolicy(reduce_dtype=exchange_dtype(options.gradient_exchange))
        model.register_forward_hook(_with_gradient)  # before the hooks of FSDP, which then see its result
        for unit in (*model.blocks(), model):
            reshard = options.micro_batches == ranks.world and unit is not model
            sharded = fully_shard(unit, mesh=mesh, reshard_after_forward=reshard, mp_policy=formats)
            # Sums, since the divisor is the number of tokens of all processes. Gloo's means are also wrong
            # (pytorch issue 162338).
            sharded.set_gradient_divide_factor(1.0)
            sharded.set_force_sum_reduction_for_comms(True)
        self.model = model
        model.backend = backend_of(ranks.device, options.unmeasured_kernels)
        self._optimizer = build_optimizer(
            model, options.optimizer, product_dtype(options.precision), ranks.world
        )
        self._trained = trained_parameters(model)
        l2 = options.l2_to_start
        self._penalty = StartPenalty(self.weights(), l2) if l2 else None
        self.extras = torch.zeros(num_extras, device=ranks.device)

    def weights(self) -> dict[str, Tensor]:
        """Returns the shard of each trained weight."""
        return {name: local(weight.detach()) for name, weight in self._trained.items()}

    def zero(self) -> None:
        """Releases the gradients and sets the extras to 0."""
        self.model.zero_grad(set_to_none=True)
        self.extras.zero_()

    def backward(self, loss: Tensor, *, last: bool) -> None:
        """Adds the gradient of a micro-batch; after the last one, reduces and scatters the gradients."""
        root = cast(FSDPModule, self.model)
        root.set_requires_gradient_sync(last)
        root.set_reshard_after_backward(last)
        torch.autograd.backward(loss, self.initial_gradient)

    def sums(self) -> Tensor:
        """Sums the extras and the squared norms of the shards; the gradients are summed already."""
        norms = torch._foreach_norm(self._gradients(), 2, dtype=torch.float64)
        sums = torch.cat([self.extras.double(), torch.stack(norms).square().sum()[None]])
        self._ranks.sum_(sums)
        sums[-1].sqrt_()
        return sums

    def step(self, rate: float, factor: Tensor, finite: Tensor) -> None:
        """Makes the step of this process's shards; the host does not wait for the values of the tensors."""
        gradients = self._gradients()
        torch._foreach_mul_(gradients, factor.float())
        if self._penalty is not None:
            self._penalty.add_to(gradients)
        self._optimizer.step(rate, finite)

    def state(self, *, optimizer: bool) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Gathers the shards in the CPU memory of rank 0, and the weights in `whole`, one after the other."""
        weights = self._gathered(self.model.state_dict(), self.whole.state_dict())
        tensors = self._gathered(self._optimizer.tensors()) if optimizer else {}
        return weights, tensors

    def restore(
        self, state: tuple[Mapping[str, Tensor], Mapping[str, Tensor]] | None, begun: bool, where: Path
    ) -> None:
        """Distributes shards of the state that rank 0 read."""
        if not begun:
            return  # each process has its shards of the initial weights
        weights, tensors = state or ({}, {})
        if self._ranks.is_main:
            load_weights(self.whole, weights, where)
            self._optimizer.check(tensors, str(where))
        self.model.load_state_dict(self._distributed(self.model.state_dict(), weights))
        self._optimizer.load(self._distributed(self._optimizer.tensors(), tensors), str(where))

    def _gradients(self) -> list[Tensor]:
        """Returns this process's shards of the gradients, to read or change."""
        return [local(parameter.grad) for parameter in self._trained.values()]

    def _gathered(
        self, tensors: Mapping[str, Tensor], copies: Mapping[str, Tensor] | None = None
    ) -> dict[str, Tensor]:
        whole = {}
        for name, tensor in tensors.items():
            full = gathered(local(tensor), tensor)
            if copies is not None:
                copies[name].copy_(full)
            if self._ranks.is_main:
                whole[name] = full.cpu()
        return whole

    def _distributed(self, like: Mapping[str, Tensor], whole: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Distributes the tensors `whole` of rank 0 with the placements of the tensors in `like`."""
        shards = {}
        for name, tensor in like.items():
            full = torch.empty(tensor.shape, dtype=tensor.dtype, device=self._ranks.device)
            if self._ranks.is_main:
                full.copy_(whole[name])
            if isinstance(tensor, DTensor):
                full = distribute_tensor(full, tensor.device_mesh, tensor.placements)
            else:
                self._ranks.copy_([full])
            shards[name] = full
        return shards


def _with_gradient(model: nn.Module, inputs: object, result: Tensor | ModelOutput) -> Tensor | ModelOutput:
    """Makes hidden states require a gradient; FSDP sums gradients only if the backward pass reaches it.

    They have none if all weights except those of the softmax are frozen.
    """
    hidden = as_output(result).hidden
    if torch.is_grad_enabled() and not hidden.requires_grad:
        hidden.requires_grad_()
    return result
