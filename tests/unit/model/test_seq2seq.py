"""The interface of architectures: registered ones are found by name, and unknown ones are refused."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path

import pytest

import nmt
from nmt.config import ModelConfig
from nmt.errors import UserError
from nmt.model import MODELS, Seq2Seq, Transformer, build_model, model_class

TINY = ModelConfig(encoder_layers=1, decoder_layers=1, d_model=8, d_ff=16, heads=2)


def test_the_transformer_is_the_default() -> None:
    model = build_model(TINY, 10, 10)
    assert type(model) is Transformer and model_class(ModelConfig()) is Transformer
    assert [type(block).__name__ for block in model.blocks()] == ["EncoderLayer", "DecoderLayer"]


def test_an_unknown_architecture_names_the_known_ones() -> None:
    with pytest.raises(
        UserError,
        match=r"^model\.architecture=rnn2: there is no architecture rnn2. "
        r"Choose from transformer, rnn_attention\.$",
    ):
        build_model(replace(TINY, architecture="rnn2"), 10, 10)


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
