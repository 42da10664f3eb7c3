"""Words on a command line that can't be options, found before Hydra reads them."""

from __future__ import annotations

import re

from nmt.config.checks import shortened
from nmt.errors import UserError

_NOT_A_NAME = re.compile(r"null|\{.*")
_LONGEST = 500
"""Characters of a name, the free names of corpora included."""
_SHOWN = 200
"""Characters of a word in a message."""


def require_text(word: str) -> None:
    """Refuses a word of a command line that is not text.

    Raises:
        UserError: it is not UTF-8, or holds a control character other than a tab.
    """
    shown = shortened(word, _SHOWN)
    if any("\ud800" <= character <= "\udfff" for character in word):
        raise UserError(f"{shown}: is not UTF-8 text; rename what it names")
    for character in word:
        if (character < " " and character != "\t") or "\x7f" <= character < "\xa0":
            raise UserError(f"{shown}: holds the control character U+{ord(character):04X}; leave it out")


def require_option(word: str) -> None:
    """Refuses a word that is not of the form `key=value`.

    Raises:
        UserError: naming the word and what is wrong with it.
    """
    key, equals, value = word.partition("=")
    name = key.lstrip("+~")
    if not word.strip():
        raise UserError("an empty argument: options are written key=value; --help lists them")
    problem = ""
    if not name:
        problem = "the name of an option is missing; options are written key=value"
    elif key.startswith("~"):
        problem = "an option can't be removed; leave it out, or set it to another value"
    elif not equals:
        problem = "options are written key=value; --help lists them"
    elif re.search(r"\s", name):
        problem = "the name of an option has no spaces; options are written key=value"
    elif len(name) > _LONGEST:
        problem = f"no option has a name of {len(name):,} characters; --help lists them"
    elif "@" in name:
        problem = "@ is not taken in a name; every option has one place"
    elif not all(re.split(r"[./]", name)):
        problem = "a part of the name is empty; options are written section.name=value"
    elif re.match(r"hydra\b", name):
        instead = "the folder of a run is run_dir=DIR" if name.endswith("dir") else "--help lists the options"
        problem = f"options of Hydra are not taken; {instead}"
    else:
        problem = _wrong_file(name, value)
    if problem:
        raise UserError(f"{shortened(word, _SHOWN)}: {problem}")


def _wrong_file(group: str, value: str) -> str:
    """What is wrong with a value that should be the name of a file, as in experiment=NAME."""
    from nmt.options.groups import GROUPS, group_names

    if group not in GROUPS["train"] or not _NOT_A_NAME.fullmatch(value):
        return ""
    if value.startswith("{") and group != "experiment":  # options of the section itself
        return ""
    names = ", ".join(group_names(group))
    return f"must be the name of a file: {names}, or one of your own (--config-dir)"


def one_line(text: str, limit: int = 1000) -> str:
    """A message as one line of printable characters."""
    line = " ".join(text.split())
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)
    return shortened(shown, limit)
