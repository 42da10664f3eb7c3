"""Translates errors of Hydra and OmegaConf into messages that begin with the key."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence

from hydra.errors import MissingConfigException
from omegaconf.errors import OmegaConfBaseException

from nmt.config.checks import shortened
from nmt.options.suggestions import meant

_KINDS = {"Integer": "a whole number", "Float": "a number", "Boolean": "true or false"}
"""OmegaConf's names of types, in words."""


def missing_config(error: MissingConfigException, overrides: Sequence[str]) -> str:
    """Returns the message for a group, or a file of a group, that does not exist."""
    group, _, name = (error.missing_cfg_file or "").rpartition("/")
    options = sorted(option for option in (error.options or []) if not option.endswith("_schema"))
    asked = f"{group}={name}" if group else name
    hint = did_you_mean(name, options, prefix=f"{group}=")
    if not options:
        return f"{next((o for o in overrides if o.startswith(asked)), asked)}: there is no group {group}."
    return f"{asked}: there is no such {group}{hint} The names are {', '.join(options)}."


def explained(known: Sequence[str], error: Exception) -> str:
    """Returns the message for an error of Hydra or OmegaConf; `known` are the keys to suggest."""
    cause = error.__cause__ if isinstance(error.__cause__, OmegaConfBaseException) else error
    text = f"{error}\n{cause}"
    unknown = re.search(r"(?:Could not override|Could not append to config[^']*) '([^']+)'", text)
    key = getattr(cause, "full_key", None) or (unknown.group(1) if unknown else "")
    if re.search(r"[Kk]ey '.*' (is )?not in|No match in the defaults list|Could not append", text):
        return f"{key}: there is no such option{did_you_mean(key, known)}"
    return f"{key}: {wrong_value(cause)}" if key else first_line(error)


def wrong_value(error: Exception) -> str:
    """Returns the problem that OmegaConf reports for the value of an option."""
    words = first_line(error)
    if re.search(r"^Cannot (merge|assign)|is not a subclass of|incompatible with type hint 'dict", words):
        return "is a section or a list. Give its options one by one."
    if found := re.match(
        r"Value '(.*)' of type '.*' could not be converted to (Integer|Float|Boolean)", words
    ):
        return f"must be {_KINDS[found[2]]}, not {shortened(found[1])}."
    if "is not a ListConfig" in words:
        return "must be a list. Write it in brackets: [a,b]."
    return shortened(f"{words[0].lower()}{words[1:]}", 300)


def did_you_mean(name: str, known: Sequence[str], prefix: str = "") -> str:
    """Returns the end of a message about an unknown name: the most similar known name, or `--help`."""
    close = "." in name and difflib.get_close_matches(name, known, 1, 0.9)
    other = None if prefix or close else meant(name, known)
    if other is not None:
        return other
    last = {key.rpartition(".")[2]: key for key in reversed(known)}
    near = difflib.get_close_matches(name, known, 1, 0.75) or [
        last[key] for key in difflib.get_close_matches(name.rpartition(".")[2], list(last), 1, 0.75)
    ]
    return f". Did you mean {prefix}{_with_names(near[0], name)}?" if near else ". --help lists all."


def _with_names(key: str, given: str) -> str:
    """Returns a key of `schema_keys` with the free names of `given` in place of `*`."""
    names = [*given.split("."), *["NAME"] * key.count(".")]
    return ".".join(name if part == "*" else part for part, name in zip(key.split("."), names, strict=False))


def first_line(error: BaseException) -> str:
    """Returns the first line of an error's message, or its type if the message is empty."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
