"""Warm start: training that starts with the weights and the vocabulary of another model."""

from __future__ import annotations

import logging
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from toy import toy_config, write_toy

from nmt.bundle import load_bundle, read_weights
from nmt.config import (
    CorpusConfig,
    Extension,
    Norm,
    PositionsConfig,
    SplitConfig,
    TokenizerConfig,
    TrainConfig,
    TrainSplitConfig,
)
from nmt.data.preparation.prepare import prepare
from nmt.errors import UserError
from nmt.training.run import train
from nmt.training.state.warm_start import initial_model, new_model, with_vocabulary


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run: one tagged corpus, twelve updates."""
    folder = write_toy(tmp_path_factory.mktemp("base"), train=300, held_out=8)
    train(tagged(toy_config(folder, folder / "run"), "<a>"))
    return folder


def tagged(config: TrainConfig, tag: str | None) -> TrainConfig:
    data = config.data
    return replace(
        config,
        data=replace(
            data,
            train=replace(data.train, tag=tag),
            valid=replace(data.valid, tag=tag),
            test=replace(data.test, tag=tag),
        ),
    )


def started(base: Path, run_dir: Path, data: Path | None = None, tag: str | None = "<a>") -> TrainConfig:
    """Returns the options of a run that starts from `base`, by default on other text."""
    config = toy_config(data or write_toy(run_dir.parent / "text", train=200, held_out=8, seed=5), run_dir)
    return replace(tagged(config, tag), start_from=str(base / "run"))


def test_the_first_weights_are_those_of_the_model(base: Path, tmp_path: Path) -> None:
    config = with_vocabulary(started(base, tmp_path / "run"))
    prepared = prepare(config.data)
    assert prepared.tokenizer.fingerprint == load_bundle(base / "run").tokenizer.fingerprint
    there = read_weights(base / "run/model/model.safetensors")
    for name, weight in initial_model(config, prepared).state_dict().items():
        assert torch.equal(weight, there[name]), name
    drawn = new_model(config, prepared).state_dict()
    assert not torch.equal(drawn["target_embedding.weight"], there["target_embedding.weight"])


def test_options_of_the_model_that_differ(base: Path, tmp_path: Path) -> None:
    config = started(base, tmp_path / "run")
    positions = PositionsConfig(options={"layout": "halves"})
    config = replace(config, model=replace(config.model, norm=Norm.pre, residual=False, positions=positions))
    with pytest.raises(UserError) as caught:
        with_vocabulary(config)
    assert str(caught.value) == (
        f"start_from={base / 'run'}: the model has other options. Leave out model.positions.options.layout. "
        "Give model.norm=post model.residual=true"
    )


def test_a_learning_rate_of_nothing_leaves_the_model_as_it_was(base: Path, tmp_path: Path) -> None:
    config = started(base, tmp_path / "run")
    schedule = replace(config.training.schedule, peak=1e-30)
    train(replace(config, training=replace(config.training, schedule=schedule)))
    there = read_weights(base / "run/model/model.safetensors")
    for name, weight in read_weights(tmp_path / "run/model/model.safetensors").items():
        torch.testing.assert_close(weight, there[name], rtol=0, atol=1e-6)


def test_stopped_and_started_again_it_is_the_same(base: Path, tmp_path: Path) -> None:
    data = write_toy(tmp_path / "text", train=200, held_out=8, seed=5)
    train(started(base, tmp_path / "whole", data))
    config = started(base, tmp_path / "parts", data)
    train(replace(config, training=replace(config.training, max_updates=5)))
    train(config)
    whole, parts = (
        (tmp_path / run / "checkpoints/update-00000012/model.safetensors").read_bytes()
        for run in ("whole", "parts")
    )
    assert whole == parts


@pytest.mark.parametrize(
    ("key", "extended"),
    [("start_from", True), pytest.param("data.tokenizer.path", False, marks=pytest.mark.slow)],
)
def test_a_resume_does_without_a_model_that_is_gone(
    key: str, extended: bool, base: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A new run needs it, and so does the penalty on the distance from it."""
    caplog.set_level(logging.INFO, "nmt")
    gone, data = tmp_path / "gone", write_toy(tmp_path / "text", train=200, held_out=8, seed=5)
    shutil.copytree(base / "run/model", gone)

    def config(name: str, **training: Any) -> TrainConfig:
        config = started(base, tmp_path / name, data, "<b>" if extended else "<a>")
        tokenizer = TokenizerConfig(extend=Extension.always if extended else Extension.never)
        start = str(gone)
        if key == "data.tokenizer.path":
            start, tokenizer = None, replace(tokenizer, path=str(gone))
        config = replace(config, start_from=start, data=replace(config.data, tokenizer=tokenizer))
        return replace(config, training=replace(config.training, **training))

    if key == "start_from":
        train(config("near", max_updates=5, l2_to_start=0.1))
    train(config("whole"))
    train(config("parts", max_updates=5))
    shutil.rmtree(gone)
    train(config("parts"))
    whole, parts = (
        (tmp_path / run / "checkpoints/update-00000012/model.safetensors").read_bytes()
        for run in ("whole", "parts")
    )
    assert whole == parts
    others = [config("new")]
    if key == "start_from":
        assert (
            f"start_from={gone}: the model is not there any more; the run resumes without it" in caplog.text
        )
        others.append(config("near", l2_to_start=0.1))
    for other in others:
        with pytest.raises(UserError, match=f"^{key}={gone}: (there is no such|neither this) folder"):
            train(other)


