"""Runs a command: reads its options, reports user errors in one line, and sets the exit status."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TypeVar

from nmt import __version__
from nmt.errors import UserError
from nmt.runtime.files import choose_temporary_folder, require_current_folder
from nmt.runtime.machine import expandable_segments, require_unix, short_spins
from nmt.runtime.os_errors import stray_file_error, write_errors
from nmt.runtime.plugins import load_plugins, no_silent_exit
from nmt.runtime.signals import Terminated, let_stop_signals_kill, raise_on_stop_signals
from nmt.runtime.streams import (
    log,
    log_to_stderr,
    mark_line,
    printable,
    product,
    reserve_stdout,
    silence,
    steady_streams,
)

if TYPE_CHECKING:
    from nmt.options.arguments import Arguments

C = TypeVar("C")

OK, BUG, USER_ERROR = 0, 1, 2
_SHOWN_JOBS = 5  # failed jobs of a sweep in a message


def run(
    command: Callable[[C], None],
    schema: type[C],
    config_name: str,
    doc: str,
    check: Callable[[C], None] = lambda config: None,
    sweep_ended: Callable[[Sequence[C], Mapping[int, str]], None] = lambda jobs, failures: None,
    search: Callable[[Arguments], None] | None = None,
) -> None:
    """Runs a command with the options on its command line and exits.

    Args:
        command: the function that takes the finished options.
        schema: the dataclass of the options.
        config_name: the YAML file in `configs/` from which the options start.
        doc: the docstring of the command's module, which begins the text of `--help`.
        check: called with `--show` before the options are printed; raises `UserError` for values that the
            command would refuse although they have the right type.
        sweep_ended: called after the last job of a sweep, with all jobs and the errors of those that failed.
        search: called in place of the command for a search (`hydra/sweeper=optuna`), with the command line.

    Exit status: 0; 2 after a user error; 128 + N after stop signal N, such as 130 after Ctrl-C, 143 after
    SIGTERM, 129 after SIGHUP; 141 if the reader of standard output has closed it; 1 with a traceback after a
    bug.
    """
    program = f"nmt-{config_name}"  # not sys.argv[0], which `python -m` sets to a file
    parts = command, schema, config_name, doc, check, sweep_ended, search
    end_with(program, lambda: _dispatch(*parts, sys.argv[1:]))


def end_with(program: str, work: Callable[[], None]) -> NoReturn:
    """Calls `work` and exits with the status of the command; messages begin with `program`."""
    steady_streams()
    raise_on_stop_signals()  # by default signals end the process without cleanup
    short_spins()  # before anything imports torch
    expandable_segments()  # before torch uses a GPU
    status = _guarded(program, work)
    let_stop_signals_kill()  # everything is written
    sys.exit(status)


def _guarded(program: str, work: Callable[[], None]) -> int:
    try:
        try:
            with no_silent_exit():
                work()
        except (SystemExit, KeyboardInterrupt):
            with suppress(UserError, OSError):  # a closed terminal does not change the exit status
                put("")
            raise
        except BaseException as error:
            put("")
            if (stop := _interrupted_by(error)) is not None:
                raise stop from error
            raise
        put("")
    except UserError as error:
        from nmt.options.arguments import one_line  # only an error needs it

        _say(f"{program}: {one_line(str(error))}")
        return USER_ERROR
    except BrokenPipeError:
        # The reader of standard output has closed it (`| head`): not a failure. Without this, Python would
        # report the error again when it flushes standard output at exit.
        silence(product())
        return 128 + getattr(signal, "SIGPIPE", 13)  # Windows does not have it
    except (OSError, RuntimeError) as error:
        line = stray_file_error(error)
        if line is None:
            raise
        _say(f"{program}: {line}")
        return USER_ERROR
    except Terminated as error:
        return _stopped(f"{program}: stopped ({error.signum.name})", error.signum)
    except KeyboardInterrupt:
        return _stopped(f"{program}: stopped", signal.SIGINT)
    return OK


def _interrupted_by(error: BaseException) -> Terminated | KeyboardInterrupt | None:
    """Returns the signal's exception if it caused an error: clean-up of a library that it interrupted.

    Hydra and OmegaConf, for example, close files in a `finally` that were not opened yet.
    """
    seen: set[int] = set()
    pending = [error]
    while pending:
        cause = pending.pop()
        if isinstance(cause, Terminated | KeyboardInterrupt):
            return cause
        seen.add(id(cause))
        behind = (cause.__cause__, cause.__context__)
        pending += [each for each in behind if each is not None and id(each) not in seen]
    return None


def _stopped(line: str, signum: signal.Signals) -> int:
    mark_line()  # the terminal shows the key, such as ^C
    if os.environ.get("RANK", "0") == "0":  # under torchrun only rank 0 prints
        _say(line)
    with suppress(OSError):
        silence(product())  # unflushed text would fail again at exit
    return 128 + signum


def put(text: str) -> None:
    """Writes text to standard output.

    Raises:
        UserError: it can't be written, for example because the disk is full.
        BrokenPipeError: the reader has closed it.
    """
    try:
        with write_errors(Path("standard output")):
            if text:  # on a full disk even writing an empty text fails
                product().write(text)
            product().flush()
    except UserError:
        silence(product())  # its buffer still holds the text, and would fail again at exit
        raise


def _say(line: str) -> None:
    print(printable(line), file=sys.stderr, flush=True)


def _dispatch(
    command: Callable[[C], None],
    schema: type[C],
    config_name: str,
    doc: str,
    check: Callable[[C], None],
    sweep_ended: Callable[[Sequence[C], Mapping[int, str]], None],
    search: Callable[[Arguments], None] | None,
    arguments: Sequence[str],
) -> None:
    # Here and below: a shell waits for completions, and a reader for --help. Each imports what it needs.
    from nmt.options.arguments import read_arguments

    flags = read_arguments(arguments, schema)
    if flags.version:
        put(f"nmt {__version__}\n")
        return
    if flags.help:
        from nmt.cli.help import help_text

        put(help_text(schema, config_name, doc))
        return
    if flags.completion is not None or flags.complete is not None:
        from nmt.cli.completion import completed, script

        if flags.completion is not None:
            put(script(flags.completion))
        else:
            put("".join(f"{word}\n" for word in completed(schema, config_name, flags.complete or "")))
        return

    require_unix()
    require_current_folder()
    choose_temporary_folder()  # before torch is imported
    # They import Hydra, for which --help does not wait.
    from nmt.config.storage import to_yaml
    from nmt.options.compose import compose_jobs, names_of_jobs

    log_to_stderr()
    if flags.sweeper:
        if search is None:
            raise UserError(f"{flags.sweeper[0]}: only nmt-train searches options. Leave it out.")
        search(flags)
        return
    jobs = compose_jobs(schema, config_name, flags)
    if flags.show:
        for job in jobs:
            load_plugins_of(job)
            check(job)
        for job in jobs:
            put(to_yaml(job))
        return

    _require_apart(jobs)
    if len(jobs) > 1 and config_name == "serve":
        raise UserError(
            "-m: a server runs until it is stopped, so only the first job would run. Start each as a command."
        )
    if len(jobs) > 1 and config_name == "train":
        from nmt.training.processes.environments import refuse_launchers

        refuse_launchers("-m", os.environ)
    if len(jobs) > 1:
        _sweep(command, jobs, names_of_jobs(schema, config_name, flags), sweep_ended)
        return
    for job in jobs:
        load_plugins_of(job)
        command(job)


def load_plugins_of(job: object) -> None:
    """Imports the plugins of a job; what they print goes to standard error."""
    if plugins := getattr(job, "plugins", ()):
        reserve_stdout()
    load_plugins(plugins)


def failure_in_words(error: UserError | OSError) -> str:
    """Returns the line about a failed job of a sweep. Raises the error if it must end the sweep."""
    line = str(error) if isinstance(error, UserError) else str(stray_file_error(error) or "")
    if not line or isinstance(error, BrokenPipeError) or "RANK" in os.environ:
        raise error  # with torchrun, the other processes of the run end, too
    return line


def _sweep(
    command: Callable[[C], None],
    jobs: Sequence[C],
    names: Sequence[str],
    ended: Callable[[Sequence[C], Mapping[int, str]], None] = lambda jobs, failures: None,
) -> None:
    """Runs the jobs of a sweep; a job that the user can correct is reported, and does not end the sweep.

    Raises:
        UserError: some jobs failed; the message has their options.
    """
    failures: dict[int, str] = {}
    for number, (job, name) in enumerate(zip(jobs, names, strict=True), start=1):
        place = f"job {number} of {len(jobs)} ({name})"
        log.info("%s", place)
        try:
            load_plugins_of(job)
            command(job)
        except (UserError, OSError) as error:
            failures[number - 1] = failure_in_words(error)
            log.error("%s: %s", place, failures[number - 1])
        except BaseException:
            left = len(jobs) - number
            log.error(
                "the sweep ended in %s%s", place, f"; not run: {left}, from {names[number]}" if left else ""
            )
            raise
    if os.environ.get("RANK", "0") == "0":
        ended(jobs, failures)
    if failed := [names[number] for number in failures]:
        shown = ", ".join(failed[:_SHOWN_JOBS]) + (", ..." if len(failed) > _SHOWN_JOBS else "")
        raise UserError(f"-m: {len(failed)} of {len(jobs)} jobs failed: {shown}. Their errors are above.")


def _require_apart(jobs: Sequence[object]) -> None:
    """Refuses a sweep (`-m`) whose jobs would write the same file or read the same standard input."""
    if len(jobs) < 2:
        return
    for key in ("output", "alignments", "json"):
        names = [name for job in jobs if (name := getattr(job, key, None)) is not None]
        if len(set(names)) < len(names):
            raise UserError(
                f"{key}={names[0]}: every job of the sweep would write this file. Add an option that differs "
                f"to its name, such as '{key}={names[0]}.${{OPTION}}'."
            )
    if any(getattr(job, "input", "") is None for job in jobs):
        raise UserError("input: the jobs of a sweep can't share standard input. Give input=FILE.")
