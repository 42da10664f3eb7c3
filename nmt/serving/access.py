"""The key that requests must have, if the server has one."""

from __future__ import annotations

import hmac
import os

from nmt.config import ServeConfig
from nmt.errors import UserError
from nmt.runtime import expanded, read_errors, read_text

_LONGEST = 10_000  # characters


def read_api_key(config: ServeConfig) -> str | None:
    """Returns the key that requests must have; None: they need none.

    Raises:
        UserError: the file or the environment variable does not hold a key.
    """
    if config.api_key_file is not None:
        path = expanded(config.api_key_file)
        if not path.exists():
            raise UserError(f"api_key_file={config.api_key_file}: there is no such file. Check the name.")
        with read_errors(path):
            key = read_text(path, _LONGEST).strip()
        if not key:
            raise UserError(f"api_key_file={config.api_key_file}: is empty. Write the key into it.")
        return key
    if config.api_key_variable is not None:
        key = os.environ.get(config.api_key_variable, "").strip()
        if not key:
            raise UserError(
                f"api_key_variable={config.api_key_variable}: this environment variable is not set or is "
                "empty. Set it to the key."
            )
        return key
    return None


def allowed(given: object, key: str | None) -> bool:
    """Returns whether a request with the key `given` is allowed; takes the same time for every wrong key."""
    if key is None:
        return True
    return isinstance(given, str) and hmac.compare_digest(given.encode("utf-8", "replace"), key.encode())
