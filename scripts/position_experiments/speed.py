"""Speed of training with each encoding, against the sinusoidal encoding, in turns."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from statistics import median

import numpy as np
import torch

from nmt.config import ModelConfig, PositionsConfig, TrainingConfig
from nmt.config.model import ENCODINGS
from nmt.data.batches.batching import Batch
from nmt.data.batches.stream import FILLED_TO
from nmt.model import build_model
from nmt.runtime.fp32_products import speed_up_fp32_products
from nmt.runtime.machine import available_cores, set_threads
from nmt.training.processes.ranks import Ranks
from nmt.training.update.loss import training_loss
from nmt.training.update.parallel import Replicated
from nmt.training.update.training_step import NUM_COUNTERS, UpdateCheck
from position_experiments.experiment import Experiment, Place, Result

SHAPES: Mapping[str, ModelConfig] = {
    "tiny": ModelConfig(encoder_layers=4, decoder_layers=4, d_model=128, d_ff=256, heads=4),
    "base": ModelConfig(),
}
PAIRS = 9
_VOCAB_SIZE, _TOKENS, _REFERENCE = 8000, 2048, "sinusoidal"


def experiments() -> list[Experiment]:
    """Returns the experiments of the part `speed`."""
    return [
        Experiment(
            f"speed-{shape}-{encoding}",
            "speed",
            partial(_measure, shape, encoding),
            0.1 if shape == "tiny" else 0.8,
            {"shape": shape, "encoder": encoding},
            alone=True,
        )
        for shape in SHAPES
        for encoding in ENCODINGS
        if encoding != _REFERENCE
    ]


def _measure(shape: str, encoding: str, place: Place) -> Result:
    return {"ratios": ratios(shape, encoding)}


def ratios(shape: str, encoding: str, pairs: int = PAIRS, tokens: int = _TOKENS) -> list[float]:
    """Returns the speed of updates, relative to the sinusoidal encoding; one number per pair.

    Both models are in one process, and make updates of the same batches in turns.

    Args:
        shape: a key of `SHAPES`.
        encoding: the encoding of both sides.
        pairs: number of pairs; those before them, for warming up, are not counted.
        tokens: target tokens of a batch.
    """
    set_threads(available_cores())
    speed_up_fp32_products(wanted=True)
    reference, other = _updates(shape, _REFERENCE), _updates(shape, encoding)
    batches = [_sentences(tokens, seed) for seed in range(3)]
    found = []
    for number in range(-len(batches), pairs):
        batch = batches[number % len(batches)]
        # Each pair begins with the other one.
        order = (reference, other) if number % 2 else (other, reference)
        seconds = {update: _seconds(update, batch) for update in order}
        if number >= 0:
            found.append(seconds[reference] / seconds[other])
    assert len(found) == pairs and median(found) > 0
    return found


def _updates(shape: str, encoding: str) -> Callable[[Batch], None]:
    """Returns a function that makes an update of a new model."""
    torch.manual_seed(1)
    config = replace(SHAPES[shape], positions=PositionsConfig(name=encoding))
    model = build_model(config, _VOCAB_SIZE, _VOCAB_SIZE)
    parallel = Replicated(model, TrainingConfig(), Ranks(0, 1, torch.device("cpu")), NUM_COUNTERS)
    parallel.model.train()

    def update(batch: Batch) -> None:
        parallel.zero()
        model.seed_dropout(1)
        target = batch.target_out[: batch.num_target_tokens]
        losses = training_loss(model(batch), model.output_weight, target, smoothing=0.1)
        parallel.backward(losses.objective, last=True)
        tokens = torch.tensor(float(batch.num_target_tokens))
        check = UpdateCheck(parallel.sums(), losses.objective.detach(), tokens, 1.0, 0.0)
        parallel.step(1e-4, check.factor, check.finite)

    return update


def _seconds(update: Callable[[Batch], None], batch: Batch) -> float:
    begin = time.perf_counter()
    update(batch)
    return time.perf_counter() - begin


def _sentences(tokens: int, seed: int) -> Batch:
    """Returns pairs of random ids with lengths about as in WMT, sorted by length."""
    rng = np.random.default_rng(seed)
    lengths: list[int] = []
    while sum(lengths) + len(lengths) < tokens:
        lengths.append(int(np.clip(rng.lognormal(3.15, 0.55), 1, 120)))
    sides = [[rng.integers(4, _VOCAB_SIZE, n).tolist() for n in sorted(lengths)] for _ in range(2)]
    return Batch.of(*sides).filled(FILLED_TO)
