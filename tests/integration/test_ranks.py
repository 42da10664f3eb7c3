"""Several processes: the same arithmetic as one process, a common stop, each failure reported once."""

from __future__ import annotations

import json
import os
import shutil
import signal
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from toy import LATER, toy_config, write_toy

from nmt.bundle import read_weights
from nmt.config import (
    Exchange,
    OptimizerConfig,
    ScheduleConfig,
    SetConfig,
    Sharding,
    SplitConfig,
    TrainConfig,
)
from nmt.config.storage import from_yaml, to_yaml
from nmt.data.batches.batching import Batch
from nmt.data.batches.stream import Cursor
from nmt.data.preparation.prepare import prepare
from nmt.errors import UserError
from nmt.runtime import machine
from nmt.training.batch_size import require_room
from nmt.training.processes.launcher import (
    launch,
    log_idle_gpus,
    num_processes,
    require_work,
    warn_of_crowded_cores,
)
from nmt.training.processes.ranks import Ranks
from nmt.training.processes.stopping import StopRequest
from nmt.training.run import run_launched, train
from nmt.training.state.run_folder import RunFolder
from nmt.training.trainer import Trainer
from nmt.training.update import parallel
from nmt.training.update.optimizer.shards import gathered, local
from nmt.training.update.parallel import BucketedExchange
from nmt.training.update.training_step import Counters

STEADY = OptimizerConfig(epsilon=1e-5)
"""An epsilon above the rounding noise of a gradient, which Adam would otherwise amplify to full steps."""
FALLING = {
    "schedule": ScheduleConfig(name="wsd", peak=3e-3, warmup_updates=2, decay_share=0.4),
    "final_dropout": 0.3,
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_toy(tmp_path_factory.mktemp("data"), train=600, held_out=8)


def first_gradient(config_text: str) -> bool:
    """The work of a process: one update; rank 0 saves its sums and its mean gradient."""
    config = from_yaml(TrainConfig, config_text, "test")
    torch.set_num_threads(1)
    rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    ranks = Ranks.join(rank, world, rank, torch.device("cpu"))
    folder = Path(config.run_dir)

    class OneUpdate(Trainer):
        def _log_update(self, totals: Counters[float], norm: float, spent: float) -> None:
            gradients = [p.grad for p in self.model.parameters()]
            gradient = torch.cat([gathered(local(g), g).flatten() for g in gradients])
            if self.ranks.is_main:
                sums = torch.tensor([*totals._replace(seconds=0.0), norm])
                found = {"sums": sums, "gradient": gradient}
                save_file(found, folder / "found.safetensors")

    folder.mkdir(exist_ok=True)
    OneUpdate(config, prepare(config.data), RunFolder(folder), ranks, bool).train()
    ranks.leave()
    return True


@pytest.mark.slow
@pytest.mark.parametrize("sharding", list(Sharding))
@pytest.mark.parametrize("micro_batches", [2, 3])
def test_first_gradient_equals_that_of_one_process(
    micro_batches: int, sharding: Sharding, data: Path, tmp_path: Path
) -> None:
    found = []
    for processes in (1, 2):
        run = tmp_path / str(processes)
        config = toy_config(data, run, micro_batches=micro_batches, max_updates=1, sharding=sharding)
        if processes == 1:
            first_gradient(to_yaml(config))
        else:
            assert launch(first_gradient, to_yaml(config), processes, StopRequest())
        found.append(read_weights(run / "found.safetensors"))
    one, two = (each["gradient"].double() for each in found)
    assert one.norm() > 0
    assert (one - two).norm() <= 1e-6 * one.norm()
    torch.testing.assert_close(found[1]["sums"], found[0]["sums"], rtol=1e-6, atol=0)


@pytest.mark.slow
@pytest.mark.parametrize("sharding", list(Sharding))
def test_fifty_updates_end_in_the_weights_of_one_process(
    sharding: Sharding, data: Path, tmp_path: Path
) -> None:
    runs = []
    for processes in (1, 2):
        run = tmp_path / str(processes)
        options: dict[str, Any] = {
            "micro_batches": 3,
            "max_updates": 50,
            "validate_every": 25,
            "checkpoint_every": 25,
            # No clipping: with it, at this seed, rounding changes the sign of an input of a ReLU, and the
            # weights of one unit differ by more than 1e-5.
            "optimizer": STEADY,
            "sharding": sharding,
            "onednn_fp32": False,  # its rounding depends on the number of threads: a difference of 1.3e-5
        }
        train(toy_config(data, run, devices=str(processes), dropout=0.2, max_tokens=256, **options))
        runs.append(read_weights(run / "checkpoints/update-00000050/model.safetensors"))
        said = (run / "train.log").read_text()
        assert said.count(" INFO training: transformer, ") == said.count(" INFO update 10: ") == 1
    one, two = runs
    for name, weight in one.items():
        assert (weight - two[name]).abs().max() <= 1e-5, name


@pytest.mark.slow
@pytest.mark.parametrize(
    ("first", "then", "options"),
    [("2", "1", {"rdrop": 1.0, "ema": 0.9}), ("1", "2", {"simcut": 1.0, "consistency_from": 4, **FALLING})],
)
def test_a_run_goes_on_with_another_number_of_processes(
    first: str, then: str, options: dict[str, Any], data: Path, tmp_path: Path
) -> None:
    options = {"micro_batches": 2, "max_tokens": 256, **options}
    train(toy_config(data, tmp_path / "run", devices=first, max_updates=6, **options))
    text = train(toy_config(data, tmp_path / "run", devices=then, max_updates=12, **options))
    assert "12 updates" in text
    train(toy_config(data, tmp_path / "one", devices="1", max_updates=12, **options))
    a, b = (
        read_weights(tmp_path / run / "checkpoints/update-00000012/model.safetensors")
        for run in ("run", "one")
    )
    assert all((a[name] - b[name]).abs().max() < 1e-3 for name in a)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("optimizer", "model"),
    [(STEADY, {}), (replace(STEADY, name="muon"), {}), (replace(STEADY, name="muon"), LATER)],
    ids=["adam", "muon", "muon, later papers"],
)
def test_a_run_changes_between_whole_and_sharded(
    optimizer: OptimizerConfig, model: dict[str, Any], data: Path, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"micro_batches": 2, "checkpoint_every": 5, "optimizer": optimizer}
    for max_updates, sharding in ((5, Sharding.full), (10, Sharding.none), (15, Sharding.full)):
        config = toy_config(
            data, tmp_path / "run", devices="2", max_updates=max_updates, sharding=sharding, **options
        )
        config.model = replace(config.model, **model)
        assert f"{max_updates} updates" in train(config)
    config = toy_config(data, tmp_path / "one", max_updates=15, **options)
    config.model = replace(config.model, **model)
    train(config)
    for file in ("model", "optimizer"):
        a, b = (
            read_weights(tmp_path / run / f"checkpoints/update-00000015/{file}.safetensors")
            for run in ("run", "one")
        )
        assert a.keys() == b.keys()
        assert all((a[name] - b[name]).abs().max() <= 1e-5 for name in a)


