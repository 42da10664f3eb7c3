"""Starts and stops the processes of a run on this machine, and reports their failure once."""

from __future__ import annotations

import logging
import os
import select
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from multiprocessing import parent_process
from pathlib import Path
from typing import Any

from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from nmt.errors import UserError
from nmt.runtime import (
    Guest,
    as_guest,
    guest,
    ignore_stop_signals,
    load_inherited_plugins,
    log,
    log_to_stderr,
    mark_line,
    share_terminal,
    stray_file_error,
    without_main_module,
)
from nmt.training.processes import fork_server
from nmt.training.processes.stopping import StopRequest

Work = Callable[[str, Callable[[], bool]], bool]
"""The function that each process runs: (argument, stop request) → whether the work is done.

It must be importable by name.
"""

_STOP, _ERROR = "stop", "error"
_TERMINATED = 128 + signal.SIGTERM
_GRACE = 3.0  # seconds before a failed process exits, so that torch's launcher finds the first failure first
_RELAY_TIME = 2.0  # seconds in which the parent relays a SIGTERM that was sent to all processes


def launch(
    work: Work,
    argument: str,
    processes: int,
    stop: StopRequest,
    notice: Callable[[], None],
    *,
    max_restarts: int = 0,
) -> bool:
    """Runs `work` in several processes and waits for them.

    The parent handles stop signals, which may arrive more than once. It relays the first one to the processes
    through a file; they stop together after an update.

    Args:
        work: a function at the top level of a module.
        argument: passed to `work`.
        processes: number of processes.
        stop: the stop request of the run.
        notice: called when a signal requests a stop.
        max_restarts: how often all processes are started again after one died or raised an unexpected
            exception. The restarts of torch's launcher are not used: they would also follow a `UserError`.

    Returns:
        Whether the work is done; False after a stop.

    Raises:
        UserError: one of the processes raised it, or one was killed.
        SystemExit: one of the processes raised an unexpected exception; its traceback has been logged.
    """
    # Its warnings concern signals that it relays and processes that it ends. This module logs both.
    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)
    scratch = Path(tempfile.mkdtemp(prefix="nmt-ranks-"))

    def pass_on() -> None:
        (scratch / _STOP).touch()
        notice()

    share_terminal(True)  # the first process draws the progress bar and may be killed while it draws
    try:
        with stop.listening(pass_on):
            for restart in range(1, max_restarts + 1):
                try:
                    return _launch_once(work, argument, processes, scratch)
                except ChildFailedError as failed:
                    if stop() or (scratch / _ERROR).exists():
                        raise
                    _log_restart(failed, scratch, f"restart {restart} of {max_restarts}")
            return _launch_once(work, argument, processes, scratch)
    except ChildFailedError as failed:
        if stop() and failed.get_first_failure()[1].exitcode == -signal.SIGTERM:
            return False  # SIGTERM was sent to all before `run_rank` began: there was nothing to save
        raise _cause(failed, scratch) from None
    finally:
        share_terminal(False)
        mark_line()  # a killed process may have left a progress bar
        shutil.rmtree(scratch, ignore_errors=True)


def _launch_once(work: Work, argument: str, processes: int, scratch: Path) -> bool:
    host = guest()
    if host is None:
        fork_server.start()
    settings = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=processes,
        run_id=scratch.name,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        local_addr="localhost",
        max_restarts=0,
        monitor_interval=0.2,
        # The fork server is global to this process and its children ignore Ctrl-C: unsuitable for a guest.
        start_method=fork_server.START_METHOD if host is None else "spawn",
        signals_to_handle="",  # `launch` handles all of them
        logs_specs=DefaultLogsSpecs(log_dir=str(scratch)),
    )
    changed = fork_server.environment_since() if host is None else {}
    with without_main_module():
        done = elastic_launch(settings, run_rank)(work, argument, str(scratch), changed, host)
    return all(done.values())


