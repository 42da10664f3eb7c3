"""The one exception for what a user can mend."""

from __future__ import annotations


class UserError(ValueError):
    """A mistake the user can mend, told in one line.

    The message names the key, or the file and line, and says what to do. The commands print it without a
    traceback and end with exit status 2. Everything else that is raised is a bug and keeps its traceback.
    """
