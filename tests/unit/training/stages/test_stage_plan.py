"""The corpora that stages add to the options, and the distinct translations of a line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nmt.config import (
    CorpusConfig,
    DataConfig,
    DistillationConfig,
    HubConfig,
    MonolingualConfig,
    TrainConfig,
    TrainingConfig,
    TrainSplitConfig,
)
from nmt.config.storage import from_yaml, to_yaml
from nmt.training.stages.plan import reports_in_words, with_stages
from nmt.training.stages.reverse import reverse_config
from nmt.training.stages.translating import _distinct
from nmt.training.state.run_folder import fixed_options


def config_of(train: TrainSplitConfig, **options: Any) -> TrainConfig:
    data = DataConfig(name="x", source_lang="en", target_lang="de", train=train)
    if "target" in options:
        data = replace(data, monolingual=MonolingualConfig(target=options.pop("target"), weight=0.5))
    return TrainConfig(run_dir="runs/a", data=data, **options)


def test_without_stages_the_options_stay() -> None:
    config = config_of(TrainSplitConfig(path="a.tsv"))
    assert with_stages(config) is config


def test_a_single_corpus_gets_a_name() -> None:
    config = config_of(
        TrainSplitConfig(split="train", tag="<2de>"),
        teacher="t",
        target="m.de",
        distillation=DistillationConfig(weight=2.0),
    )
    added = with_stages(config)
    folder = "runs/a/stages"
    assert added.data.train == TrainSplitConfig(
        corpora={
            "original": CorpusConfig(split="train", tag="<2de>"),
            "back_translated": CorpusConfig(
                source=f"{folder}/back_translated/back_translated.en",
                target=f"{folder}/back_translated/back_translated.de",
                weight=0.5,
                tag="<bt>",
            ),
            "distilled": CorpusConfig(
                source=f"{folder}/distilled/distilled.en",
                target=f"{folder}/distilled/distilled.de",
                weight=2.0,
                tag="<2de>",
            ),
        }
    )
    assert from_yaml(TrainConfig, to_yaml(added), "test") == added
    moved = with_stages(replace(config, run_dir="elsewhere/b", teacher="elsewhere/t"))
    assert fixed_options(moved) == fixed_options(added)


def test_the_twin_of_a_corpus_resembles_it() -> None:
    given = {
        "a": CorpusConfig(path="a.tsv", weight=0.5, cleaning={"max_ratio": 3}),
        "b": CorpusConfig(split="train", hub=HubConfig(path="x/y"), target_lang="fr", tag="<2fr>"),
    }
    options = DistillationConfig(weight=3.0)
    config = config_of(TrainSplitConfig(corpora=given), teacher=["t", "u"], distillation=options)
    corpora = with_stages(config).data.train.corpora
    assert [*corpora] == ["a", "b", "a_distilled", "b_distilled"]
    first, second = corpora["a_distilled"], corpora["b_distilled"]
    assert (first.weight, first.tag, first.cleaning) == (1.5, None, {"max_ratio": 3})
    assert (second.weight, second.tag, second.target_lang, second.split) == (3.0, "<2fr>", "fr", None)
    assert Path(second.target).name == "b_distilled.de"


@pytest.mark.parametrize(
    ("scored", "expected"),
    [
        ([], []),
        ([("a", -1.0), ("b", -2.0)], [("a", -1.0), ("b", -2.0)]),
        ([("a", -1.0), ("", -1.5), ("b", -2.0), ("a", -3.0)], [("a", -1.0), ("b", -2.0)]),
    ],
)
def test_distinct_translations(scored: list[tuple[str, float]], expected: list[tuple[str, float]]) -> None:
    assert _distinct(scored) == expected


def test_reports_in_words() -> None:
    report = {"lines": 5000, "translations": 4990, "kept": 4000, "dropped_by_score": 990, "seconds": 90.0}
    trained = {"updates": 1200, "seconds": 630.0, "valid": {"bleu": 31.257, "chrf": 50.0}}
    assert reports_in_words({"stages": {"reverse": trained, "distilled": report}}) == [
        "reverse: 1,200 updates in 10.5 minutes, bleu 31.26, chrf 50.00",
        "distilled: 5,000 lines, 4,990 translations: 4,000 retained, 990 dropped by score, in 1.5 minutes",
    ]
    assert reports_in_words({}) == []


@pytest.mark.parametrize(
    ("budget", "half"), [(None, None), ("30m", "15.0m"), ("2h", "60.0m"), ("1m", "1.0m")]
)
def test_the_reverse_model_has_half_of_the_budget(budget: str | None, half: str | None) -> None:
    config = config_of(TrainSplitConfig(path="a.tsv"), training=TrainingConfig(budget=budget))
    files = [Path("a.en"), Path("a.de")]
    assert reverse_config(config, files, files).training.budget == half
