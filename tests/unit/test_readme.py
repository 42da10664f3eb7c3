"""The README's table names every folder of the package, and every module states its subject."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_table_of_folders_is_complete() -> None:
    named = set(re.findall(r"^\| `(nmt/[^`]+)` \|", (ROOT / "README.md").read_text(encoding="utf-8"), re.M))
    there = {f"nmt/{path.parent.name}/" for path in (ROOT / "nmt").glob("*/__init__.py")}
    assert named - {"nmt/bundle.py"} == there


def test_every_module_says_what_it_holds() -> None:
    for path in (ROOT / "nmt").rglob("*.py"):
        assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))), path
