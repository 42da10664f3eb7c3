"""The CUDA branches, run on FakeTensors: they raise no error and never make the host wait for the GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from dry_gpu import device
from dry_gpu.cases import CASES

SCRIPTS = Path(__file__).parents[2] / "scripts"

pytestmark = [
    pytest.mark.slow,  # builds a stand-in device and compiles; .ci/run runs it
    pytest.mark.skipif(device.compiler() is None, reason="needs a C++ compiler for the stand-in device"),
    pytest.mark.skipif(
        torch.version.cuda is not None,
        reason="torch has CUDA: the tests marked gpu run these branches on a GPU",
    ),
]

WAITS_OF_SEARCH = {
    "flags of finished sentences": 2,  # in every fourth of eight steps
    "_to_copy at decoding/scorers.py:_penalties": 1,
}


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return device.build(tmp_path_factory.mktemp("dry-gpu"))


def run(library: Path, code: str) -> dict[str, dict[str, Any]]:
    """Runs code that prints lines of JSON, after the stand-in device is there; returns them by case."""
    program = (
        f"from pathlib import Path\nfrom dry_gpu import device\ndevice.pretend(Path({str(library)!r}))\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", program + code],
        env={**os.environ, "PYTHONPATH": str(SCRIPTS)},
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert result.returncode == 0, result.stderr
    return {record["case"]: record for record in map(json.loads, result.stdout.splitlines())}


@pytest.fixture(scope="session")
def found(library: Path) -> dict[str, dict[str, Any]]:
    """The results of all cases."""
    return run(library, "from dry_gpu import cases\ncases.report(list(cases.CASES))")


@pytest.mark.parametrize("case", CASES)
def test_a_cuda_branch_runs_without_a_host_synchronisation(
    case: str, found: dict[str, dict[str, Any]]
) -> None:
    record = found[case]
    assert "error" not in record, record["error"]
    assert record["launches"] > 100
    unexpected = dict(record["host_syncs"])
    if case.startswith("search"):
        for place, count in WAITS_OF_SEARCH.items():
            assert unexpected.pop(place, 0) <= count
    assert not unexpected


def test_the_layers_of_the_paper_are_fused(found: dict[str, dict[str, Any]]) -> None:
    # Two micro-batches of four encoder layers with two sub-layers, and four decoder layers with three.
    expected = {"bf16": 40, "fp16 on sm75": 40, "rotary": 40, "fp32": 0, "pre-norm, gelu, all dropouts": 0}
    expected |= {"bigrams and bounded logits": 40, "all of later papers": 0}
    embedded = {"bf16": 4, "fp16 on sm75": 4, "rotary": 0, "fp32": 0, "pre-norm, gelu, all dropouts": 0}
    for case, count in embedded.items():  # two micro-batches of two sides
        assert found[case]["operators"].get("embed", 0) == count, case
        assert found[case]["operators"].get("embed_backward", 0) == count, case
    for case, count in expected.items():
        assert found[case]["operators"].get("residual_norm", 0) == count, case
        assert found[case]["operators"].get("residual_norm_backward", 0) == count, case


def test_kernels_of_attention_run_where_they_are_supported(found: dict[str, dict[str, Any]]) -> None:
    # Launches in two micro-batches, with CUDA graphs in three, of four layers: self-attention of both sides,
    # and cross-attention.
    only_flash = "bf16, heads of 24, which only torch's kernel supports"
    expected = {
        "bf16": 24,
        "fp16": 24,
        "fp32": 0,
        "fp16 on sm75": 0,
        "bf16 on sm70": 0,
        "alibi": 8,
        only_flash: 0,
        "CUDA graphs": 36,
    }
    for case, count in expected.items():
        operators = found[case]["operators"]
        assert operators.get("flat_attention", 0) == count, case
        assert operators.get("flat_attention_backward", 0) == 2 * count, case
        flash = 24 if case == only_flash else 0
        assert operators.get("_flash_attention_forward", 0) == flash, case
        assert operators.get("_flash_attention_backward", 0) == 3 * flash, case


def test_kernels_that_no_gpu_has_measured_run_on_request(found: dict[str, dict[str, Any]]) -> None:
    # Two micro-batches of four encoder and four decoder layers.
    for case, count in {"bf16": 0, "unmeasured kernels": 16}.items():
        operators = found[case]["operators"]
        assert operators.get("relu_product", 0) == count, case
        assert operators.get("relu_backward_", 0) == 16 - count, case
    with_sums, without = (found[case]["operators"] for case in ("unmeasured kernels", "bf16"))
    assert sum(with_sums.values()) < sum(without.values())


def test_several_processes_exchange_all_gradients_without_waiting(found: dict[str, dict[str, Any]]) -> None:
    assert found["bf16"]["operators"].get("allreduce_", 0) == 0
    for case in (
        *("two processes", "two processes exchange gradients in bf16", "two processes with CUDA graphs"),
    ):
        assert found[case]["operators"]["allreduce_"] == 2, case  # the gradients in one bucket, the extras


BREAKS = {
    "the host reads a value before the step": (
        """
