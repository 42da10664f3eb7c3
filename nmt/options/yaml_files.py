"""Reads a user's YAML file strictly; every error is one line that names the file and the line.

The file is read before Hydra reads it. Only plain YAML is allowed: one mapping of options in UTF-8, without
tags, anchors, aliases and merge keys.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, cast

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import GrammarParseError

from nmt.config.checks import shortened
from nmt.config.plain_yaml import LONGEST_NUMBER
from nmt.errors import UserError
from nmt.runtime import read_errors

LARGEST = 256 * 1024
"""Size limit of a file, in bytes."""
DEEPEST = 20
"""Limit on the levels of nesting; the options have six."""
STRING = "tag:yaml.org,2002:str"


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


def read_yaml(path: Path) -> YamlFile:
    """Reads a file.

    Raises:
        UserError: the file has an error; the message has the file and the line of the first one.
    """
    text = _text(path)
    root = _root(path, text)
    _refuse_keys(path, root)
    pairs = list(_pairs(path, root))
    try:
        content = OmegaConf.to_container(OmegaConf.create(text), resolve=False)
    except Exception as error:  # OmegaConf refuses it, for example because of an unfinished interpolation
        key, line = _key_of(error, root)
        refuse(path, line, f"{key}: {_problem(error)}" if key else _problem(error))
    assert isinstance(content, dict)
    defaults = tuple(_defaults(path, pairs))
    options = {key: value for key, value in cast(dict[str, Any], content).items() if key != "defaults"}
    entries = tuple(_entries(path, [pair for pair in pairs if pair[0].value != "defaults"], options))
    return YamlFile(path, _package(path, text), text, options, entries, defaults)


def refuse(path: Path, line: int, problem: str) -> NoReturn:
    """Raises the error for a line of a file."""
    raise UserError(f"{path}:{line}: {problem}")


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
        refuse(path, data.count(b"\n", 0, error.start) + 1, "is not UTF-8 text. Save the file as UTF-8.")


def _root(path: Path, text: str) -> yaml.MappingNode:
    """Returns the node graph of a file, which must contain one mapping."""
    try:
        _refuse_events(path, text)
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        refuse(path, line, f"contains the character U+{error.character:04X}, which YAML does not allow.")
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        refuse(path, mark.line + 1 if mark else 1, _syntax(error, text))
    if root is None:
        raise UserError(f"{path}: contains no options.")
    if not isinstance(root, yaml.MappingNode):
        what = "a list" if isinstance(root, yaml.SequenceNode) else "a single value"
        refuse(path, root.start_mark.line + 1, f"contains {what}. Write options as `key: value`.")
    return root


def _refuse_events(path: Path, text: str) -> None:
    """Refuses YAML that is not allowed in options, before any recursive function handles it."""
    depth = documents = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        line = event.start_mark.line + 1
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents > 1:
                refuse(path, line, "a second document begins. Write one document.")
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            sign = "*" if isinstance(event, yaml.AliasEvent) else "&"
            refuse(
                path,
                line,
                f"{sign}{event.anchor}: anchors and aliases are not allowed. Repeat the value, "
                f"or refer to another option by ${{key}}.",
            )
        if getattr(event, "tag", None) is not None:
            tag = event.tag.replace("tag:yaml.org,2002:", "!!")
            refuse(path, line, f"{tag}: tags are not allowed. Write plain values, and text in quotes.")
        if isinstance(event, yaml.ScalarEvent) and event.style is None and len(event.value) > LONGEST_NUMBER:
            if re.fullmatch(r"[-+]?[\d_.xa-fA-F]+", event.value):
                refuse(path, line, f"a number of {len(event.value):,} digits is too long.")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > DEEPEST:
                refuse(path, line, f"is nested more than {DEEPEST} levels deep.")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


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


def _refuse_keys(path: Path, node: yaml.Node) -> None:
    """Refuses keys that are not text and duplicate keys, at every level."""
    if isinstance(node, yaml.MappingNode):
        for _, value in _pairs(path, node):
            _refuse_keys(path, value)
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            _refuse_keys(path, value)
    elif node.tag == "tag:yaml.org,2002:value":
        refuse(path, node.start_mark.line + 1, "=: is not plain text in YAML. Put it in quotes.")


Pair = tuple[yaml.ScalarNode, yaml.Node]


def _pairs(path: Path, node: yaml.MappingNode) -> Iterator[Pair]:
    """Yields the keys and values of a mapping; refuses keys that are not text, and duplicates."""
    seen: dict[str, int] = {}
    for key, value in node.value:
        line = key.start_mark.line + 1
        if not isinstance(key, yaml.ScalarNode):
            refuse(path, line, "a key is a list or a mapping. Write text.")
        if key.tag == "tag:yaml.org,2002:merge":
            refuse(path, line, "<<: merge keys are not allowed. Repeat the options.")
        if key.tag != STRING:
            kind = key.tag.rpartition(":")[2].replace("bool", "truth value").replace("int", "number")
            refuse(path, line, f"{key.value or 'null'}: YAML reads this key as a {kind}. A key must be text.")
        if key.value in seen:
            refuse(path, line, f"{key.value}: occurs twice, first in line {seen[key.value]}.")
        seen[key.value] = line
        yield key, value


def _entries(path: Path, pairs: list[Pair], content: dict[str, Any], prefix: str = "") -> Iterator[Entry]:
    for key, node in pairs:
        name, line = prefix + key.value, key.start_mark.line + 1
        if not key.value or "." in key.value:
            refuse(
                path,
                line,
                f"{name or repr('')}: a key is one name. Indent the options of a section under it.",
            )
        if key.value not in content:  # OmegaConf reads some text as numbers that YAML does not, such as 1e3
            refuse(path, line, f"{name}: YAML reads this key as a number. A key must be text.")
        value = content[key.value]
        nodes = node.value if isinstance(node, yaml.SequenceNode) else [node]
        values = value if isinstance(node, yaml.SequenceNode) else [value]
        plain = [
            (one.value, read)
            for one, read in zip(nodes, values, strict=True)
            if isinstance(one, yaml.ScalarNode) and one.style is None
        ]
        yield Entry(name, line, value, tuple(one for one, _ in plain), tuple(read for _, read in plain))
        if isinstance(node, yaml.MappingNode):
            yield from _entries(path, list(_pairs(path, node)), value, f"{name}.")


def _defaults(path: Path, pairs: list[Pair]) -> Iterator[Default]:
    for key, node in pairs:
        if key.value != "defaults":
            continue
        if not isinstance(node, yaml.SequenceNode):
            refuse(
                path,
                key.start_mark.line + 1,
                "defaults: must be a list of entries such as `- override /data: local`.",
            )
        for entry in node.value:
            yield _default(path, entry)


def _default(path: Path, entry: yaml.Node) -> Default:
    line = entry.start_mark.line + 1
    wrong = "defaults: an entry must be `- NAME` or `- override /GROUP: NAME`."
    if isinstance(entry, yaml.ScalarNode):
        if entry.tag != STRING or not entry.value:
            refuse(path, line, wrong)
        return Default(line, "", (entry.value,), False)
    if not isinstance(entry, yaml.MappingNode):
        refuse(path, line, wrong)
    pairs = list(_pairs(path, entry))
    if len(pairs) != 1:
        refuse(path, line, wrong)
    ((key, value),) = pairs
    chosen = value.value if isinstance(value, yaml.SequenceNode) else [value]
    names = []
    for one in chosen:
        if not isinstance(one, yaml.ScalarNode):
            refuse(path, line, wrong)
        if one.tag == STRING:
            names.append(one.value)
        elif one.tag != "tag:yaml.org,2002:null" or chosen is value.value:
            refuse(path, line, f"defaults: {one.value} is not text. Put it in quotes.")
    *keywords, group = key.value.split() or [""]
    if not group or set(keywords) - {"override", "optional"}:
        refuse(path, line, wrong)
    return Default(line, group, tuple(names), "override" in keywords)


def _package(path: Path, text: str) -> str | None:
    """Returns the package named in a comment before the first key."""
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if stripped and not stripped.startswith("#"):
            return None
        if re.match(r"#\s*@\s*package\b", stripped):
            found = re.fullmatch(r"#\s*@package\s+([\w.]+)", stripped)
            if found is None:
                refuse(path, number, "the line must be `# @package _global_`.")
            return found[1]
    return None


def _key_of(error: BaseException, root: yaml.Node) -> tuple[str, int]:
    """Returns the key in an error of OmegaConf, as far as it is known, and its line."""
    found: list[str] = []
    line, node = 1, root
    for name in re.split(r"[.\[\]]+", str(getattr(error, "full_key", None) or "")):
        pairs = node.value if isinstance(node, yaml.MappingNode) else []
        inside = [(key, value) for key, value in pairs if key.value == name]
        if not inside:
            break
        (key, node) = inside[0]
        found.append(name)
        line = key.start_mark.line + 1
    return ".".join(found), line


def _problem(error: BaseException) -> str:
    first = (str(error).strip().splitlines() or [type(error).__name__])[0]
    if isinstance(error, GrammarParseError):
        first = f"the interpolation ${{...}} can't be parsed ({first})."
    return shortened(first, 200)
