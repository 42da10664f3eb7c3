"""Mutants: small errors put into nmt one at a time, to see whether a test finds them.

    pytest --cov=nmt --cov-branch --cov-context=test --junitxml=times.xml tests/unit tests/integration
    python tests/mutants.py choose mutants.json --tree ../old       choose 200 in a checkout, by a seed
    python tests/mutants.py run mutants.json results.json --coverage .coverage --times times.xml
           --renames tests/mutant_renames.json --numbers 3 8         run the tests of some; resumes

The tests of a mutant are those that execute its lines, as the first command records them (pytest-cov; with
`COVERAGE_CORE=ctrace` where Python's own monitoring is the default, which records no tests).

A mutant is located by its module, its function and the text of its expression. So the same list can be run
after code has moved: `--renames` is a JSON object, old path → new path, or old `PATH:FUNCTION` → new one, or
`PATH:FUNCTION:TEXT` → the same with the new text, where names in it have changed.
That of the list of this folder is `mutant_renames.json`.
Other code that has moved is looked up by the function and the text. A mutant whose code is not found counts
as `gone`. The checkout itself is not changed: the tests run in a copy.
"""

from __future__ import annotations

import argparse
import ast
import itertools
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from xml.etree import ElementTree

from coverage import CoverageData

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


def located(mutant: Mutant, tree: Path, renames: dict[str, str]) -> tuple[Path, str, tuple[int, int]] | None:
    """Returns the module that has the code of a mutant now, its text with the error, and its lines."""
    keys = (
        f"{mutant.module}:{mutant.function}:{mutant.old}",
        f"{mutant.module}:{mutant.function}",
        mutant.module,
    )
    renamed = next((renames[key] for key in keys if key in renames), mutant.module)
    module, function, old = (*renamed.split(":", 2), "", "")[:3]
    wanted = replace(mutant, function=function or mutant.function, old=old or mutant.old)
    for path in [tree / module, *sorted((tree / "nmt").rglob("*.py"))]:
        text = path.read_text() if path.is_file() else ""
        if wanted.function.split(".")[-1] in text:
            for found, node in mutants_of(mutant.module, text):
                if replace(found, new=mutant.new) == wanted:
                    assert isinstance(node, ast.expr | ast.stmt) and node.end_lineno
                    return path, with_change(text, node, found.new), (node.lineno, node.end_lineno)
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


class Covering:
    """The tests that execute each line, recorded by a run with `--cov-context=test` and `--junitxml`.

    Only tests that passed. A line that only other processes execute has none.
    """

    def __init__(self, coverage_file: Path, times: Path, budget: float) -> None:
        """Reads the data of the coverage and the times of the tests; `budget` limits `tests`, in seconds."""
        self._budget = budget
        self._data = CoverageData(str(coverage_file))
        self._data.read()
        self._paths = {path[path.rindex("/nmt/") + 1 :]: path for path in self._data.measured_files()}
        self._seconds = {
            f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}": float(
                case.get("time", 0)
            )
            for case in ElementTree.parse(times).iter("testcase")
            if case.find("failure") is None and case.find("error") is None
        }

    def tests(self, module: str, first: int, last: int) -> list[str]:
        """Returns the tests of some lines, file by file, the quickest file first, as far as the budget goes.

        If no line has a test, those of the nearest line before: a statement counts as its first line.
        """
        lines = self._data.contexts_by_lineno(self._paths.get(module, ""))
        numbers = [number for number in range(first, last + 1) if any(lines.get(number, ()))]
        if not numbers:
            earlier = range(first - 1, max(0, first - 12), -1)
            numbers = [number for number in earlier if any(lines.get(number, ()))][:1]
        tests = {context.split("|")[0] for number in numbers for context in lines[number]}
        tests &= self._seconds.keys()
        files = Counter[str]()
        for test in tests:
            files[test.split("::")[0]] += round(1000 * self._seconds[test]) + 1
        ordered = sorted(tests, key=lambda test: (files[test.split("::")[0]], test))
        ends = itertools.accumulate(self._seconds[test] for test in ordered)
        return [test for test, end in zip(ordered, ends, strict=True) if end <= self._budget] or ordered[:1]


