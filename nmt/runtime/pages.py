"""The templates of HTML pages, rendered by Jinja2."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jinja2 import Environment


@cache
def templates_of(package: str) -> Environment:
    """Returns the templates in the folder `templates` of a package, and those here; all values are escaped.

    Jinja2 is imported here, as few commands need it.
    """
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=ChoiceLoader([PackageLoader(package), PackageLoader("nmt.runtime")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["px"] = "{:.1f}".format
    return environment
