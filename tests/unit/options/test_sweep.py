"""The jobs of a sweep, and the names of their folders."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import hydra
import pytest
from omegaconf import DictConfig

from nmt.config import EvalConfig, TrainConfig, TranslateConfig
from nmt.errors import UserError
from nmt.options import compose as module
from nmt.options.arguments import Arguments
from nmt.options.compose import compose_jobs
from nmt.options.overrides import settings_of_jobs
from nmt.options.sweep import folder_names


def swept(*overrides: str) -> list[TrainConfig]:
    return compose_jobs(TrainConfig, "train", Arguments(overrides, sweep=True))


def names(*overrides: str) -> list[str]:
    """Returns the names of the folders of a sweep."""
    settings = list(settings_of_jobs(TrainConfig, Arguments(overrides, sweep=True)))
    return folder_names(settings, ["r"] * len(settings))


def test_a_sweep_is_the_product_and_names_its_folders() -> None:
    jobs = swept("seed=1,2", "model.norm=pre,post", "name=x")
    assert [(job.run_dir, job.seed, job.model.norm.name) for job in jobs] == [
        ("runs/x/model.norm-pre_seed-1", 1, "pre"),
        ("runs/x/model.norm-post_seed-1", 1, "post"),
        ("runs/x/model.norm-pre_seed-2", 2, "pre"),
        ("runs/x/model.norm-post_seed-2", 2, "post"),
    ]


def test_files_are_composed_once_for_all_jobs_with_the_same_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    composed = []

    def counted(name: str, overrides: list[str]) -> DictConfig:
        composed.append(overrides)
        return hydra.compose(name, overrides)

    monkeypatch.setattr(module, "compose", counted)
    jobs = swept("seed=1,2,3", "model=tiny,small", "training.objective={name:a},{name:b}")
    assert [len(jobs), len(composed)] == [12, 2]
    assert [(job.seed, job.model.d_model, job.training.objective.name) for job in jobs[:5]] == [
        *((1, 128, "a"), (1, 128, "b"), (1, 512, "a"), (1, 512, "b"), (2, 128, "a")),
    ]


def test_a_large_sweep_shows_its_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[dict[str, object]] = []

    @contextmanager
    def progress(**words: object) -> Iterator[SimpleNamespace]:
        shown.append(words)
        yield SimpleNamespace(update=lambda number: None)

    monkeypatch.setattr(module, "_LARGE_SWEEP", 3)
    monkeypatch.setattr(module, "progress", progress)
    assert [len(swept("seed=1,2")), len(shown), len(swept("seed=1,2,3"))] == [2, 0, 3]
    assert shown == [{"total": 3, "unit": "jobs", "description": "Reading the options"}]


def test_the_order_of_the_options_does_not_name_other_folders() -> None:
    assert set(names("seed=1,2", "model.norm=pre,post")) == set(names("model.norm=pre,post", "seed=2,1"))


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("seed=1,2,3", ["seed-1", "seed-2", "seed-3"]),
        ("seed=range(1,3)", ["seed-1", "seed-2"]),
        ("training.rdrop=0,5e-1", ["training.rdrop-0", "training.rdrop-0.5"]),
        ("model=tiny,small", ["model-tiny", "model-small"]),
        ("data.train.source=a.en,b.en", ["data.train.source-a.en", "data.train.source-b.en"]),
        (
            "data.train.source=/corpora/v1/a.en,../v 2/a.en",
            ["data.train.source-corpora-v1-a.en", "data.train.source-v-2-a.en"],
        ),
        (
            "data.train.source=[a.en,b.en],[c.en]",
            ["data.train.source-a.en-b.en", "data.train.source-c.en"],
        ),
        (
            "data.train.source='a,b.en',données.en",
            ["data.train.source-a-b.en", "data.train.source-donnees.en"],
        ),
        ("data.valid.tag=<2de>,<2fr>", ["data.valid.tag-2de", "data.valid.tag-2fr"]),
        ("start_from=null,runs/a", ["start_from-null", "start_from-runs-a"]),
        ("name=choice(1.10,'true')", ["name-1.10", "name-true"]),
        ("data.hub.revision=1e3,1_0", ["data.hub.revision-1e3", "data.hub.revision-1_0"]),
        (
            "data.train.corpora.a b.weight=1,2",
            ["data.train.corpora.a-b.weight-1", "data.train.corpora.a-b.weight-2"],
        ),
        ("seed=1", [""]),
    ],
)
def test_names_of_folders(override: str, expected: list[str]) -> None:
    assert names(override) == expected


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["seed=range(1,3,0)"], "seed=range(1,3,0): the range is infinite"),
        (["model.dropout=range(0.1,0.2,nan)"], "model.dropout=range(0.1,0.2,nan): the range is infinite"),
        (["seed=range(3,1)"], "seed=range(3,1): the range is empty"),
        (["seed=shuffle()"], "seed=shuffle(): has no values"),
        (["seed=range(1,3,1e-9)"], "seed=range(1,3,1e-9): has more than 10,000 values"),
        (["seed=range(200)", "model.dim=range(1,200)"], "-m: 39,800 jobs are too many"),
    ],
)
def test_ranges_that_make_no_sweep(overrides: list[str], expected: str) -> None:
    with pytest.raises(UserError, match=f"^{re.escape(expected)}"):
        names(*overrides)


@pytest.mark.parametrize(
    "values",
    [
        "a/b.en,a-b.en",
        "a b,a_b,a+b,a(b",
        "A.en,a.en",
        "日本,中国",
        "日本,日",
        "é,e",
        "e\u0301,\u00e9",
        "..,../..,/",
        f"{'x' * 300}a,{'x' * 300}b",
        f"a{'x' * 300},b{'x' * 300}",
        "[a.en,b.en],a.en-b.en",
        "null,'null'",
        "'[a,b]',[a,b]",
        "' a',a",
        "\\,/",
    ],
)
def test_no_two_jobs_have_one_folder(values: str) -> None:
    found = names(f"data.train.source={values}")
    assert len({name.casefold() for name in found}) == len(found)
    for name in found:
        assert re.fullmatch(r"[A-Za-z0-9._-]{1,200}", name)
        assert name.startswith("data.train.source-")


def test_long_names() -> None:
    keys = [
        f"data.{split}.{side}=a/{'x' * 40},b/{'x' * 40}"
        for split in ("valid", "test")
        for side in ("source", "target")
    ]
    found = names(*keys)
    assert len(set(found)) == 16
    assert max(map(len, found)) <= 130


def test_a_swept_run_dir_is_a_name_already() -> None:
    assert [job.run_dir for job in swept("run_dir=a,b")] == ["a", "b"]
    assert [job.run_dir for job in swept("run_dir=a,b", "seed=1,2")] == [
        "a/seed-1",
        "a/seed-2",
        "b/seed-1",
        "b/seed-2",
    ]


@pytest.mark.parametrize("folders", ["a,./a", "a,A", "a,b/../a", "a,'a/'"])
def test_two_jobs_do_not_share_a_run_dir(folders: str) -> None:
    with pytest.raises(UserError, match=r"^run_dir=.*: two jobs of the sweep share it\. Give two folders\.$"):
        swept(f"run_dir={folders}")


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("seed=1,1",), "seed=1: is the same job as seed=1. Remove one of them."),
        (("seed=1,01",), "seed=01: is the same job as seed=1. Remove one of them."),
        (("training.rdrop=0.5,5e-1,0.50",), "training.rdrop=0.5: is the same job as training.rdrop=0.5. "),
        (("data.train.source=a,'a'",), "data.train.source='a': is the same job as data.train.source=a."),
        (
            ("model.norm=pre,pre", "seed=1,2"),
            "model.norm=pre seed=1: is the same job as model.norm=pre seed=1.",
        ),
    ],
)
def test_the_same_job_twice_is_refused(overrides: tuple[str, ...], message: str) -> None:
    with pytest.raises(UserError) as caught:
        swept(*overrides)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("override", ["model=tiny,small", "seed=1,2", "training.rdrop=choice(1,2)"])
def test_several_values_need_m(override: str) -> None:
    with pytest.raises(UserError, match="has several values. Add -m"):
        compose_jobs(TrainConfig, "train", Arguments((override,)))


@pytest.mark.parametrize("override", ["model=glob(*)", "training.rdrop=interval(0,1)", "name=glob(*)"])
def test_sweeps_that_name_no_values(override: str) -> None:
    with pytest.raises(UserError, match="Give the values, separated by commas"):
        swept(override)


def test_translations_and_evaluations(tmp_path: Path) -> None:
    arguments = Arguments(("model_dir=a,[b,c]", "input=x, y"), sweep=True)
    jobs = compose_jobs(TranslateConfig, "translate", arguments)
    assert [(job.model_dir, job.input) for job in jobs] == [
        ("a", "x"),
        ("a", "y"),
        (["b", "c"], "x"),
        (["b", "c"], "y"),
    ]
    with pytest.raises(UserError, match="is the same job as"):
        compose_jobs(EvalConfig, "eval", Arguments(("hypotheses=a,a",), sweep=True))
