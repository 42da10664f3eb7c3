"""Fine-tuning: frozen parts, L2 to the start, mixed data; scores before and after; byte-exact resumption."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from test_resume import assert_same_run, interrupted
from toy import toy_config, write_toy

from nmt.bundle import load_bundle, read_weights
from nmt.config import (
    Average,
    AveragingConfig,
    CorpusConfig,
    OptimizerConfig,
    Sharding,
    SplitConfig,
    TrainConfig,
    TrainSplitConfig,
)
from nmt.errors import UserError
from nmt.runtime.files import parse_json
from nmt.runtime.streams import log
from nmt.training import run as run_module
from nmt.training.run import train

SETTINGS: dict[str, dict[str, Any]] = {
    "frozen": {"freeze": ["encoder", "embeddings"], "averaging": AveragingConfig(kind=Average.last, count=3)},
    "pulled": {"l2_to_start": 0.5, "clip_norm": 1.0, "micro_batches": 2},
    "both, a running mean": {"freeze": ["decoder.0.feed_forward"], "l2_to_start": 0.1, "ema": 0.9},
}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data of a general model and, in `run`, the model; other data in `topic`."""
    folder = write_toy(tmp_path_factory.mktemp("base"), train=400, held_out=8)
    write_toy(folder / "topic", train=150, held_out=6, seed=5)
    train(toy_config(folder, folder / "run"))
    return folder


def tuning(base: Path, run: Path, **training: Any) -> TrainConfig:
    """The options of a fine-tuning on the topic and, half as often, on the data of the general model."""
    config = toy_config(base / "topic", run)
    corpora = {
        name: CorpusConfig(source=str(folder / "train.src"), target=str(folder / "train.tgt"), weight=weight)
        for name, folder, weight in (("topic", base / "topic", None), ("general", base, 0.5))
    }
    test = SplitConfig(
        source=[str(base / "topic/test.src"), str(base / "test.src")],
        target=[str(base / "topic/test.tgt"), str(base / "test.tgt")],
        names=["topic", "general"],
    )
    data = replace(config.data, train=TrainSplitConfig(corpora=corpora), test=test)
    max_tokens = training.pop("max_tokens", config.data.max_tokens)
    return replace(
        config,
        data=replace(data, max_tokens=max_tokens),
        start_from=str(base / "run"),
        training=replace(config.training, **training),
    )


