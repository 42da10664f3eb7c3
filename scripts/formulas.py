"""Formulas of the guides as MathML: a hook of mkdocs, which mkdocs.yml names.

A formula is a code block of the language `math`, in LaTeX. GitHub renders such blocks itself. In the site
they become MathML when it is built, so a page needs neither a script nor a font of another server.
"""

from __future__ import annotations

import re
from typing import Any

from latex2mathml.converter import convert

_PARENTHESES = re.compile(r"<mo>&#x00028;</mo><mtable>.*?</mtable><mo>&#x00029;</mo>")


def on_config(config: Any) -> Any:
    """Adds the format of `math` blocks to the options of pymdownx.superfences."""
    options = config["mdx_configs"].setdefault("pymdownx.superfences", {})
    options["custom_fences"] = [{"name": "math", "class": "formula", "format": _block}]
    return config


def _block(source: str, language: str, css_class: str, *_: Any, **__: Any) -> str:
    from pymdownx.superfences import SuperFencesException  # the tests do without it

    try:
        return f'<div class="{css_class}">{mathml(source)}</div>'
    except Exception as error:  # after any other exception, the page would show the LaTeX
        raise SuperFencesException(f"{error}\n{source}") from error


def mathml(source: str) -> str:
    """Returns the MathML of a formula in LaTeX.

    Raises:
        ValueError: the formula has a command or an environment that the converter does not know.
    """
    converted: str = convert(source, display="block")
    if "\\" in converted or "<mi>&</mi>" in converted:
        raise ValueError("latex2mathml does not know a command or an environment of this formula:")
    # Parentheses grow with their matrix only in fonts for mathematics; style.css draws them.
    return _PARENTHESES.sub(r'<mrow class="parentheses">\g<0></mrow>', converted)
