"""Checks of the options before the data of a run are prepared."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest
import torch
from toy_trainings import PAIRS

from nmt.config import (
    DataConfig,
    ModelConfig,
    ObjectiveConfig,
    Precision,
    SetConfig,
    SplitConfig,
    Tie,
    TokenizerConfig,
    TrainConfig,
    TrainingConfig,
    TrainSplitConfig,
)
from nmt.data.subwords.learning import train_tokenizer
from nmt.errors import UserError
from nmt.training import run
from nmt.training.processes.ranks import Ranks
from nmt.training.state.run_folder import RunFolder

ALONE = Ranks(0, 1, torch.device("cpu"))


class Preparing(Exception):
    """The data would be prepared now."""


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({}, None),
        ({"rdrop": 5.0}, "training.cuda_graphs=true: is not available with training.rdrop=5.0"),
        ({"rdrop": 5.0, "cuda_graphs": False}, None),
        ({"objective": ObjectiveConfig(name="mine")}, "training.objective.name=mine: there is no"),
    ],
)
def test_options_that_exclude_cuda_graphs_are_refused_before_the_data_are_prepared(
    change: dict[str, Any], message: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def prepare(config: DataConfig) -> NoReturn:
        raise Preparing

    monkeypatch.setattr(run, "choose_device", lambda name: torch.device("cuda", 0))
    monkeypatch.setattr(run, "require_room", lambda config, processes: None)
    monkeypatch.setattr(run, "prepare", prepare)
    options = {"precision": Precision.bf16, "cuda_graphs": True, "devices": "1", **change}
    data = DataConfig(name="x", source_lang="de", target_lang="en")
    config = TrainConfig(run_dir=str(tmp_path), data=data, training=TrainingConfig(**options))

    def start(config: TrainConfig) -> None:
        folder = RunFolder(tmp_path)
        run._checked_and_prepared(run.with_choices(config, folder, 1), folder, ALONE, 0.0)

    with pytest.raises(UserError if message else Preparing, match=message):
        start(config)
    if "objective" not in change:
        with pytest.raises(Preparing):  # needs no GPU
            start(replace(config, prepare_only=True))


@pytest.mark.parametrize("name", ["train", "held", "groups", "other"])
def test_the_cleaned_pairs_do_not_replace_a_file_of_the_data(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def prepare(config: DataConfig) -> NoReturn:
        raise Preparing

    monkeypatch.setattr(run, "prepare", prepare)
    for file in ("train.de", "train.en", "held.de", "groups.en"):
        (tmp_path / file).write_text("text\n")
    held = SetConfig(path=str(tmp_path / "held.de"), groups=str(tmp_path / "groups.en"))
    train = TrainSplitConfig(source=str(tmp_path / "train.de"), target=str(tmp_path / "train.en"))
    data = DataConfig(
        name="x", source_lang="de", target_lang="en", train=train, test=SplitConfig(sets={"a": held})
    )
    config = TrainConfig(run_dir=str(tmp_path / "run"), data=data, prepare_only=True)
    folder = RunFolder(tmp_path / "run")
    (tmp_path / "link").symlink_to(tmp_path)
    for prefix in (tmp_path / name, tmp_path / "link" / name):
        options = run.with_choices(replace(config, cleaned_pairs=str(prefix)), folder, 1)
        message = rf"cleaned_pairs: .*{name}\.(de|en) is a file of the data\. Give another name"
        refused = name != "other"
        with pytest.raises(UserError if refused else Preparing, match=message if refused else None):
            run._checked_and_prepared(options, folder, ALONE, 0.0)


@pytest.mark.parametrize(
    ("vocabulary", "share", "change", "refused"),
    [
        ({"joint": False}, 0.0, {}, "tie"),
        ({"joint": False}, 0.0, {"model": ModelConfig(tie=Tie.target)}, None),
        ({"joint": False}, 0.5, {"model": ModelConfig(tie=Tie.target)}, "reversed"),
        ({"joint": False}, 0.0, {"model": ModelConfig(architecture="rnn_attention")}, "tie"),
        ({"joint": False}, 0.5, {"prepare_only": True}, None),
        ({"joint": True}, 0.5, {}, None),
        ({"path": "two"}, 0.0, {}, "tie"),
        ({"path": "one", "joint": False}, 0.5, {}, None),
    ],
)
def test_what_needs_one_vocabulary_is_refused_before_the_data_are_prepared(
    vocabulary: dict[str, Any],
    share: float,
    change: dict[str, Any],
    refused: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They would share it without a word if they happen to have as many pieces, as those of `two` have."""

    def prepare(config: DataConfig) -> NoReturn:
        raise Preparing

    monkeypatch.setattr(run, "prepare", prepare)
    monkeypatch.chdir(tmp_path)
    for name, joint in (("one", True), ("two", False)):
        Path(name).mkdir()
        learnt = train_tokenizer(
            lambda: iter(PAIRS), TokenizerConfig(vocab_size=300, joint=joint), Path(name)
        )
        assert learnt.source.size == learnt.target.size
        learnt.save(Path(name))
    data = DataConfig(
        name="x",
        source_lang="de",
        target_lang="en",
        reversed=share,
        tokenizer=TokenizerConfig(**vocabulary),
    )
    config = replace(TrainConfig(run_dir=str(tmp_path / "run"), data=data), **change)
    folder = RunFolder(tmp_path / "run")
    messages = {
        "tie": r"^model\.tie=all: both sides have one embedding, but each side has its own vocabulary\. Set ",
        "reversed": r"^data\.reversed=0\.5: each side has its own vocabulary, so no pair can be reversed\.",
    }
    with pytest.raises(UserError if refused else Preparing, match=messages[refused] if refused else None):
        run._checked_and_prepared(run.with_choices(config, folder, 1), folder, ALONE, 0.0)
    assert not folder.path.exists()


@pytest.mark.parametrize("precision", [Precision.fp32, Precision.bf16])
def test_a_resumed_run_keeps_the_precision_that_was_measured(
    precision: Precision, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = DataConfig(name="x", source_lang="de", target_lang="en")
    config = TrainConfig(run_dir=str(tmp_path), data=data, training=TrainingConfig(devices="1"))
    assert config.training.precision is Precision.auto
    folder = RunFolder(tmp_path)
    measured = {Precision.fp32: Precision.bf16, Precision.bf16: Precision.fp32}[precision]
    monkeypatch.setattr(run, "choose_precision", lambda one, _: measured if one is Precision.auto else one)
    assert run.with_choices(config, folder, 1).training.precision is measured
    begun = replace(config, training=replace(config.training, precision=precision))
    monkeypatch.setattr(RunFolder, "resumable_config", lambda self: begun)
    assert run.with_choices(config, folder, 1).training.precision is precision
