"""Positional encodings; `model.positions.name` selects one."""

from nmt.model.positions.absolute import Binary, Integer, Learned, NoPositions, Normalised
from nmt.model.positions.base import (
    POSITIONS,
    TARGET_MARGIN,
    Places,
    Positions,
    Shape,
    build_positions,
    distances,
    spread,
)
from nmt.model.positions.biases import T5, ALiBi
from nmt.model.positions.relative import Relative
from nmt.model.positions.rotary import Rotary
from nmt.model.positions.sinusoidal import Sinusoidal, sinusoids

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
    "Sinusoidal",
    "T5",
    "TARGET_MARGIN",
    "build_positions",
    "distances",
    "sinusoids",
    "spread",
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
