"""Compares the code of two commits without their prose: what a commit of moves and words must not change.

    python scripts/compare_code.py f477c37 HEAD --renames scripts/renames.txt

Every file of `nmt/` is parsed (`--folder` selects another folder). A commit of `.` is the working tree. These
differences are ignored:

- docstrings, comments and formatting;
- the words of messages: text with a space in it, and the constant parts of f-strings. The values that an
  f-string shows are compared, in any order;
- the order of imports, and the names of local variables;
- the renames listed in the file of `--renames`, an old and a new name in each line: of a module
  (`nmt.data.ways nmt.data.subwords.segmentation`), of a function, class, method, attribute or parameter
  everywhere (`told write_errors`), or in one module by its new name (`nmt.training.selection:judge choose`).

The renames are applied to the first commit, so it must be older than they are.

The output names every definition that differs; the exit status is 1 if there are any.
"""

from __future__ import annotations

import argparse
import ast
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


@dataclass
class Renames:
    """Old names to new names."""

    modules: dict[str, str] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    scoped: dict[str, dict[str, str]] = field(default_factory=dict)
    """By module."""

    @classmethod
    def read(cls, path: Path | None) -> Renames:
        """Reads a file of renames; blank lines and lines that begin with `#` are ignored."""
        found = cls()
        for line in path.read_text(encoding="utf-8").split("\n") if path else []:
            if line.strip() and not line.startswith("#"):
                old, new = line.split()
                if ":" in old:
                    module, name = old.split(":")
                    found.scoped.setdefault(module, {})[name] = new
                else:
                    (found.modules if "." in old else found.names)[old] = new
        return found

    def module(self, name: str) -> str:
        """A module's new name; the longest renamed prefix decides."""
        parts = name.split(".")
        for end in range(len(parts), 0, -1):
            if (prefix := ".".join(parts[:end])) in self.modules:
                return ".".join([self.modules[prefix], *parts[end:]])
        return name

    def within(self, module: str) -> Renames:
        """With the names that are renamed in this module alone."""
        return Renames(self.modules, {**self.names, **self.scoped.get(module, {})})

    def name(self, name: str) -> str:
        """An identifier's new name."""
        return self.names.get(name, name)


def main() -> None:
    """Prints the differences."""
    parser = argparse.ArgumentParser(description="Compares the code of two commits without their prose.")
    parser.add_argument("before")
    parser.add_argument("after")
    parser.add_argument("--renames", type=Path)
    parser.add_argument("--folder", default="nmt")
    arguments = parser.parse_args()
    renames = Renames.read(arguments.renames)
    before = definitions(files(arguments.before, arguments.folder), renames)
    after = definitions(files(arguments.after, arguments.folder), Renames())
    differing = differences(before, after)
    print("\n".join(differing) or f"{len(after)} definitions, all equal")
    sys.exit(1 if differing else 0)


def files(commit: str, folder: str) -> dict[str, str]:
    """Returns the modules of a folder in a commit, by dotted name; `.` stands for the working tree."""
    if commit == ".":
        paths = sorted((ROOT / folder).rglob("*.py"))
        return {module_name(str(path.relative_to(ROOT))): path.read_text(encoding="utf-8") for path in paths}
    names = git("ls-tree", "-r", "--name-only", commit, folder).split()
    return {module_name(name): git("show", f"{commit}:{name}") for name in names if name.endswith(".py")}


def git(*arguments: str) -> str:
    """The output of a git command in this repository."""
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def module_name(path: str) -> str:
    """`nmt/data/cache.py` as `nmt.data.cache`."""
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def definitions(sources: Mapping[str, str], renames: Renames) -> dict[str, str]:
    """Each definition of each module, as text without prose."""
    found = {}
    for module, text in sources.items():
        new = renames.module(module)
        tree = Normalised(renames.within(new)).visit(ast.parse(text))
        rest = []
        for statement in tree.body:
            if isinstance(statement, ast.FunctionDef | ast.ClassDef):
                for name, part in members(statement):
                    found[f"{new}:{name}"] = ast.dump(part)
            else:
                rest.append(ast.dump(statement))
        imports = sorted(line for line in rest if line.startswith("Import"))
        others = [line for line in rest if not line.startswith("Import")]
        found[f"{new}:imports"] = "\n".join(imports)
        found[f"{new}:statements"] = "\n".join(others)
    return found


def members(definition: ast.FunctionDef | ast.ClassDef) -> Iterator[tuple[str, ast.AST]]:
    """A function by itself; a class as its methods and the rest of it."""
    if isinstance(definition, ast.ClassDef):
        methods = [part for part in definition.body if isinstance(part, ast.FunctionDef)]
        definition.body = [part for part in definition.body if part not in methods]
        # Overloads and setters share a name, so they are numbered.
        counts: dict[str, int] = {}
        for method in methods:
            counts[method.name] = counts.get(method.name, 0) + 1
            number = f"#{counts[method.name]}" if counts[method.name] > 1 else ""
            yield f"{definition.name}.{method.name}{number}", method
    yield definition.name, definition


def differences(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """The definitions that were removed, added or changed."""
    lines = [f"removed  {name}" for name in before if before[name] and name not in after]
    lines += [f"added    {name}" for name in after if after[name] and name not in before]
    lines += [f"changed  {name}" for name in before if name in after and before[name] != after[name]]
    return lines


class Normalised(ast.NodeTransformer):
    """A syntax tree without prose, under its new names."""

    def __init__(self, renames: Renames) -> None:
        self._renames = renames
        self._locals: list[dict[str, str]] = []

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        """Drops docstrings, those of attributes too."""
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            return None
        return self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        """Replaces messages, and renames what is named in a string."""
        if isinstance(node.value, str):
            text = node.value
            node.value = "<message>" if " " in text else self._renames.name(self._renames.module(text))
        return node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        """Keeps the values that are shown, sorted."""
        values = [self.visit(part) for part in node.values if isinstance(part, ast.FormattedValue)]
        node.values = sorted(values, key=ast.dump)
        return node

    def visit_Import(self, node: ast.Import) -> ast.AST:
        """Renames modules."""
        for alias in node.names:
            alias.name = self._renames.module(alias.name)
        return node

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST:
        """Renames modules and names, sorted."""
        for alias in node.names:
            alias.name = self._renames.name(alias.name)
        node.module = self._renames.module(node.module or "")
        node.names.sort(key=lambda alias: alias.name)
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """Numbers the local variables in the order in which they appear."""
        node.name = self._renames.name(node.name)
        assigned = [
            part for part in ast.walk(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)
        ]
        numbers = dict(self._locals[-1]) if self._locals else {}
        for part in sorted(assigned, key=lambda name: (name.lineno, name.col_offset)):
            numbers.setdefault(part.id, f"<local {len(numbers)}>")
        self._locals.append(numbers)
        self.generic_visit(node)
        self._locals.pop()
        if not node.body:
            node.body = [ast.Pass()]
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        """Renames the class."""
        node.name = self._renames.name(node.name)
        return self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """Renames a variable."""
        for numbers in reversed(self._locals):
            if node.id in numbers:
                node.id = numbers[node.id]
                return node
        node.id = self._renames.name(node.id)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        """Renames an attribute."""
        node.attr = self._renames.name(node.attr)
        return self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        """Renames a parameter."""
        node.arg = self._renames.name(node.arg)
        return self.generic_visit(node)

    def visit_keyword(self, node: ast.keyword) -> ast.AST:
        """Renames a keyword argument."""
        node.arg = node.arg and self._renames.name(node.arg)
        return self.generic_visit(node)


if __name__ == "__main__":
    main()
