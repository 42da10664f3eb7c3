"""An update against its naive twin, and updates with a non-finite loss."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from toy_trainings import prepared_pairs, toy_trainer

import nmt.training.trainer as trainer_module
import nmt.training.update.objective as objective
import nmt.training.update.training_step as module
from nmt.config import (
    Average,
    AveragingConfig,
    Precision,
    ScheduleConfig,
)
from nmt.data.batches.batching import Batch
from nmt.data.batches.stream import Cursor
from nmt.data.preparation.prepare import Prepared
from nmt.data.subwords.vocabulary import EOS_ID
from nmt.errors import UserError
from nmt.model.transformer import Transformer
from nmt.training.batch_size import OutOfMemory, largest_batches
from nmt.training.state.progress import SkippedBatches
from nmt.training.state.warm_start import new_model
from nmt.training.trainer import Trainer, open_stream
from nmt.training.update.loss import Losses
from nmt.training.update.training_step import TrainingStep
from nmt.training.validation import Validator


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    return prepared_pairs(tmp_path_factory.mktemp("spm"))


def first_batches(run: Trainer, prepared: Prepared, count: int) -> list[tuple[Batch, Cursor]]:
    """Returns the first batches of a run, each with the cursor after it."""
    stream = open_stream(run.config, prepared, run.progress, run.ranks)
    batches = [next(stream) for _ in range(count)]
    stream.close()
    return [(batch, cursor) for batch, cursor in batches if batch is not None]


def assert_gradients(run: Trainer, twin: nn.Module, atol: float) -> None:
    for (name, parameter), other in zip(run.model.named_parameters(), twin.parameters(), strict=True):
        assert parameter.grad is not None and other.grad is not None
        torch.testing.assert_close(parameter.grad, other.grad, rtol=1e-4, atol=atol, msg=name)


def test_an_update_is_a_step_along_the_mean_over_all_its_tokens(prepared: Prepared, tmp_path: Path) -> None:
    """Micro-batches have unequal sizes: each token has the same weight."""
    run = toy_trainer(prepared, tmp_path, micro_batches=3, max_updates=1)
    model = new_model(run.config, prepared).train()
    batches = [batch for batch, _ in first_batches(run, prepared, 3)]
    assert len({batch.num_target_tokens for batch in batches}) > 1
    losses = [
        F.cross_entropy(model.logits(model(b)), b.target_out, label_smoothing=0.1, reduction="none")
        for b in batches
    ]
    real = [loss[: b.num_target_tokens] for loss, b in zip(losses, batches, strict=True)]
    torch.cat(real).mean().backward()

    assert run.train()
    assert_gradients(run, model, atol=1e-7)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, betas=(0.9, 0.98), eps=1e-9)
    for parameter, twin in zip(run.model.parameters(), model.parameters(), strict=True):
        twin.grad = parameter.grad  # otherwise Adam's first step, a sign, shows rounding errors
    optimizer.step()
    for parameter, twin in zip(run.model.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(parameter, twin, rtol=1e-5, atol=1e-7)
    assert run.progress.target_tokens == sum(batch.num_target_tokens for batch in batches)


def test_clipping_scales_the_gradient_to_the_norm(prepared: Prepared, tmp_path: Path) -> None:
    free = toy_trainer(prepared, tmp_path / "free", max_updates=1)
    clipped = toy_trainer(prepared, tmp_path / "clipped", max_updates=1, clip_norm=0.25)
    assert free.train() and clipped.train()
    a, b = (torch.cat([p.grad.flatten() for p in run.model.parameters()]) for run in (free, clipped))
    assert a.norm() > 0.25
    assert b.norm().item() == pytest.approx(0.25, rel=1e-5)
    torch.testing.assert_close(b * a.norm() / 0.25, a)


def test_the_loss_scale_leaves_the_step_as_it_is(prepared: Prepared, tmp_path: Path) -> None:
    plain, scaled = (
        toy_trainer(prepared, tmp_path / name, max_updates=2, dropout=0.1) for name in ("1", "2")
    )
    scaled.progress.loss_scale = 1024.0
    plain.train()
    scaled.train()
    for a, b in zip(plain.model.parameters(), scaled.model.parameters(), strict=True):
        assert torch.equal(a, b)  # the scale is a power of two


def poison(monkeypatch: pytest.MonkeyPatch, bad: Callable[[], bool]) -> None:
    """Makes the objective NaN while `bad` returns true."""
    original = objective.training_loss

    def poisoned(*args: Any, **options: Any) -> Losses:
        losses = original(*args, **options)
        return losses._replace(objective=losses.objective * float("nan")) if bad() else losses

    monkeypatch.setattr(objective, "training_loss", poisoned)


def test_an_update_that_is_no_number_is_skipped_and_its_batches_are_recorded(
    prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = toy_trainer(prepared, tmp_path, max_updates=3, micro_batches=2)
    batches = first_batches(run, prepared, 4)
    states: list[dict[str, torch.Tensor]] = []
    original = Trainer._update

    def watched(self: Trainer) -> None:
        original(self)
        weights, optimizer = self.parallel.state(optimizer=True)
        states.append({name: tensor.clone() for name, tensor in {**weights, **optimizer}.items()})

    monkeypatch.setattr(Trainer, "_update", watched)
    poison(monkeypatch, lambda: run.progress.update == 1)
    assert run.train()
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    assert not torch.equal(states[1]["step"], states[2]["step"])
    assert all(tensor.isfinite().all() for tensor in states[2].values())
    assert (run.progress.update, run.progress.skipped_updates, run.progress.skipped_in_a_row) == (3, 1, 0)
    assert run.progress.skipped == [SkippedBatches(2, batches[1][1], batches[3][1])]
    (record,) = records(tmp_path, "skipped")
    assert record["update"] == 2
    assert [(b["epoch"], b["block"], b["batch"]) for b in record["batches"]] == [(0, 0, 2), (0, 0, 3)]
    for found, (batch, _) in zip(record["batches"], batches[2:], strict=True):
        targets = [prepared.train.pair(row)[1].tolist() for row in found["rows"]]
        assert [[*target, EOS_ID] for target in targets] == [
            part.tolist() for part in batch.target_out.split(batch.target.lengths)[: batch.num_sentences]
        ]
        assert found["target"] == prepared.tokenizer.decode_target(targets)[0]


@pytest.mark.parametrize(
    ("bad", "checkpoint_every", "back_to"),
    [
        (range(8, 18), 3, 6),  # 9, 12 and 15 are among the skipped ones
        (range(7, 17), 3, 3),  # 6 has the weights that failed
        (range(5, 15), 100, 0),
    ],
)
def test_ten_in_a_row_go_back_and_on_without_the_batches_since(
    bad: range,
    checkpoint_every: int,
    back_to: int,
    prepared: Prepared,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The twin is set by hand to the checkpoint, then to the batch after the bad ones."""
    options = {"keep_checkpoints": 1, "averaging": AveragingConfig(kind=Average.none), "ema": 0.5}
    options["checkpoint_every"] = checkpoint_every
    run = toy_trainer(prepared, tmp_path / "run", dropout=0.1, max_updates=22, **options)
    twin = toy_trainer(prepared, tmp_path / "twin", dropout=0.1, max_updates=back_to or 1, **options)
    cursors = [cursor for _, cursor in first_batches(run, prepared, 40)]

    def is_bad() -> bool:
        place = cursors.index(run.progress.cursor) + 1 if run.progress.update else 0
        return place + 1 in bad

    with monkeypatch.context() as patch:
        poison(patch, is_bad)
        assert run.train()
    assert run.progress.update == 22
    assert run.progress.skipped_updates == 10
    start = cursors[back_to - 1] if back_to else Cursor()
    assert run.progress.went_back == SkippedBatches(back_to + 1, start, cursors[bad[-1] - 1])
    (record,) = records(tmp_path / "run", "went_back")
    assert (record["update"], record["after"], len(record["batches"])) == (back_to + 1, bad[-1], 10)
    assert records(tmp_path / "run", "skipped") == []

    if back_to:
        assert twin.train()
    twin.options.max_updates = 22
    twin.progress.cursor = cursors[bad[-1] - 1]
    monkeypatch.setattr(twin, "_restore", lambda: setattr(twin, "_stopping", False))
    assert twin.train()
    for a, b in zip(run.model.parameters(), twin.model.parameters(), strict=True):
        assert torch.equal(a, b)
    means = [there.mean.state(optimizer=False)[0] for there in (run, twin)]
    assert all(torch.equal(weight, means[1][name]) for name, weight in means[0].items())


