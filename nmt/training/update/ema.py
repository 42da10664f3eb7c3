"""A running mean of the weights, for a run to validate, average and deliver in their place."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor

from nmt.errors import UserError
from nmt.training.update.parallel import Parallel, State

_TRAINED = "trained."


class RunningMean:
    """The exponential moving average of a model's weights; without decay it is the weights themselves.

    After each update that was made, mean = decay * mean + (1 - decay) * weights, in the weights' fp32. The
    first weights are random and soon forgotten: after n updates the decay is (n + 1) / (n + 10) where that is
    less (as in Marian and TensorFlow).

    In a checkpoint the mean takes the place of the weights, since whoever reads one wants it, and those that
    training goes on from stand beside the optimizer's state, as `trained.NAME`.

    Args:
        parallel: the model in training; it is changed within `in_place` only.
        decay: share of the old mean; 0: no mean is kept.
    """

    def __init__(self, parallel: Parallel, decay: float) -> None:
        self._parallel, self._decay = parallel, decay
        self._weights = parallel.held() if decay else {}
        self._mean = {name: weight.clone() for name, weight in self._weights.items()}

    @torch.no_grad()
    def update(self, updates: int) -> None:
        """Takes the present weights into the mean, after so many updates that were made."""
        if self._decay:
            decay = min(self._decay, (updates + 1) / (updates + 10))
            torch._foreach_lerp_(list(self._mean.values()), list(self._weights.values()), 1.0 - decay)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Within, the model has the mean for its weights, or its share of either."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    def state(self, *, optimizer: bool) -> State:
        """What a checkpoint holds, of the mean and all else; as `Parallel.state`."""
        state = self._parallel.state(optimizer=optimizer)
        if not self._decay:
            return state
        beside = with_trained(state)
        with self.in_place():
            mean = self._parallel.state(optimizer=False)[0]
            return {name: weight.clone() for name, weight in mean.items()}, beside

    def restore(self, state: State | None, begun: bool, where: Path) -> None:
        """Gives all processes what `state` told the main one; as `Parallel.restore`."""
        if self._decay and begun:
            self._parallel.restore(state, begun, where)  # the mean in the place of the weights
            for name, weight in self._weights.items():
                self._mean[name].copy_(weight)
            if state:
                state = trained_weights(state, str(where)), state[1]
        self._parallel.restore(state, begun, where)

    @torch.no_grad()
    def _swap(self) -> None:
        # The values change places, not the tensors: the optimizer knows those by address.
        for name, weight in self._weights.items():
            mean = self._mean[name].clone()
            self._mean[name].copy_(weight)
            weight.copy_(mean)


def with_trained(state: State) -> dict[str, Tensor]:
    """The optimizer's tensors, and copies of the weights beside them."""
    weights, optimizer = state
    trained = {f"{_TRAINED}{name}": weight.clone() for name, weight in weights.items()}
    return {**optimizer, **trained}


def trained_weights(state: State, where: str) -> dict[str, Tensor]:
    """The weights to go on from, of a checkpoint that `with_trained` was made for.

    Raises:
        UserError: it is of a run without a running mean; `where` names it.
    """
    weights, optimizer = state
    missing = [name for name in weights if f"{_TRAINED}{name}" not in optimizer]
    if missing:
        raise UserError(f"{where}: it has no {_TRAINED}{missing[0]}, so it is of a run without training.ema")
    return {name: optimizer[f"{_TRAINED}{name}"] for name in weights}
