"""The words of a command line: overrides `key=value`, flags, and the names of groups of YAML files.

Nothing here imports Hydra, whose import takes as long as `--help`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nmt.config.checks import shortened
from nmt.config.schema import schema_keys
from nmt.errors import UserError
from nmt.runtime.streams import visible

GROUPS = {"train": ("experiment", "data", "data/cleaning", "model", "model/positions"), "eval": ("data",)}
"""The groups of each command: folders of `configs/`."""

FLAGS = ("--help", "--show", "--multirun", "--config-dir", "--version", "--completion")
"""The flags, for completion."""

_SWITCHES = {
    **dict.fromkeys(("-h", "--help"), "help"),
    **dict.fromkeys(("--show", "-c", "--cfg", "--cfg=job"), "show"),
    **dict.fromkeys(("-m", "--multirun"), "sweep"),
    "--version": "version",
}
_WITH_VALUE = {
    "-cd": ("config_dir", "the name of a folder"),
    "--config-dir": ("config_dir", "the name of a folder"),
    "--completion": ("completion", "the name of a shell: bash or zsh"),
    "--complete": ("complete", "a word"),
}

_SIDE_BY_SIDE = (
    "The jobs of a sweep (-m) run one after the other. Side by side, start each as a command: "
    "for seed in 1 2; do nmt-train seed=$seed run_dir=runs/seed-$seed ... & done; wait. Under Slurm: "
    'for seed in 1 2; do sbatch --wrap "nmt-train seed=$seed run_dir=runs/seed-$seed ..."; done'
)
_NOT_A_NAME = re.compile(r"null|\{.*")
_LONGEST = 500
"""Characters of the longest key, free names of corpora included."""
_SHOWN = 200
"""Characters of a word in a message."""


@dataclass(frozen=True)
class Arguments:
    """A parsed command line."""

    overrides: tuple[str, ...] = ()
    """`key=value`, in order."""
    help: bool = False
    version: bool = False
    show: bool = False
    """Print the finished options instead of running."""
    sweep: bool = False
    """Run once for each combination of values separated by commas."""
    config_dir: str | None = None
    """A folder of YAML files that is searched in addition to `configs/`."""
    completion: str | None = None
    """Print the completion script for this shell instead of running."""
    sweeper: tuple[str, ...] = ()
    """The words of a search, such as `hydra/sweeper=optuna`."""
    complete: str | None = None
    """Print the completions of this word; the completion scripts use it."""


def read_arguments(arguments: Sequence[str], schema: type[Any] | None = None) -> Arguments:
    """Parses the words of a command line; `schema` has the options of the command, for suggestions.

    Raises:
        UserError: a flag is unknown or has no value, or a word can't be an option.
    """
    overrides: list[str] = []
    paths: list[str] = []
    sweeper: list[str] = []
    flags: dict[str, Any] = {}
    takes_paths = schema is not None and "runs" in schema_keys(schema)
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        require_text(argument)
        name, equals, value = argument.partition("=")
        if argument in _SWITCHES:
            flags[_SWITCHES[argument]] = True
            if argument in ("-c", "--cfg") and rest[:1] == ["job"]:  # as Hydra has it
                rest.pop(0)
        elif name in _WITH_VALUE:
            field, words = _WITH_VALUE[name]
            if not equals and not rest:
                raise UserError(f"{name}: has no value. Give {words}.")
            flags[field] = value if equals else rest.pop(0)
            require_text(flags[field])
        elif argument.startswith("-"):
            given = value if equals else rest[0] if rest and rest[0][:1] != "-" else None
            raise UserError(_unknown_flag(name, given, schema))
        elif equals and re.match(r"hydra[./]sweeper\b", name) and schema is not None:
            sweeper.append(argument)
        elif takes_paths and not equals and os.path.exists(argument):
            paths.append(argument)
        else:
            require_option(argument)
            overrides.append(argument)
    if any(map(os.path.isdir, paths)):  # the other files of a pattern are left out with a note
        overrides.append(f"runs=[{','.join(map(quoted, paths))}]")
    elif paths:
        require_option(paths[0])
    return Arguments(tuple(overrides), sweeper=tuple(sweeper), **flags)


def quoted(text: str) -> str:
    """Returns text in single quotes for Hydra's grammar; a backslash is an escape only before a quote."""
    return "'" + re.sub(r"(\\+)(?='|\Z)", r"\1\1", text).replace("'", "\\'") + "'"


def _unknown_flag(name: str, value: str | None, schema: type[Any] | None) -> str:
    message = f"{shortened(name)}: is not a flag. Options are written key=value"
    if schema is None:
        return message
    from nmt.options.messages import corrected_flag  # here: `--help` does not need it

    found = corrected_flag(name, None if value is None else shortened(value), list(schema_keys(schema)))
    return f"{message}{found or '. --help lists them.'}"


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
        instead = (
            _SIDE_BY_SIDE
            if "launcher" in name
            else "Set the run folder by run_dir=DIR"
            if name.endswith("dir")
            else "--help lists the options"
        )
        problem = f"options of Hydra are not supported. {instead}."
    else:
        problem = _wrong_file(name, value)
    if problem:
        raise UserError(f"{shortened(word, _SHOWN)}: {problem}")


def _wrong_file(group: str, value: str) -> str:
    """Returns the problem of a value that must be the name of a file, as in experiment=NAME."""
    if group not in GROUPS["train"] or not _NOT_A_NAME.fullmatch(value):
        return ""
    if value.startswith("{") and group != "experiment":  # the options of the section
        return ""
    names = ", ".join(group_names(group))
    return f"must be the name of a file: {names}, or a file of --config-dir."


def one_line(text: str, limit: int = 1000) -> str:
    """Returns a message as one line of printable characters."""
    return shortened(visible(" ".join(text.split())), limit)


def configs_folder() -> Path:
    """Returns the folder of YAML files: next to the package in a checkout, inside it in a wheel."""
    package = Path(__file__).resolve().parents[1]
    inside = package / "configs"
    return inside if inside.is_dir() else package.parent / "configs"


def group_names(group: str) -> list[str]:
    """Returns the names of the files in a group of `configs/`."""
    return sorted(path.stem for path in (configs_folder() / group).glob("*.yaml"))
