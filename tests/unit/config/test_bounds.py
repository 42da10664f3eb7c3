"""Every number has bounds: an error of one line names the key."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache
from typing import Any, cast

import pytest
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from nmt.config import (
    CleaningConfig,
    DecodingConfig,
    EvalConfig,
    ExportConfig,
    ImportConfig,
    ModelConfig,
    ServeConfig,
    TrainConfig,
    TranslateConfig,
)
from nmt.config.checks import above, between, check, shortened
from nmt.config.schema import alternatives, text_option, walk
from nmt.config.storage import from_yaml
from nmt.errors import UserError
from nmt.options.arguments import Arguments
from nmt.options.compose import compose_jobs

NUMBER_OR_WORD = {"data.max_tokens", "data.loaders", "training.devices"}
"""Options that take a number or `auto`; their type does not show that they are numbers."""

DATA = {"name": "x", "source_lang": "en", "target_lang": "de"}
REQUIRED: dict[type[Any], dict[str, Any]] = {
    TrainConfig: {"data": DATA},
    TranslateConfig: {"model_dir": "m"},
    EvalConfig: {"data": DATA},
    ExportConfig: {"model_dir": "m", "output": "o"},
    ImportConfig: {"model": "m", "output": "o"},
    ServeConfig: {"model_dir": "m"},
}
"""The required options of each command."""

NONSENSE = [-(10**40), 10**40, 1e99, math.nan, math.inf]


def numbers(schema: type[Any]) -> Iterator[str]:
    """The key of every option that is a number; `a` is a free name."""
    for key, _, hint in walk(schema):
        key = key.replace("*", "a")
        if {int, float} & set(alternatives(hint)) or key in NUMBER_OR_WORD:
            yield key
    if schema is TrainConfig:
        yield from (f"data.train.corpora.a.cleaning.{key}" for key in ("max_pieces", "max_ratio", "max_word"))


@cache
def base_of(schema: type[Any]) -> DictConfig:
    """Returns a configuration with the required options."""
    return cast(DictConfig, OmegaConf.merge(OmegaConf.structured(schema), REQUIRED[schema]))


def finish(schema: type[Any], key: str, value: Any) -> None:
    """Converts and checks a configuration in which one option is changed."""
    for name in reversed(key.split(".")):
        value = {name: value}
    OmegaConf.to_object(OmegaConf.merge(base_of(schema), value))


CASES = [(schema, key) for schema in REQUIRED for key in numbers(schema)]


def test_the_walk_finds_the_numbers() -> None:
    keys = {key for schema, key in CASES if schema is TrainConfig}
    assert len(keys) > 60
    assert {
        "seed",
        "data.max_tokens",
        "data.train.corpora.a.weight",
        "data.train.corpora.a.cleaning.max_ratio",
        "model.d_ff",
        "training.max_epochs",
        "training.devices",
        "training.schedule.peak",
        "decoding.length_penalty",
    } <= keys
    assert {(EvalConfig, "data.max_tokens"), (TranslateConfig, "threads")} <= set(CASES)


@pytest.mark.parametrize(("schema", "key"), CASES, ids=lambda part: getattr(part, "__name__", part))
def test_nonsense_is_refused_by_name(schema: type[Any], key: str) -> None:
    for value in NONSENSE:
        with pytest.raises((UserError, OmegaConfBaseException)) as caught:
            finish(schema, key, value)
        if isinstance(caught.value, UserError):
            message = str(caught.value)
            assert message.startswith((f"{key}=", f"{key}: ")) and "\n" not in message, message
        else:  # an error of another type: the commands put the key in front
            assert caught.value.full_key == key or ".corpora." in key


@pytest.mark.parametrize(
    "key", ["seed", "data.max_tokens", "training.devices", "data.train.corpora.a.weight"]
)
@pytest.mark.parametrize("digits", ["9" * 400, "9" * 5000, "-" + "9" * 5000, "[" + "9" * 5000 + "]"])
def test_long_numbers_are_refused(key: str, digits: str) -> None:
    with pytest.raises(UserError) as refused:
        compose_jobs(TrainConfig, "train", Arguments((f"{key}={digits}",)))
    message = str(refused.value)
    assert message.startswith(f"{key}=")
    assert "digits is too long" in message or text_option(TrainConfig, key)  # text may be that long
    assert "\n" not in message and len(message) < 200, message


@pytest.mark.parametrize(
    ("key", "value", "highest"),
    [
        ("decoding.length_penalty", 10.5, 10),
        ("decoding.beam_size", 1001, 1000),
        ("decoding.max_length_factor", 101.0, 100),
        ("decoding.no_repeat_ngram", 101, 100),
        ("training.threads", 1025, 1024),
        ("training.devices", 1025, 1024),
        ("training.max_updates", 10**9 + 1, 1_000_000_000),
        ("training.schedule.peak", 101.0, 100),
        ("training.optimizer.weight_decay", 101.0, 100),
        ("model.encoder_layers", 1001, 1000),
        ("model.d_model", 100_001, 100_000),
        ("model.d_ff", 1_000_001, 1_000_000),
        ("data.workers", 1025, 1024),
        ("data.loaders", 1025, 1024),
        ("data.tokenizer.vocab_size", 1_000_001, 1_000_000),
        ("data.max_tokens", 10_000_001, 10_000_000),
        ("data.cleaning.max_ratio", 1_000_001.0, 1_000_000),
        ("data.train.corpora.a.weight", 1e9 + 1, 10**9),
        ("seed", 2**32, 4_294_967_295),
    ],
)
def test_the_bound_is_named(key: str, value: float, highest: int) -> None:
    with pytest.raises(UserError) as caught:
        finish(TrainConfig, key, value)
    assert str(caught.value).startswith(f"{key}={value}: must be ")
    assert str(caught.value).replace(",", "").endswith(f" {highest}.")


@pytest.mark.parametrize(
    "overrides",
    [
        (
            "training.validate_every=1000000000",
            "training.checkpoint_every=1000000000",
            "training.log_every=1",
        ),
        ("training.max_restarts=999999", "training.keep_checkpoints=999999", "training.clip_norm=1e9"),
        ("decoding.beam_size=200", "decoding.nbest=200", "decoding.length_penalty=2"),
        ("model.encoder_layers=100", "model.d_model=16384", "model.d_ff=65536", "model.heads=128"),
        ("data.tokenizer.vocab_size=256000", "data.max_tokens=1000000", "training.threads=512"),
        ("data.temperature=100000", "seed=4294967295", "training.rdrop=5", "training.max_minutes=5256000"),
    ],
)
def test_sane_extremes_pass(overrides: tuple[str, ...]) -> None:
    OmegaConf.to_object(OmegaConf.merge(base_of(TrainConfig), OmegaConf.from_dotlist(list(overrides))))


@pytest.mark.parametrize("digits", ["9" * 400, "0x" + "F" * 5000, "1e400", ".inf", ".nan", "-" + "9" * 40])
@pytest.mark.parametrize("key", ["decoding: {length_penalty: %s}", "seed: %s", "data: {max_tokens: %s}"])
def test_a_stored_configuration_with_nonsense_is_refused(key: str, digits: str) -> None:
    with pytest.raises(UserError) as caught:
        from_yaml(TrainConfig, f"{key % digits}\n", "config.yaml")
    assert str(caught.value).startswith("config.yaml: ") and "\n" not in str(caught.value)


def test_huge_integers_are_compared_and_shown() -> None:
    for value in (10**400, 16**6000, -(10**5000)):
        with pytest.raises(UserError) as caught:
            check("key", value, between(1, 2))
        assert len(str(caught.value)) < 120
        with pytest.raises(UserError):
            check("key", value, above(0, 2))
    assert shortened("x" * 100) == "x" * 30 + "…" + "x" * 29
    assert shortened(12) == "12"


def test_values_on_the_bounds_pass() -> None:
    DecodingConfig(beam_size=1000, length_penalty=10, nbest=1000)
    ModelConfig(encoder_layers=1000, d_model=100_000, heads=1)
    CleaningConfig(max_ratio=0)
