"""The choices of `recipe=auto`: by corpus and time, around the options that are given, and on a resume."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from toy_trainings import prepared_pairs

from nmt.config import (
    RECIPE_KEYS,
    AugmentationConfig,
    DataConfig,
    Norm,
    Recipe,
    Tie,
    TrainConfig,
    TrainingConfig,
)
from nmt.config.disabled import chooses
from nmt.config.storage import to_yaml, with_values
from nmt.options.arguments import Arguments
from nmt.options.compose import compose_jobs
from nmt.training.recipe import Facts, before_preparation, chosen, with_recipe
from nmt.training.state.run_folder import RunFolder

DATA = ("data=local", "data.source_lang=en", "data.target_lang=de", "data.train.path=x.tsv")


def options(*words: str) -> TrainConfig:
    (config,) = compose_jobs(TrainConfig, "train", Arguments((*DATA, *words)))
    return config


def facts(pairs: int, minutes: float | None = 30, speed: float = 1.8e11) -> Facts:
    return Facts(pairs, 14 * pairs, 8000, True, speed, minutes and 60 * minutes, 2)


@pytest.mark.parametrize(
    ("pairs", "minutes", "width", "dropout"),
    [
        (2_000, 30, 128, 0.3),
        (29_000, 5, 128, 0.1),
        (29_000, 30, 128, 0.2),
        (29_000, 600, 128, 0.3),
        (2_000, None, 128, 0.3),  # time alone does not make a model large
        (167_000, 60, 256, 0.1),
        (1_000_000, 30, 128, 0.1),
        (1_000_000, 7 * 1440, 512, 0.2),
        (1_000_000, None, 256, 0.1),
    ],
)
def test_size_and_dropout_follow_corpus_and_time(
    pairs: int, minutes: float | None, width: int, dropout: float
) -> None:
    choices, _ = chosen(facts(pairs, minutes), options("recipe=auto"))
    assert (choices["model.d_model"], choices["model.dropout"]) == (width, dropout)


def test_all_keys_are_chosen() -> None:
    """`training.micro_batches` is chosen earlier, by the number of processes."""
    choices, _ = chosen(facts(29_000), options("recipe=auto"))
    assert {*choices, "training.micro_batches"} == {*RECIPE_KEYS}


def test_a_given_width_has_the_batch_and_rate_of_the_nearest_size() -> None:
    choices, reasons = chosen(facts(29_000), options("recipe=auto", "model=base", "training.budget=30m"))
    assert (choices["data.max_tokens"], choices["training.schedule.peak"]) == (4096, 2e-3)
    assert reasons[1] == "6 + 6 layers of width 512: the given width"


@pytest.mark.parametrize(
    ("pairs", "minutes", "words", "rdrop"),
    [
        (2_000, 30, [], 3.0),
        (2_000, 5, [], 0.0),  # too few updates
        (29_000, 30, [], 3.0),
        (167_000, 30, [], 0.0),
        (2_000, 30, ["training.simcut=3"], 0.0),
    ],
)
def test_a_small_corpus_has_rdrop(pairs: int, minutes: float, words: list[str], rdrop: float) -> None:
    choices, reasons = chosen(facts(pairs, minutes), options("training.budget=30m", *words))
    assert choices["training.rdrop"] == rdrop
    assert ("R-Drop 3 for about" in reasons[2]) == bool(rdrop)


@pytest.mark.parametrize(
    ("pairs", "words", "final"),
    [(2_000, [], 0.1), (29_000, [], 0.1), (167_000, [], None), (2_000, ["model.dropout=0.4"], None)],
)
def test_high_dropout_falls_with_the_rate(pairs: int, words: list[str], final: float | None) -> None:
    choices, reasons = chosen(facts(pairs), options("training.budget=30m", *words))
    assert choices["training.final_dropout"] == final
    assert (" (0.1 at the end)" in reasons[2]) == bool(final)


@pytest.mark.parametrize(
    ("pairs", "words", "expected"),
    [
        (5_000, [], AugmentationConfig(capitals=0.02, titles=0.02, typos=0.25, unpunctuated=0.05)),
        (4_999, [], AugmentationConfig()),
        (29_000, ["data.augmentation.titles=1"], AugmentationConfig(titles=1)),
    ],
)
def test_a_share_of_the_sources_is_changed_if_they_are_not_few(
    pairs: int, words: list[str], expected: AugmentationConfig
) -> None:
    config = options(*words)
    choices, reasons = chosen(facts(pairs), config)
    assert with_values(config, choices).data.augmentation == expected
    assert ("typos in 25 %" in reasons[2]) == bool(expected.typos)


@pytest.mark.parametrize(
    ("pairs", "words", "joint", "share", "smoothing"),
    [
        (5_000, [], True, 0.5, 0.3),
        (5_001, [], True, 0.0, 0.3),
        (10_000, [], True, 0.0, 0.3),
        (10_001, [], True, 0.0, 0.1),
        (4_999, [], False, 0.0, 0.3),
        (4_999, ["data.reversed=0.2"], True, 0.0, 0.3),
        (4_999, ["training.objective.name=mine"], True, 0.5, 0.1),
    ],
)
def test_few_pairs_are_learnt_in_both_directions_and_smoothed(
    pairs: int, words: list[str], joint: bool, share: float, smoothing: float
) -> None:
    choices, reasons = chosen(replace(facts(pairs), joint=joint), options(*words))
    assert [choices[name] for name in ("data.reversed", "training.label_smoothing")] == [share, smoothing]
    assert ("50 % of the pairs reversed" in reasons[2]) == bool(share)


@pytest.mark.parametrize(("words", "tunes"), [([], True), (["decoding.length_penalty=1"], False)])
def test_the_length_penalty_is_tuned_unless_it_is_given(words: list[str], tunes: bool) -> None:
    choices, _ = chosen(facts(29_000), options(*words))
    assert choices["training.tune_length_penalty"] == tunes


def test_two_vocabularies_have_an_embedding_each() -> None:
    chosen_ties = [
        chosen(replace(facts(29_000), joint=joint), options())[0]["model.tie"] for joint in (True, False)
    ]
    assert chosen_ties == [Tie.all, Tie.target]
    assert chooses(options(), "model.tie") and not chooses(options("model.tie=all"), "model.tie")
    assert not chooses(options("recipe=none"), "model.tie")


def test_it_says_what_and_why() -> None:
    _, reasons = chosen(facts(29_000), options("recipe=auto", "training.budget=30m"))
    assert reasons == [
        "29,000 pairs of 406,000 target tokens; 2 processes, 180 GFLOP/s in training",
        "4 + 4 layers of width 128: the largest model for which corpus and time suffice",
        "dropout 0.2 (0.1 at the end) and R-Drop 3 for about 28 epochs, typos in 25 % of the sources, "
        "muon at 0.005, in 30m",
    ]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (
            ["training.rdrop=0", "model.dropout=0.25", "training.optimizer.name=adam"],
            "dropout 0.25 for about 57 epochs, typos in 25 % of the sources, adam at 0.005, in 30m",
        ),
        (
            ["training.schedule.peak=1e-3", "data.augmentation.typos=0", "data.reversed=0.1"],
            "dropout 0.2 (0.1 at the end) and R-Drop 3 for about 28 epochs, 10 % of the pairs reversed, "
            "muon at 0.001, in 30m",
        ),
        (
            ["training.max_updates=600", "data.max_tokens=512"],
            "dropout 0.1 for about 0.8 epochs, typos in 25 % of the sources, muon at 0.005, in at most 30m, "
            "at most 600 updates",
        ),
    ],
)
def test_it_says_what_was_given(words: list[str], expected: str) -> None:
    _, reasons = chosen(facts(29_000), options("training.budget=30m", *words))
    assert reasons[2] == expected


@pytest.mark.parametrize(
    ("words", "width", "dropout", "rdrop", "warmup"),
    [
        ([], 256, 0.3, 3.0, 500),
        (["training.max_updates=1000"], 128, 0.1, 0.0, 50),
        (["training.max_updates=20000", "training.rdrop=0"], 256, 0.2, 0.0, 500),
        (["training.max_epochs=8"], 256, 0.1, 0.0, 456),
        (["training.max_epochs=16"], 256, 0.2, 3.0, 500),
    ],
)
def test_choices_suit_the_updates_that_are_given(
    words: list[str], width: int, dropout: float, rdrop: float, warmup: int
) -> None:
    choices, reasons = chosen(facts(167_000, None, 9e11), options(*words))
    keys = ("model.d_model", "model.dropout", "training.rdrop", "training.schedule.warmup_updates")
    assert tuple(choices[key] for key in keys) == (width, dropout, rdrop, warmup)
    assert reasons[2].endswith("until validation stops improving") == ("max_updates" not in str(words))


@pytest.mark.parametrize(
    ("pairs", "minutes", "updates"),
    [(2_000, 300, 4785), (2_000, None, 4785), (1_000_000, 30, 2_392_578), (1_000_000, None, 100_000)],
)
def test_no_corpus_is_seen_more_than_350_times(pairs: int, minutes: float | None, updates: int) -> None:
    choices, reasons = chosen(facts(pairs, minutes), options())
    assert choices["training.max_updates"] == updates
    assert ("for about 350 epochs" in reasons[2]) == (pairs == 2_000)


@pytest.mark.parametrize(
    ("minutes", "validations", "checkpoints"),
    [(1, 500, 50), (7, 500, 218), (8, 250, 124), (30, 467, 467), (600, 2000, 2000), (None, 200, 200)],
)
def test_validations_take_little_of_a_budget(
    minutes: float | None, validations: int, checkpoints: int
) -> None:
    choices, _ = chosen(facts(29_000, minutes), options())
    keys = ("training.validate_every", "training.checkpoint_every")
    assert tuple(choices[key] for key in keys) == (validations, checkpoints)


def test_within_a_budget_a_part_of_the_validation_set_suffices() -> None:
    choices = [chosen(facts(29_000, minutes), options())[0] for minutes in (30, None)]
    assert [each["training.validate_sentences"] for each in choices] == [200, 0]


def test_only_a_training_without_a_budget_stops_early() -> None:
    assert chosen(facts(29_000, None), options("recipe=auto"))[0]["training.patience"] == 6
    assert chosen(facts(29_000, 30), options("recipe=auto"))[0]["training.patience"] == 0


@pytest.mark.parametrize("joint", [True, False])
def test_the_speed_is_that_of_passes(tmp_path: Path, caplog: pytest.LogCaptureFixture, joint: bool) -> None:
    prepared = prepared_pairs(tmp_path, joint=joint)
    random = torch.get_rng_state()
    words = ["training.budget=30m", "training.devices=1", "training.precision=fp32", "training.rdrop=1"]
    config = options(*words)
    caplog.set_level("INFO")
    found = with_recipe(config, prepared, RunFolder(tmp_path), 0.0)
    assert torch.equal(torch.get_rng_state(), random)
    assert found.model.d_model == 128
    speed = re.search(r"1 process, ([\d,]+) GFLOP/s", caplog.text)
    assert speed and 0 < int(speed[1].replace(",", "")) < 1e5


def test_given_options_are_kept() -> None:
    config = options("recipe=auto", "model.dropout=0.2", "training={max_updates: 5, clip_norm: 2}")
    assert config.recipe_keeps == ["recipe", "model.dropout", "training.max_updates", "training.clip_norm"]
    assert options("recipe=auto", "model=small").recipe_keeps == ["recipe", "model"]
    assert options("recipe_keeps=[model.norm]").recipe_keeps == ["model.norm"]


@pytest.mark.parametrize(
    ("words", "recipe"),
    [
        ([], Recipe.auto),
        (["model.d_model=128", "model/positions=rotary"], Recipe.auto),
        (["model=base"], Recipe.none),
        (["model.architecture=rnn_attention"], Recipe.none),
        (["experiment=multi30k"], Recipe.none),
        (["recipe=none"], Recipe.none),
    ],
)
def test_it_is_the_default_without_experiment_and_model(words: list[str], recipe: Recipe) -> None:
    assert options(*words).recipe is recipe
    (quickstart,) = compose_jobs(TrainConfig, "train", Arguments(()))
    assert quickstart.recipe is Recipe.none


def test_an_experiment_has_no_recipe() -> None:
    with pytest.raises(ValueError, match="^recipe=auto: experiment= chooses the options"):
        options("recipe=auto", "experiment=multi30k")


def test_a_warm_start_has_its_model_and_half_of_the_rate(tmp_path: Path) -> None:
    start = options("recipe=auto", "model=small", "model.norm=post", "model.tie=target")
    (tmp_path / "config.yaml").write_text(to_yaml(start), "utf-8")
    (tmp_path / "model.safetensors").touch()
    config = options(f"start_from={tmp_path}", "training.budget=30m")
    open_keys = {key for key in RECIPE_KEYS if chooses(config, key)}
    assert {key for key in open_keys if key.startswith("model.")} == {"model.dropout"}
    assert replace(config.model, dropout=0) == replace(start.model, dropout=0)
    choices, reasons = chosen(facts(2_000), config)
    assert (choices["training.schedule.peak"], choices["data.reversed"]) == (1e-3, 0)
    assert choices["data.max_tokens"] == 4096
    assert reasons[1] == "6 + 6 layers of width 512: those of start_from"
    assert options(f"start_from={tmp_path}").recipe is Recipe.none
    assert options(f"start_from={tmp_path}", "training.budget=null").recipe is Recipe.none
    assert options(f"start_from={tmp_path}", "training={budget: 5m}").recipe is Recipe.auto
    assert options(f"start_from={tmp_path}", "training.budget=30m", "model=small").recipe is Recipe.none
    assert options(f"start_from={tmp_path}", "recipe=auto").recipe is Recipe.auto


def test_a_resumed_run_keeps_its_choices(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    begun = options("recipe=auto", "model.d_ff=77")
    begun = with_values(begun, {"model.d_model": 64, "model.heads": 4, "data.max_tokens": 99})
    (tmp_path / "checkpoints" / "update-00000007").mkdir(parents=True)
    folder.config.write_text(to_yaml(begun), "utf-8")
    resumed = before_preparation(options("recipe=auto", "model.d_ff=77"), folder)
    assert (resumed.model.d_model, resumed.data.max_tokens, resumed.model.d_ff) == (64, 99, 77)
    folder.check(resumed)
    folder.config.write_text(to_yaml(options("recipe=none")), "utf-8")
    folder.check(before_preparation(options(), folder))  # it began when that was the default
    with pytest.raises(ValueError, match="started with recipe=none, not auto"):
        folder.check(before_preparation(options("recipe=auto"), folder))


def test_values_are_set_by_full_name() -> None:
    config = TrainConfig(data=DataConfig(name="x", source_lang="en", target_lang="de"))
    changed = with_values(config, {"model.norm": Norm.pre, "training.schedule.peak": 0.5, "seed": 3})
    assert (changed.model.norm, changed.training.schedule.peak, changed.seed) == (Norm.pre, 0.5, 3)
    assert config.training == TrainingConfig()