@pytest.mark.slow
def test_final_model_and_scores_do_not_depend_on_the_number_of_ranks(tmp_path: Path) -> None:
    """Also of lines with variables, which no training line has: they are placed by links."""
    data = write_toy(tmp_path / "data", train=300, held_out=75)
    for file in (data / "test.src", data / "test.tgt"):
        file.write_text("".join(f"{line} {{n}} de\n" for line in file.read_text().splitlines()))

    def config(devices: str) -> TrainConfig:
        config = toy_config(data, tmp_path / devices, devices=devices, micro_batches=4, max_tokens=128)
        config.decoding.max_sentences = 8
        text = {"source": config.data.valid.source, "target": config.data.valid.target}
        other = {"source": config.data.test.source, "target": config.data.test.target}
        config.data.valid = SplitConfig(sets={"a": SetConfig(**text), "b": SetConfig(**other)})
        return config

    train(config("1"))
    results = json.loads((tmp_path / "1/results.json").read_text())
    for devices in ("2", "4"):
        shutil.copytree(tmp_path / "1", tmp_path / devices)
        shutil.rmtree(tmp_path / devices / "model")  # so that the final model is chosen and tested again
        train(config(devices))
        again = json.loads((tmp_path / devices / "results.json").read_text())
        assert all(again[split] == results[split] for split in ("valid", "test", "alignment"))
        assert again["training"]["candidates"] == results["training"]["candidates"]
        files = ("valid.a.hypotheses.txt", "valid.b.hypotheses.txt", "test.hypotheses.txt")
        assert (tmp_path / devices / files[-1]).read_text().count("{n}") == 75
        for name in (*files, "model/model.safetensors"):
            assert (tmp_path / devices / name).read_bytes() == (tmp_path / "1" / name).read_bytes()


def test_processes_and_micro_batches() -> None:
    def options(devices: str, micro_batches: int) -> TrainConfig:
        return toy_config(Path("x"), Path("y"), devices=devices, micro_batches=micro_batches)

    assert num_processes(options("auto", 1).training) == 1
    assert num_processes(options("1", 8).training) == 1
    assert num_processes(options("3", 3).training) == 3
    with pytest.raises(UserError, match=r"data.max_tokens=2048 training.micro_batches=2"):
        require_work(options("2", 1).training, 4096, 2)
    require_work(options("2", 3).training, 4096, 2)


