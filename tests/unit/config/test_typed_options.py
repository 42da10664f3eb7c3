"""Options of components that are chosen by name: types, defaults and errors."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from enum import Enum
from typing import Any

import pytest

from nmt.config import typed_options
from nmt.errors import UserError


class Layout(Enum):
    interleaved = "interleaved"
    halves = "halves"


@dataclass(frozen=True)
class Options:
    layout: Layout = Layout.interleaved
    base: float = 10000.0
    clip: int | None = None
    values: bool = True
    file: str = ""

    def __post_init__(self) -> None:
        if self.base <= 1:
            raise ValueError(f"base={self.base}: must be above 1.")


def read(given: dict[str, Any]) -> Options:
    return typed_options(Options, given, "model.positions.options", "model.positions.name=waves")


def test_values_get_their_types_and_the_others_their_defaults() -> None:
    assert read({}) == Options()
    assert read({"layout": "halves", "base": 20000, "clip": 16, "values": False, "file": "a"}) == Options(
        Layout.halves, 20000.0, 16, False, "a"
    )
    assert isinstance(read({"base": 3}).base, float)
    assert read({"clip": None}).clip is None


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (
            {"bsae": 3},
            "bsae: not an option of model.positions.name=waves. It has layout, base, clip, values, file. "
            "Did you mean model.positions.options.base?",
        ),
        ({"base": "high"}, "base=high: must be a number."),
        ({"base": None}, "base=None: must be a number."),
        ({"base": True}, "base=True: must be a number."),
        ({"base": [1]}, "base=[1]: must be a number."),
        ({"clip": 1.5}, "clip=1.5: must be a whole number or null."),
        ({"values": "perhaps"}, "values=perhaps: must be true or false."),
        ({"layout": "thirds"}, "layout=thirds: must be interleaved or halves."),
        ({"file": {"a": 1}}, "file={'a': 1}: must be text."),
        ({"base": 0.5}, "base=0.5: must be above 1."),
        ({"base": "${x}"}, "base=${x}: must be a number."),
    ],
)
def test_errors_name_the_option(given: dict[str, Any], expected: str) -> None:
    with pytest.raises(UserError) as caught:
        read(given)
    assert str(caught.value) == f"model.positions.options.{expected}"


def test_the_options_of_a_command_are_declared_without_omegaconf() -> None:
    """Every import delays `--help` and completion."""
    script = "import sys, nmt.config; print(sorted({'omegaconf', 'hydra', 'torch'} & sys.modules.keys()))"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"
