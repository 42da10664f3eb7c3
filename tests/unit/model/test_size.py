"""The count of operations, against a sum by hand and torch's counter."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from nmt.config import Activation, ModelConfig, Norm, NormKind, Tie
from nmt.data.batches.batching import Batch
from nmt.model.size import num_weights, training_flops
from nmt.model.transformer import Transformer


def test_literal_count() -> None:
    config = ModelConfig(encoder_layers=1, decoder_layers=1, d_model=2, d_ff=3, heads=1)
    batch = Batch.of([[4], [4, 4]], [[], [4]])  # 2 + 3 source tokens, 1 + 2 target tokens
    encoder = 2 * 5 * (16 + 12) + 8 * (4 + 9)
    decoder = 2 * 3 * (24 + 12) + 2 * 5 * 8 + 8 * (1 + 4 + 1 * 2 + 2 * 3)
    softmax = 2 * 3 * 2 * 5
    assert (encoder, decoder, softmax) == (384, 400, 60)
    assert training_flops(config, 5, batch) == 3 * 844
    assert training_flops(config, 5, batch.twice()) == 6 * 844


@pytest.mark.parametrize(
    "options",
    [
        *({"norm": norm, "tie": tie} for norm in Norm for tie in Tie),
        *({"key_width": 4, "value_width": 7, "norm": norm} for norm in Norm),
        {"norm_kind": NormKind.rms, "norm": Norm.pre},
        {"query_key_norm": True, "key_width": 5},
        {"value_skip": True, "embedding_skip": True},
        {"bigram_rows": 30},
        {"gated": True, "activation": Activation.silu},
    ],
    ids=str,
)
def test_torch_counts_the_same_where_nothing_is_padded(options: dict[str, Any]) -> None:
    config = replace(ModelConfig(2, 3, 16, 24, 2, dropout=0.1), **options)
    model = Transformer(config, 40, 40).train()
    assert num_weights(config, 40, 40) == model.num_parameters
    batch = Batch.of([[5, 6, 7, 8]] * 6, [[9, 10]] * 6)
    with FlopCounterMode(display=False) as counter:
        model.logits(model(batch)).sum().backward()
    assert counter.get_total_flops() == training_flops(config, 40, batch)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model.logits(model(batch))
    assert 3 * counter.get_total_flops() == training_flops(config, 40, batch)
