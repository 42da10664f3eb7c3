"""The finite check of an update: against host arithmetic, with no synchronisation before the step."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from nmt.config import OptimizerConfig
from nmt.training.update.optimizer import FlatGradients, build_optimizer
from nmt.training.update.training_step import UpdateCheck

fp32 = st.floats(2.0**-20, 2.0**30, width=32)


@given(
    fp32, st.integers(1, 10**7), st.sampled_from([1.0, 1024.0, 65536.0]), st.sampled_from([0.0, 0.25, 1.0])
)
def test_the_factor_is_that_of_the_host_bit_for_bit(
    norm: float, tokens: int, scale: float, clip: float
) -> None:
    sums = torch.tensor([7.0, float(tokens), norm])
    check = UpdateCheck(sums, sums[0], sums[1], scale, clip)
    reported = sums.tolist()
    mean = reported[2] / (reported[1] * scale)
    assert check.factor.item() == (clip / mean if 0 < clip < mean else 1.0) / (reported[1] * scale)
    assert check.read() == (reported[:2], mean, True)


@pytest.mark.parametrize(
    ("objective", "norm", "finite"),
    [
        (1.0, 0.0, True),
        (math.nan, 1.0, False),
        (-math.inf, 1.0, False),
        (1.0, math.nan, False),
        (1.0, math.inf, False),
    ],
)
def test_what_is_no_number(objective: float, norm: float, finite: bool) -> None:
    for dtype in (torch.float32, torch.float64):
        sums = torch.tensor([objective, 5.0, norm], dtype=dtype)
        check = UpdateCheck(sums, sums[0], sums[1], 1.0, 1.0)
        assert check.finite.item() == check.read()[2] == finite
        assert not finite or check.factor.item() == 1 / 5


class NobodyReads(TorchDispatchMode):
    """Fails on operations that make the host wait for a GPU."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        assert "_local_scalar_dense" not in str(func) and "nonzero" not in str(func)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", ["adam", "adamw"])
def test_steps_are_those_of_the_plain_optimizer(name: str) -> None:
    """The second of three updates is not finite: it leaves weights, moments and the step count unchanged."""
    found = []
    for plain in (False, True):
        torch.manual_seed(1)
        model = nn.Linear(3, 2)
        gradients = FlatGradients(model.parameters(), num_extras=0)
        optimizer = build_optimizer(model, OptimizerConfig(name=name, weight_decay=0.1))
        for bad in (False, True, False):
            gradients.gradients.fill_(math.nan if bad else 0.5)
            if not plain:
                with NobodyReads():
                    optimizer.step(0.01, torch.tensor(not bad))
            elif not bad:
                optimizer.step(0.01)
        found.append({**model.state_dict(), **optimizer.tensors()})
    assert found[0]["step"].item() == 2
    assert all(torch.equal(tensor, found[1][key]) for key, tensor in found[0].items())


def test_the_judgement_makes_nobody_wait() -> None:
    sums: Tensor = torch.tensor([7.0, 5.0, 3.0])
    with NobodyReads():
        check = UpdateCheck(sums, sums[0], sums[1], 1.0, 1.0)
    assert check.read() == ([7.0, 5.0], 0.6, True)
