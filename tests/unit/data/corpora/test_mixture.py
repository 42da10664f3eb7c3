"""The order of every epoch over several corpora, against a naive twin that stores everything."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.config import CorpusConfig, DataConfig, TrainSplitConfig
from nmt.data.corpora.mixture import Mixture, apportioned, mean_draws
from nmt.data.shuffle import Shuffle
from nmt.errors import UserError
from nmt.runtime.seeds import mix

WEIGHTS = st.sampled_from([0.01, 0.1, 0.3, 0.5, 1.0, 1.5, 2.0, 2.7])
CORPORA = st.lists(st.tuples(st.integers(1, 30), WEIGHTS), min_size=1, max_size=4)
Corpora = list[tuple[int, float]]


def options(weights: list[float | None], temperature: float | None = None) -> DataConfig:
    corpora = {f"c{place}": CorpusConfig(weight=weight) for place, weight in enumerate(weights)}
    return DataConfig(train=TrainSplitConfig(corpora=corpora), temperature=temperature)


def mixture(corpora: Corpora) -> Mixture:
    return Mixture.of([size for size, _ in corpora], options([weight for _, weight in corpora]))


def naive_epochs(corpora: Corpora, seed: int, epochs: int) -> list[list[int]]:
    """Makes one long list of passes over each corpus; each epoch takes the next part of it and shuffles."""
    starts = np.cumsum([0] + [size for size, _ in corpora]).tolist()
    cuts, lists = [], []
    for place, (size, weight) in enumerate(corpora):
        mean = size * Fraction(str(weight))
        cuts.append([int(epoch * mean + Fraction(1, 2)) for epoch in range(epochs + 1)])
        passes: list[int] = []
        for number in range(cuts[-1][-1] // size + 1):
            begin, end = number * size, (number + 1) * size
            whole = any(a <= begin and end <= b for a, b in zip(cuts[-1], cuts[-1][1:], strict=False))
            order = range(size) if whole else Shuffle(size, mix(seed, 4, place, number)).rows(0, size)
            passes += [starts[place] + int(row) for row in order]
        lists.append(passes)
    found = []
    for epoch in range(epochs):
        drawn = [
            row for cut, rows in zip(cuts, lists, strict=True) for row in rows[cut[epoch] : cut[epoch + 1]]
        ]
        found.append([drawn[i] for i in Shuffle(len(drawn), mix(seed, 0, epoch)).rows(0, len(drawn))])
    return found


@given(CORPORA, st.integers(0, 99))
def test_against_naive(corpora: Corpora, seed: int) -> None:
    mixed = mixture(corpora)
    # The last naive epoch is left out: its last pass may be incomplete without the epoch after it.
    expected = naive_epochs(corpora, seed, 6)[:5]
    found = [mixed.rows(seed, epoch, 0, mixed.num_draws(epoch)).tolist() for epoch in range(5)]
    assert found == expected


@given(CORPORA, st.integers(0, 99))
def test_all_pairs_of_a_corpus_are_drawn_equally_often_up_to_one(corpora: Corpora, seed: int) -> None:
    mixed = mixture(corpora)
    seen: Counter[int] = Counter()
    for epoch in range(12):
        seen.update(mixed.rows(seed, epoch, 0, mixed.num_draws(epoch)).tolist())
        start = 0
        for size, weight in corpora:
            counts = [seen[row] for row in range(start, start + size)]
            assert max(counts) - min(counts) <= 1
            assert sum(counts) == int((epoch + 1) * size * Fraction(str(weight)) + Fraction(1, 2))
            start += size


@given(CORPORA, st.integers(0, 3), st.data())
def test_a_part_is_the_part_of_the_whole(corpora: Corpora, epoch: int, data: st.DataObject) -> None:
    mixed = mixture(corpora)
    total = mixed.num_draws(epoch)
    start = data.draw(st.integers(0, total))
    stop = data.draw(st.integers(start, total))
    assert mixed.rows(5, epoch, start, stop).tolist() == mixed.rows(5, epoch, 0, total)[start:stop].tolist()


@pytest.mark.parametrize("epoch", [0, 1, 7])
def test_one_corpus_is_a_plain_shuffle(epoch: int) -> None:
    """Runs of versions with a single corpus resume with the same order."""
    found = Mixture.of([1000], DataConfig()).rows(3, epoch, 200, 700)
    assert found.tolist() == Shuffle(1000, mix(3, 0, epoch)).rows(200, 700).tolist()
    assert mixture([(1000, 1.0)]).rows(3, epoch, 200, 700).tolist() == found.tolist()


def test_literal() -> None:
    """A resumed run must find the same order: a change here breaks old runs."""
    mixed = mixture([(4, 1.0), (3, 0.5), (2, 2.0)])
    assert [mixed.counts(epoch) for epoch in range(3)] == [[4, 2, 4], [4, 1, 4], [4, 2, 4]]
    assert [mixed.rows(1, epoch, 0, mixed.num_draws(epoch)).tolist() for epoch in range(2)] == [
        [7, 5, 7, 8, 1, 4, 8, 3, 2, 0],
        [8, 6, 1, 2, 0, 3, 7, 7, 8],
    ]


def test_a_tenth_is_a_tenth() -> None:
    mixed = mixture([(1001, 0.1)])
    assert [mixed.num_draws(epoch) for epoch in range(10)] == [100] * 4 + [101] + [100] * 5
    assert sum(mixed.num_draws(epoch) for epoch in range(10)) == 1001


@pytest.mark.parametrize(
    ("temperature", "draws"),
    [
        (1.0, [9000, 900, 100]),
        (2.0, [7034, 2224, 742]),
        (5.0, [4908, 3097, 1995]),
        (1e9, [3334, 3333, 3333]),
    ],
)
def test_temperature(temperature: float, draws: list[int]) -> None:
    """9000**(1/2) : 900**(1/2) : 100**(1/2) is 94.87 : 30 : 10, and so on; an epoch remains 10000 pairs."""
    found = mean_draws([9000, 900, 100], options([None, None, None], temperature))
    assert sum(found) == 10_000
    assert found == draws


@given(st.integers(0, 1000), st.lists(st.floats(0.001, 1e6), min_size=1, max_size=6))
def test_apportioned(total: int, shares: list[float]) -> None:
    counts = apportioned(total, shares)
    assert sum(counts) == total
    for count, share in zip(counts, shares, strict=True):
        assert abs(count - total * Fraction(share) / sum(map(Fraction, shares))) < 1


def test_an_epoch_too_long() -> None:
    with pytest.raises(UserError, match="data.train.corpora: the weights give an epoch of 1e"):
        mixture([(1000, 1e9)])
