"""Reads a user's YAML file strictly; every error is one line that names the file and the line.

The file is read before Hydra reads it. It is one mapping of options in the strict YAML of
`nmt.config.plain_yaml`, in UTF-8.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import GrammarParseError

from nmt.config.checks import shortened
from nmt.config.plain_yaml import LONGEST_NUMBER, YamlProblem, line_of, pairs, strict_root
from nmt.errors import UserError
from nmt.options.messages import first_line
from nmt.runtime.os_errors import read_errors

LARGEST = 256 * 1024
"""Size limit of a file, in bytes."""
_STRING = "tag:yaml.org,2002:str"


@dataclass(frozen=True)
class Entry:
    """A key of a file and its value."""

    key: str
    """The full key within the file, such as `training.schedule.peak`."""
    line: int
    """The line of the key, from 1."""
    value: Any
    """As YAML reads it: text, number, boolean, None, list or mapping."""
    written: tuple[str, ...]
    """The text in the file of an unquoted value, or of the unquoted values in a list."""
    read: tuple[Any, ...]
    """The values that YAML reads for `written`."""


@dataclass(frozen=True)
class Default:
    """An entry of the list `defaults` in a file."""

    line: int
    group: str
    """The group, such as `/data`, without `override` and `optional`; empty for a file of the same folder."""
    names: tuple[str, ...]
    """The files that the entry chooses; none for null."""
    override: bool


@dataclass(frozen=True)
class YamlFile:
    """The contents of a file."""

    path: Path
    package: str | None
    """The section to which its keys belong, from the line `# @package`."""
    text: str
    content: dict[str, Any]
    """Its options, without `defaults`."""
    entries: tuple[Entry, ...]
    """Every key of `content`, parents before children."""
    defaults: tuple[Default, ...]


@contextmanager
def problems_of(path: Path) -> Iterator[None]:
    """Adds the file and the line to a `YamlProblem`, which becomes a `UserError`."""
    try:
        yield
    except YamlProblem as problem:
        raise UserError(f"{path}:{problem.line}: {problem.advice}") from problem


def read_yaml(path: Path) -> YamlFile:
    """Reads a file.

    Raises:
        UserError: the file has an error; the message has the file and the line of the first one.
    """
    with problems_of(path):
        text = _text(path)
        root = _root(path, text)
        _check(root)
        try:
            content = OmegaConf.to_container(OmegaConf.create(text), resolve=False)
        except Exception as error:  # OmegaConf refuses it, for example because of an unfinished interpolation
            raise _refused(root, error) from error
        assert isinstance(content, dict)
        options = {key: value for key, value in cast(dict[str, Any], content).items() if key != "defaults"}
        nodes = {key.value: (key, node) for key, node in root.value}
        defaults = _defaults(*nodes.pop("defaults")) if "defaults" in nodes else ()
        entries = _entries(list(nodes.values()), options)
        return YamlFile(path, _package(text), text, options, tuple(entries), tuple(defaults))


def _text(path: Path) -> str:
    with read_errors(path):
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise UserError(f"{path}: is a folder, not a file.")
        if not stat.S_ISREG(mode):
            raise UserError(f"{path}: is not a regular file.")
        with open(path, "rb") as file:
            data = file.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise UserError(f"{path}: is larger than {LARGEST // 1024} KiB, the limit for files of options.")
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise UserError(f"{path}: is UTF-16 text. Save it as UTF-8.")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise YamlProblem(line, "is not UTF-8 text. Save the file as UTF-8.") from error


def _root(path: Path, text: str) -> yaml.MappingNode:
    try:
        root = strict_root(text, yaml.SafeLoader)
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        problem = f"contains the character U+{error.character:04X}, which YAML does not allow."
        raise YamlProblem(line, problem) from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise YamlProblem(mark.line + 1 if mark else 1, _syntax(error, text)) from error
    if root is None:
        raise UserError(f"{path}: contains no options.")
    if not isinstance(root, yaml.MappingNode):
        content = "a list" if isinstance(root, yaml.SequenceNode) else "a single value"
        raise YamlProblem(line_of(root), f"contains {content}. Write options as `key: value`.")
    return root


def _syntax(error: yaml.MarkedYAMLError, text: str) -> str:
    """Returns a message for a YAML syntax error, with a fix for common ones."""
    problem = error.problem or "is not YAML"
    mark = error.problem_mark
    line = text.splitlines()[mark.line] if mark and mark.line < len(text.splitlines()) else ""
    if "'\\t'" in problem or re.match(r"\s*\t", line):
        return "the indentation has a tab. Indent with spaces."
    if "mapping values are not allowed here" in problem:
        return "a line has a second `: ` or is indented too far. Put text with `: ` in quotes."
    if "<stream end>" in problem or "end of stream" in problem:
        begun = error.context_mark
        where = f" of line {begun.line + 1}" if begun else ""
        return f"a bracket or quote{where} is not closed."
    if "could not find expected ':'" in problem:
        return "a key is not followed by `:` and a space."
    return f"is not valid YAML: {problem}."


def _check(node: yaml.Node) -> None:
    """Refuses keys that are not text, duplicate keys and long numbers, at every level."""
    if isinstance(node, yaml.MappingNode):
        for key, value in pairs(node):
            if key.tag == "tag:yaml.org,2002:merge":
                raise YamlProblem(line_of(key), "<<: merge keys are not allowed. Repeat the options.")
            if key.tag != _STRING:
                kind = key.tag.rpartition(":")[2].replace("bool", "truth value").replace("int", "number")
                problem = f"{key.value or 'null'}: YAML reads this key as a {kind}. A key must be text."
                raise YamlProblem(line_of(key), problem)
            _check(value)
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            _check(value)
    elif node.tag == "tag:yaml.org,2002:value":
        raise YamlProblem(line_of(node), "=: is not plain text in YAML. Put it in quotes.")
    elif len(node.value) > LONGEST_NUMBER and not node.style:
        if re.fullmatch(r"[-+]?[\d_.xa-fA-F]+", node.value):
            raise YamlProblem(line_of(node), f"a number of {len(node.value):,} digits is too long.")


def _entries(
    nodes: list[tuple[yaml.ScalarNode, yaml.Node]], content: dict[str, Any], prefix: str = ""
) -> Iterator[Entry]:
    for key, node in nodes:
        name, line = prefix + key.value, line_of(key)
        if not key.value or "." in key.value:
            problem = f"{name or repr('')}: a key is one name. Indent the options of a section under it."
            raise YamlProblem(line, problem)
        if key.value not in content:  # OmegaConf reads some text as numbers that YAML does not, such as 1e3
            raise YamlProblem(line, f"{name}: YAML reads this key as a number. A key must be text.")
        value = content[key.value]
        is_list = isinstance(node, yaml.SequenceNode)
        items = zip(node.value, value, strict=True) if is_list else [(node, value)]
        plain = [(item.value, read) for item, read in items if item.id == "scalar" and not item.style]
        yield Entry(name, line, value, tuple(text for text, _ in plain), tuple(read for _, read in plain))
        if isinstance(node, yaml.MappingNode):
            yield from _entries(node.value, value, f"{name}.")


def _defaults(key: yaml.ScalarNode, node: yaml.Node) -> list[Default]:
    if not isinstance(node, yaml.SequenceNode):
        problem = "defaults: must be a list of entries such as `- override /data: local`."
        raise YamlProblem(line_of(key), problem)
    return [_default(entry) for entry in node.value]


def _default(entry: yaml.Node) -> Default:
    line = line_of(entry)
    wrong = YamlProblem(line, "defaults: an entry must be `- NAME` or `- override /GROUP: NAME`.")
    if isinstance(entry, yaml.ScalarNode):
        if entry.tag != _STRING or not entry.value:
            raise wrong
        return Default(line, "", (entry.value,), False)
    if not isinstance(entry, yaml.MappingNode) or len(entry.value) != 1:
        raise wrong
    ((key, value),) = entry.value
    chosen = value.value if isinstance(value, yaml.SequenceNode) else [value]
    names = []
    for name in chosen:
        if not isinstance(name, yaml.ScalarNode):
            raise wrong
        if name.tag == _STRING:
            names.append(name.value)
        elif name.tag != "tag:yaml.org,2002:null" or chosen is value.value:
            raise YamlProblem(line, f"defaults: {name.value} is not text. Put it in quotes.")
    *keywords, group = key.value.split() or [""]
    if not group or set(keywords) - {"override", "optional"}:
        raise wrong
    return Default(line, group, tuple(names), "override" in keywords)


def _package(text: str) -> str | None:
    """Returns the package named in a comment before the first key."""
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if stripped and not stripped.startswith("#"):
            return None
        if re.match(r"#\s*@\s*package\b", stripped):
            package = re.fullmatch(r"#\s*@package\s+([\w.]+)", stripped)
            if package is None:
                raise YamlProblem(number, "the line must be `# @package _global_`.")
            return package[1]
    return None


def _refused(root: yaml.MappingNode, error: Exception) -> YamlProblem:
    """Returns the problem that OmegaConf has with a file: its key, as far as it is known, and its line."""
    names: list[str] = []
    line, node = 1, root
    for name in re.split(r"[.\[\]]+", str(getattr(error, "full_key", None) or "")):
        inside = node.value if isinstance(node, yaml.MappingNode) else []
        for key, value in inside:
            if key.value == name:
                names.append(name)
                line, node = line_of(key), value
                break
        else:
            break
    problem = first_line(error)
    if isinstance(error, GrammarParseError):
        problem = f"the interpolation ${{...}} can't be parsed ({problem})."
    key = f"{'.'.join(names)}: " if names else ""
    return YamlProblem(line, key + shortened(problem, 200))
