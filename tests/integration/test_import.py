"""nmt-import as a process, and what the other commands do with an imported model."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from commands import Toy, environment
from fake_hub import Repository, running_hub
from forking import forked_command

pytest.importorskip("transformers", reason="the extra export is not installed")
sys.path.append(str(Path(__file__).parents[1] / "unit/interop"))


@pytest.mark.slow
def test_an_imported_model_translates_and_is_trained_further(toy: Toy, tmp_path: Path) -> None:
    from opus_models import opus_folder

    original, output = opus_folder(tmp_path / "opus"), tmp_path / "imported"
    result = toy.done("nmt-import", f"model={original}", f"output={output}", "check_sentences=10", fresh=True)
    assert result.stdout == b""
    assert json.loads((output / "results.json").read_text())["import"]["sentences"] == 10

    read = toy.done("nmt-translate", f"model_dir={output}", text="ba be\n\ngu </s> ko\n")
    assert len(read.stdout.decode().split("\n")) == 4

    again = toy.refused("nmt-import", f"model={original}", f"output={output}")
    assert again == f"output={output}: already exists. Choose another name, or remove it."
    nothing = toy.refused("nmt-import", "model=nothing", f"output={tmp_path / 'x'}")
    assert nothing.startswith("model=nothing: there is no such folder")

    # A run that starts from it takes its options of the model, and with a budget the others of the recipe.
    options = [one for one in toy.small() if not one.startswith(("model.", "recipe="))]
    start = (f"start_from={output}", "training.budget=1d")
    toy.done("nmt-train", *options, *start, f"run_dir={tmp_path / 'run'}")
    chosen = (tmp_path / "run/config.yaml").read_text()
    assert "recipe: auto" in chosen
    assert "norm: post" in chosen
    assert "name: muon" in chosen
    tuned = toy.done("nmt-translate", f"model_dir={tmp_path / 'run'}", text="ba be\n")
    assert len(tuned.stdout.decode().split("\n")) == 2


@pytest.mark.slow
def test_a_model_of_the_hub(toy: Toy, tmp_path: Path) -> None:
    """Its commit is recorded; of all formats of its weights, one is downloaded."""
    from opus_models import opus_folder

    folder = opus_folder(tmp_path / "opus")
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    others = {"pytorch_model.bin": b"pickle", "tf_model.h5": b"tensors", "README.md": b"# A model"}
    with running_hub() as hub:
        repository = hub.repositories["Helsinki-NLP/opus"] = Repository(private=False)
        commit = repository.commit("first", files | others).oid
        kept = {key: value for key, value in environment(toy.cache).items() if not key.startswith("HF_")}
        variables = {"HF_ENDPOINT": hub.url, "HF_HOME": os.fspath(tmp_path / "hf")}

        def run(model: str, output: Path, **more: str) -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                forked_command("nmt-import", f"model={model}", f"output={output}", "check_sentences=5"),
                cwd=toy.folder,
                env=kept | variables | more,
                capture_output=True,
                text=True,
                timeout=600,
            )

        result = run("Helsinki-NLP/opus", tmp_path / "imported")
        assert result.returncode == 0, result.stderr
        assert set(hub.downloads()) == files.keys()
        facts = json.loads((tmp_path / "imported/results.json").read_text())["import"]
        assert facts["model"] == f"hf://Helsinki-NLP/opus@{commit}"

        missing = run("hf://Helsinki-NLP/other", tmp_path / "other")
        assert missing.returncode == 2
        assert "nmt-import: model=hf://Helsinki-NLP/other: there is no model" in missing.stderr
    # Without a network, what is in the cache is used.
    result = run(f"hf://Helsinki-NLP/opus@{commit}", tmp_path / "again", HF_HUB_OFFLINE="1")
    assert result.returncode == 0, result.stderr
    weights = [tmp_path / name / "model.safetensors" for name in ("imported", "again")]
    assert weights[0].read_bytes() == weights[1].read_bytes()
