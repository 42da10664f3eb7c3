"""Options that may change when a run resumes; strange folders, and a log on a full disk."""

from __future__ import annotations

import json
import logging
import os
import shutil
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nmt.config import (
    Average,
    AveragingConfig,
    CorpusConfig,
    DataConfig,
    DecodingConfig,
    Resume,
    ScheduleConfig,
    SetConfig,
    TrainConfig,
    TrainingConfig,
    TrainSplitConfig,
)
from nmt.config.storage import to_yaml
from nmt.errors import UserError
from nmt.runtime.streams import log
from nmt.training.figures.monitor import Monitor
from nmt.training.loggers import loggers_of
from nmt.training.state.checkpoint import Checkpoint, CheckpointFolder
from nmt.training.state.progress import Progress
from nmt.training.state.run_folder import RunFolder, _RunLog, fixed_options
from nmt.training.update.schedule import SCHEDULES, Constant


def config(name: str = "toy", **training: Any) -> TrainConfig:
    data = DataConfig(name=name, source_lang="xx", target_lang="yy")
    return TrainConfig(run_dir="run", data=data, training=TrainingConfig(**training))


def started(path: Path, options: TrainConfig) -> RunFolder:
    folder = RunFolder(path)
    with folder.claimed(options):
        (folder.checkpoints / "update-00000010").mkdir(parents=True)
    return folder


def test_the_same_options_go_on(tmp_path: Path) -> None:
    folder = started(tmp_path, config())
    folder.check(config())
    assert folder.config.read_text() == to_yaml(config())


def chosen(tokens: int | str, size: int | str, **training: Any) -> TrainConfig:
    options = config(**training)
    pieces = replace(options.data.tokenizer, vocab_size=size)
    return replace(options, data=replace(options.data, max_tokens=tokens, tokenizer=pieces))


def test_the_run_remembers_what_auto_was(tmp_path: Path) -> None:
    folder, auto = RunFolder(tmp_path), chosen("auto", "auto")
    assert folder.with_choices(auto) == auto
    with folder.claimed(chosen(1234, 4000)):
        pass  # a run without a checkpoint: its data may have differed
    assert folder.with_choices(auto) == chosen(1234, "auto")
    other = chosen("auto", "auto", clip_norm=1.0)
    assert folder.with_choices(other) == other
    started(tmp_path, chosen(1234, 4000))
    assert folder.with_choices(auto) == chosen(1234, 4000)
    assert folder.with_choices(other) == chosen(1234, 4000, clip_norm=1.0)  # `check` reports the difference
    assert folder.with_choices(chosen(99, 300)) == chosen(99, 300)
    folder.config.write_text("data: [")
    assert folder.with_choices(auto) == auto


def normalized(rule: Any) -> TrainConfig:
    options = config()
    pieces = replace(options.data.tokenizer, normalization=rule)
    return replace(options, data=replace(options.data, tokenizer=pieces))


def test_a_run_of_an_earlier_version_retains_its_normalisation(tmp_path: Path) -> None:
    folder = started(tmp_path, normalized("nmt_nfkc"))
    resumed = folder.with_choices(config())
    assert resumed == normalized("nmt_nfkc")
    folder.check(resumed)
    asked = folder.with_choices(normalized({"target": "nfc"}))
    with pytest.raises(UserError, match="started with data.tokenizer.normalization=nmt_nfkc"):
        folder.check(asked)


def test_a_run_with_a_rule_for_each_side_is_resumed_with_it(tmp_path: Path) -> None:
    folder = started(tmp_path, normalized({"target": "nfc"}))
    folder.check(folder.with_choices(normalized({"target": "nfc", "source": "nmt_nfkc"})))
    with pytest.raises(UserError, match=r"data\.tokenizer\.normalization\.target=nfc, not identity"):
        folder.check(folder.with_choices(config()))


@pytest.mark.parametrize("size", [8000, 16000])
def test_a_run_begun_with_a_number_goes_on_with_auto(size: int, tmp_path: Path) -> None:
    """`data=local` now has `auto` instead of a number: the same command must resume older runs."""
    folder = started(tmp_path, chosen(4096, size))
    folder.check(folder.with_choices(chosen(4096, "auto")))
    with pytest.raises(UserError, match=f"vocab_size={size}, not 300. Give the same"):
        folder.check(folder.with_choices(chosen(4096, 300)))


