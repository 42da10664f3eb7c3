"""Training on a GPU: bf16 near fp32, bit-identical resuming, no host synchronisation, two GPUs like one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import Toy
from toy import toy_config

from nmt.bundle import read_config, read_weights
from nmt.config import ModelConfig, OptimizerConfig, Precision, Sharding, TrainingConfig
from nmt.data.preparation.prepare import prepare
from nmt.model.transformer import Transformer
from nmt.training.processes.ranks import Ranks
from nmt.training.run import train
from nmt.training.state.progress import Progress
from nmt.training.state.run_folder import RunFolder
from nmt.training.trainer import Trainer, open_stream
from nmt.training.update.parallel import Replicated
from nmt.training.update.training_step import UpdateCheck

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
GPU = torch.device("cuda", 0)


def losses(data: Path, run: Path, precision: Precision) -> list[float]:
    """Returns the losses of twenty updates."""
    options: dict[str, Any] = {
        "max_updates": 20,
        "validate_every": 20,
        "checkpoint_every": 20,
        "log_every": 1,
    }
    train(toy_config(data, run, dropout=0.0, precision=precision, **options))
    records = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return [record["loss"] for record in records if record["kind"] == "train"]


def test_twenty_updates_in_bf16_are_near_those_in_fp32(data: Path, tmp_path: Path) -> None:
    exact, rounded = (losses(data, tmp_path / p.value, p) for p in (Precision.fp32, Precision.bf16))
    assert len(exact) == 20 and exact[-1] < exact[0]
    assert rounded == pytest.approx(exact, rel=0.05)


@pytest.mark.parametrize("option", ["training.deterministic=true", "training.cuda_graphs=true"])
def test_a_run_stopped_and_started_again_is_the_same_bit_for_bit(
    option: str, toy: Toy, tmp_path: Path
) -> None:
    options = ["training.precision=bf16", option, "training.devices=1"]
    for run, ends in (("whole", [12]), ("again", [6, 12])):
        for updates in ends:
            where = [f"run_dir={tmp_path / run}", f"training.max_updates={updates}"]
            result = toy.done("nmt-train", *toy.small(*where, *options), fresh=True)
            assert b"can't record" not in result.stderr, result.stderr.decode()
    for name in ("model", "optimizer"):
        whole, again = (
            (tmp_path / run / f"checkpoints/update-00000012/{name}.safetensors").read_bytes()
            for run in ("whole", "again")
        )
        assert whole == again, name


def test_an_overflow_of_fp16_is_skipped(data: Path, tmp_path: Path) -> None:
    config = toy_config(data, tmp_path, precision=Precision.fp16, max_updates=3)
    trainer = Trainer(config, prepare(config.data), RunFolder(tmp_path), Ranks.join(0, 1, 0, GPU), bool)
    trainer.progress.loss_scale = 2.0**50  # a checkpoint holds 2**53 at most
    before = {name: weight.clone() for name, weight in trainer.model.state_dict().items()}
    assert trainer.train()
    progress = trainer.progress
    assert (progress.update, progress.skipped_updates, progress.loss_scale) == (3, 3, 2.0**47)
    for name, weight in trainer.model.state_dict().items():
        assert torch.equal(weight, before[name]), name
    assert not any(tensor.any() for tensor in trainer.parallel.state(optimizer=True)[1].values())


def test_batches_come_in_page_locked_memory(data: Path, tmp_path: Path) -> None:
    config = toy_config(data, tmp_path)
    stream = open_stream(config, prepare(config.data), Progress(), Ranks.join(0, 1, 0, GPU))
    batch, _ = next(stream)
    stream.close()
    assert batch is not None
    for name in ("source_ids", "target_in", "target_out"):
        here = getattr(batch, name)
        assert here.is_pinned()
        there = getattr(batch.to(GPU, non_blocking=True), name)
        torch.cuda.synchronize()
        assert there.is_cuda and torch.equal(there.cpu(), here)
    assert batch.target.cu_seqlens.is_pinned() and batch.target.positions.is_pinned()


def weights_after(data: Path, run: Path, *, graphs: bool, **options: Any) -> tuple[dict[str, Any], int]:
    """Returns the weights after a training with `training.cuda_graphs`, and the number of graphs.

    Without `graphs` all passes run as the first of their shape do, without a graph.
    """
    options = {"max_updates": 30, "validate_every": 10, "checkpoint_every": 100, "ema": 0.9, **options}
    config = toy_config(data, run, precision=Precision.bf16, cuda_graphs=True, **options)
    trainer = Trainer(config, prepare(config.data), RunFolder(run), Ranks.join(0, 1, 0, GPU), bool)
    captured = trainer.training_step.captured
    assert captured is not None
    if not graphs:
        captured._most = 0
    assert trainer.train()
    state, tensors = trainer.parallel.state(optimizer=True)
    return {name: tensor.cpu() for name, tensor in {**state, **tensors}.items()}, captured.num_graphs


@pytest.mark.parametrize("micro_batches", [1, 3])
def test_cuda_graphs_give_the_same_weights_bit_for_bit(
    micro_batches: int, data: Path, tmp_path: Path
) -> None:
    (with_graphs, count), (without, none) = (
        weights_after(data, tmp_path / f"{graphs}", graphs=graphs, micro_batches=micro_batches)
        for graphs in (True, False)
    )
    assert count > 0 and none == 0
    assert with_graphs.keys() == without.keys()
    for name, tensor in with_graphs.items():
        assert torch.equal(tensor, without[name]), name


def test_cuda_graphs_learn_as_well(data: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "max_updates": 60,
        "validate_every": 60,
        "checkpoint_every": 60,
        "log_every": 1,
    }
    found = []
    for graphs in (True, False):
        run = tmp_path / f"{graphs}"
        train(toy_config(data, run, dropout=0.0, precision=Precision.bf16, cuda_graphs=graphs, **options))
        records = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
        found.append([record["loss"] for record in records if record["kind"] == "train"])
    assert len(found[0]) == 60 and found[0][-1] < found[0][0]
    assert found[0] == pytest.approx(found[1], rel=0.02)


@pytest.mark.parametrize("finite", [True, False])
def test_a_step_is_asked_for_without_waiting_and_is_that_of_the_cpu(finite: bool) -> None:
    shape = ModelConfig(encoder_layers=1, decoder_layers=1, d_model=16, d_ff=32, heads=2)
    weights = []
    for device in (torch.device("cpu"), GPU):
        torch.manual_seed(1)
        parallel = Replicated(Transformer(shape, 11, 11), TrainingConfig(), Ranks(0, 1, device), num_extras=2)
        parallel.gradients.gradients.fill_(0.5)
        parallel.extras.fill_(2.0 if finite else float("nan"))
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        try:
            sums = parallel.sums()
            check = UpdateCheck(sums, sums[0], sums[1], 1.0, 1.0)
            parallel.step(0.01, check.factor, check.finite)
        finally:
            torch.cuda.set_sync_debug_mode("default")
        assert check.read()[2] == finite
        state, tensors = parallel.state(optimizer=True)
        weights.append({name: tensor.detach().cpu() for name, tensor in {**state, **tensors}.items()})
    assert weights[0]["step"].item() == finite
    torch.testing.assert_close(weights[1], weights[0], rtol=1e-5, atol=1e-6)


def test_an_update_that_fits_is_one_micro_batch(data: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {"micro_batches": 4, "max_tokens": 128, "fit_micro_batches": True}
    train(toy_config(data, tmp_path / "run", max_updates=2, **options))
    found = read_config(tmp_path / "run/config.yaml")
    assert (found.data.max_tokens, found.training.micro_batches) == (512, 1)


def test_an_update_waits_for_nothing_but_its_verdict(data: Path, tmp_path: Path) -> None:
    asked: list[int] = []

    def stop() -> bool:  # called in every update, after its batches and before its step
        asked.append(trainer.progress.made)
        torch.cuda.set_sync_debug_mode("error" if asked[-1] in (3, 4) else "default")
        return False

    # Validation follows the last update only: it synchronises, and calls stop as well.
    options: dict[str, Any] = {"max_updates": 6, "validate_every": 100, "checkpoint_every": 100}
    config = toy_config(data, tmp_path, precision=Precision.bf16, **options)
    trainer = Trainer(config, prepare(config.data), RunFolder(tmp_path), Ranks.join(0, 1, 0, GPU), stop)
    try:
        trainer.train()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert asked[:6] == [0, 1, 2, 3, 4, 5] and trainer.progress.made == 6


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
@pytest.mark.parametrize("sharding", list(Sharding))
def test_two_gpus_do_as_one(sharding: Sharding, data: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {"micro_batches": 2, "max_updates": 10, "sharding": sharding}
    options["optimizer"] = OptimizerConfig(epsilon=1e-5)  # more than the rounding noise of a gradient
    for devices in ("1", "2"):
        train(toy_config(data, tmp_path / devices, devices=devices, **options))
    one, two = (read_weights(tmp_path / run / "model/model.safetensors") for run in ("1", "2"))
    for name, weight in one.items():
        assert (weight - two[name]).abs().max() <= 1e-3, name
