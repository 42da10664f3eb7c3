"""Positional encodings; `model.positions.name` selects one."""

from nmt.model.positions.added import (
    Binary,
    Integer,
    Learned,
    NoPositions,
    Normalised,
    SineOrder,
    Sinusoidal,
    sinusoids,
)
from nmt.model.positions.base import (
    POSITIONS,
    TARGET_MARGIN,
    Places,
    Positions,
    Shape,
    build_positions,
    by_pair,
    distances,
)
from nmt.model.positions.in_attention import T5, ALiBi, Relative, Rotary

__all__ = [
    "ALiBi",
    "Binary",
    "Integer",
    "Learned",
    "NoPositions",
    "Normalised",
    "POSITIONS",
    "Places",
    "Positions",
    "Relative",
    "Rotary",
    "Shape",
    "SineOrder",
    "Sinusoidal",
    "T5",
    "TARGET_MARGIN",
    "build_positions",
    "by_pair",
    "distances",
    "sinusoids",
]

POSITIONS["sinusoidal"] = Sinusoidal
POSITIONS["learned"] = Learned
POSITIONS["none"] = NoPositions
POSITIONS["rotary"] = Rotary
POSITIONS["relative"] = Relative
POSITIONS["t5"] = T5
POSITIONS["alibi"] = ALiBi
POSITIONS["integer"] = Integer
POSITIONS["normalised"] = Normalised
POSITIONS["binary"] = Binary
