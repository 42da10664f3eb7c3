"""Starts the ranks of a run on this machine with torch's elastic agent, and reports their failure once."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Callable, Mapping
from multiprocessing import parent_process
from pathlib import Path
from typing import Any

import torch
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure
from torch.distributed.launcher.api import LaunchConfig, elastic_launch
from tqdm import tqdm

from nmt.config import TrainingConfig
from nmt.errors import UserError
from nmt.runtime.forks import forked_before_computing
from nmt.runtime.guest import Guest, as_guest, guest
from nmt.runtime.machine import available_cores, wanted_processes
from nmt.runtime.os_errors import stray_file_error
from nmt.runtime.plugins import load_inherited_plugins, no_silent_exit
from nmt.runtime.signals import STOP_SIGNALS, Terminated, ignore_stop_signals, raise_on_stop_signals
from nmt.runtime.streams import log, log_to_stderr, mark_line, share_terminal
from nmt.runtime.workers import without_main_module
from nmt.training.processes import fork_server
from nmt.training.processes.requirements import LOOPBACK, require_exchange
from nmt.training.processes.stopping import StopRequest

Work = Callable[[str], Any]
"""The function that each rank runs, with the argument of `launch`. It is sent to the ranks by pickle."""

_STOP = "stop"  # name of the file that requests a stop
_MONITOR_INTERVAL = 0.2  # seconds
_TERMINATED = 128 + signal.SIGTERM  # exit status of a rank that `Terminated` ended


def launch(work: Work, argument: str, processes: int, stop: StopRequest, *, max_restarts: int = 0) -> Any:
    """Runs `work` in several processes, the ranks, and waits for them.

    The parent handles stop signals, which may arrive more than once. At the first, each rank gets SIGTERM.

    Args:
        work: a function at the top level of a module, or a `partial` of one.
        argument: passed to `work`.
        processes: number of ranks.
        stop: the stop request of the run.
        max_restarts: how often all ranks are started again after one died or raised an unexpected exception.
            The restarts of torch's agent are not used: they would also follow a `UserError`.

    Returns:
        What `work` returned in rank 0.

    Raises:
        UserError: one of the ranks raised it, one was killed, or this process may start none.
        SystemExit: one of the ranks raised an unexpected exception; its traceback has been logged.
        Terminated: a signal ended the ranks before they could save a state, or after the training.
        KeyboardInterrupt: Ctrl-C did.
    """
    # They warn of signals that they relay and processes that they end. This module logs both.
    for name in ("torch.distributed.elastic", "torch.multiprocessing"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    require_exchange(processes)
    scratch = Path(tempfile.mkdtemp(prefix="nmt-ranks-"))
    share_terminal(True)  # rank 0 draws the progress bar and may be killed while it draws
    try:
        with stop.listening((scratch / _STOP).touch):
            for restart in range(1, max_restarts + 1):
                try:
                    return _launch_once(work, argument, processes, scratch)
                except ChildFailedError as failed:
                    rank, failure = failed.get_first_failure()
                    if stop() or _user_error(failure) is not None:
                        raise
                    _cause(rank, failure)  # logs the traceback of an unexpected exception
                    log.warning(
                        "process %d of the run %s; all resume from the last checkpoint (restart %d of %d)",
                        *(rank, _exit_words(failure), restart, max_restarts),
                    )
            return _launch_once(work, argument, processes, scratch)
    except ChildFailedError as failed:
        rank, failure = failed.get_first_failure()
        if stop.signum is not None and failure.exitcode in (_TERMINATED, -signal.SIGTERM):
            raise (KeyboardInterrupt() if stop.signum == signal.SIGINT else Terminated(stop.signum)) from None
        raise _cause(rank, failure) from None
    finally:
        share_terminal(False)
        mark_line()  # a killed rank may have left a progress bar
        shutil.rmtree(scratch, ignore_errors=True)


def _launch_once(work: Work, argument: str, processes: int, scratch: Path) -> Any:
    host = guest()
    if host is None:
        fork_server.start()
    settings = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=processes,
        run_id=scratch.name,
        rdzv_backend="c10d",
        rdzv_endpoint=f"{LOOPBACK}:0",
        local_addr=LOOPBACK,
        max_restarts=0,
        monitor_interval=_MONITOR_INTERVAL,
        # The fork server is global to this process and its children ignore Ctrl-C: unsuitable for a guest.
        start_method=fork_server.START_METHOD if host is None else "spawn",
        signals_to_handle="",  # the agent would wait 30 seconds for the last update and checkpoint
        logs_specs=DefaultLogsSpecs(log_dir=str(scratch)),
    )
    changed = fork_server.environment_since() if host is None else {}
    with without_main_module():
        return elastic_launch(settings, _run_rank)(work, argument, scratch / _STOP, changed, host)[0]


def _run_rank(
    work: Work, argument: str, stop: Path, changed: Mapping[str, str | None], host: Guest | None
) -> Any:
    """The entry point of each rank: runs `work`; the agent tells the parent what it returns or raises.

    `stop` is the file that requests a stop. `changed` are the environment variables that have changed in the
    parent; None: removed. `host` is the call from Python that the parent serves; None: it is a command.
    """
    for key, value in changed.items():
        if value is None:
            os.environ.pop(key, None)
        else:
            os.environ[key] = value
    ignore_stop_signals(but=[signal.SIGTERM])  # a terminal sends them to all processes; the parent relays one
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    raise_on_stop_signals()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)  # the fork server blocks them
    tqdm.set_lock(threading.RLock())  # by default a semaphore, which a killed rank would leave behind
    threading.Thread(target=_follow_parent, args=(stop,), daemon=True).start()
    log_to_stderr()
    if host is not None:
        log.setLevel(host.level)
    if os.environ["RANK"] != "0":
        share_terminal(True)
    forked_before_computing()  # the fork server only imports
    try:
        load_inherited_plugins()
        with as_guest(host), no_silent_exit():
            return work(argument)
    except UserError as error:
        raise UserError(str(error)) from None  # the parent gets the name of the class, not the class
    except (OSError, RuntimeError) as error:
        raise (stray_file_error(error) or error) from None


def _follow_parent(stop: Path) -> None:
    """Relays the stop request of the parent as a signal; ends this process when the parent is gone.

    A parent that was killed has not removed its scratch folder, so this process removes it.
    """
    parent = parent_process()
    assert parent is not None
    while parent.is_alive() and not stop.exists():
        parent.join(_MONITOR_INTERVAL)
    if parent.is_alive():
        os.kill(os.getpid(), signal.SIGTERM)
        parent.join()
    shutil.rmtree(stop.parent, ignore_errors=True)
    os._exit(1)


def _user_error(failure: ProcessFailure) -> UserError | None:
    """Returns the `UserError` that a rank has raised; None if it failed otherwise."""
    report = failure.error_file_data["message"]
    name, _, text = report["message"].partition(": ") if isinstance(report, dict) else ("", "", "")
    return UserError(text) if name == UserError.__name__ else None


def _cause(rank: int, failure: ProcessFailure) -> BaseException:
    """Returns the exception with which the parent ends; logs the traceback of an unexpected exception."""
    if (error := _user_error(failure)) is not None:
        return error
    report = failure.error_file_data["message"]
    if isinstance(report, dict):
        log.error("process %d failed:\n%s", rank, report["extraInfo"]["py_callstack"])
        return SystemExit(1)
    return UserError(
        f"process {rank} of the run {_exit_words(failure)}; the other processes were ended. "
        f"Run the same command again to resume from the last checkpoint."
    )


def _exit_words(failure: ProcessFailure) -> str:
    code: Any = -signal.SIGTERM if failure.exitcode == _TERMINATED else failure.exitcode
    if code >= 0:
        return f"ended with exit status {code}"
    words = " (out of memory?)" if -code == signal.SIGKILL else ""
    return f"was killed by {signal.Signals(-code).name}{words}"


def num_processes(config: TrainingConfig) -> int:
    """Returns the number of processes that `training.devices` selects on this machine.

    Raises:
        UserError: it is larger than the number of GPUs.
    """
    gpus = _usable_gpus()
    processes = wanted_processes(config, gpus)
    if gpus and processes > gpus:
        raise UserError(f"training.devices={processes}: this machine has {gpus} usable GPUs.")
    return processes


def log_idle_gpus(config: TrainingConfig, max_tokens: int | str) -> None:
    """Logs how to use all GPUs if `training.devices=auto` leaves some idle, for lack of micro-batches."""
    gpus = _usable_gpus()
    if config.devices == "auto" and config.micro_batches < gpus and not config.fit_micro_batches:
        log.warning(
            "%d of the %d GPUs of this machine are used: an update has only training.micro_batches=%d. "
            "To use all GPUs for an update of the same size, give %s",
            *(config.micro_batches, gpus, config.micro_batches, _split_options(config, max_tokens, gpus)),
        )


def warn_of_crowded_cores(config: TrainingConfig, processes: int) -> None:
    """Warns if the processes, with `training.threads` each, have more threads than there are cores."""
    cores = available_cores()
    if not _usable_gpus() and processes * config.threads > cores:
        log.warning(
            "training.devices=%d training.threads=%d: %d threads compete for %d cores, which is far slower "
            "than one thread per core. training.threads=0 divides the cores among the processes",
            *(processes, config.threads, processes * config.threads, cores),
        )


def require_work(config: TrainingConfig, max_tokens: int | str, processes: int) -> None:
    """Raises `UserError` if an update has fewer micro-batches than there are processes.

    With `training.fit_micro_batches`, the number of micro-batches is still to be found.
    """
    if config.micro_batches < processes and not config.fit_micro_batches:
        raise UserError(
            f"training.devices={processes}: more processes than "
            f"training.micro_batches={config.micro_batches}. "
            f"For an update of the same size, give {_split_options(config, max_tokens, processes)}"
        )


def _split_options(config: TrainingConfig, max_tokens: int | str, parts: int) -> str:
    less = ""
    if isinstance(max_tokens, int):
        less = f"data.max_tokens={max(16, max_tokens * config.micro_batches // parts)} "
    return f"{less}training.micro_batches={parts}"


def _usable_gpus() -> int:
    return torch.cuda.device_count() if torch.cuda.is_available() else 0
