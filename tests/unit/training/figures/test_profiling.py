"""The profiler trace of a few updates."""

from __future__ import annotations

import json
from pathlib import Path

import torch

from nmt.training.figures.monitor import TABLE, TRACE, profiling


def test_the_sixth_to_the_eighth_update_are_traced(tmp_path: Path) -> None:
    folder = tmp_path / "profile"
    a = torch.ones(3, 3)
    with profiling(folder, wanted=True) as updated:
        for update in range(1, 12):
            with torch.profiler.record_function(f"update {update}"):
                a @ a
            assert folder.exists() == (update > 8)
            updated()
    events = json.loads((folder / TRACE).read_text())["traceEvents"]
    names = {event.get("name") for event in events}
    assert {f"update {n}" for n in range(1, 12)} & names == {"update 6", "update 7", "update 8"}
    assert "aten::mm" in names
    assert "aten::mm" in (folder / TABLE).read_text()


def test_unless_it_is_not_wanted(tmp_path: Path) -> None:
    with profiling(tmp_path / "profile", wanted=False) as updated:
        updated()
    assert not list(tmp_path.iterdir())