def pretend_gpus(monkeypatch: pytest.MonkeyPatch, gpus: int) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)


@pytest.mark.parametrize(("gpus", "micro_batches", "idle"), [(8, 4, True), (4, 4, False), (0, 1, False)])
def test_idle_gpus_are_told(
    gpus: int,
    micro_batches: int,
    idle: bool,
    monkeypatch: pytest.MonkeyPatch,
    said: pytest.LogCaptureFixture,
) -> None:
    pretend_gpus(monkeypatch, gpus)
    options = toy_config(Path("x"), Path("y"), devices="auto", micro_batches=micro_batches).training
    log_idle_gpus(options, 6250)
    assert said.messages == idle * [
        "4 of the 8 GPUs of this machine are used: an update has only training.micro_batches=4. To use all "
        "GPUs for an update of the same size, give data.max_tokens=3125 training.micro_batches=8"
    ]


@pytest.mark.parametrize(
    ("sharding", "devices", "max_tokens", "refused"),
    [
        (Sharding.full, "2", "auto", True),
        (Sharding.full, "1", "auto", False),
        (Sharding.none, "2", "auto", False),
        (Sharding.full, "2", 512, False),
    ],
)
def test_auto_is_not_guessed_for_a_model_cut_up(
    sharding: Sharding, devices: str, max_tokens: int | str, refused: bool
) -> None:
    config = toy_config(Path("x"), Path("y"), devices=devices, micro_batches=2, sharding=sharding)
    config.data.max_tokens = max_tokens
    refusal = pytest.raises(UserError, match="^data.max_tokens=auto: .*sharding=full.*Give a number")
    with refusal if refused else nullcontext():
        require_room(config, 1)


@pytest.mark.parametrize(
    ("cores", "threads", "processes"), [(8, 0, 8), (8, 1, 8), (8, 2, 4), (8, 3, 2), (8, 8, 1), (2, 4, 1)]
)
def test_without_gpus_processes_have_a_core_for_each_thread(
    cores: int, threads: int, processes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend_gpus(monkeypatch, 0)
    monkeypatch.setattr(machine, "available_cores", lambda: cores)
    options = toy_config(Path("x"), Path("y"), devices="auto", micro_batches=16, threads=threads).training
    assert num_processes(options) == processes


@pytest.mark.parametrize(
    ("gpus", "processes", "threads", "reported"),
    [(0, 2, 2, True), (0, 2, 1, False), (0, 1, 2, False), (0, 2, 0, False), (2, 2, 2, False)],
)
def test_more_threads_than_cores_are_warned_of(
    gpus: int,
    processes: int,
    threads: int,
    reported: bool,
    monkeypatch: pytest.MonkeyPatch,
    said: pytest.LogCaptureFixture,
) -> None:
    pretend_gpus(monkeypatch, gpus)
    monkeypatch.setattr("nmt.training.processes.launcher.available_cores", lambda: 2)
    options = toy_config(Path("x"), Path("y"), devices=str(processes), threads=threads).training
    warn_of_crowded_cores(options, processes)
    assert said.messages == reported * [
        "training.devices=2 training.threads=2: 4 threads compete for 2 cores, which is far slower than one "
        "thread per core. training.threads=0 divides the cores among the processes"
    ]


def test_ranks_alone_change_nothing() -> None:
    ranks = Ranks.join(0, 1, 0, torch.device("cpu"))
    tensor = torch.tensor([1.5])
    ranks.sum_(tensor)
    ranks.copy_([tensor])
    assert tensor.item() == 1.5 and ranks.is_main and ranks.share({"a": 1}) == {"a": 1}
    assert all(ranks.owns(number) for number in range(5))
    ranks.leave()


def plain_rank(argument: str) -> bool:
    """Trains with one sum of all gradients after the backward pass, in place of buckets during it."""

    def backward(self: BucketedExchange, loss: torch.Tensor, initial_gradient: torch.Tensor) -> None:
        torch.autograd.backward(loss, initial_gradient)
        for part in self._parts:
            self._sums.append((self._ranks.start_sum(part), part, part))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parallel, "BUCKET_SIZE", 1 << 40)
        patch.setattr(BucketedExchange, "backward", backward)
        return run_launched(argument) is not None


