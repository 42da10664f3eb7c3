"""The text of `--help`, generated from the option dataclasses."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import textwrap
import typing
from collections.abc import Iterator
from enum import Enum
from typing import Any, cast

from nmt.config.schema import alternatives, choices_of, sides_of
from nmt.options.arguments import GROUPS, group_names

FLAGS = """\
Flags
  -h, --help               print this text
  --show                   print the finished options as YAML and stop
  -m, --multirun           run once for each combination of values separated by commas: -m seed=1,2,3
  -cd, --config-dir DIR    also look for YAML files in DIR (DIR/experiment/mine.yaml: experiment=mine)
  --version                print the version
  --completion SHELL       print a script for bash or zsh that completes options:
                           add eval "$(nmt-train --completion bash)" to ~/.bashrc, or zsh to ~/.zshrc
"""


def help_text(schema: type[Any], config_name: str, doc: str) -> str:
    """Returns the text of `--help`, which begins with the docstring of the command's module.

    `config_name`, the command's YAML file, determines its groups.
    """
    parts = [doc.strip(), FLAGS.rstrip()]
    if config_name == "train":
        parts.append(_groups())
    options = "\n".join(_options(schema, ""))
    of_files = ", unless a file of a group sets another: --show prints the result"
    chosen = of_files if config_name == "train" else ""
    parts.append(f"Options (key=value, with their defaults{chosen})\n{options}")
    return "\n\n".join(parts) + "\n"


def _groups() -> str:
    lines = ["Groups (group=name selects a file of configs/)"]
    for group in GROUPS["train"]:
        names = ", ".join(group_names(group))
        lines += textwrap.wrap(names, 100, initial_indent=f"  {group + '=':<23}", subsequent_indent=" " * 25)
    return "\n".join(lines)


def _options(schema: type[Any], prefix: str) -> Iterator[str]:
    documentation = _documentation(schema)
    hints = typing.get_type_hints(schema)
    for field in dataclasses.fields(schema):
        key, hint = prefix + field.name, hints[field.name]
        sections = [kind for kind in alternatives(hint) if dataclasses.is_dataclass(kind)]
        if hint not in sections:
            yield from _option(f"    {key}={default_text(field)}", field, hint, documentation.get(field.name))
            yield from (f"    {key}.{side}={value}" for side, value in sides_of(field).items())
        for section in sections:
            name = f"{key}.NAME" if typing.get_origin(hint) is dict else key
            yield from _section(cast(type[Any], section), name)


def _option(line: str, field: dataclasses.Field[Any], hint: Any, documentation: str | None) -> Iterator[str]:
    choices = "|".join(choices_of(field, hint))
    words = " ".join(filter(None, (f"{choices}." if choices else "", documentation)))
    if len(line) > 46 and words:
        yield line
        line = ""
    yield from textwrap.wrap(
        words, 110, initial_indent=f"{line:<47}", subsequent_indent=" " * 47, break_on_hyphens=False
    ) or [line]


def _section(kind: type[Any], key: str) -> Iterator[str]:
    summary = (inspect.getdoc(kind) or "").partition("\n")[0]
    yield ""
    yield from textwrap.wrap(f"{key}: {summary}", 116, initial_indent="  ", subsequent_indent=" " * 6)
    yield from _options(kind, f"{key}.")


def default_text(field: dataclasses.Field[Any]) -> str:
    """Returns the default of an option, as written on a command line."""
    value = field.default
    if value is dataclasses.MISSING:
        value = field.default_factory() if field.default_factory is not dataclasses.MISSING else None
    if isinstance(value, Enum):
        return value.name
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return f"{{{','.join(f'{name}: {part}' for name, part in value.items())}}}"
    return f"[{','.join(map(str, value))}]" if isinstance(value, list) else str(value)


def _documentation(schema: type[Any]) -> dict[str, str]:
    """Returns the docstrings of the fields of a dataclass, which Python does not store."""
    texts: dict[str, str] = {}
    for part in filter(dataclasses.is_dataclass, reversed(schema.__mro__)):
        body = ast.parse(textwrap.dedent(inspect.getsource(part))).body[0]
        assert isinstance(body, ast.ClassDef)
        for before, after in zip(body.body, body.body[1:], strict=False):
            if isinstance(before, ast.AnnAssign) and isinstance(before.target, ast.Name):
                if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                    texts[before.target.id] = " ".join(str(after.value.value).split())
    return texts
