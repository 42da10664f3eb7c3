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


@pytest.mark.parametrize(
    ("position", "column", "value"),
    [
        (0, 0, 0.0),
        (0, 1, 1.0),
        (1, 0, 0.8414709848),
        (1, 1, 0.5403023059),
        (1, 2, 0.0998334166),  # 10000 ** (2 / 8) = 10
        (1, 3, 0.9950041653),
        (3, 4, 0.0299955002),  # 100
        (3, 5, 0.9995500337),
        (1000, 6, 0.8414709848),  # 1000
        (1000, 7, 0.5403023059),
    ],
)
def test_values_of_the_paper(position: int, column: int, value: float) -> None:
    assert sinusoids(1001, 8)[position, column].item() == pytest.approx(value, abs=1e-7)


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


def test_the_type_of_the_embeddings_stays() -> None:
    positions = build_positions(PositionsConfig(), SIX)
    assert (
        positions.embed(torch.ones(1, 6, dtype=torch.bfloat16), placed(torch.tensor([1]), 2)).dtype
        is torch.bfloat16
    )


def test_an_unknown_name_is_the_users_mistake() -> None:
    with pytest.raises(UserError, match=r"model\.positions\.name=rotary2: .*sinusoidal"):
        build_positions(PositionsConfig("rotary2"), SIX)


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
def test_five_positions_in_six_dimensions(layout: SineOrder) -> None:
    table = sinusoids(5, 6, layout).double()
    assert table.norm(dim=1).tolist() == pytest.approx([1.7321] * 5, abs=5e-5)
    if layout is not SineOrder.tensor2tensor:
        distance = (table[1:] - table[:-1]).norm(dim=1)
        assert distance.tolist() == pytest.approx([0.9600] * 4, abs=5e-5)
        assert (table[1:] * table[:-1]).sum(1).tolist() == pytest.approx([2.5392] * 4, abs=5e-5)


@pytest.mark.parametrize("layout", list(SineOrder))
@pytest.mark.parametrize("width", [1, 2, 7, 8, 64])
def test_every_layout_has_every_width(layout: SineOrder, width: int) -> None:
    table = sinusoids(20, width, layout)
    assert table.shape == (20, width) and table.isfinite().all()
    columns = {tuple(column.tolist()) for column in table.T}
    assert len(columns) == width or width == 2


def test_the_offset_is_a_rotation_that_does_not_depend_on_the_position() -> None:
    """PE(pos + k) = R(k) PE(pos) (section 3.5), and the norm is sqrt(d / 2)."""
    width, offset = 8, 7
    table = sinusoids(200, width).double()
    frequencies = 10000.0 ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    rotation = torch.zeros(width, width, dtype=torch.float64)
    for i, frequency in enumerate(frequencies.tolist()):
        cos, sin = math.cos(offset * frequency), math.sin(offset * frequency)
        rotation[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = torch.tensor([[cos, sin], [-sin, cos]])
    torch.testing.assert_close(table[offset:], table[:-offset] @ rotation.T, rtol=0, atol=1e-6)
    torch.testing.assert_close(table.norm(dim=1), torch.full((200,), 2.0).double(), rtol=0, atol=1e-6)


def test_dot_products_fall_with_the_distance_to_a_minimum_at_43() -> None:
    table = sinusoids(200, 512).double()
    products = table @ table[100]
    torch.testing.assert_close(products[100:200], products[1:101].flip(0), rtol=0, atol=1e-4)
    falling = products[100:150]
    assert all(falling[k] < falling[k - 1] for k in range(1, 44))
    assert falling[44] > falling[43]


def test_wavelengths_go_from_2_pi_to_9647_times_2_pi() -> None:
    frequencies = 10000.0 ** (-torch.arange(0, 512, 2, dtype=torch.float64) / 512)
    assert (1 / frequencies[0]).item() == 1
    assert (1 / frequencies[-1]).item() == pytest.approx(9647, abs=1)
    period = round(2 * math.pi * 9646.616)
    table = sinusoids(period + 2, 512).double()
    assert (table[period, -2:] - table[0, -2:]).abs().max() < 1e-4


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (
            PositionsConfig(options={"bas": 3}),
            r"model\.positions\.options\.bas: not an option of ",
        ),
        (PositionsConfig(options={"base": 1}), r"model\.positions\.options\.base=1\.0: must be above 1"),
        (
            PositionsConfig(options={"layout": "x"}),
            r"options\.layout=x: must be interleaved or halves",
        ),
        (
            PositionsConfig(decoder="nothing"),
            r"model\.positions\.decoder=nothing: there is no pos",
        ),
        (
            PositionsConfig(decoder="sinusoidal", decoder_options={"base": "x"}),
            r"model\.positions\.decoder_options\.base=x: must be a number",
        ),
        (
            PositionsConfig(decoder_options={"base": 3}),
            r"decoder_options: model\.positions\.decoder is not set",
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