def records(folder: Path, kind: str) -> list[dict[str, Any]]:
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [record for record in map(json.loads, lines) if record["kind"] == kind]


def test_going_back_in_vain_ends_the_run(
    prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = toy_trainer(prepared, tmp_path / "1", max_updates=100)
    with monkeypatch.context() as patch:
        poison(patch, lambda: run.progress.update >= 4)
        with pytest.raises(UserError, match="up to update 14, and a rollback .* did not help. Try a lower"):
            run.train()
    run = toy_trainer(prepared, tmp_path / "2", max_updates=100)
    poison(monkeypatch, lambda: True)
    with pytest.raises(UserError, match="not finite for 10 updates in a row, up to update 10. Try"):
        run.train()


def test_the_largest_batches_leave_no_trace(
    prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = toy_trainer(prepared, tmp_path / "1", dropout=0.1, max_updates=3)
    other = toy_trainer(prepared, tmp_path / "2", dropout=0.1, max_updates=3)
    tried: list[int] = []
    original = TrainingStep.add

    def watched(self: TrainingStep, batch: Batch, number: int, *, seed: int) -> None:
        tried.append(batch.num_target_tokens)
        original(self, batch, number, seed=seed)

    monkeypatch.setattr(TrainingStep, "add", watched)
    assert run.train()
    largest = [batch.num_target_tokens for batch in largest_batches(prepared.train, run.config.data)]
    assert tried[:-3] == largest and max(largest) == 40
    monkeypatch.setattr(trainer_module, "probe_memory", lambda *arguments: None)
    assert other.train()
    assert tried[-6:-3] == tried[-3:]
    for a, b in zip(run.model.parameters(), other.model.parameters(), strict=True):
        assert torch.equal(a, b)


def test_a_model_too_large_is_told_as_such(
    prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: Any, **options: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

    monkeypatch.setattr(module, "spread", full)
    with pytest.raises(
        OutOfMemory, match="^model=: [0-9,]+ parameters .*; 16 bytes each.*training.sharding=full"
    ):
        toy_trainer(prepared, tmp_path)


@pytest.mark.parametrize(
    ("cause", "kind", "message"),
    [
        (
            "DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes",
            OutOfMemory,
            "^data.max_tokens=40: a batch of 40 target and 60 source tokens does not fit into memory. "
            "data.max_tokens=20 training.micro_batches=4 makes the same",
        ),
        ("shapes do not fit", RuntimeError, "^shapes do not fit$"),  # a bug
    ],
)
def test_the_memory_probe_fails_before_the_first_update(
    cause: str,
    kind: type[Exception],
    message: str,
    prepared: Prepared,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def failing(*args: Any, **options: Any) -> Any:
        raise RuntimeError(cause)

    run = toy_trainer(prepared, tmp_path, max_updates=3, micro_batches=2)
    monkeypatch.setattr(objective, "training_loss", failing)
    with pytest.raises(kind, match=message):
        run.train()
    assert run.progress.update == 0


def test_an_update_with_rdrop_is_a_step_along_the_naive_gradient(prepared: Prepared, tmp_path: Path) -> None:
    """The twin makes two passes of each micro-batch and uses half of the paper's formula."""
    run = toy_trainer(prepared, tmp_path, micro_batches=2, max_updates=1, rdrop=5.0)
    model = new_model(run.config, prepared).train()
    batches = [batch for batch, _ in first_batches(run, prepared, 2)]
    tokens = sum(batch.num_target_tokens for batch in batches)
    assert len({batch.num_target_tokens for batch in batches}) > 1

    def noise(shift: int) -> torch.Tensor:
        """Replaces dropout: differs between the passes."""
        return torch.sin(torch.arange(shift, shift + 16.0))

    original = Transformer.forward
    for batch in batches:
        count = batch.num_target_tokens
        first, second = (
            model.logits(original(model, batch) + noise(shift)).log_softmax(-1)[:count] for shift in (0, 9)
        )
        for log_probs, other in ((first, second), (second, first)):
            loss = F.cross_entropy(log_probs, batch.target_out[:count], label_smoothing=0.1, reduction="sum")
            divergence = F.kl_div(other, log_probs, log_target=True, reduction="sum")
            ((loss + 5.0 / 2 * divergence) / 2 / tokens).backward(retain_graph=True)

    def noisy(self: Transformer, batch: Batch) -> torch.Tensor:
        hidden: torch.Tensor = original(self, batch)
        half = len(hidden) // 2
        return torch.cat([hidden[:half] + noise(0), hidden[half:] + noise(9)])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Transformer, "forward", noisy)
        assert run.train()
    assert_gradients(run, model, atol=1e-6)
    assert run.progress.target_tokens == tokens


def test_the_running_mean_is_what_is_validated_and_saved(
    prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The third of five updates is skipped; the naive mean covers the others."""
    run = toy_trainer(prepared, tmp_path, max_updates=5, ema=0.9, checkpoint_every=5, validate_every=5)
    twin = {name: tensor.clone() for name, tensor in run.model.state_dict().items()}
    validated: dict[str, torch.Tensor] = {}
    update, validate = Trainer._update, Validator.validate

    def watched_update(self: Trainer) -> None:
        update(self)
        if self.progress.update != 3:
            n = self.progress.update - (self.progress.update > 3)
            decay = min(0.9, (n + 1) / (n + 10))
            for name, tensor in self.model.state_dict().items():
                twin[name] = decay * twin[name] + (1 - decay) * tensor

    def watched_validate(self: Validator, stop: Any) -> Any:
        validated.update({name: tensor.clone() for name, tensor in run.model.state_dict().items()})
        return validate(self, stop)

    monkeypatch.setattr(Trainer, "_update", watched_update)
    monkeypatch.setattr(Validator, "validate", watched_validate)
    poison(monkeypatch, lambda: run.progress.update == 2)
    assert run.train()
    saved = run.checkpoints.weights(5)
    for name, tensor in run.model.state_dict().items():
        torch.testing.assert_close(saved[name], twin[name], rtol=1e-6, atol=1e-6)
        assert torch.equal(saved[name], validated[name])
        assert not torch.equal(saved[name], tensor)
    again = toy_trainer(prepared, tmp_path, max_updates=5, ema=0.9, checkpoint_every=5, validate_every=5)
    again._restore()
    for name, tensor in run.model.state_dict().items():
        assert torch.equal(again.model.state_dict()[name], tensor)
    with again.mean.in_place():
        for name, tensor in saved.items():
            assert torch.equal(again.model.state_dict()[name], tensor)


def test_dropout_falls_with_the_learning_rate(
    prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of eight updates, the rate falls in the last four: see `Ending.decided`."""
    rates, update = [], Trainer._update

    def watched_update(self: Trainer) -> None:
        update(self)
        rates.append(self.model.dropout.rate)

    monkeypatch.setattr(Trainer, "_update", watched_update)
    schedule = ScheduleConfig(name="wsd", peak=1e-3, warmup_updates=1, decay_share=0.5)
    run = toy_trainer(prepared, tmp_path, max_updates=8, schedule=schedule, final_dropout=0.05)
    before = run.config.model.dropout
    assert run.train()
    assert rates == [before] * 4 + [0.05] * 4


def test_figures_and_profile_of_a_run(prepared: Prepared, tmp_path: Path) -> None:
    """In bf16, which leaves the weights in fp32."""
    options = {"max_updates": 9, "log_every": 3, "micro_batches": 2, "profile": True, "rdrop": 1.0}
    run = toy_trainer(prepared, tmp_path, dropout=0.2, precision=Precision.bf16, **options)
    before = {name: tensor.clone() for name, tensor in run.model.state_dict().items()}
    assert run.train()
    assert {tensor.dtype for tensor in run.model.state_dict().values()} == {torch.float32}
    assert any(not torch.equal(before[name], tensor) for name, tensor in run.model.state_dict().items())
    recorded = records(tmp_path, "train")
    assert [record["update"] for record in recorded] == [3, 6, 9]
    for record in recorded:
        assert record["objective"] > record["loss"] > 0 and record["gradient_norm"] > 0
        assert 0 < record["filling"] <= 1 and 0 <= record["data_wait"] <= 1
        assert record["mfu"] > 0 and record["tokens_per_second"] > 0 and record["peak_memory_gb"] > 0
    assert recorded[-1]["eta_minutes"] == 0 < recorded[0]["eta_minutes"]
    assert (tmp_path / "profile").is_dir()


@pytest.mark.parametrize(
    ("options", "updates"),
    [
        ({"max_updates": 5, "log_every": 50}, [5]),
        ({"max_updates": 1, "log_every": 2}, [1]),
        ({"max_updates": 7, "log_every": 3}, [3, 6, 7]),
        ({"max_updates": 6, "log_every": 3}, [3, 6]),
        ({"max_updates": 50, "max_epochs": 1, "log_every": 1000}, [14]),
    ],
)
def test_the_last_update_has_a_line(
    options: dict[str, int], updates: list[int], prepared: Prepared, tmp_path: Path
) -> None:
    assert toy_trainer(prepared, tmp_path, **options).train()
    assert [record["update"] for record in records(tmp_path, "train")] == updates
    assert toy_trainer(prepared, tmp_path, **options).train()  # nothing is left to do
    assert [record["update"] for record in records(tmp_path, "train")] == updates


def test_the_last_line_is_of_the_updates_since_the_one_before(prepared: Prepared, tmp_path: Path) -> None:
    for name, log_every in (("short", 50), ("exact", 5), ("each", 1)):
        toy_trainer(prepared, tmp_path / name, max_updates=5, log_every=log_every).train()
    short, exact = (records(tmp_path / name, "train")[0] for name in ("short", "exact"))
    assert short["loss"] == exact["loss"] and short["gradient_norm"] == exact["gradient_norm"]
    losses = [record["loss"] for record in records(tmp_path / "each", "train")]
    assert min(losses) < short["loss"] < max(losses)


def test_early_stopping_has_a_last_line(prepared: Prepared, tmp_path: Path) -> None:
    run = toy_trainer(prepared, tmp_path, max_updates=60, log_every=1000, validate_every=2, patience=1)
    assert run.train()
    assert "(early stopping)" in str(run.progress.ended(run.options))
    assert [record["update"] for record in records(tmp_path, "train")] == [run.progress.update]
    assert run.progress.update < 60


def test_samples_of_the_log_are_cut(
    prepared: Prepared, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    long = " ".join(["ba"] * 1000)
    valid = replace(prepared.valid[""], references=[long, *prepared.valid[""].references[1:]])
    with caplog.at_level("INFO", "nmt"):
        toy_trainer(replace(prepared, valid={"": valid}), tmp_path, max_updates=1).train()
    message = next(m for m in caplog.messages if m.startswith("update 1: validation loss"))
    assert max(map(len, message.split("\n"))) == 2 + 10 + 1 + 100
    assert f"\n  reference  {long[:99]}…\n" in message
    assert records(tmp_path, "valid")[0]["samples"][0]["reference"] == long
