"""YAML as plain data: only text, numbers, booleans, null, lists and mappings.

The files may come from untrusted sources. So these are refused: tags, anchors and aliases (a few hundred
bytes of which can expand to gigabytes), duplicate keys, and deep nesting. Interpolations are not resolved.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import yaml

MOST_CHARACTERS = 1 << 20
_DEEPEST = 20
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


def parse_yaml(text: str) -> Any:
    """Returns the values in `text`. The keys of mappings are text.

    Raises:
        ValueError: it is not YAML of this kind; the message names the line and the problem.
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
    """Returns YAML that `parse_yaml` reads back as `value`.

    Raises:
        ValueError: it contains text that is not Unicode, such as a file name in another encoding, or the YAML
            is longer than `MOST_CHARACTERS`.
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
    """Returns the value of an unquoted scalar.

    Raises:
        ValueError: a number is too long.
    """
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


def _document(events: Iterator[yaml.Event]) -> Any:
    value: Any = None
    for event in events:
        if isinstance(event, yaml.DocumentStartEvent):
            value = _value(events, next(events), 0)
            break
    for event in events:
        if isinstance(event, yaml.DocumentStartEvent):
            raise ValueError(f"{_line(event)}: a second document begins")
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
            raise ValueError(f"{_line(event)}: a key is a list or a mapping")
        key = event.value
        if key in values:
            raise ValueError(f"{_line(event)}: the key {key} occurs twice")
        values[key] = _value(events, next(events), depth + 1)
    return values


def _scalar(event: yaml.ScalarEvent) -> Any:
    if not event.implicit[0]:  # quoted
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
    """Quotes text that `plain_value` would convert. PyYAML alone quotes only by the rules of YAML 1.1."""
    is_other = text in _NULLS or text in _TRUE or text in _FALSE
    is_other = is_other or bool(_INTEGER.fullmatch(text) or _FLOAT.fullmatch(text))
    # In double quotes line breaks are escaped; in other styles some are folded into spaces.
    style = '"' if not text.isprintable() else "'" if is_other else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)