from nmt.training.update.parallel import Replicated
step = Replicated.step
def reads(self, rate, factor, finite):
    if finite.item():
        step(self, rate, factor, finite)
Replicated.step = reads
""",
        "_local_scalar_dense",
    ),
    "a tensor that stays on the host": (
        """
from nmt.data.batches.batching import Batch
to = Batch.to
def forgets(self, device, non_blocking=False):
    import dataclasses
    moved = to(self, device, non_blocking)
    return dataclasses.replace(moved, target_out=self.target_out)
Batch.to = forgets
""",
        "device",
    ),
    "attention loses a token": (
        """
from nmt.model.gpu.triton_attention import TritonAttention
attend = TritonAttention.attend
TritonAttention.attend = lambda self, q, *rest, **options: attend(self, q[1:], *rest, **options)
""",
        "shape",
    ),
}


@pytest.mark.parametrize("what", BREAKS)
def test_the_dry_run_finds_a_broken_branch(what: str, library: Path) -> None:
    code, word = BREAKS[what]
    record = run(library, f"{code}\nfrom dry_gpu import cases\ncases.report(['bf16'])")["bf16"]
    assert word in record.get("error", ""), record


def test_a_blocking_copy_is_counted(library: Path) -> None:
    code = """
from nmt.data.batches.batching import Batch
to = Batch.to
Batch.to = lambda self, device, non_blocking=False: to(self, device)
from dry_gpu import cases
cases.report(['bf16, one micro-batch'])
"""
    record = run(library, code)["bf16, one micro-batch"]
    assert sum(record["host_syncs"].values()) == 1  # a batch in page-locked memory is one copy


@pytest.mark.parametrize("broken", [False, True])
def test_a_cuda_graph_of_one_batch_is_right_for_another(broken: bool, library: Path) -> None:
    breaks = """
from nmt.training.update.training_step import TrainingStep
passes = TrainingStep._passes
def counts(self, batch, last):
    passes(self, batch, last=last)
    self.counters.tokens.add_(batch.num_target_tokens)
TrainingStep._passes = counts
"""
    code = """
import json
from dry_gpu import workloads
with device.fake_tensors():
    config = workloads.train_config("model=tiny", "training.precision=bf16", "training.cuda_graphs=true")
    update = workloads.Update.of(config, 500)
    batches = [workloads.sentences(tokens, 500, seed=tokens) for tokens in (1500, 1900)]
    padded = [batch.padded((2048, 2048)) for batch in batches]
    calls = [workloads.recorded_calls(update, one, seed) for seed, one in enumerate([padded[0], *padded])]
assert padded[0].shape == padded[1].shape and padded[0].num_sentences != padded[1].num_sentences
different = [pair for pair in zip(calls[1], calls[2]) if pair[0] != pair[1]]
print(json.dumps({"case": "calls", "count": len(calls[1]), "same_count": len(calls[1]) == len(calls[2]),
                  "different": different[:3]}))
"""
    record = run(library, (breaks if broken else "") + code)["calls"]
    assert record["count"] > 300 and record["same_count"]
    assert bool(record["different"]) == broken, record["different"]
