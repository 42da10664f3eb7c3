"""Options that may change when a run resumes, and the truncation of its records."""

from __future__ import annotations

import json
import shutil
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from nmt.bundle import config_to_yaml
from nmt.config import (
    Average,
    AveragingConfig,
    CorpusConfig,
    DataConfig,
    DecodingConfig,
    Resume,
    ScheduleConfig,
    TrainConfig,
    TrainingConfig,
)
from nmt.errors import UserError
from nmt.runtime import log
from nmt.training.figures import monitor as monitor_module
from nmt.training.figures.monitor import Monitor
from nmt.training.state.progress import Progress
from nmt.training.state.run_folder import RunFolder, fixed_options
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
    assert folder.config.read_text() == config_to_yaml(config())


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
    assert started(tmp_path, config()).resumable_config() == config()
    folder.config.write_text("data: [")
    assert folder.resumable_config() is None


@pytest.mark.parametrize(
    "free",
    [
        {"max_updates": 5},
        {"max_epochs": 3},
        {"max_minutes": 1.5},
        {"devices": "2"},
        {"threads": 3},
        {"log_every": 7},
        {"max_restarts": 2},
        {"keep_checkpoints": 2},
        {"averaging": AveragingConfig(kind=Average.none)},
        {"averaging": AveragingConfig(count=2)},
    ],
)
def test_these_options_may_change(free: dict[str, Any], tmp_path: Path) -> None:
    started(tmp_path, config()).check(config(**free))
    assert fixed_options(config()) == fixed_options(config(**free))


def test_so_may_the_batches_of_the_search(tmp_path: Path) -> None:
    smaller = replace(config(), decoding=DecodingConfig(max_tokens=512, max_sentences=8))
    started(tmp_path, config()).check(smaller)
    assert fixed_options(config()) == fixed_options(smaller)
    with pytest.raises(UserError, match=r"decoding\.beam_size=4, not 5"):
        RunFolder(tmp_path).check(replace(config(), decoding=DecodingConfig(beam_size=5)))


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


def test_a_limit_that_one_schedule_ignores_is_not_named(tmp_path: Path) -> None:
    folder = started(tmp_path, config())
    other = config()
    other.training.schedule.name = "linear"
    with pytest.raises(UserError) as refused:
        folder.check(other)
    assert "training.schedule.name" in str(refused.value) and "max_updates" not in str(refused.value)


def test_corpora_are_compared_one_by_one_and_in_their_order(tmp_path: Path) -> None:
    def mixed(**corpora: CorpusConfig) -> TrainConfig:
        options = config()
        options.data.train.corpora = corpora
        return options

    a, b = CorpusConfig(source="a", cleaning={"max_ratio": 3}), CorpusConfig(source="b")
    folder = started(tmp_path, mixed(a=a, b=b))
    folder.check(mixed(a=replace(a), b=replace(b)))
    for other, words in (
        (
            mixed(a=a, b=replace(b, weight=2.0)),
            r"started with data.train.corpora.b.weight=null, not 2.0. Give",
        ),
        (mixed(b=b, a=a), r"data.train.corpora=\[a, b\], not \[b, a\]. Give"),
        (mixed(a=replace(a, cleaning={}), b=b), "data.train.corpora.a.cleaning.max_ratio=3, not null. Give"),
        (config(), r"data.train.corpora=\[a, b\], not null, data.train.corpora.a.cleaning"),
    ):
        with pytest.raises(UserError, match=words):
            folder.check(other)
        assert fixed_options(other) != fixed_options(mixed(a=a, b=b))


def test_the_linear_schedule_fixes_the_number_of_updates(tmp_path: Path) -> None:
    linear = ScheduleConfig(name="linear")
    folder = started(tmp_path, config(schedule=linear, max_updates=10))
    reason = "training.max_updates=10, not 20.* The learning rates of training.schedule.name=linear depend on"
    with pytest.raises(UserError, match=reason):
        folder.check(config(schedule=linear, max_updates=20))


def test_a_schedule_of_a_plugin_decides_whether_the_number_of_updates_is_fixed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, depends in (("steps", False), ("cosine", True)):
        kind = type(name, (Constant,), {"depends_on_max_updates": depends})
        monkeypatch.setitem(SCHEDULES, name, kind)
        schedule = ScheduleConfig(name=name)
        folder = started(tmp_path / name, config(schedule=schedule, max_updates=10))
        longer = config(schedule=schedule, max_updates=20)
        if depends:
            with pytest.raises(UserError, match="training.max_updates=10, not 20"):
                folder.check(longer)
        else:
            folder.check(longer)


def test_options_of_a_schedule_are_fixed_one_by_one(tmp_path: Path) -> None:
    def options(**given: Any) -> TrainConfig:
        return config(schedule=ScheduleConfig(name="steps", options=given))  # of an unknown plugin

    folder = started(tmp_path, options(every=5, factor=0.5))
    folder.check(options(every=5, factor=0.5))
    with pytest.raises(UserError, match=r"training\.schedule\.options\.every=5, not 6. Give"):
        folder.check(options(every=6, factor=0.5))
    with pytest.raises(UserError, match=r"training\.schedule\.options\.factor=0\.5, not null. Give"):
        folder.check(options(every=5))


