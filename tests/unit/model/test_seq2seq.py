"""The interface of architectures: they are found by name, have typed options, and refuse unknown ones."""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import nmt
from nmt.config import ModelConfig, Tie
from nmt.errors import UserError
from nmt.model import MODELS, Seq2Seq, Transformer, build_model, check_model, model_class

TINY = ModelConfig(encoder_layers=1, decoder_layers=1, d_model=8, d_ff=16, heads=2)


def test_the_transformer_is_the_default() -> None:
    model = build_model(TINY, 10, 10)
    assert type(model) is Transformer and model_class(ModelConfig()) is Transformer
    assert [type(block).__name__ for block in model.blocks()] == ["EncoderLayer", "DecoderLayer"]


def test_a_registered_class_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    class Other(Transformer):
        """A Transformer with another name."""

    monkeypatch.setitem(MODELS, "other", Other)
    model = build_model(replace(TINY, architecture="other"), 10, 10)
    assert type(model) is Other and isinstance(model, Seq2Seq)


def test_the_program_knows_the_interface_alone() -> None:
    """No module outside `nmt/model` imports an architecture, except those that copy its weights."""
    root, interface = Path(nmt.__file__).parent, ("nmt.model", "nmt.model.backend", "nmt.model.gpu.graphs")
    found = []
    for path in root.rglob("*.py"):
        if path.is_relative_to(root / "model") or path.is_relative_to(root / "interop"):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("nmt.model"):
                names = {alias.name for alias in node.names}
                if node.module not in interface or names & {"RecurrentModel", "Transformer"}:
                    found.append(f"{path.relative_to(root)}: {node.module}: {sorted(names)}")
    assert not found


class Deep(Transformer):
    @dataclass(frozen=True)
    class Options:
        cell: str = "gru"
        depth: int = 2

        def __post_init__(self) -> None:
            if self.depth < 1:
                raise ValueError(f"depth={self.depth}: must be 1 or more.")


def config(options: dict[str, Any], architecture: str = "deep") -> ModelConfig:
    return replace(TINY, architecture=architecture, options=options)


def test_a_model_has_its_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MODELS, "deep", Deep)
    assert build_model(config({"depth": 3}), 9, 9).options == Deep.Options(depth=3)
    assert build_model(config({}), 9, 9).options == Deep.Options()


@pytest.mark.parametrize(
    ("options", "architecture", "expected"),
    [
        ({"deph": 3}, "deep", r"options\.deph: not an option of model\.architecture=deep\. "),
        ({"depth": "x"}, "deep", r"options\.depth=x: must be a whole number\."),
        ({"depth": 0}, "deep", r"options\.depth=0: must be 1 or more\."),
        ({"cell": "lstm"}, "transformer", r"options\.cell: not an option of .*transformer"),
        ({}, "rnn2", r"architecture=rnn2: there is no architecture rnn2. Choose from transformer, rnn_at"),
    ],
)
def test_mistakes(
    options: dict[str, Any], architecture: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(MODELS, "deep", Deep)
    for function in (check_model, lambda config: build_model(config, 9, 9)):
        with pytest.raises(UserError, match=rf"^model\.{expected}"):
            function(config(options, architecture))


@pytest.mark.parametrize("architecture", ["transformer", "rnn_attention"])
def test_one_embedding_for_two_vocabularies_is_the_users_mistake(architecture: str) -> None:
    config = replace(TINY, architecture=architecture)
    with pytest.raises(UserError, match=r"^model\.tie=all: .*data\.tokenizer\.joint=true\.$"):
        build_model(config, 10, 12)
    assert build_model(replace(config, tie=Tie.target), 10, 12).output_weight.shape[0] == 12
