from __future__ import annotations

import math

import pytest
import torch
from naive_transformer import naive_positions

from nmt.config import PositionsConfig
from nmt.errors import UserError
from nmt.model.positions import build_positions, sinusoids


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
    """In fp32 an angle of 100,000 would be wrong by 0.004."""
    assert sinusoids(100_001, 2)[100_000, 0].item() == pytest.approx(math.sin(100_000.0), abs=1e-7)


def test_it_is_added_at_any_length_and_is_no_weight() -> None:
    positions = build_positions(PositionsConfig(), 6)
    places = torch.tensor([0, 2, 699])
    out = positions(torch.ones(3, 6), places, 700)
    torch.testing.assert_close(out, 1 + sinusoids(700, 6)[places])
    assert not list(positions.parameters()) and not positions.state_dict()


def test_the_type_of_the_embeddings_stays() -> None:
    positions = build_positions(PositionsConfig(), 6)
    assert positions(torch.ones(1, 6, dtype=torch.bfloat16), torch.tensor([1]), 2).dtype is torch.bfloat16


def test_an_unknown_name_is_the_users_mistake() -> None:
    with pytest.raises(UserError, match=r"model\.positions\.name=rotary: .*sinusoidal"):
        build_positions(PositionsConfig("rotary"), 8)
