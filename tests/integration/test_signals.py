"""Every stop signal in every phase of a training: a clean end with status 128 + N, without lost work."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from toy import toy_config

from nmt.runtime.signals import STOP_SIGNALS, Terminated, raise_on_stop_signals
from nmt.training import finish, run
from nmt.training.processes.launcher import launch
from nmt.training.processes.stopping import Stopped, StopRequest
from nmt.training.trainer import Trainer
from nmt.training.validation import Validator


@pytest.fixture(autouse=True)
def as_in_a_command() -> Iterator[None]:
    """Installs the signal handlers that every command installs."""
    before = {one: signal.getsignal(one) for one in STOP_SIGNALS}
    raise_on_stop_signals()
    yield
    for one, handler in before.items():
        signal.signal(one, handler)


def options(data: Path, folder: Path) -> Any:
    return toy_config(data, folder, max_updates=4, validate_every=2, checkpoint_every=2, max_tokens=256)


def raising(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, number: int) -> None:
    """Raises the signal at the start of a function."""
    original = getattr(owner, name)

    def signalled(*arguments: Any, **named: Any) -> Any:
        signal.raise_signal(number)
        return original(*arguments, **named)

    monkeypatch.setattr(owner, name, signalled)


@pytest.mark.parametrize(
    ("owner", "name", "number"),
    [
        (run, "with_choices", signal.SIGHUP),  # before the loop
        pytest.param(*(run, "prepare", signal.SIGUSR1), marks=pytest.mark.slow),
        pytest.param(*(run, "write_data_report", signal.SIGQUIT), marks=pytest.mark.slow),
        (Trainer, "_micro_batch", signal.SIGUSR2),
        pytest.param(*(Trainer, "_micro_batch", signal.SIGXCPU), marks=pytest.mark.slow),
        (Validator, "validate", signal.SIGHUP),
        (finish, "select_best", signal.SIGHUP),
        pytest.param(*(finish, "_scores", signal.SIGUSR1), marks=pytest.mark.slow),
        (finish, "save_bundle", signal.SIGTERM),
    ],
)
def test_a_signal_ends_the_run_and_the_same_command_resumes(
    owner: Any, name: str, number: signal.Signals, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = options(data, tmp_path / "run")
    with monkeypatch.context() as patch, pytest.raises(SystemExit) as ended:
        raising(patch, owner, name, number)
        run.train(config)
    assert ended.value.code == 128 + number
    in_the_loop = owner in (Trainer, Validator)
    assert isinstance(ended.value, Stopped if in_the_loop else Terminated)
    if in_the_loop:
        assert list(tmp_path.glob("run/checkpoints/update-*")), "nothing was saved"
    assert not list(tmp_path.rglob("*.tmp")) and not (tmp_path / "run/model").exists()
    assert "BLEU" in run.train(config)
    assert json.loads((tmp_path / "run/results.json").read_text())["training"]["updates"] == 4


def test_a_second_signal_does_not_interrupt_the_clean_up() -> None:
    """A closed terminal sends SIGHUP twice."""
    cleaned = False
    with pytest.raises(Terminated):
        try:
            signal.raise_signal(signal.SIGHUP)
        finally:
            signal.raise_signal(signal.SIGHUP)
            signal.raise_signal(signal.SIGTERM)
            cleaned = True
    assert cleaned


def all_signals(argument: str) -> bool:
    """A rank ignores the signals that a terminal or Slurm sends to the group; its parent forwards them."""
    for one in set(STOP_SIGNALS) - {signal.SIGTERM}:
        signal.raise_signal(one)
    return not signal.pthread_sigmask(signal.SIG_BLOCK, ())  # what it starts does not inherit blocked signals


def test_ranks_leave_the_signals_to_their_parent() -> None:
    assert launch(all_signals, "", 1, StopRequest())
