"""The numbers of the guide to positional encoding, in both languages, are those of the program."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from nmt.model.positions import POSITIONS, Places, Shape

DOCS = Path(__file__).resolve().parents[3] / "docs"
PAGES = [DOCS / "positional_encoding.md", DOCS / "positional_encoding.ko.md"]


def codes(width: int, base: float, length: int) -> Tensor:
    """Returns the codes of the positions from 0 on, (length, width)."""
    kind = POSITIONS["sinusoidal"]
    encoding = kind(kind.Options(base=base), Shape(width, 1, 1, False, 1.0))
    places = Places(torch.arange(length), length, lambda: torch.full((length,), length))
    return encoding.embed(torch.zeros(length, width, dtype=torch.float64), places)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_cosines_by_base(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for base, expected in ((100, ("0.235", "0.311")), (10_000, ("0.616", "0.629"))):
        for width, number in zip((512, 64), expected, strict=True):
            rows = codes(width, base, 2001)
            largest = (rows[20:] @ rows[0] / (width / 2)).max().item()
            assert f"{largest:.3f}" == number
            assert number in text
    assert "628" in text
    assert 100 * 2 * math.pi < 628.4


def test_a_quarter_of_the_dimensions_hardly_turns() -> None:
    turned = codes(512, 10_000, 2)[1, 0::2].asin()  # in one position, at most 1 rad
    assert (100 * turned < 0.1).double().mean().item() == pytest.approx(0.25, abs=0.005)
