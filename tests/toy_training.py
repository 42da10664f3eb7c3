"""A tiny model, and the gradients of two micro-batches, for tests of training and of backends."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from nmt.config import ModelConfig
from nmt.data.batches.batching import Batch
from nmt.model import Seq2Seq, build_model
from nmt.model.gpu.half_weights import HalfWeights
from nmt.runtime.seeds import mix
from nmt.training.processes.ranks import Ranks
from nmt.training.update.gradients import FlatGradients
from nmt.training.update.loss import training_loss
from nmt.training.update.parallel import BucketedExchange, Parallel

ALONE = Ranks(0, 1, torch.device("cpu"))
BATCHES = [Batch.of([[4, 5], [6]], [[5], [4, 6]]), Batch.of([[7, 8, 9]], [[9, 8, 7]])]
SHAPE = {"encoder_layers": 2, "decoder_layers": 2, "d_model": 16, "d_ff": 32, "heads": 2, "dropout": 0.1}


def tiny_model(**changes: Any) -> Seq2Seq:
    """Builds a model in training mode, always with the same weights."""
    torch.manual_seed(1)
    return build_model(ModelConfig(**{**SHAPE, **changes}), 11, 11).train()


def loss_of(model: Seq2Seq, place: int, update: int = 0, dtype: torch.dtype | None = None) -> Tensor:
    """Computes the objective of a micro-batch; under autocast if a number format is given."""
    batch = BATCHES[place]
    model.seed_dropout(mix(update, place))
    with torch.autocast("cpu", dtype, enabled=dtype is not None):
        hidden = model(batch)
    weight, bias = model.output_weight, model.output_bias
    return training_loss(hidden, weight, batch.target_out, bias, smoothing=0.1, dtype=dtype).objective


def accumulate(parallel: Parallel, update: int = 0) -> None:
    """Adds the gradients of both micro-batches."""
    parallel.zero()
    for place, batch in enumerate(BATCHES):
        parallel.backward(loss_of(parallel.model, place, update), last=place + 1 == len(BATCHES))
        parallel.extras[0] += batch.num_target_tokens


def gradients_in_bf16(
    model: Seq2Seq,
    flat: FlatGradients,
    half: HalfWeights | None = None,
    exchange: BucketedExchange | None = None,
) -> Tensor:
    """Sums the gradients of both micro-batches, with copies of the weights and in buckets if given."""
    flat.zero()
    if half is not None:
        half.begin()
    for place in range(len(BATCHES)):
        loss = loss_of(model, place, dtype=torch.bfloat16)
        if exchange is not None and place + 1 == len(BATCHES):
            exchange.backward(loss)
            exchange.finish()
        else:
            loss.backward()
            if half is not None:
                half.add_gradients()
    if half is not None:
        half.end()
    return flat.gradients.clone()
