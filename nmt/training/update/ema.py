"""The running mean of the weights, which a run validates, averages and saves in place of the weights."""

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
    """The exponential moving average of a model's weights; without decay, the weights themselves.

    After each applied update, mean = decay * mean + (1 - decay) * weights, in the weights' fp32. The random
    initial weights are forgotten soon: after n updates the decay is min(decay, (n + 1) / (n + 10)), as in
    Marian and TensorFlow.

    A checkpoint holds the mean in the place of the weights, because its readers need the mean. The weights
    that training resumes from are stored with the optimizer's state, as `trained.NAME`.

    `decay` is the share of the old mean; 0: there is no mean. Only `is_main` uses what `state` returns.
    """

    def __init__(self, parallel: Parallel, decay: float, *, is_main: bool = True) -> None:
        self._parallel, self._decay, self._is_main = parallel, decay, is_main
        self._weights = parallel.weights() if decay else {}
        self._mean = {name: weight.clone() for name, weight in self._weights.items()}

    @torch.no_grad()
    def update(self, updates: int) -> None:
        """Adds the current weights to the mean; `updates` is the number of applied updates."""
        if self._decay:
            decay = min(self._decay, (updates + 1) / (updates + 10))
            torch._foreach_lerp_(list(self._mean.values()), list(self._weights.values()), 1.0 - decay)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Replaces the weights of the model by the mean; of a sharded model, each process's share."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    def state(self, *, optimizer: bool) -> State:
        """Returns the tensors of a checkpoint, the mean included; see `Parallel.state`.

        With a mean, the weights are copies in the memory of the host, and only the main process makes them. A
        GPU would need memory for them that the memory probe has not tried.
        """
        state = self._parallel.state(optimizer=optimizer)
        if not self._decay:
            return state
        tensors = with_trained(state) if self._is_main else {}
        with self.in_place():
            mean = self._parallel.state(optimizer=False)[0]
            return (
                {name: _on_host(weight) for name, weight in mean.items()} if self._is_main else {}
            ), tensors

    def restore(self, state: State | None, begun: bool, where: Path) -> None:
        """Gives all processes the state that rank 0 has read; see `Parallel.restore`."""
        if self._decay and begun:
            self._parallel.restore(state, begun, where)  # the mean in the place of the weights
            for name, weight in self._weights.items():
                self._mean[name].copy_(weight)
            if state:
                state = trained_weights(state, str(where)), state[1]
        self._parallel.restore(state, begun, where)

    @torch.no_grad()
    def _swap(self) -> None:
        # Swaps the values, not the tensors: the optimizer holds references to the tensors.
        for name, weight in self._weights.items():
            mean = self._mean[name].clone()
            self._mean[name].copy_(weight)
            weight.copy_(mean)


def with_trained(state: State) -> dict[str, Tensor]:
    """Returns the optimizer's tensors with copies of the weights added, as `trained.NAME`, on the host."""
    weights, optimizer = state
    trained = {f"{_TRAINED}{name}": _on_host(weight) for name, weight in weights.items()}
    return {**optimizer, **trained}


def _on_host(weight: Tensor) -> Tensor:
    return weight.detach().to("cpu", copy=True)


def trained_weights(state: State, where: str) -> dict[str, Tensor]:
    """Returns the weights to resume from, of a checkpoint that `with_trained` has extended.

    Raises:
        UserError: the checkpoint has no such weights; `where` names it in the message.
    """
    weights, optimizer = state
    missing = [name for name in weights if f"{_TRAINED}{name}" not in optimizer]
    if missing:
        raise UserError(
            f"{where}: has no {_TRAINED}{missing[0]}, so it belongs to a run without training.ema."
        )
    return {name: optimizer[f"{_TRAINED}{name}"] for name in weights}
