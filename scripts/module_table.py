"""Writes the tables of packages and modules in docs/architecture.md, from the first lines of the docstrings.

    python scripts/module_table.py --check     says whether the file is up to date; exit status 1 if not
    python scripts/module_table.py --write     brings it up to date

The order of the packages is that of the import-linter contracts in pyproject.toml: a package may import from
those above it. Other packages and all modules are in alphabetical order.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DOCUMENT = ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- modules: begin, by scripts/module_table.py -->", "<!-- modules: end -->"


def main() -> None:
    """Checks or writes the file."""
    parser = argparse.ArgumentParser(description="Writes the tables of modules in docs/architecture.md.")
    group = parser.add_mutually_exclusive_group(required=True)
    group.add_argument("--check", action="store_true", help="only say whether the file is up to date")
    group.add_argument("--write", action="store_true", help="bring the file up to date")
    arguments = parser.parse_args()
    text = DOCUMENT.read_text(encoding="utf-8")
    wanted = updated(text)
    if text == wanted:
        return
    if arguments.check:
        sys.exit(f"{DOCUMENT}: is out of date. Run python scripts/module_table.py --write.")
    DOCUMENT.write_text(wanted, encoding="utf-8")


def updated(text: str) -> str:
    """The text of the file with new tables between the two markers.

    Raises:
        ValueError: a marker is missing.
    """
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{DOCUMENT}: lacks the line {END if begin else BEGIN}")
    return f"{before}{BEGIN}\n\n{tables(ROOT / 'nmt')}\n{END}{after}"


def tables(package: Path) -> str:
    """A section for each package in `package`: its subject, and a table of its modules."""
    order = package_order()
    modules = [path for path in sorted(package.glob("*.py")) if path.name != "__init__.py"]
    sections = [_section(package, modules)]
    for folder in _packages(package, order):
        inside = [folder, *_nested(folder, order)]
        sections.append(_section(folder, [path for one in inside for path in sorted(one.glob("*.py"))]))
    return "\n".join(sections)


def package_order() -> dict[str, int]:
    """Full name of a package or module → its place in its contract, bottom first."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        contracts = tomllib.load(file)["tool"]["importlinter"]["contracts"]
    order: dict[str, int] = {}
    for contract in contracts:
        for place, layer in enumerate(reversed(contract.get("layers", []))):
            for name in re.split(r"[|:]", layer):
                for container in contract["containers"]:
                    order[f"{container}.{name.strip()}"] = place
    return order


def subject(path: Path) -> str:
    """The first line of a module's docstring, for a cell of a table.

    Raises:
        ValueError: the module has no docstring.
    """
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    if not docstring:
        raise ValueError(f"{path}: has no docstring")
    return docstring.splitlines()[0].replace("|", r"\|")


def _section(folder: Path, files: list[Path]) -> str:
    name = _name(folder)
    lines = [f"### {name}", "", subject(folder / "__init__.py"), "", "| Module | Subject |", "|---|---|"]
    for path in files:
        if path == folder / "__init__.py":
            continue
        inner = path.parent if path.name == "__init__.py" else path
        shown = _name(inner).removeprefix(f"{name}.")
        cell = f"**`{shown}`**" if path.name == "__init__.py" else f"`{shown}`"
        lines.append(f"| {cell} | {subject(path)} |")
    return "\n".join([*lines, ""])


def _nested(folder: Path, order: dict[str, int]) -> Iterator[Path]:
    for inner in _packages(folder, order):
        yield inner
        yield from _nested(inner, order)


def _packages(folder: Path, order: dict[str, int]) -> list[Path]:
    found = [path.parent for path in folder.glob("*/__init__.py")]
    return sorted(found, key=lambda path: (order.get(_name(path), 0), path.name))


def _name(path: Path) -> str:
    """The dotted name of a package or module."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


if __name__ == "__main__":
    main()
