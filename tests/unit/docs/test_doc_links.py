"""Links between the pages: every file and every heading that a page points to exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from doc_pages import ROOT, anchors, links, name, page, pages


@pytest.mark.parametrize("path", pages(), ids=name)
def test_links_lead_to_files_and_headings(path: Path) -> None:
    broken = []
    for number, target in links(path):
        file, _, anchor = target.partition("#")
        there = (path.parent / file).resolve() if file else path
        if not there.exists() or (anchor and anchor not in anchors(there)):
            broken.append(f"{name(path)}:{number}: {target}")
    assert not broken, "\n".join(broken)


@pytest.mark.parametrize("path", sorted((ROOT / "docs").rglob("*.md")), ids=name)
def test_guides_link_to_the_site_alone(path: Path) -> None:
    """What lies outside docs/ is not a part of the site. Write its path as code."""
    outside = [
        f"{name(path)}:{number}: {target}"
        for number, target in links(path)
        if not (path.parent / target.partition("#")[0]).resolve().is_relative_to(ROOT / "docs")
    ]
    assert not outside, "\n".join(outside)


def test_files_that_pages_name_exist() -> None:
    pattern = re.compile(r"(?<![\w/.])(?:scripts|configs|docs|nmt|tests|data/quickstart)/[\w./-]*\w")
    missing = []
    for path in pages():
        for number, line in page(path)[0]:
            for code in re.findall(r"`([^`]+)`", line):
                missing += [
                    f"{name(path)}:{number}: {found}"
                    for found in pattern.findall(code)
                    if not (ROOT / found).exists()
                ]
    assert not missing, "\n".join(missing)


def test_every_guide_is_in_the_navigation() -> None:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2].partition("\ntheme:")[0]
    named = re.findall(r": ([\w/.]+\.md)$", text, re.MULTILINE)
    docs = ROOT / "docs"
    assert sorted(named) == sorted(path.relative_to(docs).as_posix() for path in docs.rglob("*.md"))


def test_every_script_is_described() -> None:
    scripts = ROOT / "scripts"
    table = (scripts / "README.md").read_text(encoding="utf-8")
    missing = [file.name for file in scripts.glob("*.*") if f"| `{file.name}` |" not in table]
    assert missing == ["README.md"]