def run_rank(
    work: Work, argument: str, scratch: str, changed: Mapping[str, str | None], host: Guest | None
) -> bool:
    """The entry point of each process: runs `work` and writes its failure to `scratch` for the parent.

    Args:
        work: see `launch`.
        argument: passed to `work`.
        scratch: path of a temporary folder.
        changed: environment variables that have changed in the parent; None: removed.
        host: the call from Python that the parent serves; None if the parent is a command.
    """
    for key, value in changed.items():
        if value is None:
            os.environ.pop(key, None)
        else:
            os.environ[key] = value
    ignore_stop_signals(but=[signal.SIGTERM])  # all processes receive them; the parent relays them
    threading.Thread(target=_end_with_parent, args=(Path(scratch), _sigterm()), daemon=True).start()
    log_to_stderr()
    if host is not None:
        log.setLevel(host.level)
    if os.environ["RANK"] != "0":
        share_terminal(True)
        log.setLevel(logging.ERROR)
    try:
        load_inherited_plugins()
        with as_guest(host):
            return work(argument, (Path(scratch) / _STOP).exists)
    except UserError as error:
        (Path(scratch) / _ERROR).write_text(str(error), encoding="utf-8")
        sys.exit(2)
    except Exception as error:
        line = stray_file_error(error) if isinstance(error, OSError) else None
        if line is not None:
            (Path(scratch) / _ERROR).write_text(str(line), encoding="utf-8")
            sys.exit(2)
        (Path(scratch) / f"traceback-{os.environ['RANK']}").write_text(
            traceback.format_exc(), encoding="utf-8"
        )
        time.sleep(_GRACE)
        sys.exit(1)


def _sigterm() -> int:
    """Returns a file descriptor that becomes readable at a SIGTERM, even while the main thread is in a call.

    A signal mask is not enough: libraries start threads on import, and the mask does not reach those.
    """
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    signal.signal(signal.SIGTERM, lambda *_: None)  # without a handler no byte is written
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})  # the fork server blocks it
    return reader


def _end_with_parent(scratch: Path, sigterm: int) -> None:
    """Ends this process when its parent is gone, or when another process has failed.

    Without its parent nothing else would stop this process. Torch's launcher sends SIGTERM when another
    process has failed. `timeout`, systemd and Slurm send SIGTERM to all processes: the parent then relays it
    as a stop request, and this process stops after the update like the others.
    """
    parent = parent_process()
    assert parent is not None
    while parent.sentinel not in select.select([sigterm, parent.sentinel], [], [])[0]:
        os.read(sigterm, 64)
        time.sleep(_RELAY_TIME)
        failed = (scratch / _ERROR).exists() or any(scratch.glob("traceback-*"))
        if failed or not (scratch / _STOP).exists():
            os._exit(_TERMINATED)
    shutil.rmtree(scratch, ignore_errors=True)
    os._exit(1)


def _cause(failed: ChildFailedError, scratch: Path) -> BaseException:
    error = scratch / _ERROR
    if error.exists():
        return UserError(error.read_text(encoding="utf-8"))
    rank, failure = failed.get_first_failure()
    report = scratch / f"traceback-{rank}"
    if report.exists():
        log.error("process %d failed:\n%s", rank, report.read_text(encoding="utf-8"))
        return SystemExit(1)
    return UserError(
        f"process {rank} of the run {_exit_words(failure)}; the other processes were ended. "
        f"Run the same command again to resume from the last checkpoint."
    )


def _log_restart(failed: ChildFailedError, scratch: Path, count: str) -> None:
    rank, failure = failed.get_first_failure()
    _cause(failed, scratch)  # logs the traceback of an unexpected exception
    end = _exit_words(failure)
    log.warning("process %d of the run %s; all resume from the last checkpoint (%s)", rank, end, count)
    for report in scratch.glob("traceback-*"):
        report.unlink()


def _exit_words(failure: ProcessFailure) -> str:
    code: Any = -signal.SIGTERM if failure.exitcode == _TERMINATED else failure.exitcode
    if code >= 0:
        return f"ended with exit status {code}"
    words = " (out of memory?)" if -code == signal.SIGKILL else ""
    return f"was killed by {signal.Signals(-code).name}{words}"
