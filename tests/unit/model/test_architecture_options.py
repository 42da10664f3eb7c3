"""The typed options of each architecture."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from nmt.config import ModelConfig
from nmt.errors import UserError
from nmt.model import MODELS, Transformer, build_model, check_model


class Deep(Transformer):
    @dataclass(frozen=True)
    class Options:
        cell: str = "gru"
        depth: int = 2

        def __post_init__(self) -> None:
            if self.depth < 1:
                raise ValueError(f"depth={self.depth}: must be 1 or more.")


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MODELS, "deep", Deep)


def config(options: dict[str, Any], architecture: str = "deep") -> ModelConfig:
    small = {"encoder_layers": 1, "decoder_layers": 1, "d_model": 8, "d_ff": 8, "heads": 2}
    return ModelConfig(architecture=architecture, options=options, **small)  # type: ignore[arg-type]


def test_a_model_has_its_options() -> None:
    assert build_model(config({"depth": 3}), 9, 9).options == Deep.Options(depth=3)
    assert build_model(config({}), 9, 9).options == Deep.Options()


@pytest.mark.parametrize(
    ("given", "architecture", "expected"),
    [
        (
            {"deph": 3},
            "deep",
            r"model\.options\.deph: not an option of model\.architecture=deep\. ",
        ),
        ({"depth": "x"}, "deep", r"model\.options\.depth=x: must be a whole number\."),
        ({"depth": 0}, "deep", r"model\.options\.depth=0: must be 1 or more\."),
        (
            {"cell": "lstm"},
            "transformer",
            r"model\.options\.cell: not an option of .*transformer",
        ),
    ],
)
def test_errors(given: dict[str, Any], architecture: str, expected: str) -> None:
    with pytest.raises(UserError, match=f"^{expected}"):
        check_model(config(given, architecture))
    with pytest.raises(UserError, match=f"^{expected}"):
        build_model(config(given, architecture), 9, 9)
