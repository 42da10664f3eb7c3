"""`--config-dir`: a user's YAML files work, and each error is one line with file, line and key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nmt.config import EvalConfig, TrainConfig
from nmt.errors import UserError
from nmt.options.arguments import Arguments
from nmt.options.compose import compose_jobs
from nmt.options.user_files import Folder

MINE = "experiment/mine.yaml"


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def composed(folder: Path, *overrides: str) -> TrainConfig:
    (job,) = compose_jobs(TrainConfig, "train", Arguments(overrides, config_dir=str(folder)))
    return job


def reported(folder: Path, *overrides: str) -> str:
    with pytest.raises(UserError) as caught:
        composed(folder, *overrides)
    message = str(caught.value)
    assert "\n" not in message
    return message.replace(f"{folder}/", "")


def test_an_experiment_works_without_its_package_line(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            MINE: "defaults:\n  - base\n  - override /data: own\n  - _self_\nname: mine\nseed: 5\n",
            "experiment/base.yaml": "seed: 4\ntraining:\n  max_updates: 7\n",
            "data/own.yaml": "name: own\nsource_lang: 'no'\ntarget_lang: de\n"
            "train: {source: [1_a, '1.10']}\n",
        },
    )
    config = composed(tmp_path, "experiment=mine", "data.max_tokens=99")
    assert (config.name, config.run_dir, config.seed) == ("mine", "runs/mine", 5)
    assert config.training.max_updates == 7
    assert (config.data.name, config.data.source_lang, config.data.max_tokens) == ("own", "no", 99)
    assert config.data.train.source == ["1_a", "1.10"]


def test_text_that_yaml_leaves_alone_stays(tmp_path: Path) -> None:
    write(
        tmp_path, {MINE: "name: 5\nrun_dir: 2026-11-23\ndata: {hub: {path: null}}\ntraining: {devices: 2}\n"}
    )
    config = composed(tmp_path, "experiment=mine")
    assert (config.name, config.run_dir, config.training.devices) == ("5", "2026-11-23", "2")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "training:\n  max_updte: 5\n",
            "2: training.max_updte: there is no such option. Did you mean training.",
        ),
        ("# @package _global_\nfoo: 5\n", "2: foo: there is no such option"),
        ("max_updates: 5\n", "1: max_updates: there is no such option. Did you mean training.max_updates?"),
        (
            "seed: 1\ntraining:\n  max_updates: x\n",
            "3: training.max_updates: must be a whole number, not x.",
        ),
        ("seed: 1\ntraining:\n\n  max_updates: 0\n", "4: training.max_updates=0: must be between 1 and"),
        ("training: {schedule: {peak: .inf}}\n", "1: training.schedule.peak=inf: must be more than 0"),
        ("training: 5\n", "1: training: is a section or a list. Give its options one by one"),
        ("training:\nseed: 1\n", "1: training: has no value. Give one, indent its options under it"),
        ("prepare_only: 2\n", "1: prepare_only=2: must be true or false."),
        ("prepare_only: y\n", "1: prepare_only=y: must be true or false"),
        ("seed: [1]\n", "1: seed: must be a whole number, not [1]."),
        ("seed: {a: 1}\n", "1: seed.a: there is no such option"),
        ("model:\n  norm: mid\n", "2: model.norm: invalid value 'mid', expected one of [post, pre]"),
        ("run_dir: 2026_11_23\n", "1: run_dir: YAML reads 2026_11_23 as 20261123. Put it in quotes"),
        ("name: 1.10\n", "1: name: YAML reads 1.10 as 1.1. Put it in quotes"),
        ("run_dir: 12:30:00\n", "1: run_dir: YAML reads 12:30:00 as 45000. Put it in quotes"),
        ("data:\n  source_lang: no\n", "2: data.source_lang: YAML reads no as false. Put it in quotes"),
        (
            "data:\n  train:\n    source: [a, 1.10]\n",
            "3: data.train.source: YAML reads 1.10 as 1.1. Put it in",
        ),
        ("seed: 010\n", "1: seed: YAML reads 010 as 8. Write a decimal number"),
        (
            "training: {max_minutes: 12:30}\n",
            "1: training.max_minutes: YAML reads 12:30 as 750. Write a decimal",
        ),
        ("resume: no\n", "1: resume: invalid value 'False', expected one of [auto, never, must]"),
        (
            "hydra:\n  run: {dir: x}\n",
            "1: hydra: options of Hydra are not supported. Set the run folder by run_dir",
        ),
        (
            "model:\n  _target_: os.system\n",
            "2: model._target_: there is no such option. Objects can't be created",
        ),
        (
            "# @package model\nname: x\n",
            "2: model.name: there is no such option. The keys of this file already belong to model.",
        ),
        ("seed: 1\nrun_dir: ${nowhere}\n", "2: run_dir: interpolation key 'nowhere' not found"),
        ("run_dir: ${oc.env:NOWHERE_AT_ALL}\n", "1: run_dir: "),
        ("run_dir: ${nothing:3}\n", "1: run_dir: unsupported interpolation type nothing"),
        ("decoding:\n  nbest: 9\n", "2: decoding.nbest=9: is more than decoding.beam_size=4"),
        (
            "data: {train: {corpora: {a: {cleaning: {max_rato: 3}}}}}\n",
            "1: data.train.corpora.a.cleaning.max_rato",
        ),
        ("data: {train: {corpora: {a: 5}}}\n", "1: data.train.corpora.a: is a section"),
        ("defaults:\n  - override /data: nope\n", "2: defaults: there is no data/nope.yaml, here or in nmt"),
        (
            "defaults:\n  - /data: local\n",
            "2: defaults: data is already chosen. Write `- override /data: ...`",
        ),
        (
            "defaults:\n  - data: local\n",
            "2: defaults: there is no experiment/data/local.yaml, here or in nmt. For",
        ),
        ("defaults:\n  - mine\nname: x\n", "2: defaults: experiment/mine includes itself"),
        ("defaults:\n  - override /datta: local\n", "2: defaults: Could not override 'datta'."),
        ("defaults:\n  - override /data: ${x}\n", "2: defaults: Error resolving interpolation '${x}'"),
        ("seed: 1\nseed: 2\n", "2: seed: occurs twice, first in line 1"),
    ],
)
def test_faults_of_an_experiment(tmp_path: Path, text: str, message: str) -> None:
    write(tmp_path, {MINE: text})
    assert reported(tmp_path, "experiment=mine").startswith(f"{MINE}:{message}")


@pytest.mark.parametrize(
    ("files", "overrides", "message"),
    [
        (
            {"experiment/mine.yml": "seed: 1\n"},
            ["experiment=mine"],
            "experiment/mine.yml: is not read. Rename it",
        ),
        (
            {"mine.yaml": "seed: 1\n"},
            ["experiment=mine"],
            "mine.yaml: is not read there. Move it to experiment/",
        ),
        (
            {"experiment/quickstart.yaml": "seed: 1\n"},
            [],
            "experiment/quickstart.yaml: nmt has a file of this name, which takes precedence. Rename yours",
        ),
        (
            {"data/mine.yaml": "data:\n  name: x\n"},
            ["data=mine"],
            "data/mine.yaml:1: data.data: there is no such option. The keys of this file already belong to",
        ),
        (
            {"model/mine.yaml": "d_model: 0\n"},
            ["model=mine"],
            "model/mine.yaml:1: model.d_model=0: must be between",
        ),
        (
            {"model/mine.yaml": "d_modl: 1\n"},
            ["model=mine"],
            "model/mine.yaml:1: model.d_modl: there is no such",
        ),
        ({"model/mine.yaml/x": ""}, ["model=mine"], "model/mine.yaml: is a folder, not a file"),
        (
            {MINE: "defaults: [other]\n", "experiment/other.yaml": "defaults:\n  - mine\nseed: 3\n"},
            ["experiment=mine"],
            "experiment/mine.yaml:1: defaults: experiment/mine includes itself",
        ),
        (
            {MINE: "defaults: [other]\n", "experiment/other.yaml": "seed: 3\nnam: x\n"},
            ["experiment=mine"],
            "experiment/other.yaml:2: nam: there is no such option. Did you mean name?",
        ),
        (
            {
                MINE: "defaults: [other, _self_]\nseed: 5\n",
                "experiment/other.yaml": "seed: -1\ndata: {workers: -1}",
            },
            ["experiment=mine"],
            "experiment/other.yaml:2: data.workers=-1: must be between 0 and 1,024",
        ),
    ],
)
def test_faults_of_a_folder(
    tmp_path: Path, files: dict[str, str], overrides: list[str], message: str
) -> None:
    write(tmp_path, files)
    assert reported(tmp_path, *overrides).startswith(message)


def test_the_jobs_of_a_sweep_are_blamed_on_their_own_files(tmp_path: Path) -> None:
    write(
        tmp_path, {f"experiment/{name}.yaml": f"model: {{heads: {n}}}\n" for name, n in (("a", 4), ("b", 2))}
    )
    words = (
        "model.d_model=128,126",
        "experiment=a,b",
        "data=local",
        "data.source_lang=xx",
        "data.target_lang=yy",
    )
    with pytest.raises(UserError) as error:
        compose_jobs(TrainConfig, "train", Arguments(words, sweep=True, config_dir=str(tmp_path)))
    assert str(error.value).startswith(
        f"{tmp_path}/experiment/a.yaml:1: model.d_model=126: must be a multiple"
    )


def test_files_that_are_not_used_are_not_looked_at(tmp_path: Path) -> None:
    write(tmp_path, {MINE: "seed: 5\n", "experiment/other.yaml": "- broken", "data/wrong.yaml": "foo: 3\n"})
    assert composed(tmp_path, "experiment=mine").seed == 5


def test_the_command_line_is_not_blamed_on_a_file(tmp_path: Path) -> None:
    write(tmp_path, {MINE: "seed: 5\ndecoding: {beam_size: 3}\n"})
    assert reported(tmp_path, "experiment=mine", "seed=-1").startswith("seed=-1: must be between")
    assert reported(tmp_path, "experiment=mine", "sead=1").startswith("sead: there is no such option")
    assert reported(tmp_path, "experiment=mine", "decoding.nbst=1").startswith("decoding.nbst: ")
    assert reported(tmp_path, "experiment=mine", "decoding.nbest=4").startswith(
        f"{MINE}:2: decoding.nbest=4: is more than decoding.beam_size=3"
    )


def test_nmt_eval_reads_the_folder_too(tmp_path: Path) -> None:
    write(tmp_path, {"data/mine.yaml": "name: x\nsource_lang: no\ntarget_lang: de\n"})
    overrides: tuple[Any, ...] = ("data=mine",)
    with pytest.raises(UserError, match=r"data/mine.yaml:2: data.source_lang: YAML reads no as false. Put"):
        compose_jobs(EvalConfig, "eval", Arguments(overrides, config_dir=str(tmp_path)))


@pytest.mark.parametrize("files", [{}, {"experiment/other.yaml": "seed: 4\n"}, {MINE: "seed: 5\n"}])
def test_equal_choices_of_a_sweep_are_checked_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str]
) -> None:
    """Also if they use no file of the folder."""
    write(tmp_path, files)
    used, times = Folder._used, []
    monkeypatch.setattr(Folder, "_used", lambda *given: times.append(1) or used(*given))
    words = ("seed=1,2,3", *(["experiment=mine"] if MINE in files else []))
    jobs = compose_jobs(TrainConfig, "train", Arguments(words, sweep=True, config_dir=str(tmp_path)))
    assert [job.seed for job in jobs] == [1, 2, 3]
    assert len(times) == 1
