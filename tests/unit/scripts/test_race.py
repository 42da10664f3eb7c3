"""The race of programs: its clock, curves, resumption, table and arguments, with a program of a few lines."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import race
from race import Race, lines_of, main, minutes_to, parsed, pythons, table
from race_programs import PROGRAMS, Program, Task

LINES = ["The dog runs over the green grass .", "Two children play in the snow .", "Where are they now ?"]
TRAIN = """
import sys, time
print("begins", flush=True)
for number, lines in enumerate((1, 3)):
    time.sleep(0.2)
    open(f"{sys.argv[1]}/{number}.model", "w").write(str(lines))
time.sleep(600)
"""
TRANSLATE = """
import sys
right = int(open(sys.argv[1]).read())
lines = [line if n < right else "x" for n, line in enumerate(sys.stdin.read().splitlines())]
open(sys.argv[2], "w").write("\\n".join(lines) + "\\n")
"""


class Copying(Program):
    """Learns to copy one line, then all; it never ends."""

    name, module, install, recipe = "copying", "json", "pip install copying", "none"

    def commands(self, task: Task, work: Path) -> Sequence[list[str]]:
        prepare = [sys.executable, "-c", "print('prepares')"]
        return [prepare, [sys.executable, "-c", TRAIN, str(work)]]

    def checkpoints(self, work: Path) -> list[Path]:
        return [*work.glob("*.model")]

    def translation(self, task: Task, work: Path, checkpoint: Path, output: Path) -> list[str]:
        return [sys.executable, "-c", TRANSLATE, str(checkpoint), str(output)]


@pytest.fixture
def task(tmp_path: Path) -> Task:
    """Copying of three lines, for four seconds."""
    text = tmp_path / "text"
    text.write_text("\n".join(LINES) + "\n", "utf-8")
    return Task(text, text, text, text, langs=("en", "de"), minutes=1 / 15, cores=1, every=1)


def test_curve_is_measured_once(tmp_path: Path, task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    program = Copying(Path(sys.executable))
    begin = time.time()
    first = Race(tmp_path, task)
    first.run(program)
    assert time.time() - begin < 30  # stopped by the clock
    entry = first.entries["copying"]
    assert (tmp_path / "copying" / "log").read_text("utf-8").splitlines()[:2] == ["prepares", "begins"]
    assert entry["status"] is None
    early, late = entry["points"]
    assert 0 < early["minutes"] < late["minutes"] <= 1 / 15
    assert (early["bleu"] < 50, late["bleu"], late["chrf"]) == (True, 100.0, 100.0)
    assert json.loads((tmp_path / "race.json").read_text("utf-8"))["programs"] == first.entries

    del late["bleu"]  # as if the race was interrupted here
    (tmp_path / "race.json").write_text(
        json.dumps({"task": task.as_dict(), "programs": first.entries}), "utf-8"
    )
    monkeypatch.setattr(race, "run_until", None)  # the training is not repeated
    second = Race(tmp_path, task)
    second.run(program)
    assert second.entries["copying"]["points"][1]["bleu"] == 100.0
    with pytest.raises(SystemExit, match="other texts or minutes"):
        Race(tmp_path, replace(task, minutes=2))


def test_training_that_fails_leaves_no_point(
    tmp_path: Path, task: Task, capsys: pytest.CaptureFixture[str]
) -> None:
    class Failing(Copying):
        def commands(self, task: Task, work: Path) -> Sequence[list[str]]:
            return [[sys.executable, "-c", "raise SystemExit(3)"], ["never"]]

    measured = Race(tmp_path, task)
    measured.run(Failing(Path(sys.executable)))
    assert (measured.entries["copying"]["status"], measured.entries["copying"]["points"]) == (3, [])
    assert "copying: ended with status 3: see" in capsys.readouterr().err


def test_table_and_minutes() -> None:
    points = [(1.0, 10.0), (2.5, None), (4.0, 31.0), (9.0, 30.0)]
    entry = {"points": [{"minutes": m, "bleu": b, "chrf": b} for m, b in points]}
    assert [minutes_to(entry, target) for target in (5, 20, 40)] == [1.0, 4.0, None]
    assert table({"a": entry, "b": {"points": []}}, [20]).splitlines()[2:] == [
        "| a | 4.0 | 31.00 | 31.00 | 4.0 | 3 |",
        "| b | not reached | no checkpoint |  |  | 0 |",
    ]


def test_arguments(tmp_path: Path, task: Task, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "eole" / "bin").mkdir(parents=True)
    (tmp_path / "eole" / "bin" / "python").touch()
    found = pythons(["marian=/m/python"], tmp_path)
    assert found["eole"] == tmp_path / "eole" / "bin" / "python"
    assert (found["marian"], found["nmt"]) == (Path("/m/python"), Path(sys.executable).absolute())
    with pytest.raises(ValueError, match="must be NAME=PATH"):
        pythons(["other=/m/python"], None)
    texts = [f"--{name}={task.source}" for name in ("source", "target", "valid-source", "valid-target")]
    assert parsed(["race", *texts, "--programs", "nmt", "eole"]).programs == ["nmt", "eole"]
    with pytest.raises(SystemExit):
        parsed(["race", *texts, "--minutes", "0.5"])
    assert "--minutes, --every: at least 1" in capsys.readouterr().err
    cores = str(parsed(["race", *texts]).cores)  # the affinity of this process stays as it is
    absent = ["--programs", "joeynmt", "--python", "joeynmt=/absent/python", "--cores", cores]
    assert main([str(tmp_path / "race"), *texts, *absent]) == 0
    assert (
        "joeynmt: skipped, not installed in /absent/python. Install it with: pip" in capsys.readouterr().err
    )


@pytest.mark.parametrize("name", PROGRAMS)
def test_commands_read_the_texts_and_options_are_json(name: str, tmp_path: Path, task: Task) -> None:
    program = PROGRAMS[name](Path("/e/bin/python"))
    commands = program.commands(task, tmp_path)
    given = " ".join(word for command in commands for word in command)
    given += "".join(path.read_text("utf-8") for path in tmp_path.glob("*.yaml"))
    assert str(task.source) in given and all(command[0].startswith("/e/bin/") for command in commands)
    assert program.checkpoints(tmp_path) == []
    output = tmp_path / "output"
    assert str(output) in " ".join(program.translation(task, tmp_path, tmp_path / "c", output))
    if name == "fairseq":  # its translations are in the order of length, among other lines
        output.mkdir()
        (output / "generate-valid.txt").write_text(
            "S-1\tx\nD-1\t-0.5\tb c\nH-1\t-0.5\tx\nD-0\t-1\ta\n", "utf-8"
        )
        assert program.hypotheses(output) == ["a", "b c"]
    else:
        output.write_text("a\u2028b\n\nc\n", "utf-8")
        assert program.hypotheses(output) == lines_of(output) == ["a\u2028b", "", "c"]
