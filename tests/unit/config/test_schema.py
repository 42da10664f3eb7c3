"""The options that hold text, found by their declarations."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from nmt.config import EvalConfig, TrainConfig, TranslateConfig
from nmt.config.schema import TextOption, check_truth, literal_keys, text_option
from nmt.config.training import NO_AVERAGE_OF_MODELS
from nmt.errors import UserError

FILE, FILES = TextOption("file", optional=True), TextOption("file", several=True, optional=True)
FOLDER = TextOption("folder", optional=True)


@pytest.mark.parametrize(
    ("schema", "key", "option"),
    [
        (TrainConfig, "run_dir", TextOption("folder")),
        (TrainConfig, "name", TextOption("name")),
        (TrainConfig, "start_from", replace(FOLDER, alternative=NO_AVERAGE_OF_MODELS)),
        (TrainConfig, "data.name", TextOption("name")),
        (TrainConfig, "data.train.source", FILES),
        (TrainConfig, "data.valid.target", FILES),
        (TrainConfig, "data.test.path", FILES),
        (TrainConfig, "data.test.groups", FILE),
        (TrainConfig, "data.hub.path", FOLDER),
        (TrainConfig, "data.train.corpora.back.source", FILES),
        (TrainConfig, "data.train.corpora.2013.hub.path", FOLDER),
        (TrainConfig, "data.train.corpora.back.tag", TextOption(optional=True)),
        (TrainConfig, "data.tokenizer.path", FOLDER),
        (TrainConfig, "data.cache_dir", FOLDER),
        (TrainConfig, "data.source_key", TextOption()),
        (TrainConfig, "data.hub.revision", TextOption(optional=True)),
        (TrainConfig, "data.tokenizer.user_symbols", TextOption(several=True)),
        (TranslateConfig, "model_dir", TextOption("folder", several=True)),
        (TranslateConfig, "input", FILE),
        (EvalConfig, "model_dir", TextOption("folder", several=True, optional=True)),
        (EvalConfig, "data.test.source", FILES),
        (EvalConfig, "json", FILE),
        (TrainConfig, "seed", None),
        (TrainConfig, "data", None),
        (TrainConfig, "data.max_tokens", None),
        (TrainConfig, "data.train.corpora", None),
        (TrainConfig, "data.train.corpora.source", None),
        (TrainConfig, "data.train.corpora.back.weight", None),
        (TrainConfig, "data.train.corpora.back.cleaning.source", None),
        (TrainConfig, "model.norm", None),
        (TrainConfig, "nothing", None),
    ],
)
def test_options_that_hold_text(schema: type, key: str, option: TextOption | None) -> None:
    assert text_option(schema, key) == option


def test_free_names_are_stars() -> None:
    assert literal_keys(TrainConfig)["data.train.corpora.*.target"] == FILES


@pytest.mark.parametrize("value", [True, False, 0, 1, "yes", "No", "ON", "off", "true", "1", "${other}"])
def test_truth_values(value: Any) -> None:
    check_truth(TrainConfig, "prepare_only", value)


@pytest.mark.parametrize("value", [2, -1, 1.0, 0.5, "y", "n", "t", "2", "", "01", "maybe"])
def test_others(value: Any) -> None:
    with pytest.raises(UserError) as caught:
        check_truth(TrainConfig, "prepare_only", value)
    assert str(caught.value) == f"prepare_only={value}: must be true or false."
    with pytest.raises(UserError, match="training.half_residual=.*: must be true or false."):
        check_truth(TrainConfig, "training.half_residual", value)  # may have no value, but no other one
    check_truth(TrainConfig, "seed", value)
    check_truth(TrainConfig, "name", value)


def test_within_a_section() -> None:
    section = {"cleaning": {"drop_leaked": 2}}
    for schema in (TrainConfig, EvalConfig):
        with pytest.raises(UserError, match=r"^data\.cleaning\.drop_leaked=2: "):
            check_truth(schema, "data", section)


@pytest.mark.parametrize("value", [None, [True], {"a": 2}])
def test_other_types_are_left_to_the_types_of_the_options(value: Any) -> None:
    check_truth(TrainConfig, "prepare_only", value)
