"""A report as one self-contained HTML page: sections with templates of their own, a style and a script."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from nmt.languages import language_of
from nmt.runtime.pages import templates_of
from nmt.runtime.streams import printable

if TYPE_CHECKING:
    from jinja2 import Environment


@dataclass(frozen=True)
class Section:
    """A part of a page, with a heading and a link in the navigation.

    Attributes:
        name: its id in the page, of letters, digits and hyphens; different for each section.
        title: the heading.
        template: name of the file `templates/sections/NAME.html`, which writes all but the heading.
        content: the variables of the template, which also has `name`. Markup and control characters in texts
            are escaped.
    """

    name: str
    title: str
    template: str
    content: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Page:
    """A page.

    Attributes:
        title: the heading, and the title of the window.
        sections: in the order of the page.
        data: figures for programs, written as JSON into the element `data`; every figure shown is in it.
    """

    title: str
    sections: Sequence[Section]
    data: Mapping[str, Any] = field(default_factory=dict)

    def html(self) -> str:
        """Returns the page. It loads nothing, and no text in it can become markup or a script."""
        environment = _environment()
        bodies = [
            environment.get_template(f"sections/{section.template}.html").render(
                section.content, name=section.name
            )
            for section in self.sections
        ]
        # No text may end the script: < is escaped in all strings.
        data = json.dumps(self.data, ensure_ascii=False).replace("<", "\\u003c")
        return environment.get_template("report.html").render(
            title=self.title, parts=[*zip(self.sections, bodies, strict=True)], data=data
        )


@cache
def _environment() -> Environment:
    environment = templates_of("nmt.reports")
    environment.filters.update(thousands="{:,}".format, tag=_tag)
    environment.finalize = lambda value: printable(value) if type(value) is str else value  # not markup
    return environment


def _tag(code: str) -> str:
    """Returns the tag of BCP 47 of a language in any spelling; empty if it is not known."""
    language = language_of(code)
    return language.tag.replace("_", "-") if language.language else ""
