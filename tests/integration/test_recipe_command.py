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
    assert config.model.d_ff == 64 and config.decoding.beam_size == 5
    again = toy.done("nmt-train", *words, "training.max_updates=8").stderr.decode()
    assert "recipe=auto: " not in again
    toy.done("nmt-train", *words, "training.max_updates=16")
    state = json.loads((run / "checkpoints" / "update-00000016" / "state.json").read_text("utf-8"))
    (decay,) = state["progress"]["decays"]
    assert Decay(**decay).begin == 12 and decay["limit"] == "max_updates"
