"""Shell completion: the completions that the scripts for bash and zsh offer."""

from __future__ import annotations

import dataclasses
import os
import typing
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from nmt.cli.help import default_text
from nmt.config import SCHEMAS
from nmt.config.schema import alternatives, choices_of, walk
from nmt.errors import UserError
from nmt.options.arguments import FLAGS, GROUPS, group_names
from nmt.runtime.files import expanded


def script(shell: str) -> str:
    """Returns the script that a shell evaluates at its start: `eval "$(nmt-train --completion bash)"`.

    It calls the command: `nmt-train --complete WORD` prints the completions of WORD as whole words. If there
    are none, the shell completes file names.

    Raises:
        UserError: the shell is neither bash nor zsh.
    """
    if shell not in ("bash", "zsh"):
        raise UserError(f"{f'--completion {shell}'.strip()}: must be bash or zsh.")
    text = Path(__file__).with_suffix(f".{shell}").read_text("utf-8")
    return text.replace("NMT_COMMANDS", " ".join(SCHEMAS))


def completed(schema: type[Any], config_name: str, word: str) -> list[str]:
    """Returns the completions of the beginning of an argument.

    Keys are completed one section at a time: `tr` to `training.`, and that to one of its options. Values are
    completed for groups, enums, booleans and numbers (to their default). `config_name`, the command's YAML
    file, determines its groups.

    Returns:
        Whole words; those that end in `=`, `.` or `/` can be completed further. With an empty list, the shell
        completes file names.
    """
    groups = {group: group_names(group) for group in GROUPS.get(config_name, ())}
    if word.startswith("-"):
        return [flag for flag in FLAGS if flag.startswith(word)]
    key, equals, value = word.partition("=")
    if not equals:
        return sorted(_keys(schema, groups, word))
    if value.startswith("["):
        return _files(word)
    return [f"{key}={choice}" for choice in _values(schema, groups, key) if choice.startswith(value)]


def _keys(schema: type[Any], groups: Mapping[str, Sequence[str]], word: str) -> set[str]:
    words = {f"{group}=" for group in groups if group.startswith(word)}
    for key, *_ in _options(schema, word):
        if key.startswith(word) and key != word and "*" not in key:
            section, dot, _ = key[len(word) :].partition(".")
            words.add(f"{word}{section}{dot or '='}")
    return words


def _values(schema: type[Any], groups: Mapping[str, Sequence[str]], key: str) -> Sequence[str]:
    if key in groups:
        return groups[key]
    for name, kind, field in _options(schema, key):
        if name == key and field is not None:
            default = default_text(field)
            if kind is bool:
                return ["true", "false"]
            return choices_of(field, kind) or (
                [default] if kind in (int, float) and default != "null" else []
            )
    return []


def _options(schema: type[Any], word: str) -> Iterator[tuple[str, Any, dataclasses.Field[Any] | None]]:
    """Yields every option: key, type and field. Its free names are those of `word`, or `*`.

    For a section whose parts have free names, it yields the key with a dot, without a field.
    """
    names = word.split(".")
    for key, field, hint in walk(schema):
        kinds = [kind for kind in alternatives(hint) if kind is not type(None)]
        parts = enumerate(key.split("."))
        key = ".".join(names[i] if part == "*" and len(names) > i + 1 else part for i, part in parts)
        if not any(map(dataclasses.is_dataclass, kinds)):
            yield key, kinds[0], field
        elif typing.get_origin(hint) is dict:
            yield f"{key}.", hint, None


def _files(word: str) -> list[str]:
    """Returns the completions of the last file in a list of files, `key=[a,b`."""
    at = max(word.rfind("["), word.rfind(",")) + 1
    folder, _, start = word[at:].rpartition("/")
    inside = expanded(folder or ("/" if word[at:].startswith("/") else "."))
    before = word[: len(word) - len(start)]
    try:
        entries = sorted(os.scandir(inside), key=lambda entry: entry.name)
    except OSError:
        return []
    return [
        f"{before}{entry.name}{'/' if entry.is_dir() else ''}"
        for entry in entries
        if entry.name.startswith(start) and (start or not entry.name.startswith("."))
    ]
