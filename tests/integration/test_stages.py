"""Distillation and back-translation as real commands: the corpora that models write, and their training."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from commands import SMALL, Toy, environment
from forking import forked_command
from toy import toy_config, write_toy
from waiting import wait_until

from nmt.config import DistillationConfig, TrainConfig
from nmt.errors import UserError
from nmt.training.run import train
from nmt.training.stages import synthetic
from nmt.training.stages.synthetic import StageFolder
from nmt.training.state.run_folder import RunFolder

LEARNING = (
    "model.d_model=64",
    "model.d_ff=128",
    "training.schedule.name=inverse_sqrt",
    "training.schedule.peak=5e-3",
    "training.schedule.warmup_updates=40",
    "training.max_updates=120",
    "training.validate_every=120",
    "training.checkpoint_every=60",
)


@pytest.fixture(scope="module")
def teacher(toy: Toy) -> Path:
    """A model whose translations are not empty."""
    toy.done("nmt-train", *toy.small(*LEARNING, "run_dir=teacher"))
    return toy.folder / "teacher"


@pytest.fixture(scope="module")
def reverse(toy: Toy) -> Path:
    """A model of the other direction, with another vocabulary."""
    swapped = [f"data.{split}.{side}={split}.{end}" for split in ("train", "valid", "test")
               for side, end in (("source", "tgt"), ("target", "src"))]  # fmt: skip
    languages = ("data=local", "data.source_lang=yy", "data.target_lang=xx")
    toy.done("nmt-train", *languages, *swapped, *SMALL, *LEARNING, "run_dir=reverse", "seed=7")
    return toy.folder / "reverse"


def lines_of(path: Path) -> list[str]:
    return path.read_text().split("\n")[:-1]


def results_of(toy: Toy, run: str) -> dict[str, Any]:
    return json.loads((toy.folder / run / "results.json").read_text())["data"]


def test_an_ensemble_is_distilled_into_one_model(toy: Toy, teacher: Path, tmp_path: Path) -> None:
    """The corpus has the translations of nmt-translate; the same command then finds nothing left to do."""
    options = toy.small("run_dir=student", "teacher=[teacher,teacher]", "distillation.weight=2")
    done = toy.done("nmt-train", *options)
    stage, data = toy.folder / "student/stages/distilled", results_of(toy, "student")
    report, corpora = data["stages"]["distilled"], data["train"]["corpora"]
    sources, targets = lines_of(stage / "distilled.xx"), lines_of(stage / "distilled.yy")
    assert sources == [line for line in dict.fromkeys(lines_of(toy.folder / "train.src")) if line in sources]
    assert report["lines"] == corpora["original"]["cleaning"]["kept"]
    assert (report["kept"], report["dropped_by_score"]) == (len(targets), 0)
    assert report["lines"] == report["untranslated"] + report["translations"]
    assert corpora["distilled"]["draws_per_epoch"] == 2 * corpora["distilled"]["cleaning"]["kept"]
    text = "".join(f"{line}\n" for line in sources)
    plain = toy.done("nmt-translate", "model_dir=[teacher,teacher]", text=text).stdout.decode()
    assert plain.split("\n")[:-1] == targets
    said = f"distilled: {report['lines']} lines, {report['translations']} translations: "
    assert said in done.stdout.decode() and said in done.stderr.decode()
    assert "Corpora that models wrote" in (toy.folder / "student/data_report.html").read_text()

    times = {path: path.stat().st_mtime_ns for path in stage.rglob("*")}
    shutil.move(teacher, tmp_path / "gone")  # a complete stage does without its models
    again = toy.done("nmt-train", *options)
    shutil.move(tmp_path / "gone", teacher)
    assert again.stdout == done.stdout and times == {
        path: path.stat().st_mtime_ns for path in stage.rglob("*")
    }
    refused = toy.refused("nmt-train", *options, "teacher=teacher", "distillation.keep=0.5")
    assert "distillation.keep=1.0, not 0.5, teacher=[teacher, teacher], not teacher. Give the same" in refused
    toy.done("nmt-translate", "model_dir=student", text=text)


@pytest.mark.slow
def test_translations_are_filtered_by_both_models(toy: Toy, teacher: Path, reverse: Path) -> None:
    """The scores are those of nmt-translate and of nmt-eval score=true; prepare_only retains the stage."""
    decoding = "distillation.decoding={samples: 3, top_k: 2, seed: 5}"
    options = toy.small("run_dir=filtered", "teacher=teacher", decoding, "prepare_only=true")
    toy.done("nmt-train", *options, "distillation.keep=0.3", "distillation.reverse=reverse")
    stage = toy.folder / "filtered/stages/distilled"
    sources = list(dict.fromkeys(lines_of(toy.folder / "train.src")))
    rows = toy.done(
        "nmt-translate", "model_dir=teacher", "decoding.samples=3", "decoding.top_k=2", "decoding.seed=5",
        text="".join(f"{line}\n" for line in sources),
    ).stdout.decode().split("\n")[:-1]  # fmt: skip
    drawn: dict[tuple[str, str], float] = {}
    for number, score, text in (row.split("\t", 2) for row in rows):
        if text:
            drawn.setdefault((sources[int(number) - 1], text), float(score))
    for name, side in (("source", 1), ("references", 0)):
        content = "".join(f"{pair[side]}\n" for pair in drawn)
        (toy.folder / f"{name}.txt").write_text(content)
    forced = toy.done(
        "nmt-eval", "model_dir=reverse", "source=source.txt", "references=references.txt", "score=true"
    ).stdout.decode()
    means = [float(line.split("\t")[2]) for line in forced.split("\n")[:-1]]
    scores = {pair: score + mean for (pair, score), mean in zip(drawn.items(), means, strict=True)}
    lowest = sorted(scores.values(), reverse=True)[round(0.3 * len(scores)) - 1]
    expected = {pair for pair, score in scores.items() if score >= lowest - 2e-3}
    pairs = list(zip(lines_of(stage / "distilled.xx"), lines_of(stage / "distilled.yy"), strict=True))
    report = json.loads((toy.folder / "filtered/data_report.json").read_text())["stages"]["distilled"]
    assert len(pairs) == len(set(pairs)) == report["kept"] == round(0.3 * report["translations"])
    assert report["translations"] <= len(drawn) and set(pairs) <= expected

    before = {path: path.stat().st_mtime_ns for path in (stage / "translations").iterdir()}
    toy.done("nmt-train", *options, "distillation.keep=0.6", "distillation.reverse=reverse")
    assert len(lines_of(stage / "distilled.xx")) == round(0.6 * report["translations"])
    assert before == {path: path.stat().st_mtime_ns for path in (stage / "translations").iterdir()}
    refused = toy.refused("nmt-train", *options, "distillation.decoding.seed=6", "teacher=reverse/../teacher")
    assert "filtered/stages/distilled: started with distillation.decoding.seed=5, not 6" in refused


def test_back_translation_trains_its_reverse_model_first(toy: Toy) -> None:
    """The sources are drawn from the reverse model, whose run is in the folder of the run."""
    write_toy(toy.folder / "mono", train=150, held_out=5, seed=11)
    with open(toy.folder / "mono/train.tgt", "a") as file:
        file.write("\n  \n")
    draws = "data.monolingual.decoding={samples: 1, top_k: 2}"
    options = toy.small(*LEARNING, "run_dir=back", "data.monolingual.target=mono/train.tgt", draws)
    done = toy.done("nmt-train", *options, "data.monolingual.weight=2")
    stage, data = toy.folder / "back/stages/back_translated", results_of(toy, "back")
    brought, corpus = data["stages"], data["train"]["corpora"]["back_translated"]
    assert list(brought) == ["reverse", "back_translated"] and brought["reverse"]["updates"] == 120
    assert (brought["back_translated"]["lines"], brought["back_translated"]["blank_lines"]) == (150, 2)
    assert corpus["tag"] == "<bt>" and corpus["draws_per_epoch"] == 2 * corpus["cleaning"]["kept"]
    targets = lines_of(stage / "back_translated.yy")
    assert targets == [line for line in lines_of(toy.folder / "mono/train.tgt") if line in targets]
    text = "".join(f"{line}\n" for line in targets)
    drawing = ("decoding.samples=1", "decoding.top_k=2")
    plain = toy.done("nmt-translate", "model_dir=back/stages/reverse", *drawing, text=text).stdout.decode()
    assert plain.split("\n")[:-1] == lines_of(stage / "back_translated.xx")
    assert "reverse: 120 updates in" in done.stdout.decode()

    shutil.rmtree(toy.folder / "back/stages/reverse/checkpoints")  # not read again
    again = toy.done("nmt-train", *options, "data.monolingual.weight=2", "training.max_updates=124")
    assert "reverse: 120 updates in" in again.stdout.decode() and "124 updates" in again.stdout.decode()
    toy.done("nmt-translate", "model_dir=back", text=text)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["teacher=nowhere"], "teacher=nowhere: there is no such folder"),
        (["teacher=train.src"], "teacher=train.src: not a model folder"),
        (["teacher=reverse"], "teacher=reverse: translates yy-xx, and xx-yy is needed. Give another model."),
        (["teacher=[teacher,other]"], "teacher=[teacher,other]: models that translate together must have"),
        (
            ["teacher=teacher", "distillation.reverse=teacher"],
            "distillation.reverse=teacher: translates xx-yy, and yy-xx is needed. Give another model.",
        ),
        (
            ["teacher=teacher", "distillation.decoding.beam_size=0"],
            "distillation.decoding.beam_size=0: must be between 1 and 1,000.",
        ),
        (["teacher=teacher", "distillation.decoding.mbr=chrf"], "distillation.decoding.mbr: is not"),
        (["teacher=teacher", "distillation.keep=0"], "distillation.keep=0.0: must be more than 0"),
        (["teacher=[]"], "teacher=[]: must be a folder or a list of folders"),
        (
            ["data.train.tag=<a>", "teacher=teacher", "distillation.tag=<b>"],
            "distillation.tag=<b>: the sources of original have the tag <a>, and a source has one tag.",
        ),
        (["data.monolingual.target=nowhere"], "data.monolingual.target=nowhere: there is no such file"),
        (
            ["data.monolingual.target=blank.txt", "data.monolingual.reverse=reverse"],
            "data.monolingual.target: blank.txt has no sentences.",
        ),
        (
            ["data.monolingual.target=train.tgt", "data.monolingual.reverse=teacher"],
            "data.monolingual.reverse=teacher: translates xx-yy, and yy-xx is needed.",
        ),
    ],
)  # fmt: skip
def test_mistakes(options: Sequence[str], message: str, toy: Toy, teacher: Path, reverse: Path) -> None:
    if "other" in message:
        tokenizer = "data.tokenizer.vocab_size=330"
        toy.done("nmt-train", *toy.small("run_dir=other", "training.max_updates=1", tokenizer))
    (toy.folder / "blank.txt").write_text("\n \n")
    assert message in toy.refused("nmt-train", *toy.small("run_dir=mistaken", *options))


def student(data: Path, run: Path, teacher: Path, **options: Any) -> TrainConfig:
    """Returns the options of a short training with a teacher, in this process."""
    config = toy_config(data, run, max_updates=4)
    return replace(config, teacher=str(teacher), distillation=DistillationConfig(**options))


def stage_files(run: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (run / "stages/distilled").glob("distilled.*")}


def test_killed_while_translating_it_goes_on(
    toy: Toy, teacher: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chunks of 64 lines; the write of the third fails. Every line is translated once."""
    data = write_toy(tmp_path / "data", train=200, held_out=8, seed=3)
    train(student(data, tmp_path / "whole", teacher))
    monkeypatch.setattr(synthetic, "_LINES", 64)
    written, write = list[tuple[int, int]](), StageFolder._write_chunk

    def failing(self: StageFolder, start: int, chunk: Sequence[str], *rest: Any) -> None:
        written.append((start, len(chunk)))
        if len(written) == 3:
            raise KeyboardInterrupt
        write(self, start, chunk, *rest)

    monkeypatch.setattr(StageFolder, "_write_chunk", failing)
    config = student(data, tmp_path / "parts", teacher)
    with pytest.raises(KeyboardInterrupt):
        train(config)
    monkeypatch.setattr(synthetic, "_LINES", 50)
    train(config)
    count = len(set(lines_of(data / "train.src")))
    starts = [0, 64, 128, *range(128, count, 50)]
    ends = [64, 128, 192, *(min(start + 50, count) for start in range(128, count, 50))]
    assert written == [(start, end - start) for start, end in zip(starts, ends, strict=True)]
    assert stage_files(tmp_path / "parts") == stage_files(tmp_path / "whole")
    checkpoints = [
        (tmp_path / run / "checkpoints/update-00000004/model.safetensors").read_bytes()
        for run in ("whole", "parts")
    ]
    assert checkpoints[0] == checkpoints[1]


