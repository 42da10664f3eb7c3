"""The reverse model of back-translation: a separate run, on the same pairs with sides swapped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from nmt.config import (
    DataConfig,
    DistillationConfig,
    Extension,
    HubConfig,
    MonolingualConfig,
    Resume,
    SplitConfig,
    TrainConfig,
    TrainingConfig,
    TrainSplitConfig,
)
from nmt.data.preparation.report import paths_of_cleaned_pairs, write_pairs
from nmt.runtime.streams import log
from nmt.training.processes.ranks import Ranks
from nmt.training.stages.text import TrainingText
from nmt.training.state.run_folder import RunFolder

REVERSE = "reverse"
"""The name of the folder of the run, in the folder of the stages."""


def train_reverse(
    config: TrainConfig, text: TrainingText, ranks: Ranks, train: Callable[[TrainConfig, Ranks], Any]
) -> None:
    """Trains the reverse model, or resumes its training, with the options of the run; all ranks train.

    Raises:
        UserError: as for a run; the options have changed since its training has begun.
    """
    log.info(
        "data.monolingual.reverse is not given: training a model from %s to %s",
        *_languages(config.data)[::-1],
    )
    stages = RunFolder(Path(config.run_dir)).stages
    train_files = paths_of_cleaned_pairs(config.data, str(stages / f"{REVERSE}.train"))
    valid_files = paths_of_cleaned_pairs(config.data, str(stages / f"{REVERSE}.valid"))
    write_pairs(train_files, text.pairs())
    write_pairs(valid_files, [text.valid_pairs()])
    train(reverse_config(config, train_files, valid_files), ranks)


def reverse_config(config: TrainConfig, train: Sequence[Path], valid: Sequence[Path]) -> TrainConfig:
    """Returns the options of the reverse model's training, on text files: source and target of `config`."""
    (source, target), data = _languages(config.data), config.data
    return replace(
        config,
        run_dir=str(RunFolder(Path(config.run_dir)).stages / REVERSE),
        name=f"{config.name} {REVERSE}",
        resume=Resume.auto,
        resume_from=None,
        start_from=None,
        teacher=None,
        distillation=DistillationConfig(),
        prepare_only=False,
        find_rate=False,
        cleaned_pairs=None,
        data=replace(
            data,
            name=f"{data.name} {REVERSE}",
            source_lang=target,
            target_lang=source,
            hub=HubConfig(),
            train=TrainSplitConfig(source=str(train[1]), target=str(train[0])),
            valid=SplitConfig(source=str(valid[1]), target=str(valid[0])),
            test=SplitConfig(),
            monolingual=MonolingualConfig(),
            temperature=None,
            tokenizer=replace(data.tokenizer, path=None, extend=Extension.auto),
        ),
        training=replace(
            config.training, criterion_set=None, freeze=[], l2_to_start=0.0, budget=_half(config.training)
        ),
    )


def _half(training: TrainingConfig) -> str | None:
    """Returns half of the budget of a run, for the first of its two trainings."""
    minutes = training.budget_minutes
    return None if minutes is None else f"{max(1.0, minutes / 2):.1f}m"


def reverse_report(run: RunFolder) -> dict[str, Any] | None:
    """Returns what the training of the reverse model brought; None: it was not trained here."""
    results = RunFolder(run.stages / REVERSE).read_results()
    if results is None:
        return None
    scores = {name: value for name, value in results["valid"].items() if isinstance(value, int | float)}
    training = results["training"]
    return {"updates": training["updates"], "seconds": round(60 * training["minutes"], 1), "valid": scores}


def _languages(data: DataConfig) -> tuple[str, str]:
    return data.source_lang, data.target_lang
