"""Tensors are freed when they are no longer referred to, without Python's garbage collector.

An object that refers to itself retains its tensors until the collector runs, perhaps many steps later. A
search then needs several times its memory.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch
from test_transformer import PAIRS, TINY, batch_of

from nmt.config import ModelConfig, PositionsConfig
from nmt.model import POSITIONS, build_model

EVEN = replace(TINY, d_model=12, heads=3)
CONFIGS = {
    **{name: replace(EVEN, positions=PositionsConfig(name)) for name in POSITIONS},
    "later papers": replace(EVEN, value_skip=True, embedding_skip=True, bigram_rows=9, query_key_norm=True),
    "additive": replace(EVEN, attention="additive"),
    "window": replace(EVEN, attention_window=2),
    **{
        f"rnn {attention}": replace(TINY, architecture="rnn_attention", options={"attention": attention})
        for attention in ("bahdanau", "luong")
    },
}


@contextmanager
def without_tensors_in_cycles() -> Iterator[None]:
    """Fails if the garbage collector finds tensors that the block created."""
    gc.disable()
    gc.freeze()  # the collector looks at objects of the block alone
    flags = gc.get_debug()
    try:
        yield
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        found = [tuple(one.shape) for one in gc.garbage if isinstance(one, torch.Tensor)]
    finally:
        gc.set_debug(flags)
        gc.garbage.clear()
        gc.enable()
    assert not found, f"shapes of tensors in cycles: {found}"


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
@pytest.mark.parametrize("recorded", [False, True])
def test_a_search_frees_the_states_it_has_used(config: ModelConfig, recorded: bool) -> None:
    model = build_model(config, 10, 10).eval()
    batch = batch_of(PAIRS)
    with without_tensors_in_cycles(), torch.no_grad():
        state = model.start(batch)
        for _ in range(3):
            ids = torch.ones(len(PAIRS), 1, dtype=torch.int64)
            if recorded:
                _, state, _ = model.step_with_heads(ids, state)
            else:
                _, state = model.step(ids, state)
            state = state.select(torch.arange(len(PAIRS))[:, None])
        del state


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_training_frees_what_it_has_computed(config: ModelConfig) -> None:
    model = build_model(config, 10, 10).train()
    with without_tensors_in_cycles():
        batch = batch_of(PAIRS)
        model(batch).square().mean().backward()
        del batch
