"""Several processes on this machine: started together, stopped together, their failures told once."""

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
"""What each process does: (argument, whether to stop) → whether the work is done; importable by name."""

_STOP, _ERROR = "stop", "error"
_TERMINATED = 128 + signal.SIGTERM
_GRACE = 3.0  # seconds in which the process that failed first is found, before those it took along end too
_PASSED_ON = 2.0  # seconds in which the parent has passed on a SIGTERM that came to all


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

    Stop signals are heard here, where they may arrive more than once; the processes learn of them by a file,
    and end together after an update.

    Args:
        work: a function of some module.
        argument: given to it.
        processes: how many.
        stop: the wish to stop.
        notice: called when a signal makes the wish.
        max_restarts: how often all processes are started again when one has died or failed by a bug. Not by
            torch's launcher, which would repeat what a `UserError` ended too.

    Returns:
        Whether the work is done; False after a stop.

    Raises:
        UserError: one of the processes raised it, or one was killed.
        SystemExit: one of them failed by a bug; its traceback has been printed.
    """
    # Its warnings are about signals it passes on and processes it ends: all of that is meant, and told here.
    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)
    scratch = Path(tempfile.mkdtemp(prefix="nmt-ranks-"))

    def pass_on() -> None:
        (scratch / _STOP).touch()
        notice()

    share_terminal(True)  # the first process draws the progress bar, and may be killed as it does
    try:
        with stop.listening(pass_on):
            for restart in range(1, max_restarts + 1):
                try:
                    return _launch_once(work, argument, processes, scratch)
                except ChildFailedError as failed:
                    if stop() or (scratch / _ERROR).exists():
                        raise
                    _say_restart(failed, scratch, f"restart {restart} of {max_restarts}")
            return _launch_once(work, argument, processes, scratch)
    except ChildFailedError as failed:
        if stop() and failed.get_first_failure()[1].exitcode == -signal.SIGTERM:
            return False  # SIGTERM came to all before `run_rank` began: there was nothing to save yet
        raise _cause(failed, scratch) from None
    finally:
        share_terminal(False)
        mark_line()  # a bar may be left of a process that was killed
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
        # The fork server is one for the whole process, and its children ignore Ctrl-C: not for a guest.
        start_method=fork_server.START_METHOD if host is None else "spawn",
        signals_to_handle="",  # `launch` hears them all
        logs_specs=DefaultLogsSpecs(log_dir=str(scratch)),
    )
    changed = fork_server.environment_since() if host is None else {}
    with without_main_module():
        done = elastic_launch(settings, run_rank)(work, argument, str(scratch), changed, host)
    return all(done.values())


def run_rank(
    work: Work, argument: str, scratch: str, changed: Mapping[str, str | None], host: Guest | None
) -> bool:
    """What each process runs: `work`, its failures left in `scratch` for the parent to tell.

    Args:
        work: see `launch`.
        argument: given to it.
        scratch: a folder.
        changed: variables of the environment that the parent has now and this process not yet.
        host: the call that the parent works for; None if it is a command.
    """
    for key, value in changed.items():
        if value is None:
            os.environ.pop(key, None)
        else:
            os.environ[key] = value
    ignore_stop_signals(but=[signal.SIGTERM])  # they are sent to all, and the parent passes them on
    threading.Thread(target=_end_with, args=(Path(scratch), _sigterm()), daemon=True).start()
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
    """Makes SIGTERM a byte that can be read here, whatever call the main thread is in.

    A signal mask would do less: libraries have started threads on import, which it does not reach.
    """
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    signal.signal(signal.SIGTERM, lambda *_: None)  # it must have a handler for the byte to be written
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})  # the fork server has put it off until now
    return reader


def _end_with(scratch: Path, sigterm: int) -> None:
    """Ends this process when its parent is gone, however that happened: nobody would stop it any more.

    By SIGTERM torch's launcher ends it when another process has failed. `timeout`, systemd and Slurm send it
    to all: then the parent passes it on as a stop, and this process ends after the update like the others.
    """
    parent = parent_process()
    assert parent is not None
    while parent.sentinel not in select.select([sigterm, parent.sentinel], [], [])[0]:
        os.read(sigterm, 64)
        time.sleep(_PASSED_ON)
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
        f"process {rank} of the run {_end(failure)}, so the others were ended; "
        f"the same command goes on from the last checkpoint"
    )


def _say_restart(failed: ChildFailedError, scratch: Path, count: str) -> None:
    rank, failure = failed.get_first_failure()
    _cause(failed, scratch)  # tells a bug with its traceback
    end = _end(failure)
    log.warning("process %d of the run %s; all go on from the last checkpoint (%s)", rank, end, count)
    for report in scratch.glob("traceback-*"):
        report.unlink()


def _end(failure: ProcessFailure) -> str:
    code: Any = -signal.SIGTERM if failure.exitcode == _TERMINATED else failure.exitcode
    if code >= 0:
        return f"ended with exit status {code}"
    words = " (out of memory?)" if -code == signal.SIGKILL else ""
    return f"was killed by {signal.Signals(-code).name}{words}"
