"""`recipe=auto`, the default for own files, in a real command that resumes and is made longer."""

from __future__ import annotations

import json

from commands import Toy

from nmt.config import TrainConfig
from nmt.config.storage import from_yaml
from nmt.training.update.schedule import Decay

TINY = (
    *("model.encoder_layers=1", "model.decoder_layers=1", "model.d_model=32", "model.d_ff=64"),
    *("model.heads=2", "training.threads=1", "training.devices=1", "data.tokenizer.vocab_size=320"),
)


def test_own_files_are_trained_by_a_recipe(toy: Toy) -> None:
    run = toy.folder / "own"
    words = [*toy.data(), *TINY, "run_dir=own"]
    first = toy.done("nmt-train", *words, "training.max_updates=8").stderr.decode()
    assert first.count("recipe=auto: ") == 3 and "1 + 1 layers of width 32: the given width" in first
    config = from_yaml(TrainConfig, (run / "config.yaml").read_text("utf-8"), "config.yaml")
    training = config.training
    assert (training.optimizer.name, training.schedule.name, training.patience) == ("muon", "wsd", 6)
    assert config.model.d_ff == 64 and config.decoding.beam_size == 5 and config.data.reversed == 0.5
    again = toy.done("nmt-train", *words, "training.max_updates=8").stderr.decode()
    assert "recipe=auto: " not in again
    toy.done("nmt-train", *words, "training.max_updates=16")
    state = json.loads((run / "checkpoints" / "update-00000016" / "state.json").read_text("utf-8"))
    (decay,) = state["progress"]["decays"]
    assert Decay(**decay).begin == 12 and decay["limit"] == "max_updates"


def test_a_vocabulary_for_each_side_needs_no_other_option(toy: Toy) -> None:
    words = [*toy.data(), *TINY, "data.tokenizer.joint=false", "training.max_updates=4", "run_dir=two"]
    refused = toy.run("nmt-train", *words, "model.tie=all")
    assert refused.returncode == 2 and b"Set model.tie=target" in refused.stderr
    assert not (toy.folder / "two").exists()
    toy.done("nmt-train", *words)
    model = toy.folder / "two" / "model"
    assert {"source.spm", "target.spm"} <= {path.name for path in model.iterdir()}
    translated = toy.done("nmt-translate", f"model_dir={model}", text="a\nb\n").stdout
    assert translated.count(b"\n") == 2
