"""Sinusoidal positions: values, layouts and properties; the options and lengths of encodings."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from nmt.config import PositionsConfig
from nmt.data.batches.batching import Batch
from nmt.errors import UserError
from nmt.model.positions import Places, Shape, SineOrder, build_positions, sinusoids
from nmt.model.reference import naive_positions

SIX = Shape(d_model=6, heads=2, layers=1, causal=False, scale=3**-0.5)


def placed(positions: torch.Tensor, max_len: int) -> Places:
    return Places(positions, max_len, lambda: torch.full_like(positions, max_len))


@pytest.mark.parametrize("width", [1, 2, 7, 8])
def test_every_width_follows_the_formula(width: int) -> None:
    torch.testing.assert_close(sinusoids(40, width), naive_positions(40, width).float(), rtol=0, atol=1e-7)


def test_far_positions_are_as_exact_as_near_ones() -> None:
    """In fp32 an angle of 100,000 would have an error of 0.004."""
    assert sinusoids(100_001, 2)[100_000, 0].item() == pytest.approx(math.sin(100_000.0), abs=1e-7)


def test_it_is_added_at_any_length_and_is_no_weight() -> None:
    positions = build_positions(PositionsConfig(), SIX)
    places = torch.tensor([0, 2, 699])
    out = positions.embed(torch.ones(3, 6), placed(places, 700))
    torch.testing.assert_close(out, 1 + sinusoids(700, 6)[places])
    assert not list(positions.parameters()) and not positions.state_dict()
    narrow = positions.embed(torch.ones(3, 6, dtype=torch.bfloat16), placed(places, 700))
    assert narrow.dtype is torch.bfloat16


def test_lengths_of_targets_are_those_of_their_sources_and_fifty() -> None:
    """EOS counts, BOS does not: a source of 3 pieces has 4 tokens."""
    batch = Batch.of([[5, 6, 7], []], [[4], [4, 5]])
    assert Places.of_sources(batch.source).lengths.tolist() == [4, 4, 4, 4, 1]
    assert Places.of_targets(batch).lengths.tolist() == [54, 54, 51, 51, 51]


@pytest.mark.parametrize(
    ("layout", "row"),
    [
        (SineOrder.interleaved, [0.84147098, 0.54030231, 0.04639923, 0.99892298, 0.00215443, 0.99999768]),
        (SineOrder.halves, [0.84147098, 0.04639923, 0.00215443, 0.54030231, 0.99892298, 0.99999768]),
        (SineOrder.tensor2tensor, [0.84147098, 0.00999983, 0.0001, 0.54030231, 0.99995000, 0.99999999]),
    ],
)
def test_position_1_in_six_dimensions(layout: SineOrder, row: list[float]) -> None:
    table = sinusoids(2, 6, layout)
    assert table[1].tolist() == pytest.approx(row, abs=1e-7)
    assert table[0].tolist() == ([0, 1] * 3 if layout is SineOrder.interleaved else [0, 0, 0, 1, 1, 1])


@pytest.mark.parametrize("layout", list(SineOrder))
@pytest.mark.parametrize("width", [1, 2, 7, 8, 64])
def test_every_layout_has_every_width(layout: SineOrder, width: int) -> None:
    table = sinusoids(20, width, layout)
    assert table.shape == (20, width) and table.isfinite().all()
    columns = {tuple(column.tolist()) for column in table.T}
    assert len(columns) == width or width == 2


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (PositionsConfig("rotary2"), r"model\.positions\.name=rotary2: .*sinusoidal"),
        (PositionsConfig(options={"bas": 3}), r"model\.positions\.options\.bas: not an option of "),
        (PositionsConfig(options={"base": 1}), r"model\.positions\.options\.base=1\.0: must be above 1"),
        (PositionsConfig(options={"layout": "x"}), r"options\.layout=x: must be interleaved or halves"),
        (PositionsConfig(decoder="nothing"), r"model\.positions\.decoder=nothing: there is no pos"),
        (
            PositionsConfig(decoder="sinusoidal", decoder_options={"base": "x"}),
            r"model\.positions\.decoder_options\.base=x: must be a number",
        ),
    ],
)
def test_options_are_checked(config: PositionsConfig, expected: str) -> None:
    with pytest.raises(UserError, match=expected):
        for shape in (SIX, replace(SIX, causal=True)):
            build_positions(config, shape)


def test_the_decoder_may_have_its_own() -> None:
    other = {"layout": "halves"}
    config = PositionsConfig(options={"base": 50.0}, decoder="sinusoidal", decoder_options=other)
    encoder = build_positions(config, SIX)
    decoder = build_positions(config, Shape(6, 2, 1, True, 1.0))
    torch.testing.assert_close(encoder.get_buffer("table")[:9], sinusoids(9, 6, base=50.0))
    torch.testing.assert_close(decoder.get_buffer("table")[:9], sinusoids(9, 6, SineOrder.halves))