def first_failure(tree: Path, tests: list[str], seconds: float) -> str:
    """Runs tests in a copy; returns the first that fails, `timeout` after that time, or an empty string."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as names:
        names.write("\n".join(tests))
        names.flush()
        command = [sys.executable, "-m", "pytest", "-xq", "-p", "no:cacheprovider", f"@{names.name}"]
        environment = os.environ | {"PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"}
        try:
            result = subprocess.run(
                command, cwd=tree, env=environment, capture_output=True, timeout=seconds, text=True
            )
        except subprocess.TimeoutExpired:
            return "timeout"
    if result.returncode == 0:
        return ""
    match = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", result.stdout, re.MULTILINE)
    return match[1] if match else "all"


def run(
    mutants: list[Mutant],
    results: Path,
    tree: Path,
    renames: dict[str, str],
    covering: Covering,
    seconds: float,
) -> None:
    """Runs the tests of each mutant that has no result yet, and writes its result.

    A test that fails without the error too, kills nothing: the other tests are then run.
    """
    done: dict[str, str] = json.loads(results.read_text()) if results.exists() else {}
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "tree")
        ignored = shutil.ignore_patterns(".git", ".venv*", "__pycache__", ".*_cache", "runs")
        shutil.copytree(tree, copy, ignore=ignored, symlinks=True)
        for mutant in mutants:
            key = json.dumps(asdict(mutant))
            if key in done:
                continue
            if (place := located(mutant, copy, renames)) is None:
                done[key] = "gone"
            else:
                path, changed, (first, last) = place
                tests, text = covering.tests(str(path.relative_to(copy)), first, last), path.read_text()
                done[key] = "survived" if tests else "not executed"
                while tests:
                    path.write_text(changed)
                    failed = first_failure(copy, tests, seconds)
                    path.write_text(text)
                    if not failed:
                        break
                    if failed not in tests or not first_failure(copy, [failed], seconds):
                        done[key] = "killed"
                        break
                    tests.remove(failed)
            results.write_text(json.dumps(done, indent=1))
            print(
                f"{done[key]}: {mutant.module} {mutant.function}: {mutant.old[:60]} -> {mutant.new[:60]}",
                flush=True,
            )


def summary(mutants: list[Mutant], done: dict[str, str]) -> str:
    """Returns a table: packages in rows, and the numbers of mutants of each outcome."""
    counts = Counter[tuple[str, str]]()
    for mutant in mutants:
        status = done.get(json.dumps(asdict(mutant)), "to do")
        for package in (mutant.module.split("/")[1].removesuffix(".py"), "all"):
            counts[package, status] += 1
    kinds = ("killed", "survived", "not executed", "gone", "to do")
    packages = sorted({package for package, _ in counts} - {"all"}) + ["all"]
    rows = [f"{'':<14}" + "".join(f"{kind:>14}" for kind in kinds)]
    rows += [
        f"{package:<14}" + "".join(f"{counts[package, kind]:>14}" for kind in kinds) for package in packages
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
    parser.add_argument(
        "--coverage", type=Path, help="the tests of each line, of `pytest --cov-context=test`"
    )
    parser.add_argument("--times", type=Path, help="of `pytest --junitxml`")
    parser.add_argument("--numbers", type=int, nargs=2, default=(0, None), metavar="N", help="only these")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=38)
    parser.add_argument("--budget", type=float, default=60, help="seconds of tests for a mutant")
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
    covering = Covering(arguments.coverage, arguments.times, arguments.budget)
    run(part, arguments.results, arguments.tree.resolve(), renames, covering, arguments.seconds)
    print(summary(part, json.loads(arguments.results.read_text())))


if __name__ == "__main__":
    main()
