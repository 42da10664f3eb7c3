"""The library of the hub: its log, its progress bars and its errors. It is imported when it is needed."""

from __future__ import annotations

import logging
import re
import sys

from nmt.runtime.guest import guest

_COMMIT = re.compile("[0-9a-f]{40}")


def is_commit(revision: str | None) -> bool:
    """Whether a revision is a commit, which never changes."""
    return _COMMIT.fullmatch(revision or "") is not None


def quiet_hub() -> None:
    """Disables the warnings of the library, and its progress bars unless standard error is a terminal.

    In a call from another program, its log and bars are not changed.
    """
    from huggingface_hub.utils.tqdm import disable_progress_bars

    if guest() is not None:
        return
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    if not sys.stderr.isatty():
        disable_progress_bars()


def is_network_error(error: BaseException) -> bool:
    """Whether an error is a network error. Its class depends on the version of the library."""
    return isinstance(error, OSError) or type(error).__module__.split(".")[0].startswith(("http", "requests"))


def brief(error: BaseException) -> str:
    """Returns the message of another library's error in one line."""
    return " ".join(str(error).split())[:300] or type(error).__name__
