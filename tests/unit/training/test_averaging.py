"""Which checkpoints are averaged and kept, and the mean against its naive twin."""

from __future__ import annotations

import pytest
import torch

from nmt.config import Average, AveragingConfig
from nmt.training.averaging import average, chosen, needed
from nmt.training.progress import Saved

JUDGED = [Saved(1, 5.0), Saved(2, 9.0), Saved(3, 7.0), Saved(4, 9.0), Saved(5, 1.0)]
UNJUDGED = [Saved(1), Saved(2), Saved(3)]
HALF = [Saved(1), Saved(2, 3.0), Saved(3)]


@pytest.mark.parametrize(
    ("kind", "count", "checkpoints", "expected"),
    [
        (Average.last, 2, JUDGED, [4, 5]),
        (Average.last, 9, JUDGED, [1, 2, 3, 4, 5]),
        (Average.best, 1, JUDGED, [2]),  # of equals the earlier
        (Average.best, 3, JUDGED, [2, 3, 4]),
        (Average.best, 2, UNJUDGED, [2, 3]),
        (Average.best, 2, HALF, [2]),
        (Average.none, 3, JUDGED, [2]),
        (Average.none, 3, UNJUDGED, [3]),
    ],
)
def test_chosen(kind: Average, count: int, checkpoints: list[Saved], expected: list[int]) -> None:
    assert chosen(checkpoints, AveragingConfig(kind=kind, count=count)) == expected


@pytest.mark.parametrize(
    ("kind", "count", "keep", "expected"),
    [
        (Average.last, 3, 1, {2, 3, 4, 5}),
        (Average.best, 3, 1, {2, 3, 4, 5}),
        (Average.none, 3, 2, {2, 4, 5}),
        (Average.last, 1, 4, {2, 3, 4, 5}),
    ],
)
def test_needed(kind: Average, count: int, keep: int, expected: set[int]) -> None:
    assert needed(JUDGED, AveragingConfig(kind=kind, count=count), keep) == expected


def test_nothing_is_needed_of_nothing() -> None:
    assert needed([], AveragingConfig(), 5) == set()


def test_mean_matches_its_naive_twin() -> None:
    torch.manual_seed(3)
    states = {u: {"a": torch.randn(50, 3), "b": torch.randn(7)} for u in (1, 2, 3)}
    before = {u: {n: t.clone() for n, t in state.items()} for u, state in states.items()}
    mean = average([1, 2, 3], states.__getitem__)
    for name, tensor in mean.items():
        naive = torch.stack([states[u][name].double() for u in states]).mean(0).float()
        assert tensor.dtype == torch.float32 and torch.equal(tensor, naive)
        assert all(torch.equal(states[u][name], before[u][name]) for u in states)


def test_mean_is_summed_in_float64() -> None:
    values = [1e8, 1.0, -1e8]
    mean = average(range(3), lambda u: {"w": torch.tensor([values[u]])})
    assert mean["w"].item() == pytest.approx(1 / 3)