def test_damaged_files_of_a_stage(teacher: Path, tmp_path: Path, said: pytest.LogCaptureFixture) -> None:
    """A changed corpus is written again; a changed chunk is named."""
    data = write_toy(tmp_path / "data", train=60, held_out=8, seed=3)
    config = replace(student(data, tmp_path / "run", teacher), prepare_only=True)
    train(config)
    before, stage = stage_files(tmp_path / "run"), tmp_path / "run/stages/distilled"
    (stage / "distilled.yy").write_text("something else\n")
    train(config)
    assert "its text files have changed, so they are written again" in said.text
    assert stage_files(tmp_path / "run") == before
    (chunk,) = (stage / "translations").iterdir()
    chunk.write_text(chunk.read_text().partition("\n")[0] + "\n")
    (stage / "distilled.yy").unlink()
    with pytest.raises(UserError, match=rf"{chunk}: is damaged: lines are missing\. Remove it; the same"):
        train(config)
    chunk.unlink()
    train(config)
    assert stage_files(tmp_path / "run") == before
    for side in ("src", "tgt"):
        with open(data / f"train.{side}", "a") as file:
            file.write("more\n")
    with pytest.raises(UserError, match=rf"{stage}: started with cleaned training text=\w+, not \w+\. Give"):
        train(config)


