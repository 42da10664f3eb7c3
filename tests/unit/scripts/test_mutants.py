"""Mutants: which changes are made, and how they are found again after a move."""

from __future__ import annotations

import ast
from pathlib import Path

from coverage import CoverageData
from mutants import Covering, Mutant, located, mutants_of, summary

CODE = '''
class Store:
    size: int = 3

    def open(self, n: int = 1) -> bool:
        """Opens 1."""
        if n < 2 and not self.done:
            self.close()
        return f"{n + 1}" == "é" + str(n == 1)


@triton.jit
def kernel(x):
    return x + 1
'''


def test_each_change_of_a_function_and_nothing_else() -> None:
    found = [(mutant.kind, mutant.old, mutant.new) for mutant, _ in mutants_of("nmt/a.py", CODE)]
    assert sorted(found) == sorted(
        [
            ("constant", "1", "2"),
            ("boolean", "n < 2 and (not self.done)", "n < 2 or not self.done"),
            ("comparison", "n < 2", "n <= 2"),
            ("constant", "2", "3"),
            ("boolean", "not self.done", "self.done"),
            ("removed call", "self.close()", "pass"),
            ("return value", "return f'{n + 1}' == 'é' + str(n == 1)", "return None"),
            ("comparison", "f'{n + 1}' == 'é' + str(n == 1)", "f'{n + 1}' != 'é' + str(n == 1)"),
            ("arithmetic", "'é' + str(n == 1)", "'é' - str(n == 1)"),
            ("comparison", "n == 1", "n != 1"),
            ("constant", "1", "2"),
        ]
    )
    assert {mutant.function for mutant, _ in mutants_of("nmt/a.py", CODE)} == {"Store.open"}


def test_a_mutant_is_found_after_a_move_or_is_gone(tmp_path: Path) -> None:
    (tmp_path / "nmt/b").mkdir(parents=True)
    (tmp_path / "nmt/b/c.py").write_text(CODE)
    last = Mutant("nmt/a.py", "Store.open", "constant", "1", "2", 1)
    for renames in ({}, {"nmt/a.py": "nmt/b/c.py"}, {"nmt/a.py:Store.open": "nmt/b/c.py:Store.open"}):
        place = located(last, tmp_path, renames)
        assert place is not None and place[0] == tmp_path / "nmt/b/c.py"
        assert place[1] == CODE.replace("n == 1", "n == (2)") and ast.parse(place[1])
    assert located(Mutant("nmt/a.py", "Store.open", "constant", "7", "8", 0), tmp_path, {}) is None


def test_the_tests_of_lines_and_the_summary(tmp_path: Path) -> None:
    data = CoverageData(str(tmp_path / "coverage"))
    for name in ("fast", "slow", "failed"):
        data.set_context(f"tests/{name}.py::test|run")
        data.add_lines({"/tree/nmt/a.py": [2, 3]})
    data.write()
    cases = '<testcase classname="tests.slow" name="test" time="9"/>'
    cases += '<testcase classname="tests.fast" name="test"/>'
    cases += '<testcase classname="tests.failed" name="test"><failure/></testcase>'
    (tmp_path / "times.xml").write_text(f"<testsuite>{cases}</testsuite>")
    covering = Covering(tmp_path / "coverage", tmp_path / "times.xml", 60)
    for first, last in ((3, 3), (1, 9), (5, 6)):  # the last has no line, so that before it counts
        assert covering.tests("nmt/a.py", first, last) == ["tests/fast.py::test", "tests/slow.py::test"]
    assert covering.tests("nmt/a.py", 1, 1) == covering.tests("nmt/b.py", 1, 9) == []
    assert summary([Mutant("nmt/a.py", "f", "boolean", "x", "y", 0)], {}).splitlines()[-1].split()[-1] == "1"
