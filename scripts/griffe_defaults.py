"""Defaults of options in the API reference: an extension of griffe, which reads the sources for the site.

The default of an option may be the call of a function that adds facts for `--help`, such as
`path_field("folder", "runs/${name}")`. The reference shows the default itself.
"""

from __future__ import annotations

import ast
from typing import Any

import griffe

_PLACE_OF_DEFAULT = {"path_field": 1, "registered_name": 0}


class Defaults(griffe.Extension):  # type: ignore[misc]
    """Replaces the calls in the defaults of dataclass fields."""

    def on_attribute_instance(self, *, attr: Any, **_: Any) -> None:
        """Changes the shown value of an attribute."""
        if attr.value is not None:
            attr.value = shown_default(str(attr.value))


def shown_default(text: str) -> str:
    """The default in the source of a field: `'runs/${name}'` of `path_field('folder', 'runs/${name}')`."""
    call = ast.parse(text, mode="eval").body
    if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name)):
        return text
    place = _PLACE_OF_DEFAULT.get(call.func.id)
    if place is not None and len(call.args) > place:
        return ast.unparse(call.args[place])
    factories = [word.value for word in call.keywords if word.arg == "default_factory"]
    if call.func.id == "field" and factories:
        made = {"dict": "{}", "list": "[]"}
        if isinstance(factories[0], ast.Lambda):
            return ast.unparse(factories[0].body)
        return made.get(ast.unparse(factories[0]), f"{ast.unparse(factories[0])}()")
    return text