def test_processors_are_fixed_with_their_order_and_options(tmp_path: Path) -> None:
    def searched(**processors: dict[str, Any] | None) -> TrainConfig:
        return replace(config(), decoding=DecodingConfig(processors=processors))

    folder = started(tmp_path, searched(a={}, b={"strength": 2.0}))
    folder.check(searched(a={}, b={"strength": 2}, c=None))
    for other, words in (
        (searched(b={"strength": 2.0}), r"decoding\.processors=\[a, b\], not \[b\]. Give"),
        (searched(b={"strength": 2.0}, a={}), r"decoding\.processors=\[a, b\], not \[b, a\]. Give"),
        (searched(a={}, b={"strength": 3.0}), r"decoding\.processors\.b\.strength=2\.0, not 3\.0. Give"),
        (config(), r"decoding\.processors=\[a, b\], not null, decoding\.processors\.b\.strength=2\.0, not"),
    ):
        with pytest.raises(UserError, match=words):
            folder.check(other)
    assert fixed_options(searched(a=None)) == {**fixed_options(config()), "decoding.processors.a": None}


def test_plugins_that_are_missing_now_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "propagate", True)
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


def test_a_run_that_never_came_to_a_checkpoint_may_start_with_other_options(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    with folder.claimed(config()):
        pass
    folder.check(config(clip_norm=1.0))


def test_a_check_that_fails_leaves_the_folder_as_it_is(tmp_path: Path) -> None:
    def refuse() -> None:
        raise UserError("no")

    folder = started(tmp_path, config())
    with pytest.raises(UserError, match="no"), folder.claimed(config(clip_norm=1.0), refuse):
        raise AssertionError("claimed")
    assert folder.config.read_text() == config_to_yaml(config())


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


FIGURES: dict[str, float | None] = {
    "loss": 1.23456,
    "ppl": None,
    "gradient_norm": float("inf"),
    "tokens_per_second": 12345.6,
    "mfu": 0.414,
    "filling": 0.996,
    "data_wait": 0.0,
    "peak_memory_gb": 1.26,
    "eta_minutes": 5.0,
}


def test_the_bar_shows_the_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    monitor = Monitor(RunFolder(tmp_path), Progress(), 100)
    monitor._bar.delay = 0.0
    monitor.advance(FIGURES)
    monitor._bar.refresh()
    monitor.close()
    shown = "loss 1.235, norm inf, 12,346 tokens/s, MFU 41%, 100% full, 0% waiting, 1.3 GB"
    assert shown in capsys.readouterr().err


def test_records_are_cut_back(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    monitor = Monitor(folder, Progress(), 100)
    for update in (10, 20, 30):
        monitor.advance(FIGURES)
        monitor.record("train", update, {"loss": update / 10, "ppl": float("inf")})
        samples = [{"source": "a\u2028\x85", "hypothesis": "b"}]  # line ends for some programs
        monitor.record("valid", update, {"bleu": 5.0, "samples": samples})
    monitor.close()
    with open(folder.metrics, "a") as file:
        file.write('{"kind": "train", "upda')  # a crash
    Monitor(folder, Progress(update=20), 100).close()

    records = list(map(json.loads, folder.metrics.read_text().removesuffix("\n").split("\n")))
    assert [(r["kind"], r["update"]) for r in records] == [
        (k, u) for u in (10, 20) for k in ("train", "valid")
    ]
    assert records[0]["loss"] == 1.0 and records[0]["ppl"] is None
    board = EventAccumulator(str(folder.tensorboard))
    board.Reload()
    assert [(event.step, event.value) for event in board.Scalars("train/loss")] == [(10, 1.0), (20, 2.0)]
    assert len(list(folder.tensorboard.iterdir())) == 1


def test_the_home_folder_may_be_written_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    folder, plain = RunFolder(Path("~/runs/a")), RunFolder(tmp_path / "runs/a")
    assert vars(folder) == vars(plain)


@pytest.mark.parametrize(
    ("settled", "kept"), [(True, ["valid", "train", "valid"]), (False, ["valid", "train"])]
)
def test_a_validation_that_is_done_again_is_recorded_once(
    settled: bool, kept: list[str], tmp_path: Path
) -> None:
    folder = RunFolder(tmp_path)
    monitor = Monitor(folder, Progress(), 100)
    for kind, update in (("valid", 10), ("train", 20), ("valid", 20)):
        monitor.record(kind, update, {"loss": 1.0})
    monitor.close()
    Monitor(folder, Progress(update=20, settled=settled), 100).close()
    assert [json.loads(line)["kind"] for line in folder.metrics.read_text().splitlines()] == kept


def test_a_full_disk_is_told_and_the_board_is_closed(tmp_path: Path) -> None:
    monitor = Monitor(RunFolder(tmp_path), Progress(), 100)
    monitor._file.close()
    monitor._file = open("/dev/full", "w")
    with pytest.raises(UserError, match=r"can't write .*metrics.jsonl: no space is left"), closing(monitor):
        monitor.record("train", 1, {"loss": 1.0})
    assert monitor._file.closed and monitor._board.closed


def test_a_disk_that_is_full_from_the_start_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(folder: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(monitor_module, "Board", full)
    with pytest.raises(UserError, match=r"can't write .*tensorboard: no space is left"):
        Monitor(RunFolder(tmp_path), Progress(), 100)


@pytest.mark.parametrize("name", ["x" * 300, "x/" * 3000])
def test_a_name_that_is_too_long_is_told_in_short(name: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^run_dir=.*…x.*: its name is too long") as caught:
        RunFolder(tmp_path / name).require_sound()
    assert len(str(caught.value)) < 200
