"""The frame around every command: options in, exit status out, a user's mistake told in one line."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from nmt.errors import UserError

C = TypeVar("C")

OK, BUG, USER_ERROR = 0, 1, 2


def run(command: Callable[[C], None], schema: type[C], config_name: str, doc: str) -> None:
    """Runs a command with the options on its command line and ends the process.

    Args:
        command: what to do with the finished options.
        schema: the dataclass of the options.
        config_name: the YAML file in `configs/` that the options start from.
        doc: what `--help` begins with: the module's docstring.

    Exit status: 0, 2 after a user's mistake, 130 after Ctrl-C, 143 after SIGTERM, 1 with a traceback after
    a bug; 141 if nobody reads standard output any more.
    """
    program = Path(sys.argv[0]).name
    sys.exit(_guarded(program, lambda: _dispatch(command, schema, config_name, doc, sys.argv[1:])))


def _guarded(program: str, work: Callable[[], None]) -> int:
    try:
        try:
            work()
        finally:
            sys.stdout.flush()
    except UserError as error:
        _say(f"{program}: {' '.join(str(error).split())}")
        return USER_ERROR
    except BrokenPipeError:
        # The reader of our output is gone (`| head`): an end, not a failure. Without this Python would
        # complain once more when it flushes standard output on the way out.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except KeyboardInterrupt:
        _say(f"{program}: stopped")
        return 128 + signal.SIGINT
    return OK


def _say(line: str) -> None:
    try:
        print(line, file=sys.stderr, flush=True)
    except BrokenPipeError:
        pass


def _dispatch(
    command: Callable[[C], None], schema: type[C], config_name: str, doc: str, arguments: Sequence[str]
) -> None:
    from nmt.cli.arguments import read_arguments

    flags = read_arguments(arguments)
    if flags.version:
        from nmt import __version__

        print(f"nmt {__version__}")
        return
    if flags.help:
        from nmt.cli.help import help_text

        print(help_text(schema, config_name, doc), end="")
        return

    from nmt.cli.compose import compose_jobs, to_yaml

    jobs = compose_jobs(schema, config_name, flags)
    if flags.show:
        for job in jobs:
            print(to_yaml(job), end="")
        return

    from nmt.runtime import log_to_stderr

    log_to_stderr()
    for job in jobs:
        command(job)
