"""The option dataclasses: their checks, and the YAML files that fill them."""

from __future__ import annotations

from typing import Any

import pytest

from nmt.config import (
    AugmentationConfig,
    CleaningConfig,
    CorpusConfig,
    DataConfig,
    DecodingConfig,
    ModelConfig,
    OptimizerConfig,
    SamplingConfig,
    ScheduleConfig,
    SetConfig,
    SplitConfig,
    TokenizerConfig,
    TrainConfig,
    TrainingConfig,
    TrainSplitConfig,
)
from nmt.errors import UserError


def corpora(**options: Any) -> dict[str, object]:
    return {"train": TrainSplitConfig(corpora={"a": CorpusConfig(**options)})}


@pytest.mark.parametrize(
    ("section", "values", "message"),
    [
        (DataConfig, {"max_tokens": 1}, "data.max_tokens=1: must be between 16 and 10,000,000"),
        (DataConfig, {"max_tokens": "many"}, "data.max_tokens=many: must be auto or a number of tokens"),
        (DataConfig, {"source_lang": ""}, "data.source_lang: is empty"),
        (DataConfig, {"temperature": 0.5}, "data.temperature=0.5: must be between 1 and"),
        (DataConfig, corpora(weight=0.0), "data.train.corpora.a.weight=0.0: must be more than 0"),
        (
            DataConfig,
            {"temperature": 2.0, **corpora(weight=1.0)},
            "data.train.corpora.a.weight: data.temperature is also given",
        ),
        (
            DataConfig,
            corpora(cleaning={"max_rato": 3}),
            "data.train.corpora.a.cleaning.max_rato: there is no such option. The options are max_pieces, ",
        ),
        (
            DataConfig,
            corpora(cleaning={"max_ratio": 0.5}),
            "data.train.corpora.a.cleaning.max_ratio=0.5: must be between 1 and 1,000,000",
        ),
        (
            DataConfig,
            corpora(cleaning={"max_ratio": "x"}),
            "data.train.corpora.a.cleaning.max_ratio=x: must be a number",
        ),
        *(
            (
                DataConfig,
                {"test": SplitConfig(sets={name: SetConfig()})},
                f"data.test.sets.{name}: not a name of a set, which is part of names of files. It ",
            )
            for name in ("", "a/b", "-a", ".", "a\n", "x" * 61)
        ),
        (
            TokenizerConfig,
            {"vocab_size": 10},
            "data.tokenizer.vocab_size=10: must be between 300 and 1,000,000",
        ),
        (TokenizerConfig, {"character_coverage": 0.5}, "data.tokenizer.character_coverage=0.5"),
        (SamplingConfig, {"alpha": 1.5}, "data.sampling.alpha=1.5: must be between 0 and 1"),
        (AugmentationConfig, {"typos": -0.1}, "data.augmentation.typos=-0.1: must be between 0 and 1"),
        (
            AugmentationConfig,
            {"capitals": 0.6, "titles": 0.5},
            "data.augmentation.titles=0.5: exceeds 1 with capitals=0.6. Lower one of them.",
        ),
        (ModelConfig, {"heads": 7}, "model.d_model=512: must be a multiple of model.heads=7"),
        (ModelConfig, {"heads": 7, "key_width": 8}, "model.d_model=512: must be a multiple of model.heads=7"),
        (ModelConfig, {"key_width": 0}, "model.key_width=0: must be between 1 and 100,000"),
        (ModelConfig, {"value_width": -1}, "model.value_width=-1: must be between 1 and 100,000"),
        (ModelConfig, {"dropout": 1.0}, "model.dropout=1.0: must be 0 or more and at most 0.99"),
        (ModelConfig, {"encoder_layers": 0}, "model.encoder_layers=0: must be between 1 and 1,000"),
        (DecodingConfig, {"beam_size": 0}, "decoding.beam_size=0: must be between 1 and 1,000"),
        (DecodingConfig, {"nbest": 5}, "decoding.nbest=5: is more than decoding.beam_size=4"),
        (DecodingConfig, {"length_penalty": float("nan")}, "decoding.length_penalty=nan"),
        (OptimizerConfig, {"beta2": 1.0}, "training.optimizer.beta2=1.0: must be 0 or more and less than 1"),
        (OptimizerConfig, {"epsilon": 0.0}, "training.optimizer.epsilon=0.0: must be more than 0"),
        (ScheduleConfig, {"peak": 0.0}, "training.schedule.peak=0.0"),
        (TrainingConfig, {"max_updates": 0}, "training.max_updates=0: must be between 1 and 1,000,000,000"),
        (TrainingConfig, {"devices": "two"}, "training.devices=two: must be auto"),
        (TrainingConfig, {"devices": "0"}, "training.devices=0: must be auto"),
        (TrainingConfig, {"max_restarts": -1}, "training.max_restarts=-1: must be between 0 and"),
        (TrainingConfig, {"max_minutes": 0.0}, "training.max_minutes=0.0: must be more than 0"),
        (TrainConfig, {"seed": -1}, "seed=-1: must be between 0 and 4,294,967,295"),
    ],
)
def test_bad_values_are_named(section: type, values: dict[str, object], message: str) -> None:
    with pytest.raises(UserError) as caught:
        section(**values)
    assert str(caught.value).startswith(message)


def test_the_defaults_are_the_papers_base_model() -> None:
    model, training, decoding = ModelConfig(), TrainingConfig(), DecodingConfig()
    assert (model.encoder_layers, model.decoder_layers) == (6, 6)
    assert (model.d_model, model.d_ff, model.heads, model.dropout) == (512, 2048, 8, 0.1)
    assert (model.norm.name, model.tie.name, model.activation.name) == ("post", "all", "relu")
    assert training.label_smoothing == 0.1
    optimizer, schedule = training.optimizer, training.schedule
    assert (optimizer.beta1, optimizer.beta2, optimizer.epsilon) == (0.9, 0.98, 1e-9)
    assert (schedule.name, schedule.warmup_updates) == ("noam", 4000)
    assert (decoding.beam_size, decoding.length_penalty, decoding.max_length_offset) == (4, 0.6, 50)


def test_a_corpus_changes_what_it_gives_of_the_cleaning() -> None:
    data = DataConfig(
        cleaning=CleaningConfig(max_pieces=100, drop_leaked=False),
        train=TrainSplitConfig(corpora={"a": CorpusConfig(cleaning={"max_ratio": 3}), "b": CorpusConfig()}),
    )
    own, shared = (data.cleaning_of(name, corpus) for name, corpus in data.train.corpora.items())
    assert own == CleaningConfig(max_pieces=100, drop_leaked=False, max_ratio=3.0)
    assert shared == data.cleaning
