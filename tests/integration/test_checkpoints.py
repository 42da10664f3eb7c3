"""Checkpoints as models, also of an unfinished run; and `resume_from`, which rewinds to a checkpoint."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import Toy
from safetensors.torch import load_file
from test_resume import assert_same_run, stop_after, validations
from toy import toy_config

from nmt.bundle import load_bundle
from nmt.config import Average, AveragingConfig, Resume, TokenizerConfig, TrainConfig
from nmt.data.preparation.prepare import prepare
from nmt.errors import UserError
from nmt.runtime.hub import find_model_folder
from nmt.training.run import train
from nmt.training.state.warm_start import initial_model, with_vocabulary
from nmt.training.trainer import Trainer


def config(data: Path, run: Path, **options: Any) -> TrainConfig:
    averaging = AveragingConfig(kind=Average.last, count=2)
    return toy_config(data, run, averaging=averaging, **{"checkpoint_every": 2, **options})


@pytest.fixture(scope="module")
def whole(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run with the checkpoints of updates 4 to 12."""
    run = tmp_path_factory.mktemp("whole") / "run"
    train(config(data, run))
    return run


@pytest.fixture(scope="module")
def stopped(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An unfinished run with the checkpoints of updates 2, 4 and 5."""
    run = tmp_path_factory.mktemp("stopped") / "run"
    with pytest.MonkeyPatch.context() as patch:
        stop_after(patch, 5)
        with pytest.raises(SystemExit):
            train(config(data, run))
    yield run


def update(run: Path) -> list[int]:
    return sorted(int(path.name.removeprefix("update-")) for path in (run / "checkpoints").iterdir())


@pytest.mark.parametrize("name", ["update-00000004", "update-0004"])
def test_a_checkpoint_of_a_run_that_goes_on_is_a_model(name: str, stopped: Path) -> None:
    assert not (stopped / "model").exists()
    bundle = load_bundle(stopped / "checkpoints" / name)
    assert bundle.folder == stopped / "checkpoints/update-00000004"
    assert bundle.results["data"].keys() == {"valid", "test", "text"}
    assert bundle.config.run_dir == str(stopped)
    for key, weight in load_file(bundle.folder / "model.safetensors").items():
        assert torch.equal(bundle.model.state_dict()[key], weight)
    assert not bundle.model.training


def test_checkpoints_from_within_their_folder(stopped: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(stopped / "checkpoints")
    assert load_bundle("update-4").folder == Path("update-00000004")
    monkeypatch.chdir("update-00000004")
    assert load_bundle(".").tokenizer.fingerprint == load_bundle("../update-5").tokenizer.fingerprint
    link = stopped / "newest"
    link.symlink_to(stopped / "checkpoints/update-00000005")
    assert load_bundle(link).config.run_dir == str(stopped)
    link.unlink()


def test_a_run_of_an_earlier_version_has_its_vocabulary_in_the_model(whole: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(whole, tmp_path / "run"))
    for path in run.glob("*.spm"):
        path.unlink()
    assert load_bundle(run / "checkpoints/update-8").tokenizer.fingerprint


def test_training_starts_from_a_checkpoint(data: Path, stopped: Path, tmp_path: Path) -> None:
    path = str(stopped / "checkpoints/update-4")
    options = with_vocabulary(replace(config(data, tmp_path / "run"), start_from=path))
    assert options.data.tokenizer.path == path
    prepared = prepare(options.data)
    there = load_file(stopped / "checkpoints/update-00000004/model.safetensors")
    for key, weight in initial_model(options, prepared).state_dict().items():
        assert torch.equal(weight, there[key])
    train(replace(options, training=replace(options.training, max_updates=2)))
    assert (tmp_path / "run/results.json").is_file()


@pytest.mark.parametrize("path", ["checkpoints/update-4", "."])
def test_the_vocabulary_of_a_run_that_goes_on(path: str, data: Path, stopped: Path) -> None:
    options = toy_config(data, Path("unused")).data
    own = prepare(options).tokenizer.fingerprint
    taken = replace(options, tokenizer=TokenizerConfig(path=str(stopped / path)))
    assert prepare(taken).tokenizer.fingerprint == own


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("checkpoints/update-3", "there is no such checkpoint. {run}/checkpoints has update-00000002, "
            "update-00000004, update-00000005"),
        ("checkpoints/update-", "there is no such folder"),
        ("checkpoints", "holds checkpoints. Name one of them: model_dir={run}/checkpoints/update-00000005"),
        (".", "its training has not ended, so it has no model yet. Resume it with the same nmt-train "
            "command, or name a checkpoint: model_dir={run}/checkpoints/update-00000005"),
        ("checkpoints/update-4/optimizer.safetensors", "there is no such folder"),
    ],
)  # fmt: skip
def test_what_is_not_a_checkpoint_is_told(path: str, words: str, stopped: Path) -> None:
    with pytest.raises(UserError) as caught:
        find_model_folder(stopped / path)
    given = stopped / path
    assert str(caught.value).startswith(f"model_dir={given}: {words.format(run=stopped)}")


def test_a_checkpoint_away_from_its_run_is_told(stopped: Path, tmp_path: Path) -> None:
    away = shutil.copytree(stopped / "checkpoints/update-00000004", tmp_path / "a/b/update-4")
    with pytest.raises(UserError, match=r"this checkpoint is not in its run: there is no .*/a/config.yaml"):
        load_bundle(away)


@pytest.mark.parametrize("sums", [True, False])
@pytest.mark.parametrize("name", ["model.safetensors", "state.json"])
def test_a_damaged_checkpoint_does_not_translate(
    name: str, sums: bool, stopped: Path, tmp_path: Path
) -> None:
    run = Path(shutil.copytree(stopped, tmp_path / "run"))
    if not sums:  # as earlier versions wrote it
        (run / "checkpoints/update-00000004/SHA256SUMS").unlink()
    path = run / "checkpoints/update-00000004" / name
    content = bytearray(path.read_bytes())
    content[-100 if name == "model.safetensors" else 0] ^= 1
    path.write_bytes(content)
    with pytest.raises(UserError, match=f"{name}: is damaged"):
        load_bundle(run / "checkpoints/update-4")


def test_the_commands_take_checkpoints(toy: Toy, trained: Path) -> None:
    name = os.fspath(trained.relative_to(toy.folder) / "checkpoints/update-4")
    done = toy.run("nmt-translate", f"model_dir={name}", text="ba be\n\n")
    assert done.returncode == 0 and done.stdout.count(b"\n") == 2, done.stderr
    done = toy.run("nmt-eval", f"model_dir={name}", "split=valid")
    assert done.returncode == 0 and name.encode() in done.stdout, done.stderr
    assert b"beam_size" not in done.stderr
    show = toy.run("nmt-translate", f"model_dir={name}", "--show")
    assert b"beam_size: 2\n" in show.stdout, "the decoding options of the run"


def back(options: TrainConfig, name: str, **training: Any) -> TrainConfig:
    return replace(options, resume_from=name, training=replace(options.training, **training))


@pytest.mark.parametrize("name", ["8", "{run}/checkpoints/update-00000008"])
def test_going_back_leads_to_the_same_end(
    name: str, data: Path, whole: Path, tmp_path: Path, said: pytest.LogCaptureFixture
) -> None:
    run = Path(shutil.copytree(whole, tmp_path / "run"))
    options = back(config(data, run), name.format(run=run))
    train(options)
    assert f"rewinding {run} to update 8" in said.text
    assert "removing the later checkpoints: update-00000010, update-00000012" in said.text
    for path in (run / "checkpoints").iterdir():
        state = json.loads((path / "state.json").read_text())
        resumed_from = state["progress"].pop("resumed_from")
        assert resumed_from == (None if path.name <= "update-00000008" else 8)
        state["progress"]["resumed_from"] = None
        (path / "state.json").write_text(json.dumps(state))
    assert_same_run(run, whole)


def test_the_same_command_does_not_go_back_again(
    data: Path,
    whole: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    said: pytest.LogCaptureFixture,
) -> None:
    run = Path(shutil.copytree(whole, tmp_path / "run"))
    options = back(config(data, run), "update-6")
    with monkeypatch.context() as patch:
        stop_after(patch, 3)
        with pytest.raises(SystemExit):
            train(options)
    assert update(run)[-1] == 9 and not (run / "results.json").exists()
    assert [one["update"] for one in validations(run)] == [4, 8]
    said.clear()
    train(options)
    assert f"resuming {run} at update 9" in said.text and "rewinding" not in said.text
    assert (
        "resume_from=update-6: the run was already rewound; to rewind again, remove the later checkpoints"
        in said.text
    )
    assert update(run)[-1] == 12 and (run / "results.json").exists()
    text = train(options)
    assert "12 updates" in text and update(run)[-1] == 12

    train(back(options, "update-10"))  # another checkpoint
    assert f"rewinding {run} to update 10" in said.text
    train(replace(options, resume_from=None, training=replace(options.training, max_updates=14)))
    said.clear()
    train(back(options, "update-10", max_updates=14))  # again, after a command without resume_from
    assert f"rewinding {run} to update 10" in said.text and update(run)[-1] == 14


def test_killed_right_after_going_back(
    data: Path, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Path(shutil.copytree(whole, tmp_path / "run"))

    class PowerCut(BaseException):
        pass

    def cut(self: Trainer) -> None:
        raise PowerCut

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_update", cut)
        with pytest.raises(PowerCut):
            train(back(config(data, run), "update-8"))
    assert update(run)[-1] == 8 and not (run / "results.json").exists()
    train(back(config(data, run), "update-8"))
    assert (run / "model/model.safetensors").read_bytes() == (whole / "model/model.safetensors").read_bytes()


def test_a_run_can_end_earlier(data: Path, whole: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(whole, tmp_path / "run"))
    options = back(config(data, run), "update-8", max_updates=8)
    train(options)
    results = json.loads((run / "results.json").read_text())["training"]
    assert (results["updates"], results["averaged_updates"]) == (8, [6, 8])
    train(replace(options, training=replace(options.training, max_updates=12)))
    assert (run / "model/model.safetensors").read_bytes() == (whole / "model/model.safetensors").read_bytes()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("update-7", "resume_from=update-7: there is no such checkpoint. {run}/checkpoints has update-0"),
        ("last", "resume_from=last: not a checkpoint of {run}. Name one as in resume_from=update-300"),
        ("", "resume_from=: not a checkpoint of {run}. Name"),
        ("9" * 5000, "resume_from=9"),
        ("elsewhere/update-4", "resume_from=elsewhere/update-4: not a checkpoint of {run}. Name"),
    ],
    ids=range(5),
)  # fmt: skip
def test_a_wrong_name_changes_nothing(name: str, words: str, data: Path, whole: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in whole.rglob("*")}
    with pytest.raises(UserError) as caught:
        train(back(config(data, whole), name))
    assert str(caught.value).startswith(words.format(run=whole))
    assert {path: path.stat().st_mtime_ns for path in whole.rglob("*")} == before


def test_going_back_to_a_damaged_checkpoint_removes_nothing(data: Path, whole: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(whole, tmp_path / "run"))
    os.truncate(run / "checkpoints/update-00000008/optimizer.safetensors", 1000)
    with pytest.raises(UserError, match="resume_from=update-8: .*is damaged.*. Name another checkpoint"):
        train(back(config(data, run), "update-8"))
    assert update(run) == update(whole)


def test_going_back_needs_a_run(data: Path, whole: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="resume_from=update-4: .* has no checkpoint. Check run_dir"):
        train(back(config(data, tmp_path / "run"), "update-4"))
    assert not (tmp_path / "run").exists()
    with pytest.raises(UserError, match="resume=never"):
        train(replace(back(config(data, whole), "update-4"), resume=Resume.never))