@pytest.fixture(scope="module")
def whole(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Returns an uninterrupted run with some settings."""
    folder = tmp_path_factory.mktemp("whole")

    @cache
    def run(name: str) -> Path:
        train(tuning(base, folder / name, **SETTINGS[name]))
        return folder / name

    return run


@pytest.mark.parametrize(
    "name", [pytest.param("frozen", marks=pytest.mark.slow), "pulled", "both, a running mean"]
)
def test_stopped_and_resumed_it_ends_in_the_same_bytes(
    name: str, base: Path, whole: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupted(monkeypatch, tuning(base, tmp_path / "run", **SETTINGS[name]), [2, 5])
    assert_same_run(tmp_path / "run", whole(name))


@pytest.mark.parametrize("name", ["frozen", "both, a running mean"])
def test_frozen_weights_are_those_of_the_start_byte_for_byte(
    name: str, base: Path, whole: Callable[[str], Path]
) -> None:
    start = read_weights(base / "run/model/model.safetensors")
    checkpoints = sorted((whole(name) / "checkpoints").glob("update-*/model.safetensors"))
    assert len(checkpoints) == 3
    frozen = ("encoder", "target_embedding") if name == "frozen" else ("decoder.0.feed_forward.",)
    for path in (*checkpoints, whole(name) / "model/model.safetensors"):
        for key, weight in read_weights(path).items():
            assert torch.equal(weight, start[key]) == key.startswith(frozen), (path, key)
    state = read_weights(checkpoints[-1].with_name("optimizer.safetensors"))
    moments = {key.removeprefix("exp_avg.") for key in state if key.startswith("exp_avg.")}
    assert moments == {key for key in start if not key.startswith(frozen)}


def test_the_pull_shortens_the_distance(base: Path, whole: Callable[[str], Path], tmp_path: Path) -> None:
    train(tuning(base, tmp_path / "free", **{**SETTINGS["pulled"], "l2_to_start": 0.0}))
    start = read_weights(base / "run/model/model.safetensors")
    distances = []
    for run in (whole("pulled"), tmp_path / "free"):
        end = read_weights(run / "checkpoints/update-00000012/model.safetensors")
        distances.append(sum(float((end[key] - weight).square().sum()) for key, weight in start.items()))
    assert 0 < distances[0] < 0.9 * distances[1]


def test_the_report_has_the_scores_before(base: Path, whole: Callable[[str], Path]) -> None:
    results = parse_json((whole("frozen") / "results.json").read_text())
    before = results["before"]
    assert before.keys() == {"test", "valid"}
    own = parse_json((base / "run/results.json").read_text())["test"]
    general = before["test"]["groups"]["general"]
    assert {key: general[key] for key in ("bleu", "chrf", "ter", "sentences")} == {
        key: own[key] for key in ("bleu", "chrf", "ter", "sentences")
    }
    assert before["test"]["groups"]["topic"]["sentences"] == 6
    lines = (whole("frozen") / "test.before.hypotheses.txt").read_text().splitlines()
    assert lines[6:] == (base / "run/test.hypotheses.txt").read_text().splitlines()
    text = train(tuning(base, whole("frozen"), **SETTINGS["frozen"]))  # finished: prints the report again
    table = text[text.index("toy test") :].splitlines()
    assert [line.split()[0] for line in table[3:12]] == [
        *("all", "before", "difference"),
        *("topic", "before", "difference"),
        *("general", "before", "difference"),
    ]
    assert f"{results['test']['bleu'] - before['test']['bleu']:+.2f}" in table[5]
    assert "before: the model in start_from." in " ".join(text.split())


@pytest.mark.parametrize("change", ["removed", "replaced"])
def test_the_start_may_go_away_during_the_training(
    change: str, base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(log, "propagate", True)
    start = shutil.copytree(base / "run/model", tmp_path / "start")
    config = replace(tuning(base, tmp_path / "run", max_updates=3), start_from=str(start))
    finish = run_module.finish

    def later(*given: Any) -> Any:
        if change == "removed":
            shutil.rmtree(start)
        else:
            (start / "model.safetensors").write_bytes(b"another model")
        return finish(*given)

    monkeypatch.setattr(run_module, "finish", later)
    train(config)
    results = parse_json((tmp_path / "run/results.json").read_text())
    assert "before" not in results and "bleu" in results["test"]
    assert sum("the model is not there any more" in line for line in caplog.messages) == 1
    assert load_bundle(tmp_path / "run/model").tokenizer


def test_an_unknown_part_is_refused_before_the_data_are_prepared(base: Path, tmp_path: Path) -> None:
    config = tuning(base, tmp_path / "run", freeze=["encodr"])
    config.data.train.corpora["topic"].source = "missing"
    with pytest.raises(UserError, match=r"^training\.freeze=encodr: no weight has this name"):
        train(config)


@pytest.mark.slow
@pytest.mark.parametrize("sharding", list(Sharding))
def test_two_processes_end_in_the_weights_of_one(sharding: Sharding, base: Path, tmp_path: Path) -> None:
    runs = []
    for processes in (1, 2):
        options: dict[str, Any] = {
            "freeze": ["encoder", "embeddings"],
            "l2_to_start": 0.3,
            "micro_batches": 2,
            "max_tokens": 256,
            "optimizer": OptimizerConfig(epsilon=1e-4),
            "sharding": sharding,
            "onednn_fp32": False,
            "devices": str(processes),
        }
        train(tuning(base, tmp_path / str(processes), **options))
        runs.append(read_weights(tmp_path / str(processes) / "checkpoints/update-00000012/model.safetensors"))
    start = read_weights(base / "run/model/model.safetensors")
    for name, weight in runs[0].items():
        assert (weight - runs[1][name]).abs().max() <= 1e-5, name
        assert torch.equal(runs[1][name], start[name]) == name.startswith(("encoder", "target_embedding"))
