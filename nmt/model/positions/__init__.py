"""Positional encodings, by the name that `model.positions.name` gives them."""

from nmt.model.positions.base import (
    POSITIONS,
    TARGET_MARGIN,
    Places,
    Positions,
    Shape,
    build_positions,
    check_positions,
)
from nmt.model.positions.sinusoidal import Sinusoidal, sinusoids

__all__ = [
    "POSITIONS",
    "TARGET_MARGIN",
    "Places",
    "Positions",
    "Shape",
    "Sinusoidal",
    "build_positions",
    "check_positions",
    "sinusoids",
]
