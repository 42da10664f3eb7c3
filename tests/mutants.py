"""Mutants: small errors put into nmt one at a time, to see whether the tests of the room find them.

    python tests/mutants.py choose mutants.json --tree ../old       choose 200 in a checkout, by a seed
    python tests/mutants.py run mutants.json results.json           run the tests of each; resumes
    python tests/mutants.py run mutants.json results.json --renames tests/mutant_renames.json --numbers 3 8

A mutant is located by its module, its function and the text of its expression. So the same list can be run
after code has moved: `--renames` is a JSON object, old path → new path, or old `PATH:FUNCTION` → new one.
That of the list of this folder is `mutant_renames.json`.
Other code that has moved is looked up by the function and the text. A mutant whose code is not found counts
as `gone`. The checkout itself is not changed: the tests run in a copy.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

_COMPARED: dict[type[ast.cmpop], ast.cmpop] = {
    **{ast.Eq: ast.NotEq(), ast.NotEq: ast.Eq(), ast.Lt: ast.LtE(), ast.LtE: ast.Lt(), ast.Gt: ast.GtE()},
    **{ast.GtE: ast.Gt(), ast.In: ast.NotIn(), ast.NotIn: ast.In(), ast.Is: ast.IsNot(), ast.IsNot: ast.Is()},
}
_COMPUTED: dict[type[ast.operator], ast.operator] = {
    **{ast.Add: ast.Sub(), ast.Sub: ast.Add(), ast.Mult: ast.FloorDiv(), ast.FloorDiv: ast.Mult()},
    **{ast.Div: ast.Mult(), ast.Mod: ast.Add()},
}


@dataclass(frozen=True)
class Mutant:
    """A change of one expression or statement.

    Attributes:
        module: path of the module, such as `nmt/runtime/files.py`.
        function: its function with the classes around it, such as `Store.open`.
        kind: what is changed.
        old: the text of the node, as `ast.unparse` writes it.
        new: the text in its place.
        occurrence: the number of the node among equal ones of the function, from 0.
    """

    module: str
    function: str
    kind: str
    old: str
    new: str
    occurrence: int


def changes(node: ast.AST) -> Iterator[tuple[str, str]]:
    """Yields the kind and the text of each change of a node."""
    match node:
        case ast.Compare(left, [operator], [right]) if type(operator) in _COMPARED:
            changed: ast.AST = ast.Compare(left, [_COMPARED[type(operator)]], [right])
            yield "comparison", ast.unparse(changed)
        case ast.BinOp(left, operation, right) if type(operation) in _COMPUTED:
            yield "arithmetic", ast.unparse(ast.BinOp(left, _COMPUTED[type(operation)], right))
        case ast.BoolOp(operator, values):
            other: ast.boolop = ast.Or() if isinstance(operator, ast.And) else ast.And()
            yield "boolean", ast.unparse(ast.BoolOp(other, values))
        case ast.UnaryOp(ast.Not(), operand):
            yield "boolean", ast.unparse(operand)
        case ast.Constant(bool() | int() as value):
            yield "constant", repr(not value) if isinstance(value, bool) else repr(value + 1)
        case ast.Return(ast.expr() as value) if not isinstance(value, ast.Constant):
            yield "return value", "return None"
        case ast.Expr(ast.Call()):
            yield "removed call", "pass"


def mutants_of(path: str, text: str) -> Iterator[tuple[Mutant, ast.AST]]:
    """Yields the mutants of a module, and the node of each; not those of annotations or GPU kernels."""

    def walk(node: ast.AST, names: tuple[str, ...], counts: Counter[tuple[str, str]]) -> Iterator[ast.AST]:
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list", "type_comment"):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.FunctionDef | ast.ClassDef):
                    if not any("triton" in ast.unparse(mark) for mark in child.decorator_list):
                        yield from visit(child, (*names, child.name))
                elif isinstance(child, ast.AST) and not isinstance(child, ast.JoinedStr):
                    yield child
                    yield from walk(child, names, counts)

    def visit(node: ast.AST, names: tuple[str, ...]) -> Iterator[ast.AST]:
        counts: Counter[tuple[str, str]] = Counter()
        for child in walk(node, names, counts):
            if not hasattr(child, "lineno") or isinstance(node, ast.Module | ast.ClassDef):
                yield child
                continue
            old = ast.unparse(child)
            for kind, new in changes(child):
                found.append((Mutant(path, ".".join(names), kind, old, new, counts[kind, old]), child))
                counts[kind, old] += 1
            yield child

    found: list[tuple[Mutant, ast.AST]] = []
    for _ in visit(ast.parse(text), ()):
        pass
    yield from found


def choose(tree: Path, count: int, seed: int) -> list[Mutant]:
    """Chooses mutants at random from all modules of a checkout."""
    paths = sorted(str(path.relative_to(tree)) for path in (tree / "nmt").rglob("*.py"))
    mutants = [mutant for path in paths for mutant, _ in mutants_of(path, (tree / path).read_text())]
    return random.Random(seed).sample(mutants, count)


def located(mutant: Mutant, tree: Path, renames: dict[str, str]) -> tuple[Path, str] | None:
    """Returns the module that has the code of a mutant now, and its text with the error; or None."""
    renamed = renames.get(f"{mutant.module}:{mutant.function}", renames.get(mutant.module, mutant.module))
    module, _, function = renamed.partition(":")
    wanted = replace(mutant, function=function or mutant.function)
    for path in [tree / module, *sorted((tree / "nmt").rglob("*.py"))]:
        text = path.read_text() if path.is_file() else ""
        if wanted.function.split(".")[-1] in text:
            for found, node in mutants_of(mutant.module, text):
                if found == wanted:
                    return path, with_change(text, node, mutant.new)
    return None


def with_change(text: str, node: ast.AST, new: str) -> str:
    """Returns a text with another text in the place of a node."""
    lines = text.encode().splitlines(keepends=True)
    assert isinstance(node, ast.expr | ast.stmt) and node.end_lineno and node.end_col_offset is not None
    first = sum(map(len, lines[: node.lineno - 1])) + node.col_offset
    last = sum(map(len, lines[: node.end_lineno - 1])) + node.end_col_offset
    content = b"".join(lines)
    replacement = new if isinstance(node, ast.stmt) else f"({new})"
    return (content[:first] + replacement.encode() + content[last:]).decode()


def room_tests(module: str, tree: Path) -> list[str]:
    """Returns the tests of the room of a module: the innermost folder in tests/unit that mirrors its package.

    With those of the whole package in files beside it, such as tests/unit/test_bundle.py.
    """
    parts = Path(module).with_suffix("").parts[1:]
    folders = [Path("tests/unit", *parts[:depth]) for depth in range(len(parts) - 1, 0, -1)]
    folder = next((folder for folder in folders if (tree / folder).is_dir()), None)
    files = sorted((tree / "tests/unit").glob(f"test_{parts[0]}*.py"))
    chosen = [*([folder] if folder else []), *(file.relative_to(tree) for file in files)]
    return [str(path) for path in chosen] or ["tests/unit"]


def passes(tree: Path, tests: list[str], seconds: float) -> bool:
    """Runs tests in a copy; returns whether all pass within a time."""
    command = [sys.executable, "-m", "pytest", "-xq", "-p", "no:cacheprovider", *tests]
    environment = os.environ | {"PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"}
    try:
        result = subprocess.run(command, cwd=tree, env=environment, capture_output=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        return False
    return result.returncode == 0


def run(mutants: list[Mutant], results: Path, tree: Path, renames: dict[str, str], seconds: float) -> None:
    """Runs the tests of each mutant that has no result yet, and writes its result."""
    done: dict[str, str] = json.loads(results.read_text()) if results.exists() else {}
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "tree")
        ignored = shutil.ignore_patterns(".git", ".venv*", "__pycache__", ".*_cache", "runs")
        shutil.copytree(tree, copy, ignore=ignored, symlinks=True)
        for mutant in mutants:
            key = json.dumps(asdict(mutant))
            if key in done:
                continue
            place = located(mutant, copy, renames)
            if place is None:
                done[key] = "gone"
            else:
                path, changed = place
                text, tests = path.read_text(), room_tests(str(path.relative_to(copy)), copy)
                room = f"tests {' '.join(tests)}"
                if room not in done:
                    done[room] = "pass" if passes(copy, tests, seconds) else "fail"
                path.write_text(changed)
                survived = done[room] == "pass" and passes(copy, tests, seconds)
                done[key] = "survived" if survived else "killed" if done[room] == "pass" else "unknown"
                path.write_text(text)
            results.write_text(json.dumps(done, indent=1))
            print(f"{done[key]}: {mutant.module} {mutant.function}: {mutant.old[:60]} -> {mutant.new[:60]}")


def summary(mutants: list[Mutant], done: dict[str, str]) -> str:
    """Returns a table: packages in rows, and the numbers of killed, survived, gone and unknown mutants."""
    counts = Counter[tuple[str, str]]()
    for mutant in mutants:
        status = done.get(json.dumps(asdict(mutant)), "to do")
        for package in (mutant.module.split("/")[1].removesuffix(".py"), "all"):
            counts[package, status] += 1
    kinds = ("killed", "survived", "gone", "unknown", "to do")
    packages = sorted({package for package, _ in counts} - {"all"}) + ["all"]
    rows = [f"{'':<14}" + "".join(f"{kind:>10}" for kind in kinds)]
    rows += [
        f"{package:<14}" + "".join(f"{counts[package, kind]:>10}" for kind in kinds) for package in packages
    ]
    return "\n".join(rows)


def main() -> None:
    """Chooses mutants, or runs their tests."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("action", choices=["choose", "run"])
    parser.add_argument("list", type=Path)
    parser.add_argument("results", type=Path, nargs="?")
    parser.add_argument("--tree", type=Path, default=Path(__file__).parents[1])
    parser.add_argument("--renames", type=Path)
    parser.add_argument("--numbers", type=int, nargs=2, default=(0, None), metavar="N", help="only these")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=38)
    parser.add_argument("--seconds", type=float, default=900, help="limit for the tests of a mutant")
    arguments = parser.parse_args()
    if arguments.action == "choose":
        chosen = choose(arguments.tree, arguments.count, arguments.seed)
        rows = ",\n".join(json.dumps(asdict(mutant)) for mutant in chosen)
        arguments.list.write_text(f"[\n{rows}\n]\n")
        return
    mutants = [Mutant(**row) for row in json.loads(arguments.list.read_text())]
    renames = json.loads(arguments.renames.read_text()) if arguments.renames else {}
    part = mutants[slice(*arguments.numbers)]
    run(part, arguments.results, arguments.tree.resolve(), renames, arguments.seconds)
    print(summary(part, json.loads(arguments.results.read_text())))


if __name__ == "__main__":
    main()
