"""A page in Korean has the pictures, commands, formulas and numbers of the page in English."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from doc_pages import ROOT, name
from page_language import on_post_page


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.ko.md")), ids=name)
def test_both_languages_have_the_same_figures(page: Path) -> None:
    """The labels of the pictures and the comments of the commands are in the language of the page."""
    pages = page.with_name(page.name.replace(".ko.", ".")), page
    english, korean = (re.sub("  # .*", "", each.read_text(encoding="utf-8")) for each in pages)
    korean = re.sub(r"(\]\(images/\w+/)ko/", r"\1", korean)
    for pattern in (r"\]\((images/[\w/.]+)\)", r"```[\s\S]*?```", r"\d[\d,]*\.\d+"):
        assert re.findall(pattern, english) == re.findall(pattern, korean), pattern


def test_the_site_marks_its_korean_pages() -> None:
    """Those whose title in the navigation is in Korean."""
    navigation = (
        (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2].partition("\ntheme:")[0]
    )
    [guides] = [group["Guides"] for group in yaml.safe_load(navigation) if "Guides" in group]
    html = '<html lang="en" class="no-js">'
    korean = {
        path
        for entry in guides
        for title, path in entry.items()
        if on_post_page(html, SimpleNamespace(title=title), config={}) == '<html lang="ko" class="no-js">'
    }
    assert korean == {"korean_terms.md"} | {path.name for path in (ROOT / "docs").glob("*.ko.md")}
