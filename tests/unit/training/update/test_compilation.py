"""Training with compiled layers: its steps, resuming, and the log lines about recompilation."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from test_trainer import prepared as prepared  # the fixture
from test_trainer import trainer
from torch._dynamo import lookup_backend

import nmt.training.update.compilation as module
from nmt.data.preparation.prepare import Prepared
from nmt.errors import UserError
from nmt.training.trainer import Trainer
from nmt.training.update.compilation import Compilations


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Traces layers without compiling; `tests/integration/test_compiled_run.py` compiles them."""
    monkeypatch.setattr(module, "_backend", lambda: lookup_backend("eager"))
    yield
    torch.compiler.reset()


def trained(prepared: Prepared, folder: Path, **training: Any) -> Trainer:
    options: dict[str, Any] = {"dropout": 0.2, "log_every": 1, "micro_batches": 2, **training}
    run = trainer(prepared, folder, **options)
    assert run.train()
    return run


def records(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [record for record in map(json.loads, lines) if record["kind"] == "train"]


def test_gradients_and_names_are_those_of_the_layers_themselves(prepared: Prepared, tmp_path: Path) -> None:
    plain = trained(prepared, tmp_path / "plain", max_updates=1)
    run = trained(prepared, tmp_path / "compiled", max_updates=1, compile=True)
    for (name, parameter), twin in zip(run.model.named_parameters(), plain.model.parameters(), strict=True):
        torch.testing.assert_close(parameter.grad, twin.grad, rtol=1e-4, atol=1e-7, msg=name)
    saved, same = run.checkpoints.load_newest(), plain.checkpoints.load_newest()
    assert saved is not None and same is not None
    assert list(saved.model) == list(same.model) and list(saved.optimizer) == list(same.optimizer)
    assert [record["recompilations"] for record in records(tmp_path / "compiled")] == [0]
    assert "recompilations" not in records(tmp_path / "plain")[0]


def test_a_run_that_goes_on_ends_in_the_same_weights(prepared: Prepared, tmp_path: Path) -> None:
    whole = trained(prepared, tmp_path / "whole", max_updates=4, compile=True)
    trained(prepared, tmp_path / "run", max_updates=2, compile=True)
    run = trained(prepared, tmp_path / "run", max_updates=4, compile=True)
    for parameter, twin in zip(run.model.parameters(), whole.model.parameters(), strict=True):
        assert torch.equal(parameter, twin)
    assert [record["recompilations"] for record in records(tmp_path / "run")] == [0] * 4


def test_compiling_again_is_counted_and_told_once(caplog: pytest.LogCaptureFixture) -> None:
    compilations = Compilations()
    compilations.try_out(torch.device("cpu"))
    assert compilations.count == 0

    def more(x: torch.Tensor, factor: int) -> torch.Tensor:
        return x * factor

    again, x = torch.compile(more, backend=compilations, dynamic=False), torch.ones(3)
    with caplog.at_level(logging.WARNING, logger="nmt"):
        reported = []
        for update, factor in enumerate([2, 2, 3, 2, 4, 4], 1):
            again(x, factor)
            reported.append(compilations.figures(update)["recompilations"])
    assert reported == [0, 0, 1, 1, 2, 2]
    warnings = [record.getMessage() for record in caplog.records if record.name == "nmt"]
    assert [text.split(":")[0] for text in warnings] == ["update 3", "update 5"]
    assert "graphs so far: 2)." in warnings[1]


def test_a_machine_that_can_not_compile_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> None:
        raise OSError("no g++\nand more")

    monkeypatch.setattr(module, "_backend", lambda: broken)
    with pytest.raises(UserError, match=r"^training.compile=true: .* \(no g\+\+\)\. .* g\+\+.*=false\.$"):
        Compilations().try_out(torch.device("cpu"))
