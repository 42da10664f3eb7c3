"""Option names of other toolkits: every suggested option exists, and remarks say how the meaning differs."""

from __future__ import annotations

from typing import Any

import pytest

from nmt.config import SCHEMAS, TrainConfig, TranslateConfig
from nmt.config.schema import schema_keys
from nmt.errors import UserError
from nmt.options.arguments import Arguments, read_arguments
from nmt.options.compose import compose_jobs
from nmt.options.messages import corrected_flag, foreign, meant

KNOWN: dict[type, Any] = {schema: schema_keys(schema) for schema in SCHEMAS.values()}


def test_every_suggested_option_exists() -> None:
    everything = {key for keys in KNOWN.values() for key in keys}
    for word, meaning in foreign().items():
        assert {option.split("=")[0] for option in meaning.options} <= everything, word
        assert meaning.options or meaning.remark, word


@pytest.mark.parametrize("program", SCHEMAS)
def test_a_command_suggests_options_that_it_has(program: str) -> None:
    schema: Any = SCHEMAS[program]
    for word in foreign():
        found = meant(word, KNOWN[schema]) or ""
        for part in found.partition("?")[0].removeprefix(". Did you mean ").split(" or "):
            if "Did you mean" in found:
                assert part.split("=")[0] in KNOWN[schema], (word, found)
        if found.startswith(". nmt-"):  # an option of another command only
            assert program not in found, (word, found)


@pytest.mark.parametrize(
    ("word", "suggested"),
    [
        ("lr", "training.schedule.peak"),
        ("optim.lr", "training.schedule.peak"),
        ("batch_size", "data.max_tokens or decoding.max_sentences"),
        ("fp16", "training.precision=fp16"),
        ("model.layers", "model.encoder_layers or model.decoder_layers"),
        ("src", "data.train.source"),
        ("data.valid.tgt", "data.valid.target"),
        ("dev", "data.valid.source or data.valid.target or data.valid.path"),
        ("checkpoint", "start_from"),
    ],
)
def test_words_of_a_training(word: str, suggested: str) -> None:
    assert (meant(word, KNOWN[TrainConfig]) or "").startswith(f". Did you mean {suggested}?")


@pytest.mark.parametrize(
    ("word", "end"),
    [
        ("epochs", ". nmt-train has training.max_epochs."),
        ("batch_size", ". Did you mean decoding.max_sentences?"),
        ("gpus", ". Did you mean device?"),
        ("fp16", ". Did you mean precision=fp16?"),
        ("src", ". Did you mean input?"),
        ("checkpoint", ". Did you mean model_dir?"),
        ("output_dir", ". Did you mean output?"),
        ("num_beams", ". Did you mean decoding.beam_size? 1 is greedy search."),
    ],
)
def test_words_of_a_translation(word: str, end: str) -> None:
    assert meant(word, KNOWN[TranslateConfig]) == end


def test_how_the_meaning_differs() -> None:
    assert (meant("batch_size", KNOWN[TrainConfig]) or "").endswith("counts target tokens, not sentences.")
    assert (meant("patience_steps", KNOWN[TrainConfig])) is None
    assert "0 never stops" in (meant("early_stopping", KNOWN[TrainConfig]) or "")
    assert "run_dir/tensorboard" in (meant("tensorboard", KNOWN[TrainConfig]) or "")


@pytest.mark.parametrize(
    ("arguments", "end"),
    [
        (["--lr", "0.1"], "Did you mean training.schedule.peak=0.1?"),
        (["-lr"], "Did you mean training.schedule.peak?"),
        (["--beam-size=4"], "Did you mean decoding.beam_size=4?"),
        (["--max-epochs", "3"], "Did you mean training.max_epochs=3?"),
        (["--seed", "3"], "Did you mean seed=3?"),
        (["--fp16"], "Did you mean training.precision=fp16?"),
        (["--batch-size", "64"], "Did you mean data.max_tokens"),
        (["--early-stopping", "3"], "Did you mean training.patience?"),
        (["--run-dir", "x"], "Did you mean run_dir=x?"),
        (["--foo"], "--help lists them"),
    ],
)
def test_flags_get_our_spelling(arguments: list[str], end: str) -> None:
    with pytest.raises(UserError) as caught:
        read_arguments(arguments, TrainConfig)
    flag = arguments[0].partition("=")[0]
    message = f"{flag}: is not a flag. Options are written key=value. {end}"
    assert str(caught.value).startswith(message)


def test_a_value_in_another_unit_is_not_passed_on() -> None:
    assert "=5" not in corrected_flag("--warmup-ratio", "5", KNOWN[TrainConfig])
    assert "training.schedule.warmup_updates=5?" in corrected_flag("--warmup", "5", KNOWN[TrainConfig])


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("lr=0.1", "lr: there is no such option. Did you mean training.schedule.peak?"),
        (
            "+training.batch_size=3",
            "+training.batch_size: there is no such option. Did you mean data.max_tokens",
        ),
        ("data.trian.source=x", "data.trian: there is no such option. Did you mean data.train?"),
    ],
)
def test_the_commands_suggest(override: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        compose_jobs(TrainConfig, "train", Arguments((override,)))
    assert str(caught.value).startswith(message)
