"""Strict YAML: only text, numbers, booleans, null, lists and mappings.

The files may come from untrusted sources. So these are refused: tags, anchors and aliases (a few hundred
bytes of which can expand to gigabytes), duplicate keys, and deep nesting. `parse_yaml` and `write_yaml` are
for stored files, whose interpolations are not resolved. `nmt.options.yaml_files` reads the files of users.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

MOST_CHARACTERS = 1 << 20
"""Of a stored file."""
_DEEPEST = 20
"""Limit on the levels of nesting; the options have six."""
LONGEST_NUMBER = 100
"""Characters; longer than the number of any option. Python converts at most 4,300 digits."""

_NULLS = ("", "~", "null", "Null", "NULL")
_TRUE, _FALSE = (
    frozenset(form for word in words for form in (word, word.capitalize(), word.upper()))
    for words in (("true", "yes", "on"), ("false", "no", "off"))
)
_INTEGER = re.compile(r"[-+]?[0-9][0-9_]*")
_FLOAT = re.compile(
    r"[-+]?(?:[0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*|[0-9][0-9_]*(?=[eE]))(?:[eE][-+]?[0-9]+)?"
    r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
)


class YamlProblem(ValueError):
    """A problem in a YAML text.

    Attributes:
        line: its line, from 1.
        advice: the problem and its remedy, for the author of the text.
    """

    def __init__(self, line: int, problem: str, advice: str = "") -> None:
        super().__init__(f"line {line}: {problem}")
        self.line, self.advice = line, advice or problem


def parse_yaml(text: str) -> Any:
    """Returns the values in `text`. The keys of mappings are text.

    Raises:
        ValueError: it is not YAML of this kind; the message names the line and the problem.
    """
    if len(text) > MOST_CHARACTERS:
        raise ValueError(f"has {len(text):,} characters, more than {MOST_CHARACTERS:,}")
    try:
        root = strict_root(text, yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}: " if mark else ""
        raise ValueError(f"{where}{error.problem or 'not YAML'}") from error
    except yaml.YAMLError as error:
        raise ValueError("; ".join(str(error).split("\n"))) from error
    return None if root is None else _values(root)


def strict_root(text: str, loader: Any) -> yaml.Node | None:
    """Returns the nodes of the only document in `text`; None if there is none.

    Raises:
        YamlProblem: it has an anchor, an alias, a tag, a second document, or too many levels.
        yaml.YAMLError: it is not YAML.
    """
    depth = documents = 0
    for event in yaml.parse(text, Loader=loader):  # before any recursive function handles it
        line = line_of(event)
        documents += isinstance(event, yaml.DocumentStartEvent)
        if documents > 1:
            raise YamlProblem(
                line, "a second document begins", "a second document begins. Write one document."
            )
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            name = f"{'*' if isinstance(event, yaml.AliasEvent) else '&'}{event.anchor}"
            raise YamlProblem(
                line,
                "anchors and aliases (& and *) are not allowed",
                f"{name}: anchors and aliases are not allowed. Repeat the value, or refer to another option "
                "by ${key}.",
            )
        if getattr(event, "tag", None) is not None:
            tag = event.tag.replace("tag:yaml.org,2002:", "!!")
            advice = f"{tag}: tags are not allowed. Write plain values, and text in quotes."
            raise YamlProblem(line, "tags (!) are not allowed", advice)
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > _DEEPEST:
            problem = f"nested more than {_DEEPEST} levels deep"
            raise YamlProblem(line, problem, f"is {problem}.")
    return yaml.compose(text, Loader=loader)


def pairs(node: yaml.MappingNode) -> list[tuple[yaml.ScalarNode, yaml.Node]]:
    """Returns the keys and values of a mapping.

    Raises:
        YamlProblem: a key is not a scalar, or occurs twice.
    """
    lines: dict[str, int] = {}
    for key, _ in node.value:
        line = line_of(key)
        if not isinstance(key, yaml.ScalarNode):
            problem = "a key is a list or a mapping"
            raise YamlProblem(line, problem, f"{problem}. Write text.")
        if key.value in lines:
            advice = f"{key.value}: occurs twice, first in line {lines[key.value]}."
            raise YamlProblem(line, f"the key {key.value} occurs twice", advice)
        lines[key.value] = line
    return list(node.value)


def line_of(item: yaml.Node | yaml.Event) -> int:
    """Returns the line in which a node or an event begins, from 1."""
    return int(item.start_mark.line) + 1


def write_yaml(value: Any) -> str:
    """Returns YAML that `parse_yaml` reads back as `value`.

    Raises:
        ValueError: a text is not Unicode, such as a file name in another encoding, or the YAML is too long.
    """
    text: str = yaml.dump(
        value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, default_flow_style=False
    )
    if re.search(r"\\u[dD][89a-fA-F]", text):
        raise ValueError("holds text that is not Unicode")
    if len(text) > MOST_CHARACTERS:
        raise ValueError(f"has {len(text):,} characters, more than {MOST_CHARACTERS:,}")
    return text


def plain_value(text: str) -> Any:
    """Returns the value of an unquoted scalar. Raises `ValueError` if a number is too long."""
    if text in _NULLS:
        return None
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    integer, number = _INTEGER.fullmatch(text), _FLOAT.fullmatch(text)
    if not integer and not number:
        return text
    if len(text) > LONGEST_NUMBER:
        raise ValueError(f"a number of {len(text):,} characters is too long")
    digits = text.replace("_", "")
    return int(digits) if integer else float(digits.lower().replace(".inf", "inf").replace(".nan", "nan"))


def _values(node: yaml.Node) -> Any:
    if isinstance(node, yaml.MappingNode):
        return {key.value: _values(value) for key, value in pairs(node)}
    if isinstance(node, yaml.SequenceNode):
        return [_values(item) for item in node.value]
    if node.style:  # quoted, or a block
        return node.value
    try:
        return plain_value(node.value)
    except ValueError as error:
        raise YamlProblem(line_of(node), str(error)) from None


class _Dumper(yaml.SafeDumper):  # type: ignore[misc]
    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    """Quotes text that `plain_value` would convert. PyYAML alone quotes only by the rules of YAML 1.1."""
    is_other = text in _NULLS or text in _TRUE or text in _FALSE
    is_other = is_other or bool(_INTEGER.fullmatch(text) or _FLOAT.fullmatch(text))
    # In double quotes line breaks are escaped; in other styles some are folded into spaces.
    style = '"' if not text.isprintable() else "'" if is_other else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)
