"""Runs the command of another program, and ends it with its children if this process is stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO

from nmt.runtime.os_errors import write_errors
from nmt.runtime.signals import stop_signals_delayed

_POLL = 0.1  # seconds between two checks of the command


def run_command(
    words: Sequence[str],
    environment: Mapping[str, str],
    text: str = "",
    check: Callable[[], object] = bool,
) -> subprocess.CompletedProcess[str]:
    """Runs a command, with `text` as its standard input, and returns its exit status and its output.

    The command runs in a new process group. Ctrl-C reaches only this process, which then kills the group. Its
    output is limited only by the disk.

    Args:
        words: the command and its arguments.
        environment: the environment variables of the command.
        text: its standard input, in UTF-8, as is its output.
        check: is called repeatedly. An exception that it raises kills the command.

    Raises:
        OSError: the command can't be started.
        UserError: the folder of temporary files can't be written.
    """
    with ExitStack() as stack:
        with write_errors(Path(tempfile.gettempdir())):
            given, out, err = (stack.enter_context(tempfile.TemporaryFile()) for _ in range(3))
            given.write(text.encode())
            given.seek(0)
        process: subprocess.Popen[bytes] | None = None
        try:
            # A signal whose handler raises before the assignment would leave the command running.
            with stop_signals_delayed():
                process = subprocess.Popen(
                    words, stdin=given, stdout=out, stderr=err, env=environment, start_new_session=True
                )
            while process.poll() is None:
                check()
                with suppress(subprocess.TimeoutExpired):
                    process.wait(_POLL)
        finally:
            with stop_signals_delayed():
                _kill_group(process)
        output, errors = (_read(file) for file in (out, err))
        return subprocess.CompletedProcess(words, process.returncode, output, errors)


def _kill_group(process: subprocess.Popen[bytes] | None) -> None:
    if process is not None and process.poll() is None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _read(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")
