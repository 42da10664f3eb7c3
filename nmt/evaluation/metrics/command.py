"""Commands of a separate environment: look-up, interruptible runs, and one-line error messages."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from nmt.config.checks import shortened
from nmt.errors import UserError
from nmt.evaluation.metrics.base import ScoringStopped
from nmt.runtime import expanded

_POLL = 0.1  # seconds between two checks of the command

_PROCESS_VARIABLES = frozenset(
    "PYTHONPATH PYTHONHOME RANK LOCAL_RANK GROUP_RANK WORLD_SIZE LOCAL_WORLD_SIZE "
    "MASTER_ADDR MASTER_PORT".split()
)
_PROCESS_PREFIXES = ("TORCHELASTIC_", "SLURM_")
"""Environment variables that only this process uses: module paths, and its rank in a training."""


def find_command(option: str, words: Sequence[str]) -> list[str]:
    """Returns a command with the full path of its program.

    Args:
        option: the option that gave the command, for the error message.
        words: the program, which may begin with `~`, and its arguments.

    Raises:
        UserError: the program does not exist or is not executable.
    """
    given = str(expanded(words[0])) if words[0].startswith("~") else words[0]
    program = shutil.which(given)
    if program is None:
        reason = "not executable" if os.path.isfile(given) else "there is no such command"
        raise UserError(f"{option}={words[0]}: {reason}. Give the path of an executable file.")
    return [program, *words[1:]]


def output_of(option: str, words: Sequence[str], folder: Path, interrupted: Callable[[], bool]) -> str:
    """Runs a command and returns its standard output.

    The command runs in a new process group. Ctrl-C reaches only this process, which then ends the group.

    Args:
        option: the option that gave the command, for error messages.
        words: the program and its arguments.
        folder: the folder of its output files.
        interrupted: called repeatedly; when it returns true, the command is killed.

    Raises:
        ScoringStopped: `interrupted` became true.
        UserError: the command can't be started, or fails; the message ends with the last line of its
            standard error.
    """
    names = folder / "stdout", folder / "stderr"
    with open(names[0], "wb") as out, open(names[1], "wb") as err:
        try:
            process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=_environment(),
                start_new_session=True,
            )
        except OSError as error:
            raise UserError(f"{option}={words[0]}: can't be started: {error.strerror}") from error
        try:
            while (status := _status(process)) is None:
                if interrupted():
                    raise ScoringStopped
        finally:
            _kill_group(process)
    output, errors = (name.read_text(encoding="utf-8", errors="replace") for name in names)
    if status:
        end = f"ended by signal {-status}" if status < 0 else f"ended with exit status {status}"
        lines = [line.strip() for line in errors.splitlines() if line.strip()]
        raise UserError(f"{option}={words[0]}: {end}: {shortened((lines or ['no message'])[-1], 300)}")
    return output


def _status(process: subprocess.Popen[bytes]) -> int | None:
    try:
        return process.wait(_POLL)
    except subprocess.TimeoutExpired:
        return None


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _environment() -> dict[str, str]:
    return {
        name: value
        for name, value in os.environ.items()
        if name not in _PROCESS_VARIABLES and not name.startswith(_PROCESS_PREFIXES)
    }
