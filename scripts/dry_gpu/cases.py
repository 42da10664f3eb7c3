"""Every CUDA branch of training and search, run on FakeTensors: the cases of the dry run.

    python -m dry_gpu.cases LIBRARY [CASE ...]          prints one line of JSON a case

LIBRARY is the stand-in device; see `device.build`. The errors of a case are in its line.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dry_gpu import device

VOCAB_SIZE = 500
_ALL_KERNELS = "training.unmeasured_kernels=[relu_product,attention_biases,loss_rows,adam_divisor]"
_LATER = (
    *("model.norm_kind=rms", "model.activation=silu", "model.gated=true", "model.query_key_norm=true"),
    *("model.zero_init=true", "model.value_skip=true", "model.embedding_skip=true", "model.bigram_rows=99"),
    "model.logit_cap=9",
)


def update(
    *options: str,
    capability: tuple[int, int] = (9, 0),
    tokens: int = 1500,
    micro_batches: int = 2,
) -> Callable[[], Mapping[str, Any]]:
    """Returns a case: an update with these options of nmt-train."""

    def run() -> Mapping[str, Any]:
        from dry_gpu import workloads
        from dry_gpu.costs import declared_costs
        from dry_gpu.ledger import Ledger

        device.capability = capability
        config = workloads.train_config("model=tiny", *options)
        batch = workloads.sentences(tokens, VOCAB_SIZE)
        ledger = Ledger((), declared_costs(batch))
        workloads.Update.of(config, VOCAB_SIZE).run(batch, micro_batches, ledger)
        return _figures(ledger)

    return run


def exchange(*options: str) -> Callable[[], Mapping[str, Any]]:
    """Returns a case: an update of the first of two processes, with three micro-batches of all."""

    def run() -> Mapping[str, Any]:
        import torch.distributed as dist
        from torch.testing._internal.distributed.fake_pg import FakeStore

        from dry_gpu import workloads
        from dry_gpu.costs import declared_costs
        from dry_gpu.ledger import Ledger

        device.capability = (9, 0)
        config = workloads.train_config("model=tiny", "training.micro_batches=3", *options)
        batch = workloads.sentences(1500, VOCAB_SIZE)
        ledger = Ledger((), declared_costs(batch))
        dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
        try:
            workloads.Update.of(config, VOCAB_SIZE, processes=2).run(batch, 2, ledger)
        finally:
            dist.destroy_process_group()
        return _figures(ledger)

    return run


def search(*options: str, precision: str = "fp32") -> Callable[[], Mapping[str, Any]]:
    """Returns a case: eight steps of a search."""

    def run() -> Mapping[str, Any]:
        import torch

        from dry_gpu import workloads
        from dry_gpu.ledger import Ledger

        device.capability = (9, 0)
        model = workloads.train_config("model=tiny", *options).model
        dtype = None if precision == "fp32" else getattr(torch, precision)
        _, steps = workloads.search(model, VOCAB_SIZE, dtype, lambda: Ledger(()), steps=8)
        return _figures(steps)

    return run


CASES: Mapping[str, Callable[[], Mapping[str, Any]]] = {
    "fp32": update("training.precision=fp32"),
    "bf16": update("training.precision=bf16"),
    "bf16, one micro-batch": update("training.precision=bf16", micro_batches=1),
    "bf16, 16 bits between sub-layers": update("training.precision=bf16", "training.half_residual=true"),
    "fp16, 16 bits between sub-layers, pre-norm": update(
        *("training.precision=fp16", "training.half_residual=true", "model.norm=pre")
    ),
    "CUDA graphs": update("training.precision=bf16", "training.cuda_graphs=true", micro_batches=3),
    "bf16, one sentence": update("training.precision=bf16", tokens=40),
    "bf16 on sm70": update("training.precision=bf16", capability=(7, 0)),
    "bf16, heads of 12, which flash attention does not support": update(
        "training.precision=bf16", "model.d_model=48"
    ),
    "bf16, heads of 24, which only torch's kernel supports": update(
        "training.precision=bf16", "model.d_model=96"
    ),
    "fp16": update("training.precision=fp16", "training.clip_norm=1"),
    "fp16 on sm75": update("training.precision=fp16", capability=(7, 5)),
    "R-Drop": update("training.precision=bf16", "training.rdrop=5"),
    "R-Drop in fp16": update("training.precision=fp16", "training.rdrop=5"),
    "SimCut": update("training.precision=bf16", "training.simcut=3"),
    "pre-norm, gelu, all dropouts": update(
        *("training.precision=bf16", "model.norm=pre", "model.activation=gelu"),
        *("model.ffn_dropout=0.1", "model.word_dropout=0.1"),
    ),
    "bigrams and bounded logits": update(
        *("training.precision=bf16", "model.bigram_rows=99", "model.logit_cap=9")
    ),
    "all of later papers": update(*("training.precision=bf16", "training.half_residual=true", *_LATER)),
    "AdamW, clipping, EMA": update(
        *("training.precision=bf16", "training.clip_norm=1", "training.ema=0.999"),
        *("training.optimizer.name=adamw", "training.optimizer.weight_decay=0.1"),
    ),
    "two processes": exchange("training.precision=bf16"),
    "two processes exchange gradients in bf16": exchange(
        *("training.precision=bf16", "training.gradient_exchange=bf16")
    ),
    "two processes with CUDA graphs": exchange("training.precision=bf16", "training.cuda_graphs=true"),
    "unmeasured kernels": update("training.precision=bf16", _ALL_KERNELS),
    "unmeasured kernels, R-Drop in fp16": update("training.precision=fp16", "training.rdrop=5", _ALL_KERNELS),
    "unmeasured kernels, two processes with CUDA graphs": exchange(
        *("training.precision=bf16", "training.cuda_graphs=true", _ALL_KERNELS)
    ),
    "no label smoothing": update("training.precision=bf16", "training.label_smoothing=0"),
    "two matrices of embeddings": update("training.precision=bf16", "model.tie=none"),
    "rotary": update("training.precision=bf16", "model/positions=rotary"),
    "alibi": update("training.precision=bf16", "model/positions=alibi"),
    "relative": update("training.precision=bf16", "model/positions=relative"),
    "t5": update("training.precision=bf16", "model/positions=t5"),
    "learned": update("training.precision=bf16", "model/positions=learned"),
    "a window": update("training.precision=bf16", "model.attention_window=4"),
    "additive attention": update("training.precision=bf16", "model.attention=additive"),
    "narrow keys": update("training.precision=bf16", "model.key_width=8"),
    "narrow heads": update("training.precision=bf16", "model.key_width=16", "model.value_width=16"),
    "search in fp32": search(),
    "search in bf16": search(precision="bfloat16"),
    "search with rotary": search("model/positions=rotary"),
    "search with relative": search("model/positions=relative"),
    "search with all of later papers": search(*_LATER, precision="bfloat16"),
    "search with narrow keys": search("model.key_width=8"),
}
"""name → a function that runs it and returns figures."""


def report(names: Sequence[str]) -> None:
    """Runs cases and prints one line of JSON each: the name, and figures or the error."""
    for name in names:
        try:
            with device.fake_tensors():
                found = CASES[name]()
        except Exception:
            found = {"error": traceback.format_exc()}
        print(json.dumps({"case": name, **found}), flush=True)


def _figures(ledger: Any) -> dict[str, Any]:
    return {
        "launches": ledger.total.launches,
        "operators": {name: row.launches for name, row in ledger.operators.items()},
        "host_syncs": dict(ledger.host_syncs),
    }


if __name__ == "__main__":
    device.pretend(Path(sys.argv[1]))
    report(sys.argv[2:] or list(CASES))
