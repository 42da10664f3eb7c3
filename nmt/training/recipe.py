"""`recipe=auto`: model, batch, optimizer, schedule and end of a training, for its corpus and machine."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

import torch

from nmt.config import RECIPE_KEYS, ModelConfig, Norm, Recipe, Tie, TrainConfig
from nmt.config.disabled import is_open
from nmt.config.storage import with_values
from nmt.data.batches.batching import Batch
from nmt.data.preparation.prepare import Prepared
from nmt.model import model_class
from nmt.runtime.machine import choose_device, wanted_processes
from nmt.runtime.streams import log
from nmt.training.batch_size import logged_if_slow
from nmt.training.figures.meter import measured_ceiling
from nmt.training.processes.ranks import Ranks
from nmt.training.state.run_folder import RunFolder
from nmt.training.state.warm_start import new_model
from nmt.training.update.training_step import TrainingStep

_OPERATIONS = 6
"""Operations of an update for each weight and token: a multiply-add forward, two backward."""
_TIMED_TOKENS = 1024
_OF_PASSES = 0.75
"""The part of the speed of its passes that a training reaches with optimizer, validations, start and end."""
_OF_CEILING = 0.3
"""The part of the speed of a large product that a training reaches on a GPU; not measured. On a CPU it was
0.28 to 0.42 with one machine and 0.57 with another, so passes are timed there."""
_HORIZON = 12 * 3600.0
"""Seconds of a training without a budget, for which a size is chosen."""
_MOST_PROCESSES = 8
_TOKENS_A_WEIGHT = 1
"""Target tokens that a training needs for each weight before a larger model is better."""
_CORPUS_A_WEIGHT = 0.1
"""Target tokens that the corpus needs for each weight: on Multi30k, with 0.2 for width 128 and 0.05 for width
256, the smaller model is better, also in Wu et al. 2021."""
_DROPOUTS = ((12.0, 0.1), (40.0, 0.2), (math.inf, 0.3))
"""Dropout by epochs: up to these, that."""
_FINAL_DROPOUT = 0.1
"""Dropout while the learning rate falls, where it was higher before."""
_MANY_EPOCHS = 15.0
"""Epochs from which on R-Drop takes half of them: on Multi30k, 19 of them are worse than 9.5 with R-Drop."""
_FEW_UPDATES = 1000
"""Updates below which R-Drop has no time: 1,250 of them were enough for 2,000 pairs, 486 were not."""
_VALIDATION = 500
"""Updates from one validation to the next, at least: a validation takes as long as about 50 updates."""
_VALIDATED = 200
"""Sentences of a validation within a budget. A thousand long paragraphs took as long as 200 updates."""
_MOST_EPOCHS = 350.0
"""The most epochs. BLEU and chrF2 of 2,000 pairs of Tatoeba rise up to there (docs/recipes.md)."""
_RDROP = 3.0
_AUGMENTATION = {"capitals": 0.02, "titles": 0.02, "unpunctuated": 0.05, "typos": 0.25}
"""Shares of the pairs: on Multi30k these more than halve what typos cost."""
_FEW_PAIRS = 5000
"""Pairs below which no source is changed. With 2,000 pairs, changes cost a BLEU on clean text."""
_LENGTH_PENALTY = 1.4
"""The first that is tried. With 2,000 pairs, it makes translations of paragraphs a third too long."""
_SMALL = 10_000
"""Pairs up to which labels are smoothed more: measured at 2,000 and 10,000."""
_MOST_REVERSED = 5000
"""Pairs up to which half of them are reversed. With 10,000 pairs of Tatoeba, that cost two BLEU."""
_REVERSED = 0.5
_SMOOTHING = 0.3
_OF_PEAK = 0.5
"""The part of a size's highest learning rate for a model in `start_from`. Text unlike that of the model gains
with more, text like it with less (docs/fine_tuning.md)."""


@dataclass(frozen=True)
class Size:
    """The size of a model.

    Attributes:
        encoder_layers: layers of the encoder.
        decoder_layers: layers of the decoder.
        d_model: width of the hidden states.
        d_ff: width of the feed-forward layers.
        heads: attention heads.
        peak: the highest learning rate of Muon.
        tokens: target tokens of an update.
    """

    encoder_layers: int
    decoder_layers: int
    d_model: int
    d_ff: int
    heads: int
    peak: float
    tokens: int

    @property
    def options(self) -> dict[str, Any]:
        """The options of the model."""
        names = ("encoder_layers", "decoder_layers", "d_model", "d_ff", "heads")
        return {f"model.{name}": getattr(self, name) for name in names}


SIZES = (
    Size(4, 4, 128, 256, 4, 5e-3, 2048),
    Size(6, 3, 256, 1024, 4, 3e-3, 2048),
    Size(6, 6, 512, 2048, 8, 2e-3, 4096),
)
"""The sizes that are chosen from, the smallest first. docs/recipes.md has measurements of the first two."""


@dataclass(frozen=True)
class Facts:
    """The facts of corpus and machine that a choice is made from.

    Attributes:
        pairs: training pairs.
        tokens: target tokens of an epoch.
        pieces: in the vocabulary of the target.
        joint: whether it is that of the source, too.
        speed: operations per second of all processes together in training.
        seconds: of the training; None: no limit.
        processes: on all machines.
    """

    pairs: int
    tokens: int
    pieces: int
    joint: bool
    speed: float
    seconds: float | None
    processes: int


def before_preparation(config: TrainConfig, folder: RunFolder) -> TrainConfig:
    """Returns the options with the choices of a run that can be resumed; a new run gets its micro-batches.

    Their number is that of the processes of this machine.
    """
    if config.recipe is not Recipe.auto:
        return config
    saved = folder.resumable_config()
    if saved is not None and saved.recipe is Recipe.none and "recipe" not in config.recipe_keeps:
        return replace(config, recipe=Recipe.none)  # it began when that was the default
    if saved is not None:
        return with_values(config, {key: attrgetter(key)(saved) for key in _open(config)})
    if "training.micro_batches" not in _open(config):
        return config
    many = replace(config.training, micro_batches=_MOST_PROCESSES)
    processes = wanted_processes(many, torch.cuda.device_count())
    return with_values(config, {"training.micro_batches": min(processes, _MOST_PROCESSES)})


def with_recipe(config: TrainConfig, prepared: Prepared, folder: RunFolder, started: float) -> TrainConfig:
    """Returns the options with what `recipe=auto` chooses; those of a run that can be resumed are as before.

    `started` are the seconds since the start of the session.
    """
    if config.recipe is not Recipe.auto or folder.resumable_config() is not None:
        return config
    processes = int(config.training.devices)
    speed = processes * _training_speed(config, prepared)
    minutes = config.training.budget_minutes
    facts = Facts(
        pairs=prepared.train.num_pairs,
        tokens=prepared.train.num_target_tokens + prepared.train.num_pairs,
        pieces=prepared.tokenizer.target.size,
        joint=prepared.tokenizer.joint,
        speed=speed,
        seconds=None if minutes is None else 60 * minutes - started,
        processes=processes,
    )
    choices, reasons = chosen(facts, config)
    for reason in reasons:
        log.info("recipe=auto: %s", reason)
    return _with_open(config, choices)


def _training_speed(config: TrainConfig, prepared: Prepared) -> float:
    """Returns the operations per second of one process in training, all that a training does included.

    On a CPU, passes of the first size are timed, which takes a second or two.
    """
    device = choose_device("auto")
    if device.type != "cpu":
        return _OF_CEILING * measured_ceiling(device, config.training.precision)
    plain = {"training.micro_batches": 1, "training.rdrop": 0.0, "training.simcut": 0.0}
    tie = Tie.all if prepared.tokenizer.joint else Tie.target
    small = with_values(config, {**SIZES[0].options, "model.tie": tie, **plain})
    pairs = max(1, _TIMED_TOKENS * prepared.train.num_pairs // max(1, prepared.train.num_target_tokens))
    batch = Batch.of_sides(*prepared.train.sample(pairs, config.seed))
    tries = []
    with torch.random.fork_rng([]), logged_if_slow("recipe=auto: measuring the speed"):
        model = new_model(small, prepared)
        step = TrainingStep(model.train(), small.training, Ranks(0, 1, device))
        for _ in range(4):
            start = time.perf_counter()
            step.probe(batch)
            tries.append(time.perf_counter() - start)
    weights = _num_weights(small.model, prepared.tokenizer.target.size)
    return _OF_PASSES * _OPERATIONS * weights * batch.num_target_tokens / min(tries)


def _num_weights(model: ModelConfig, pieces: int) -> int:
    """Returns the weights that a target token is multiplied with, roughly."""
    return model_class(model).num_weights(model, 0, 0) + pieces * model.d_model


def chosen(facts: Facts, config: TrainConfig) -> tuple[dict[str, Any], list[str]]:
    """Returns the choices, full name of an option → value, and the lines that explain them.

    `config` has the options that were given; they are respected where choices depend on each other.
    """
    size, updates = _size(facts, config)
    limit = _given_limit(facts, config, size)
    rdrop = config.training.rdrop
    if "training.rdrop" in _open(config):
        has_time = min(updates // 2, limit) >= _FEW_UPDATES
        is_seen_often = min(updates, limit) * size.tokens >= _MANY_EPOCHS * facts.tokens
        rdrop = _RDROP if has_time and is_seen_often and _takes_rdrop(config) else 0.0
    if rdrop:  # each update takes two passes
        updates //= 2
    most = max(1, round(_MOST_EPOCHS * facts.tokens / size.tokens))
    is_limited = min(most, limit) <= updates
    updates = max(1, int(min(updates, most, limit)))
    epochs = updates * size.tokens / facts.tokens
    dropout = next(value for highest, value in _DROPOUTS if epochs < highest)
    final = _FINAL_DROPOUT if "model.dropout" in _open(config) and dropout > _FINAL_DROPOUT else None
    is_small = facts.pairs <= _SMALL
    can_reverse = facts.joint and config.start_from is None and "data.reversed" in _open(config)
    smooths = is_small and config.training.objective.name == "label_smoothing"
    choices = {
        **size.options,
        "model.norm": Norm.pre,
        "model.tie": Tie.all if facts.joint else Tie.target,
        "model.dropout": dropout,
        "data.max_tokens": max(256, size.tokens // config.training.micro_batches),
        **_augmentation(config, facts.pairs),
        "data.reversed": _REVERSED if can_reverse and facts.pairs <= _MOST_REVERSED else 0.0,
        "training.label_smoothing": _SMOOTHING if smooths else config.training.label_smoothing,
        "training.optimizer.name": "muon",
        "training.schedule.name": "wsd",
        "training.schedule.peak": size.peak * (1 if config.start_from is None else _OF_PEAK),
        "training.schedule.warmup_updates": max(20, min(500, updates // 20)),
        "training.final_dropout": final,
        "training.rdrop": rdrop,
        "training.clip_norm": 1.0,
        **_ending(facts, config, size, updates, most, rdrop),
        "training.tune_length_penalty": "decoding.length_penalty" in _open(config),
        "decoding.beam_size": 5,
        "decoding.length_penalty": _LENGTH_PENALTY,
        "decoding.retry_loops": "auto",
    }
    return choices, _reasons(facts, config, _with_open(config, choices), epochs, is_limited)


def _ending(
    facts: Facts, config: TrainConfig, size: Size, updates: int, most: int, rdrop: float
) -> dict[str, Any]:
    """Returns the choices of the end, of validations and of checkpoints.

    `updates` are those that are expected, and `most` those of the most epochs.
    """
    if facts.seconds is None:
        every = max(200, min(2000, facts.tokens // size.tokens))
        return {
            "training.max_updates": min(most, config.training.max_updates),
            "training.validate_every": every,
            "training.checkpoint_every": every,
            "training.validate_sentences": 0,
            "training.patience": 6,
            "training.averaging.count": 3,
        }
    every = max(50, min(2000, updates // 12))
    return {
        "training.max_updates": most,
        "training.validate_every": max(every, _VALIDATION // (2 if rdrop else 1)),
        "training.checkpoint_every": every,
        "training.validate_sentences": _VALIDATED,
        "training.patience": 0,
        "training.averaging.count": 1,
    }


def _given_limit(facts: Facts, config: TrainConfig, size: Size) -> float:
    """Returns the updates after which an option that was given ends the training."""
    epochs, updates = config.training.max_epochs, math.inf
    if "training.max_updates" not in _open(config):
        updates = config.training.max_updates
    return updates if epochs is None else min(updates, epochs * facts.tokens / size.tokens)


def _reasons(
    facts: Facts, given: TrainConfig, plan: TrainConfig, epochs: float, is_limited: bool
) -> list[str]:
    """Returns the lines that explain `plan`, which has what was given and what was chosen.

    `is_limited`: a number of updates or epochs ends the training, not the time.
    """
    model, training = plan.model, plan.training
    why = "the given width"
    if given.start_from is not None:
        why = "those of start_from"
    elif "model.d_model" in _open(given):
        why = "the largest model for which corpus and time suffice"
    regularisers = f"dropout {model.dropout:g}"
    if training.final_dropout is not None:
        regularisers += f" ({training.final_dropout:g} at the end)"
    if training.rdrop:
        regularisers += f" and R-Drop {training.rdrop:g}"
    parts = [f"{regularisers} for about {epochs:,.{0 if epochs >= 10 else 1}f} epochs"]
    if plan.data.augmentation.typos:
        parts.append(f"typos in {100 * plan.data.augmentation.typos:.0f} % of the sources")
    if plan.data.reversed:
        parts.append(f"{100 * plan.data.reversed:.0f} % of the pairs reversed")
    parts.append(f"{training.optimizer.name} at {training.schedule.peak:g}")
    if facts.seconds is not None:
        parts.append(f"in {'at most ' if is_limited else ''}{training.budget}")
    elif training.patience:
        parts.append("until validation stops improving")
    if "training.max_updates" not in _open(given):
        parts.append(f"at most {training.max_updates:,} updates")
    return [
        f"{facts.pairs:,} pairs of {facts.tokens:,} target tokens; {facts.processes} "
        f"{'process' if facts.processes == 1 else 'processes'}, {facts.speed / 1e9:,.0f} GFLOP/s in training",
        f"{model.encoder_layers} + {model.decoder_layers} layers of width {model.d_model}: {why}",
        ", ".join(parts),
    ]


def _augmentation(config: TrainConfig, pairs: int) -> dict[str, float]:
    """Returns the shares of all kinds; none for few pairs.

    Nor if one is given: `capitals` and `titles` limit each other.
    """
    shares = {f"data.augmentation.{kind}": share for kind, share in _AUGMENTATION.items()}
    return shares if pairs >= _FEW_PAIRS and shares.keys() <= {*_open(config)} else {}


def _takes_rdrop(config: TrainConfig) -> bool:
    return config.training.objective.name == "label_smoothing" and not config.training.simcut


def _size(facts: Facts, config: TrainConfig) -> tuple[Size, int]:
    """Returns the size, with the batch that was given, and the updates that the time allows.

    If the width is given, batch and learning rate are those of the nearest size.
    """
    sizes: Sequence[Size] = SIZES
    if "model.d_model" not in _open(config):
        sizes = [min(SIZES, key=lambda size: abs(size.d_model - config.model.d_model))]
    if "data.max_tokens" not in _open(config) and isinstance(config.data.max_tokens, int):
        batch = config.data.max_tokens * config.training.micro_batches
        sizes = [replace(size, tokens=batch) for size in sizes]
    seconds = _HORIZON if facts.seconds is None else facts.seconds
    fitting: list[tuple[Size, int]] = []
    for size in sizes:
        model = _with_open(config, size.options).model
        weights = _num_weights(model, facts.pieces)
        updates = max(1, int(facts.speed * seconds / (_OPERATIONS * weights * size.tokens)))
        tokens = min(updates, _given_limit(facts, config, size)) * size.tokens
        in_time = tokens >= _TOKENS_A_WEIGHT * weights
        if not fitting or (in_time and facts.tokens >= _CORPUS_A_WEIGHT * weights):
            fitting.append((size, updates))
    return fitting[-1]


def _open(config: TrainConfig) -> list[str]:
    """Returns the options that the recipe chooses: those that were not given."""
    return [key for key in RECIPE_KEYS if is_open(config, key)]


def _with_open(config: TrainConfig, choices: Mapping[str, Any]) -> TrainConfig:
    """Returns the options with those of the choices that were not given."""
    keys = _open(config)
    return with_values(config, {key: value for key, value in choices.items() if key in keys})
