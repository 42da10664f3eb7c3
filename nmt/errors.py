"""The exception for mistakes that the user can correct."""

from __future__ import annotations


class UserError(ValueError):
    """A mistake that the user can correct, with a message of one line.

    The message names the key, or the file and line, and says how to correct it. The commands print it without
    a traceback and exit with status 2. Any other exception is a bug and is shown with its traceback.
    """
