"""A running mean of the weights, for a run to validate, average and deliver in their place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from nmt.errors import UserError

_TRAINED = "trained."


class RunningMean:
    """The exponential moving average of a model's weights; without decay it is the weights themselves.

    After each update that was made, mean = decay * mean + (1 - decay) * weights, in the weights' fp32. The
    first weights are random and soon forgotten: after n updates the decay is (n + 1) / (n + 10) where that is
    less (as in Marian and TensorFlow).

    In a checkpoint the mean takes the place of the weights, since whoever reads one wants it, and those that
    training goes on from stand beside the optimizer's state, as `trained.NAME`.

    Args:
        model: whose weights; it is changed within `in_place` only.
        decay: share of the old mean; 0: no mean is kept.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self._weights = dict(model.named_parameters()) if decay else {}
        self._mean = {name: weight.detach().clone() for name, weight in self._weights.items()}
        self._model = model

    @torch.no_grad()
    def update(self, updates: int) -> None:
        """Takes the present weights into the mean, after so many updates that were made."""
        if self.decay:
            decay = min(self.decay, (updates + 1) / (updates + 10))
            torch._foreach_lerp_(list(self._mean.values()), list(self._weights.values()), 1.0 - decay)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Within, the model has the mean for its weights."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    def tensors(self) -> Iterable[Tensor]:
        """The mean, for the processes to share."""
        return self._mean.values()

    def saved(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """What goes into a checkpoint: weights to deliver, and what belongs beside the optimizer's state."""
        trained = {f"{_TRAINED}{name}": weight.detach() for name, weight in self._weights.items()}
        return {**self._model.state_dict(), **self._mean}, trained

    @torch.no_grad()
    def restore(self, optimizer: Mapping[str, Tensor], where: str) -> None:
        """Takes up a checkpoint whose weights the model has: they become the mean, and it gets its own.

        Args:
            optimizer: what stood beside the optimizer's state.
            where: names the checkpoint in the error.

        Raises:
            UserError: the checkpoint is of another model, or of a run without a running mean.
        """
        for name, weight in self._weights.items():
            trained = optimizer.get(f"{_TRAINED}{name}")
            if trained is None or trained.shape != weight.shape:
                raise UserError(f"{where}: it has no {_TRAINED}{name} that fits, so it is of another run")
            self._mean[name].copy_(weight)
            weight.copy_(trained)

    @torch.no_grad()
    def _swap(self) -> None:
        # The values change places, not the tensors: optimizer and captured graphs know those by address.
        for name, weight in self._weights.items():
            mean = self._mean[name].clone()
            self._mean[name].copy_(weight)
            weight.copy_(mean)