@pytest.mark.slow
def test_two_processes_write_what_one_writes(teacher: Path, reverse: Path, tmp_path: Path) -> None:
    data = write_toy(tmp_path / "data", train=200, held_out=8, seed=3)
    for processes in ("1", "2"):
        config = student(data, tmp_path / processes, teacher, reverse=str(reverse), keep=0.5)
        options = replace(config.training, devices=processes, micro_batches=2)
        train(replace(config, training=options))
    assert stage_files(tmp_path / "1") == stage_files(tmp_path / "2")


@pytest.mark.slow
@pytest.mark.parametrize("processes", ["1", "2"])
def test_stopped_while_the_reverse_model_trains(processes: str, toy: Toy) -> None:
    """It is resumed, then translates, then the model is trained: the weights are those of one session."""
    several = ("training.micro_batches=2", f"training.devices={processes}", "training.checkpoint_every=3")
    options = toy.small(*LEARNING, *several, "data.monolingual.target=train.tgt")
    runs = [toy.folder / f"{name}{processes}" for name in ("stopped", "whole")]
    command = forked_command("nmt-train", *options, f"run_dir={runs[0]}")
    process = subprocess.Popen(
        command, cwd=toy.folder, env=environment(toy.cache), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    wait_until(lambda: RunFolder(runs[0] / "stages/reverse").holds_checkpoints())
    process.terminate()
    said = process.communicate(timeout=120)[1].decode()
    assert process.returncode == 128 + signal.SIGTERM, said
    assert "the same command resumes from here" in said and not (runs[0] / "stages/back_translated").exists()
    for run in runs:
        toy.done("nmt-train", *options, f"run_dir={run}")
    weights = [(run / "checkpoints/update-00000120/model.safetensors").read_bytes() for run in runs]
    assert weights[0] == weights[1]


def test_each_of_several_corpora_is_distilled(toy: Toy, teacher: Path) -> None:
    """The twin of a corpus has its weight and its tag; repeated pairs are translated once."""
    write_toy(toy.folder / "more", train=50, held_out=5, seed=9)
    for side in ("src", "tgt"):
        lines = lines_of(toy.folder / f"train.{side}")[:20]
        with open(toy.folder / f"more/train.{side}", "a") as file:
            file.write("".join(f"{line}\n" for line in lines))
    options = ["data.train.source=null", "data.train.target=null", "teacher=teacher", "run_dir=twins"]
    for name, folder in (("real", "."), ("more", "more")):
        key = f"data.train.corpora.{name}"
        options += [f"{key}.source={folder}/train.src", f"{key}.target={folder}/train.tgt"]
    options += ["data.train.corpora.more.tag=<more>", "data.train.corpora.more.weight=0.5"]
    toy.done("nmt-train", *toy.small(*options, "distillation.weight=3", "prepare_only=true"))
    report = json.loads((toy.folder / "twins/data_report.json").read_text())
    lines = {name: stage["lines"] for name, stage in report["stages"].items()}
    held, real, more = (
        {line for name in names for line in lines_of(toy.folder / f"{name}.src")}
        for names in (("valid", "test"), ("train",), ("more/train",))
    )
    assert lines == {"real_distilled": len(real - held), "more_distilled": len(more - real - held)}
    clash = [
        "data.train.corpora.real_distilled.source=train.src",
        "data.train.corpora.real_distilled.target=train.tgt",
    ]
    refused = toy.refused("nmt-train", *toy.small(*options, *clash))
    assert "data.train.corpora.real_distilled: is the name of the corpus that teacher adds. Rename" in refused
