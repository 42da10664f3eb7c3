"""The choice of checkpoints to average and retain, and the mean against its naive twin."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from nmt.config import Average, AveragingConfig
from nmt.training.selection import (
    Candidate,
    among_best,
    average,
    averaged_updates,
    candidates,
    updates_to_retain,
)
from nmt.training.state.progress import Progress, Saved

JUDGED = [Saved(1, 5.0), Saved(2, 9.0), Saved(3, 7.0), Saved(4, 9.0), Saved(5, 1.0)]
UNJUDGED = [Saved(1), Saved(2), Saved(3)]
HALF = [Saved(1), Saved(2, 3.0), Saved(3)]


EXTRAS = [Saved(6, 8.0), Saved(7, 9.5)]


@pytest.mark.parametrize(
    ("kind", "count", "checkpoints", "extras", "expected"),
    [
        (Average.last, 2, JUDGED, [], (4, 5)),
        (Average.last, 2, JUDGED, [Saved(6, 99.0)], (4, 5)),  # extras are ignored
        (Average.best, 1, JUDGED, [], (2,)),  # the earlier of equal ones
        (Average.best, 2, UNJUDGED, [], (2, 3)),
        (Average.best, 2, HALF, [], (2,)),
        (Average.best, 2, JUDGED, [Saved(6, 8.0), Saved(7, 9.5)], (2, 7)),
        (Average.none, 3, JUDGED, [], (2,)),
        (Average.none, 3, UNJUDGED, [], (3,)),
        (Average.none, 3, JUDGED, [Saved(6, 9.1)], (6,)),
    ],
)
def test_averaged_updates(
    kind: Average, count: int, checkpoints: list[Saved], extras: list[Saved], expected: tuple[int, ...]
) -> None:
    assert averaged_updates(checkpoints, AveragingConfig(kind=kind, count=count), extras) == expected


@pytest.mark.parametrize(
    ("checkpoints", "extras", "count", "ema", "expected"),
    [
        (
            JUDGED, [], 3, False,
            [("best", (2,)), ("last", (5,)), ("mean of the best 2", (2, 4)), ("mean of the last 2", (4, 5)),
             ("mean of the best 3", (2, 3, 4)), ("mean of the last 3", (3, 4, 5))],
        ),
        (JUDGED, [], 1, True, [("best", (2,)), ("last", (5,)), ("last, without ema", (5,))]),
        (
            UNJUDGED, [], 9, False,
            [("last", (3,)), ("mean of the last 2", (2, 3)), ("mean of the last 3", (1, 2, 3))],
        ),
        ([Saved(4, 1.0)], [], 5, False, [("best = last", (4,))]),
        (
            [Saved(4, 1.0), Saved(8, 2.0)], [Saved(6, 3.0)], 2, False,
            [("best", (6,)), ("last", (8,)), ("mean of the last 2", (4, 8)), ("mean of the best 2", (6, 8))],
        ),
    ],
)  # fmt: skip
def test_the_candidates_of_auto(
    checkpoints: list[Saved],
    extras: list[Saved],
    count: int,
    ema: bool,
    expected: list[tuple[str, tuple[int, ...]]],
) -> None:
    found = candidates(checkpoints, AveragingConfig(Average.auto, count), extras, ema=ema)
    assert [(one.name, one.updates) for one in found] == expected
    assert [one.name for one in found if one.without_ema] == (["last, without ema"] if ema else [])


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (Average.last, Candidate("mean of the last 2", (4, 5))),
        (Average.best, Candidate("mean of the best 2", (2, 4))),
        (Average.none, Candidate("best", (2,))),
    ],
)
def test_the_other_kinds_have_one_candidate(kind: Average, expected: Candidate) -> None:
    assert candidates(JUDGED, AveragingConfig(kind, 2), ema=True) == [expected]


@pytest.mark.parametrize(
    ("kind", "count", "keep", "checkpoints", "extras", "expected"),
    [
        (Average.best, 3, 1, JUDGED, [], {2, 3, 4, 5}),
        (Average.none, 3, 2, JUDGED, [], {2, 4, 5}),
        (Average.last, 1, 4, JUDGED, [], {2, 3, 4, 5}),
        (Average.auto, 2, 1, JUDGED, [], {2, 4, 5}),
        # Extras are retained as long as they are among the best.
        (Average.auto, 2, 1, JUDGED, EXTRAS, {4, 5, 7, 2}),
        (Average.best, 2, 1, JUDGED, EXTRAS, {5, 7, 2}),
        (Average.none, 2, 1, JUDGED, EXTRAS, {5, 7}),
        (Average.last, 2, 1, JUDGED, EXTRAS, {4, 5, 7}),  # also the best extra, in case the kind changes
        *((kind, 2, 1, UNJUDGED, [], {2, 3}) for kind in (Average.auto, Average.best, Average.last)),
        (Average.none, 2, 1, UNJUDGED, [], {3}),
        (Average.auto, 5, 5, [], [], set()),
    ],
)
def test_updates_to_retain(
    kind: Average, count: int, keep: int, checkpoints: list[Saved], extras: list[Saved], expected: set[int]
) -> None:
    progress = Progress(checkpoints=checkpoints, extras=extras)
    assert updates_to_retain(progress, AveragingConfig(kind=kind, count=count), keep) == expected


@pytest.mark.parametrize(
    ("kind", "count", "quality", "expected"),
    [
        (Average.auto, 1, 9.0, False),  # the earlier of equal ones
        (Average.auto, 1, 9.1, True),
        (Average.auto, 3, 9.0, True),
        (Average.best, 3, 7.0, False),
        (Average.none, 3, 7.5, False),
        (Average.last, 3, 9.5, False),
    ],
)
def test_a_validation_among_the_best_earns_a_checkpoint(
    kind: Average, count: int, quality: float, expected: bool
) -> None:
    progress = Progress(update=6, validated=Saved(6, quality), checkpoints=JUDGED)
    assert among_best(progress, AveragingConfig(kind, count)) is expected
    assert not among_best(replace(progress, update=7), AveragingConfig(kind, count)), "it has no quality"


def test_mean_is_summed_in_float64_and_leaves_the_checkpoints() -> None:
    states = [{"a": torch.tensor([value, 3.0]), "b": torch.tensor(value)} for value in (1e8, 1.0, -1e8)]
    mean = average(range(3), states.__getitem__)
    assert {name: tensor.dtype for name, tensor in mean.items()} == dict.fromkeys("ab", torch.float32)
    assert [*mean["a"].tolist(), mean["b"].item()] == pytest.approx([1 / 3, 3.0, 1 / 3])
    assert [state["b"].item() for state in states] == [1e8, 1.0, -1e8]
