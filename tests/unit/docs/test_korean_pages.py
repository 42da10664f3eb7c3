"""A page in Korean has the pictures, commands, formulas and numbers of the page in English."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from doc_pages import ROOT, name


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.ko.md")), ids=name)
def test_both_languages_have_the_same_figures(page: Path) -> None:
    """The labels of the pictures and the comments of the commands are in the language of the page."""
    pages = page.with_name(page.name.replace(".ko.", ".")), page
    english, korean = (re.sub("  # .*", "", each.read_text(encoding="utf-8")) for each in pages)
    korean = re.sub(r"(\]\(images/\w+/)ko/", r"\1", korean)
    for pattern in (r"\]\((images/[\w/.]+)\)", r"```[\s\S]*?```", r"\d[\d,]*\.\d+"):
        assert re.findall(pattern, english) == re.findall(pattern, korean), pattern
