"""YAML as plain data: text, numbers, truth values, null, lists and mappings, and nothing else.

The files that are read with this may come from strangers. So there are no tags, no anchors and aliases (a few
hundred bytes of which expand to gigabytes), no duplicate keys and no deep nesting, and nothing is resolved.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import yaml

MOST_CHARACTERS = 1 << 20
_DEEPEST = 20
_LONGEST_NUMBER = 100  # characters; Python refuses to read more than 4,300 digits

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


def parse_yaml(text: str) -> Any:
    """The values that `text` holds; those of a mapping are under their keys as text.

    Raises:
        ValueError: it is not YAML of this kind; the message says where and why.
    """
    if len(text) > MOST_CHARACTERS:
        raise ValueError(f"has {len(text):,} characters, more than {MOST_CHARACTERS:,}")
    loader = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader
    try:
        return _document(yaml.parse(text, Loader=loader))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}: " if mark else ""
        raise ValueError(f"{where}{error.problem or 'not YAML'}") from error
    except yaml.YAMLError as error:
        raise ValueError("; ".join(str(error).split("\n"))) from error


def write_yaml(value: Any) -> str:
    """The YAML from which `parse_yaml` reads `value` back.

    Raises:
        ValueError: it holds text that is not Unicode, such as a file name in another encoding, or too much.
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
    """What an unquoted scalar stands for.

    Raises:
        ValueError: it is a number that is too long.
    """
    if text in _NULLS:
        return None
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    integer, number = _INTEGER.fullmatch(text), _FLOAT.fullmatch(text)
    if not integer and not number:
        return text
    if len(text) > _LONGEST_NUMBER:
        raise ValueError(f"a number of {len(text):,} characters")
    digits = text.replace("_", "")
    return int(digits) if integer else float(digits.lower().replace(".inf", "inf").replace(".nan", "nan"))


def _document(events: Iterator[yaml.Event]) -> Any:
    value: Any = None
    for event in events:
        if isinstance(event, yaml.DocumentStartEvent):
            value = _value(events, next(events), 0)
            break
    for event in events:
        if isinstance(event, yaml.DocumentStartEvent):
            raise ValueError(f"{_line(event)}: a second document")
    return value


def _value(events: Iterator[yaml.Event], event: yaml.Event, depth: int) -> Any:
    if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
        raise ValueError(f"{_line(event)}: anchors and aliases (& and *) are not allowed")
    if getattr(event, "tag", None) is not None:
        raise ValueError(f"{_line(event)}: tags (!) are not allowed")
    if depth > _DEEPEST:
        raise ValueError(f"{_line(event)}: nested more than {_DEEPEST} levels deep")
    if isinstance(event, yaml.ScalarEvent):
        return _scalar(event)
    if isinstance(event, yaml.SequenceStartEvent):
        items = []
        while not isinstance(inner := next(events), yaml.SequenceEndEvent):
            items.append(_value(events, inner, depth + 1))
        return items
    return _mapping(events, depth)


def _mapping(events: Iterator[yaml.Event], depth: int) -> dict[str, Any]:
    values: dict[str, Any] = {}
    while not isinstance(event := next(events), yaml.MappingEndEvent):
        key = str(_value(events, event, depth + 1))
        if not isinstance(event, yaml.ScalarEvent):
            raise ValueError(f"{_line(event)}: a key that is not text")
        key = event.value
        if key in values:
            raise ValueError(f"{_line(event)}: the key {key} is there twice")
        values[key] = _value(events, next(events), depth + 1)
    return values


def _scalar(event: yaml.ScalarEvent) -> Any:
    if not event.implicit[0]:  # it is quoted
        return event.value
    try:
        return plain_value(event.value)
    except ValueError as error:
        raise ValueError(f"{_line(event)}: {error}") from None


def _line(event: yaml.Event) -> str:
    return f"line {event.start_mark.line + 1}"


class _Dumper(yaml.SafeDumper):  # type: ignore[misc]
    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    """Quotes what would be read as something else; PyYAML itself quotes what YAML 1.1 reads so."""
    is_other = text in _NULLS or text in _TRUE or text in _FALSE
    is_other = is_other or bool(_INTEGER.fullmatch(text) or _FLOAT.fullmatch(text))
    # In double quotes every line break is an escape; elsewhere some are folded into spaces.
    style = '"' if not text.isprintable() else "'" if is_other else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)