def test_another_model_in_its_place_is_told(base: Path, tmp_path: Path) -> None:
    moved = tmp_path / "base"
    train(replace(tagged(toy_config(base, moved / "run"), "<a>"), seed=2))
    config = started(moved, tmp_path / "run")
    train(replace(config, training=replace(config.training, max_updates=5)))
    train(replace(tagged(toy_config(base, tmp_path / "other"), "<a>"), seed=3))
    weights = (tmp_path / "other/model/model.safetensors").read_bytes()
    (moved / "run/model/model.safetensors").write_bytes(weights)
    (moved / "run/model/SHA256SUMS").unlink()
    with pytest.raises(UserError, match="the model in start_from changed since this checkpoint was written"):
        train(config)


def test_no_model_is_told(tmp_path: Path, base: Path) -> None:
    with pytest.raises(UserError, match=r"start_from=.*nowhere: there is no such folder"):
        with_vocabulary(replace(started(base, tmp_path / "run"), start_from=str(tmp_path / "nowhere")))


def test_another_vocabulary_is_told(base: Path, tmp_path: Path) -> None:
    config = started(base, tmp_path / "run", tag=None)
    train(replace(toy_config(base, tmp_path / "other"), seed=2))
    own = replace(config.data, tokenizer=TokenizerConfig(path=str(tmp_path / "other")))
    config = with_vocabulary(replace(config, data=own))
    with pytest.raises(
        UserError, match="the weights belong to another vocabulary than that of data.tokenizer.path"
    ):
        initial_model(config, prepare(config.data))


def test_a_tag_the_vocabulary_lacks_is_told(base: Path, tmp_path: Path) -> None:
    given = started(base, tmp_path / "run", tag="<b>")
    fixed = replace(given.data.tokenizer, extend=Extension.never)
    config = with_vocabulary(replace(given, data=replace(given.data, tokenizer=fixed)))
    with pytest.raises(
        UserError, match=r"data\.train\.tag=<b>: the vocabulary of .* has no such piece, only <a>"
    ):
        prepare(config.data)
    train_files = config.data.train
    corpora = {"bt": CorpusConfig(source=train_files.source, target=train_files.target, tag="<c>")}
    data = replace(config.data, train=TrainSplitConfig(corpora=corpora), valid=SplitConfig(
        source=config.data.valid.source, target=config.data.valid.target
    ))  # fmt: skip
    with pytest.raises(UserError, match=r"data\.train\.corpora\.bt\.tag=<c>: the vocabulary of"):
        prepare(data)


def test_no_pieces_are_told(tmp_path: Path) -> None:
    config = toy_config(write_toy(tmp_path, train=200, held_out=8), tmp_path / "run")
    with pytest.raises(UserError, match=r"data\.tokenizer\.path=nowhere: neither this folder nor"):
        prepare(replace(config.data, tokenizer=TokenizerConfig(path="nowhere")))
