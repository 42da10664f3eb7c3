"""Options that another option disables: errors and warnings, by the tables of `nmt.config.disabled`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nmt.config import (
    SCHEMAS,
    Average,
    DecodingConfig,
    Exchange,
    ExportConfig,
    Extension,
    ModelConfig,
    Precision,
    Recipe,
    ServeConfig,
    TrainConfig,
    TranslateConfig,
)
from nmt.config.checks import Section
from nmt.config.schema import schema_keys
from nmt.config.storage import with_values
from nmt.errors import UserError
from nmt.options.arguments import Arguments
from nmt.options.compose import compose_jobs

EXPERIMENTS = sorted(path.stem for path in Path("configs/experiment").glob("*.yaml"))


def options(schema: Callable[[], Any], **values: Any) -> Any:
    """Returns a section with other values; `a__b=1` sets the option `b` of the section `a`."""
    return with_values(schema(), {key.replace("__", "."): value for key, value in values.items()})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"start_from": "m", "data__tokenizer__vocab_size": 9000},
            "data.tokenizer.vocab_size=9000: has no effect. The pieces and their normalisation are those of "
            "the model in start_from or data.tokenizer.path.",
        ),
        (
            {
                "data__tokenizer__path": "m",
                "data__tokenizer__extend": Extension.never,
                "data__tokenizer__sample_pairs": 9,
            },
            "data.tokenizer.sample_pairs=9: has no effect with data.tokenizer.extend=never.",
        ),
        (
            {"data__tokenizer__extend": Extension.always},
            "data.tokenizer.extend=always: has no effect without start_from or data.tokenizer.path.",
        ),
        (
            {"data__temperature": 2.0},
            "data.temperature=2.0: has no effect on one corpus. It is for data.train.corpora.",
        ),
        (
            {"training__schedule__name": "linear", "training__schedule__scale": 2.0},
            "training.schedule.scale=2.0: has an effect only with training.schedule.name=noam. Set "
            "training.schedule.peak.",
        ),
        (
            {"recipe": Recipe.auto, "training__schedule__scale": 2.0},
            "training.schedule.scale=2.0: has an effect only with training.schedule.name=noam. Set "
            "training.schedule.peak.",
        ),
        (
            {"training__schedule__peak": 0.1},
            "training.schedule.peak=0.1: has no effect with training.schedule.name=noam. Set "
            "training.schedule.scale.",
        ),
        (
            {"training__simcut_rate": 0.1},
            "training.simcut_rate=0.1: has no effect without training.simcut.",
        ),
        (
            {"training__final_dropout": 0.1},
            "training.final_dropout=0.1: has an effect only with training.schedule.name=wsd.",
        ),
        (
            {"training__consistency_from": 9},
            "training.consistency_from=9: has no effect without training.rdrop or training.simcut.",
        ),
        (
            {"training__averaging__kind": Average.none, "training__averaging__count": 3},
            "training.averaging.count=3: has no effect with training.averaging.kind=none.",
        ),
        (
            {"training__devices": "1", "training__gradient_exchange": Exchange.bf16},
            "training.gradient_exchange=bf16: has no effect with training.devices=1.",
        ),
        (
            {"training__precision": Precision.bf16, "training__onednn_fp32": False},
            "training.onednn_fp32=false: has no effect with training.precision=bf16.",
        ),
        (
            {"evaluation__comet__command": "comet-score"},
            "evaluation.comet.command=comet-score: has no effect without comet among evaluation.metrics, "
            "training.validate_metrics and training.criterion.",
        ),
        (
            {"decoding__beam_size": 1, "decoding__diversity": 0.5},
            "decoding.diversity=0.5: has no effect with decoding.beam_size=1.",
        ),
        (
            {"decoding__top_k": 5},
            "decoding.top_k=5: has no effect in beam search. Set decoding.samples, or remove it.",
        ),
    ],
)
def test_a_warning(values: dict[str, Any], message: str) -> None:
    assert [*options(TrainConfig, **values).warnings()] == [message]


@pytest.mark.parametrize(
    ("schema", "values", "message"),
    [
        (
            DecodingConfig,
            {"samples": 4, "nbest": 2},
            "decoding.nbest=2: with decoding.samples=4 all",
        ),
        (
            DecodingConfig,
            {"samples": 4, "retry_loops": True},
            "decoding.retry_loops=true: is for beam",
        ),
        (
            TrainConfig,
            {"training__freeze": ["a", "b"]},
            r"training.freeze=\[a,b\]: needs a model",
        ),
        (
            TrainConfig,
            {"training__rdrop": 2.0, "training__simcut": 3.0},
            "training.simcut=3.0: is not available with training.rdrop=2.0. Set one of them to 0.",
        ),
        (ModelConfig, {"positions__decoder_options": {"base": 9}}, ".*: model.positions.decoder is not set"),
        (ExportConfig, {"private": True}, "private=true: requires push=OWNER/NAME. Remove it, or add that."),
        (
            ServeConfig,
            {"decoding__mbr": "chrf", "decoding__samples": 3},
            "decoding.samples=3: is not",
        ),
        (
            ServeConfig,
            {"api_key_file": "a", "api_key_variable": "B"},
            "api_key_variable=B: the key is",
        ),
    ],
)
def test_an_error(schema: type[Any], values: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=f"^{message}"):
        options(schema, **values)


def test_a_value_that_has_an_effect_is_no_warning() -> None:
    values = {
        "data__tokenizer__path": "m",
        "data__tokenizer__extend": Extension.always,
        "decoding__samples": 3,
    }
    assert [*options(TrainConfig, **values, decoding__top_p=0.5).warnings()] == []
    assert [*options(TranslateConfig, decoding__top_p=0.5).warnings()] != []
    chosen_later = {"recipe": Recipe.auto, "training__schedule__peak": 0.1, "training__consistency_from": 9}
    assert [*options(TrainConfig, **chosen_later).warnings()] == []


def test_the_tables_have_options_that_exist() -> None:
    for schema in (*SCHEMAS.values(), DecodingConfig):
        assert issubclass(schema, Section)
        keys = {f"{schema.options_prefix}{key}" for key in schema_keys(schema)}
        for words, (_, reason) in (*schema.refused.items(), *schema.unused.items()):
            assert {f"{schema.options_prefix}{key}" for key in words.split()} <= keys
            reason.format(options(schema))


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_no_option_of_an_experiment_is_without_effect(experiment: str) -> None:
    assert len(EXPERIMENTS) > 3
    (config,) = compose_jobs(TrainConfig, "train", Arguments((f"experiment={experiment}",)))
    assert [*config.warnings()] == []


def test_the_command_warns_once(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nmt.options.compose.log.propagate", True)
    words = ("data=quickstart", "training.schedule.scale=2.0", "seed=1,2")
    with caplog.at_level("WARNING", "nmt"):
        compose_jobs(TrainConfig, "train", Arguments(words, sweep=True))
    assert [message.partition(":")[0] for message in caplog.messages] == ["training.schedule.scale=2.0"]
