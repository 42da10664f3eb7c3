"""The README's map names every file, in the file's own words."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def rows() -> list[str]:
    """The map as it has to stand in the README: `python tests/unit/test_readme.py` prints it."""
    found = []
    for path in sorted((ROOT / "nmt").rglob("*.py"), key=lambda path: path.relative_to(ROOT).parts):
        first = (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").partition("\n")[0]
        if path.name != "__init__.py":
            found.append(f"| `{path.relative_to(ROOT)}` | {first} |")
    return found


def test_the_map_is_complete_and_true() -> None:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if line.startswith("| `nmt/") and ".py` |" in line] == rows()


if __name__ == "__main__":
    print("\n".join(rows()))