def test_the_run_there_is_to_go_on_with(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    with folder.claimed(config(clip_norm=1.0)):
        assert folder.resumable_config() is None  # it has no checkpoint
    folder.check(config())  # so it may start with other options
    assert started(tmp_path, config()).resumable_config() == config()
    folder.config.write_text("data: [")
    assert folder.resumable_config() is None


@pytest.mark.parametrize(
    "other",
    [
        config(max_updates=5, max_epochs=3, max_minutes=1.5),
        config(devices="2", threads=3, log_every=7, max_restarts=2, keep_checkpoints=2),
        config(averaging=AveragingConfig(kind=Average.none)),
        config(averaging=AveragingConfig(count=2)),
        replace(config(), decoding=DecodingConfig(max_tokens=512, max_sentences=8)),
    ],
    ids=range(5),
)
def test_these_options_may_change(other: TrainConfig, tmp_path: Path) -> None:
    started(tmp_path, config()).check(other)
    assert fixed_options(config()) == fixed_options(other)


def read_from(folder: str, name: str = "train.en", start: str | None = "runs/general") -> TrainConfig:
    """Options of a run whose files are in a folder."""
    options = config()
    options.data.train = TrainSplitConfig(source=f"{folder}{name}", target=[f"{folder}a.de", f"{folder}b.de"])
    options.data.train.corpora = {"own": CorpusConfig(path=f"{folder}own.tsv")}
    options.data.valid.sets = {"first": SetConfig(source=f"{folder}valid.en", target=f"{folder}valid.de")}
    options.data.tokenizer.path = f"{folder}pieces"
    return replace(options, start_from=start and folder + start)


def test_a_run_may_move_with_its_data(tmp_path: Path) -> None:
    folder = started(tmp_path, read_from("/home/first/data/"))
    for place in ("", "data/", "../", "/mnt/second/"):
        folder.check(read_from(place))
    with pytest.raises(UserError, match=r"with data.train.source=train.en, not valid.en. Give the same"):
        folder.check(read_from("data/", "valid.en"))
    with pytest.raises(UserError, match=r"with start_from=a model, not null. Give the same"):
        folder.check(read_from("data/", start=None))
    others = read_from("data/")
    others.data.valid.sets["second"] = others.data.valid.sets["first"]
    with pytest.raises(
        UserError, match=r"with data.valid.sets=\[first\], not \[first, second\]. Give the same"
    ):
        folder.check(others)


def test_others_are_named(tmp_path: Path) -> None:
    folder = started(tmp_path, config())
    other = config(label_smoothing=0.0, clip_norm=1.0)
    other.model = replace(other.model, d_model=256)
    expected = (
        f"{tmp_path}: started with model.d_model=512, not 256, training.clip_norm=0.0, not 1.0, "
        f"training.label_smoothing=0.1, not 0.0. Give the same options to resume, or another run_dir."
    )
    with pytest.raises(UserError) as refused:
        folder.check(other)
    assert str(refused.value) == expected
    assert fixed_options(other) != fixed_options(config())


def test_of_many_others_the_data_come_first(tmp_path: Path) -> None:
    folder = started(tmp_path, config())
    other = config(label_smoothing=0.0, clip_norm=1.0, rdrop=1.0, ema=0.5)
    other.data.name = "other"
    other.model = replace(other.model, d_model=256, d_ff=256, heads=4)
    with pytest.raises(UserError) as refused:
        folder.check(other)
    words = str(refused.value)
    assert words.startswith(
        f"{tmp_path}: started with data.name={config().data.name}, not other, model.d_ff="
    )
    assert ", and 2 other options differ. Give the same options" in words


def mixed(**corpora: CorpusConfig) -> TrainConfig:
    options = config()
    options.data.train.corpora = corpora
    return options


def scheduled(name: str, max_updates: int = 10, **options: Any) -> TrainConfig:
    return config(schedule=ScheduleConfig(name=name, options=options), max_updates=max_updates)


def searched(**processors: dict[str, Any] | None) -> TrainConfig:
    return replace(config(), decoding=DecodingConfig(processors=processors))


A, B = CorpusConfig(source="a", cleaning={"max_ratio": 3}), CorpusConfig(source="b")
MIXED, STEPS = mixed(a=A, b=B), scheduled("unknown", every=5, factor=0.5)  # a schedule of another plugin
SEARCHED = searched(a={}, b={"strength": 2.0})


@pytest.mark.parametrize(
    ("saved", "new", "words"),
    [
        (config(), replace(config(), decoding=DecodingConfig(beam_size=5)), r"decoding\.beam_size=4, not 5"),
        # A limit that one of the two schedules ignores is not named.
        (
            config(),
            config(schedule=ScheduleConfig(name="linear")),
            "training.schedule.name=noam, not linear. G",
        ),
        (MIXED, mixed(a=replace(A), b=replace(B)), None),
        (MIXED, mixed(a=A, b=replace(B, weight=2.0)), "with data.train.corpora.b.weight=null, not 2.0. Give"),
        (MIXED, mixed(b=B, a=A), r"data.train.corpora=\[a, b\], not \[b, a\]. Give"),
        (MIXED, mixed(a=replace(A, cleaning={}), b=B), "corpora.a.cleaning.max_ratio=3, not null. Give"),
        (MIXED, config(), r"data.train.corpora=\[a, b\], not null. Give"),
        (
            scheduled("linear", 10),
            scheduled("linear", 20),
            "training.max_updates=10, not 20.* The learning rates of training.schedule.name=linear depend on",
        ),
        (scheduled("steps", 10), scheduled("steps", 20), None),
        (scheduled("cosine", 10), scheduled("cosine", 20), "training.max_updates=10, not 20"),
        (STEPS, scheduled("unknown", every=5, factor=0.5), None),
        (STEPS, scheduled("unknown", every=6, factor=0.5), r"schedule\.options\.every=5, not 6. Give"),
        (STEPS, scheduled("unknown", every=5), r"schedule\.options\.factor=0\.5, not null. Give"),
        (SEARCHED, searched(a={}, b={"strength": 2}, c=None), None),
        (SEARCHED, searched(b={"strength": 2.0}), r"decoding\.processors=\[a, b\], not \[b\]. Give"),
        (SEARCHED, searched(b={"strength": 2.0}, a={}), r"processors=\[a, b\], not \[b, a\]. Give"),
        (SEARCHED, searched(a={}, b={"strength": 3.0}), r"processors\.b\.strength=2\.0, not 3\.0. Give"),
        (SEARCHED, config(), r"processors=\[a, b\], not null. Give"),
    ],
    ids=range(18),
)
def test_options_of_sections_are_fixed_one_by_one_and_in_their_order(
    saved: TrainConfig, new: TrainConfig, words: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, depends in (("steps", False), ("cosine", True)):
        kind = type(name, (Constant,), {"depends_on_max_updates": depends})
        monkeypatch.setitem(SCHEDULES, name, kind)
    folder = started(tmp_path, saved)
    if words is None:
        folder.check(new)
        return
    with pytest.raises(UserError, match=words):
        folder.check(new)
    assert fixed_options(new) != fixed_options(saved)


def test_a_processor_that_is_left_out_is_recorded() -> None:
    assert fixed_options(searched(a=None)) == {**fixed_options(config()), "decoding.processors.a": None}


def test_plugins_that_are_missing_now_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = started(tmp_path, replace(config(), plugins=["a", "b.c"]))
    folder.check(replace(config(), plugins=["b.c", "a"]))
    assert folder.plugins() == ["a", "b.c"] and caplog.messages == []
    folder.check(replace(config(), plugins=["a"]))
    assert caplog.messages == [
        f"{tmp_path}: started with plugins=[a,b.c], but b.c is not given now; the cleaning rules of "
        "a missing module drop nothing"
    ]
    assert RunFolder(tmp_path / "none").plugins() == []


def test_resume_never_and_must(tmp_path: Path) -> None:
    folder = started(tmp_path / "run", config())
    with pytest.raises(UserError, match="resume=never"):
        folder.check(replace(config(), resume=Resume.never))
    folder.check(replace(config(), resume=Resume.must))
    with pytest.raises(UserError, match="resume=must"):
        RunFolder(tmp_path / "empty").check(replace(config(), resume=Resume.must))
    RunFolder(tmp_path / "empty").check(replace(config(), resume=Resume.never))


def test_a_check_that_fails_leaves_the_folder_as_it_is(tmp_path: Path) -> None:
    def refuse() -> None:
        raise UserError("no")

    folder = started(tmp_path, config())
    with pytest.raises(UserError, match="no"), folder.claimed(config(clip_norm=1.0), refuse):
        raise AssertionError("claimed")
    assert folder.config.read_text() == to_yaml(config())


def test_the_folder_of_a_model_is_not_that_of_a_run(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").touch()
    with pytest.raises(UserError) as error:
        RunFolder(tmp_path).require_sound()
    assert str(error.value) == (
        f"run_dir={tmp_path}: is the folder of a model, which the run would overwrite. Give another run_dir; "
        f"start_from={tmp_path} trains the model further."
    )


def test_a_finished_run_without_checkpoints_is_not_replaced(tmp_path: Path) -> None:
    folder = started(tmp_path, config())
    shutil.rmtree(folder.checkpoints)
    folder.check(config(clip_norm=1.0))
    folder.model.mkdir()
    (folder.model / "model.safetensors").touch()
    with pytest.raises(UserError) as error:
        folder.check(config())
    assert str(error.value) == (
        f"{tmp_path}: has a trained model but no checkpoints, so it can't be resumed. Give another "
        f"run_dir, or remove {folder.model} to train again."
    )


def test_a_config_of_another_program_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("my: file\n")
    with pytest.raises(UserError, match=r"config.yaml: my: .* The run would replace this file. Remove it"):
        RunFolder(tmp_path).check(config())


def test_one_process_at_a_time(tmp_path: Path) -> None:
    with RunFolder(tmp_path).claimed(config()):
        with pytest.raises(UserError, match="in use by another nmt-train"):
            with RunFolder(tmp_path).claimed(config()):
                raise AssertionError("the lock was acquired")
    with RunFolder(tmp_path).claimed(config()):
        pass


def test_the_home_folder_may_be_written_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    folder, plain = RunFolder(Path("~/runs/a")), RunFolder(tmp_path / "runs/a")
    assert vars(folder) == vars(plain)


@pytest.mark.parametrize("name", ["x" * 300, "x/" * 3000])
def test_a_name_that_is_too_long_is_told_in_short(name: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^run_dir=.*…x.*: its name is too long") as caught:
        RunFolder(tmp_path / name).require_sound()
    assert len(str(caught.value)) < 200


FILES, FOLDERS = (
    ("config.yaml", "results.json", "metrics.jsonl", "train.log"),
    ("checkpoints", "tensorboard", "model"),
)


@pytest.mark.parametrize("kind", ["folder", "file", "pipe", "nowhere", "circle"])
@pytest.mark.parametrize("name", [*FILES, *FOLDERS])
def test_something_else_in_the_place_of_an_entry(tmp_path: Path, name: str, kind: str) -> None:
    path, expected = tmp_path / name, "file" if name in FILES else "folder"
    if kind == "folder":
        path.mkdir()
    elif kind == "file":
        path.touch()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("gone" if kind == "nowhere" else name)
    if kind == expected:
        RunFolder(tmp_path).require_sound()
        return
    with pytest.raises(UserError, match=f"{name}: not a {expected}. Remove it, or give another|circle"):
        RunFolder(tmp_path).require_sound()


def test_a_run_folder_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to("gone")
    for name, words in [
        ("file", "file: not a folder"),
        ("file/below/it", "file: not a folder|a part of its path is a file"),
        ("link", "link: not a folder"),
        ("x" * 256, "its name is too long"),
        ("x/" * 3000, "its name is too long"),
        ("/proc/run", "^run_dir=/proc/run: the folder /proc is not writable. Choose another.$"),
        ("/sys/kernel/below/run", "the folder /sys/kernel is not writable"),
        ("/dev/null/run", "/dev/null: not a folder"),
    ]:
        with pytest.raises(UserError, match=words):
            RunFolder(tmp_path / name).require_sound()
    RunFolder(tmp_path / "fresh" / "run").require_sound()
    assert not (tmp_path / "fresh").exists()


def test_a_folder_that_is_removed_gets_no_checkpoint(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.path.mkdir()
    loggers = loggers_of(TrainConfig(run_dir=str(folder.path)))
    with closing(loggers), closing(Monitor(folder, Progress(), 10, loggers)) as monitor:
        shutil.rmtree(folder.path)
        monitor.record("train", 1, {"loss": 2.0})
    with pytest.raises(UserError, match="run: was moved or removed while .* Move it back, and"):
        CheckpointFolder(folder.checkpoints, {}).save(Checkpoint(Progress(update=1), {}, {}), {})
    assert not folder.path.exists()


def test_a_full_disk_behind_the_log_is_said_once(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "nmt")
    (tmp_path / "train.log").symlink_to("/dev/full")
    with RunFolder(tmp_path).logging():
        log.info("one")
        log.info("two")
    [failure] = set(caplog.messages) - {"one", "two"}
    assert len(caplog.messages) == 3 and "train.log: no space is left on its disk" in failure
    assert capfd.readouterr().err.count("Traceback") == 0


def test_a_name_that_is_not_utf8_is_logged(tmp_path: Path) -> None:
    handler = _RunLog(tmp_path / "train.log", encoding="utf-8", errors="backslashreplace")
    handler.emit(logging.LogRecord("nmt", logging.INFO, "", 0, os.fsdecode(b"run-\xff"), None, None))
    handler.close()
    assert (tmp_path / "train.log").read_text() == "run-\\udcff\n"


@pytest.mark.parametrize(
    "results",
    [
        *([], 7, None, "text", {"test": []}, {"training": [1]}),
        *({"data": 5}, {"valid": "high"}, {"data": {"valid": []}}),
    ],
    ids=str,
)
def test_strange_results_are_none(tmp_path: Path, results: Any) -> None:
    folder = RunFolder(tmp_path)
    folder.results.write_text(json.dumps(results))
    assert folder.read_results() is None