def bucketed_rank(argument: str) -> bool:
    """Trains with many buckets."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parallel, "BUCKET_SIZE", 1000)
        return run_launched(argument) is not None


@pytest.mark.slow
def test_buckets_give_the_bits_of_one_sum(data: Path, tmp_path: Path) -> None:
    found = []
    for work in (plain_rank, bucketed_rank):
        run = tmp_path / work.__name__
        config = toy_config(data, run, micro_batches=3, max_updates=10, devices="2", dropout=0.2)
        run.mkdir()
        assert launch(work, to_yaml(config), 2, StopRequest())
        found.append(read_weights(run / "checkpoints/update-00000010/model.safetensors"))
    assert all(torch.equal(weight, found[1][name]) for name, weight in found[0].items())


@pytest.mark.slow
@pytest.mark.parametrize("sharding", list(Sharding))
def test_gradients_in_bf16_are_close_and_reproducible(sharding: Sharding, data: Path, tmp_path: Path) -> None:
    found = []
    options: dict[str, Any] = {"micro_batches": 2, "max_updates": 4, "optimizer": STEADY}
    for run, gradients in (("fp32", Exchange.fp32), ("bf16", Exchange.bf16), ("again", Exchange.bf16)):
        options["gradient_exchange"] = gradients
        train(toy_config(data, tmp_path / run, devices="2", sharding=sharding, **options))
        found.append(read_weights(tmp_path / run / "checkpoints/update-00000004/model.safetensors"))
    fp32, bf16, again = found
    assert all(torch.equal(weight, again[name]) for name, weight in bf16.items())
    assert not all(torch.equal(weight, fp32[name]) for name, weight in bf16.items())
    assert all((weight - fp32[name]).abs().max() < 1e-3 for name, weight in bf16.items())


def poisoned_rank(argument: str) -> bool:
    """The gradient of ten consecutive updates is NaN, in the second of two processes only."""
    original = Trainer._micro_batch

    def poisoned(self: Trainer, batch: Batch, number: int) -> None:
        if number == 1 and Cursor(0, 0, 12) <= self.progress.cursor < Cursor(0, 0, 32):
            self.parallel.gradients.gradients[0] = float("nan")  # the backward pass adds to it
        original(self, batch, number)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "_micro_batch", poisoned)
        return run_launched(argument) is not None


@pytest.mark.slow
def test_all_processes_skip_and_go_back_together(data: Path, tmp_path: Path) -> None:
    states = []
    for processes in (1, 2):
        run = tmp_path / str(processes)
        options = {"micro_batches": 2, "max_tokens": 40, "max_updates": 24, "devices": str(processes)}
        config = toy_config(data, run, **options)
        run.mkdir()
        assert launch(poisoned_rank, to_yaml(config), processes, StopRequest())
        folder = run / "checkpoints/update-00000024"
        progress = json.loads((folder / "state.json").read_text())["progress"]
        states.append({key: progress[key] for key in ("cursor", "skipped", "went_back", "target_tokens")})
        weights = read_weights(folder / "model.safetensors")
        assert all(weight.isfinite().all() for weight in weights.values())
    assert states[0] == states[1]
    assert len(states[0]["skipped"]) == 10 and states[0]["went_back"]["update"] == 5


def killed_once(argument: str) -> bool:
    """A rank that is killed once, after update 7, between the checkpoints of updates 4 and 8."""
    flag = Path(from_yaml(TrainConfig, argument, "test").run_dir) / "killed"
    original = Trainer._update

    def update(self: Trainer) -> None:
        original(self)
        if self.progress.update == 7 and os.environ["RANK"] == "1" and not flag.exists():
            flag.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "_update", update)
        return run_launched(argument) is not None


@pytest.mark.slow
def test_a_killed_process_is_started_again(
    data: Path, tmp_path: Path, said: pytest.LogCaptureFixture
) -> None:
    for name, work in (("whole", run_launched), ("run", killed_once)):
        config = toy_config(data, tmp_path / name, devices="2", micro_batches=2, max_tokens=256)
        (tmp_path / name).mkdir()
        assert launch(work, to_yaml(config), 2, StopRequest(), max_restarts=2)
    assert (tmp_path / "run/killed").exists()
    assert said.text.count("process 1 of the run was killed by SIGKILL") == 1
    assert "all resume from the last checkpoint (restart 1 of 2)" in said.text
    for name in ("model", "optimizer"):
        run, whole = (
            (tmp_path / folder / f"checkpoints/update-00000012/{name}.safetensors").read_bytes()
            for folder in ("run", "whole")
        )
        assert run == whole


@pytest.mark.slow
def test_one_process_that_may_be_started_again_does_the_same(data: Path, tmp_path: Path) -> None:
    for name, restarts in (("here", 0), ("apart", 1)):
        train(toy_config(data, tmp_path / name, max_restarts=restarts))
    here, apart = (tmp_path / name / "model/model.safetensors" for name in ("here", "apart"))
    assert here.read_bytes() == apart.read_bytes()
