"""Refuses words on a command line that can't be options, before Hydra reads them."""

from __future__ import annotations

import os
import re

from nmt.config.checks import shortened
from nmt.errors import UserError

_NOT_A_NAME = re.compile(r"null|\{.*")
_LONGEST = 500
"""Characters of the longest key, free names of corpora included."""
_SHOWN = 200
"""Characters of a word in a message."""


def require_text(word: str) -> None:
    """Refuses a word of a command line that is not text.

    Raises:
        UserError: it is not UTF-8, or contains a control character other than a tab.
    """
    shown = shortened(word, _SHOWN)
    if any("\ud800" <= character <= "\udfff" for character in word):
        raise UserError(f"{shown}: is not UTF-8 text. Rename the file or folder.")
    for character in word:
        if (character < " " and character != "\t") or "\x7f" <= character < "\xa0":
            raise UserError(f"{shown}: contains the control character U+{ord(character):04X}. Remove it.")


def require_option(word: str) -> None:
    """Refuses a word that is not of the form `key=value`.

    Raises:
        UserError: the message names the word and the problem.
    """
    key, equals, value = word.partition("=")
    name = key.lstrip("+~")
    if not word.strip():
        raise UserError("an empty argument: options are written key=value. --help lists them.")
    problem = ""
    if not name:
        problem = "the key is missing. Options are written key=value."
    elif key.startswith("~"):
        problem = "an option can't be removed. Leave it out, or set another value."
    elif not equals:
        example = f", such as model_dir={word}" if os.path.isdir(word) else ""
        problem = f"options are written key=value{example}. --help lists them."
    elif re.search(r"\s", name):
        problem = "a key has no spaces. Options are written key=value."
    elif len(name) > _LONGEST:
        problem = f"no option has a key of {len(name):,} characters. --help lists all."
    elif "@" in name:
        problem = "@ is not allowed in a key. Every option has a fixed place."
    elif not all(re.split(r"[./]", name)):
        problem = "a part of the key is empty. Options are written section.key=value."
    elif re.match(r"hydra\b", name):
        instead = "Set the run folder by run_dir=DIR" if name.endswith("dir") else "--help lists the options"
        problem = f"options of Hydra are not supported. {instead}."
    else:
        problem = _wrong_file(name, value)
    if problem:
        raise UserError(f"{shortened(word, _SHOWN)}: {problem}")


def _wrong_file(group: str, value: str) -> str:
    """Returns the problem of a value that must be the name of a file, as in experiment=NAME."""
    from nmt.options.groups import GROUPS, group_names

    if group not in GROUPS["train"] or not _NOT_A_NAME.fullmatch(value):
        return ""
    if value.startswith("{") and group != "experiment":  # the options of the section
        return ""
    names = ", ".join(group_names(group))
    return f"must be the name of a file: {names}, or a file of --config-dir."


def one_line(text: str, limit: int = 1000) -> str:
    """Returns a message as one line of printable characters."""
    line = " ".join(text.split())
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)
    return shortened(shown, limit)
