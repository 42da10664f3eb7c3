"""The context of every call from Python: raises errors as exceptions, and restores the process state."""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from nmt.errors import UserError
from nmt.options.arguments import Arguments, require_option, require_text
from nmt.runtime.files import require_current_folder
from nmt.runtime.guest import Guest, as_guest, preserved_host_state
from nmt.runtime.machine import require_unix
from nmt.runtime.os_errors import stray_file_error
from nmt.runtime.streams import log

Folder = str | os.PathLike[str]


@contextmanager
def session(*, progress: bool, torch: bool = True) -> Iterator[None]:
    """Makes nmt a guest in this process during the body.

    Args:
        progress: whether to show progress bars.
        torch: whether the call needs torch, which takes seconds to import.

    Raises:
        UserError: raised in the body; or for a file system error that a command would print in one line.
    """
    call = Guest(progress, log.getEffectiveLevel())
    require_unix()
    require_current_folder()  # before torch is imported: its libraries would end the process
    with as_guest(call), preserved_host_state(torch=torch):
        try:
            yield
        except (UserError, KeyboardInterrupt, LaunchFailed) as error:
            _forget_locals(error)
            raise
        except (OSError, RuntimeError) as error:
            line = stray_file_error(error)
            if line is None:
                raise
            raise line from error


class LaunchFailed(RuntimeError):
    """A process of a training failed because of a bug; its traceback is in the log."""


def _forget_locals(error: BaseException | None) -> None:
    """Clears the frames of an error that is not a bug, so that its owner does not retain files and models."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__


def arguments_of(overrides: Sequence[str], config_dir: Folder | None, function: str) -> Arguments:
    """Returns the arguments of a command with overrides `key=value`; messages name the calling function.

    Raises:
        TypeError: the overrides are not a sequence of strings.
        UserError: an override is a flag, or does not have the form `key=value`.
    """
    if isinstance(overrides, str) or not all(isinstance(word, str) for word in overrides):
        raise TypeError(f"{function}: overrides must be a list of strings, each key=value")
    for word in overrides:
        require_text(word)
        if word.startswith("-"):
            raise UserError(
                f"{word}: {function} takes no flags. For a sweep, call it for each combination of values."
            )
        require_option(word)
    return Arguments(tuple(overrides), config_dir=None if config_dir is None else os.fspath(config_dir))
