"""nmt-import as a process, and what the other commands do with an imported model."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from commands import Toy

pytest.importorskip("transformers", reason="the extra export is not installed")
sys.path.append(str(Path(__file__).parents[1] / "unit/export"))


def test_an_imported_model_translates_and_is_trained_further(toy: Toy, tmp_path: Path) -> None:
    from opus_models import opus_folder

    original, output = opus_folder(tmp_path / "opus"), tmp_path / "imported"
    result = toy.run("nmt-import", f"model={original}", f"output={output}", "check_sentences=10")
    assert result.returncode == 0, result.stderr.decode()
    assert result.stdout == b""
    assert json.loads((output / "results.json").read_text())["import"]["sentences"] == 10

    read = toy.run("nmt-translate", f"model_dir={output}", text="ba be\n\ngu </s> ko\n")
    assert read.returncode == 0, read.stderr.decode()
    assert len(read.stdout.decode().split("\n")) == 4

    again = toy.run("nmt-import", f"model={original}", f"output={output}")
    assert (again.returncode, again.stderr.decode()) == (
        2,
        f"nmt-import: output={output}: already exists. Choose another name, or remove it.\n",
    )
    nothing = toy.run("nmt-import", "model=nothing", f"output={tmp_path / 'x'}")
    assert nothing.returncode == 2
    assert nothing.stderr.decode().startswith("nmt-import: model=nothing: there is no such folder")

    # A run that starts from it takes its options.
    options = [one for one in toy.small() if not one.startswith("model.")]
    trained = toy.run("nmt-train", *options, f"start_from={output}", f"run_dir={tmp_path / 'run'}")
    assert trained.returncode == 0, trained.stderr.decode()
    tuned = toy.run("nmt-translate", f"model_dir={tmp_path / 'run'}", text="ba be\n")
    assert tuned.returncode == 0 and len(tuned.stdout.decode().split("\n")) == 2
