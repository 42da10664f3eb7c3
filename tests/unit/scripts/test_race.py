"""The race of programs: its clock, curves, failures, resumption, table and documentation."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import race
from race import Race, table
from race_programs import PROGRAMS, Program, Task, lines_of

ROOT = Path(__file__).parents[3]
LINES = ["The dog runs over the green grass .", "Two children play in the snow .", "Where are they now ?"]
TRAIN = """
import sys, time
print("begins", flush=True)
def write(number, lines):
    with open(f"{sys.argv[1]}/{number}.model", "w") as file: file.write(str(lines))
try:
    write(0, 1)
    time.sleep(600)
except KeyboardInterrupt:
    write(1, 3)
    time.sleep(600)
"""
TRANSLATE = """
import sys
right = int(open(sys.argv[1]).read())
lines = [line if n < right else "x" for n, line in enumerate(sys.stdin.read().splitlines())]
open(sys.argv[2], "w").write("\\n".join(lines) + "\\n")
"""


class Copying(Program):
    """Learns to copy one line, and at SIGINT all; it never ends."""

    install, recipe, checkpoints = "pip install copying", "none", ("*.model",)

    def commands(self) -> list[list[str]]:
        prepare = [sys.executable, "-c", "print('prepares')"]
        return [prepare, [sys.executable, "-c", TRAIN, str(self.work)]]

    def translation(self, checkpoint: Path, output: Path) -> list[str]:
        return [sys.executable, "-c", TRANSLATE, str(checkpoint), str(output)]


@pytest.fixture
def task(tmp_path: Path) -> Task:
    """Copying of three lines, for four seconds."""
    text = tmp_path / "text"
    text.write_text("\n".join(LINES) + "\n", "utf-8")
    return Task(text, text, text, text, langs=("en", "de"), minutes=1 / 15, cores=1, every=1)


@pytest.mark.slow
def test_curve_is_measured_once(tmp_path: Path, task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(race, "GRACE", 0.5)
    program = Copying(task, Path(sys.executable), tmp_path / "copying")
    first = Race(tmp_path, task)
    first.run("copying", program)
    entry = first.entries["copying"]
    assert (program.work / "log").read_text("utf-8").splitlines()[:2] == ["prepares", "begins"]
    assert entry["status"] is None
    early, late = entry["points"]
    assert early["minutes"] < 1 / 15 <= late["minutes"]  # the clock stops it
    assert (early["bleu"] < 50, late["bleu"], late["chrf"]) == (True, 100.0, 100.0)
    saved = json.loads((tmp_path / "race.json").read_text("utf-8"))
    assert saved["programs"] == first.entries

    del saved["programs"]["copying"]["points"][1]["bleu"]  # as if the race was interrupted here
    (tmp_path / "race.json").write_text(json.dumps(saved), "utf-8")
    monkeypatch.setattr(race, "trained", None)  # the training is not repeated
    second = Race(tmp_path, task)
    second.run("copying", program)
    assert second.entries["copying"]["points"][1]["bleu"] == 100.0
    with pytest.raises(SystemExit, match="other texts or minutes"):
        Race(tmp_path, replace(task, minutes=2))


@pytest.mark.parametrize(
    ("command", "status", "last"),
    [
        ([sys.executable, "-c", "print('a\\nb\\n'); raise SystemExit(3)"], 3, "ends: b"),
        (["/absent/program"], 127, "No such file or directory: '/absent/program'"),
    ],
)
def test_failed_training_shows_the_end_of_its_log(
    command: list[str],
    status: int,
    last: str,
    tmp_path: Path,
    task: Task,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(Copying, "commands", lambda self: [command, ["never"]])
    measured = Race(tmp_path, task)
    measured.run("copying", Copying(task, Path(sys.executable), tmp_path / "copying"))
    assert (measured.entries["copying"]["status"], measured.entries["copying"]["points"]) == (status, [])
    error = capsys.readouterr().err
    assert f"status {status}, 0 checkpoints" in error and last in error


def test_race_goes_on_after_a_failure(tmp_path: Path, task: Task) -> None:
    (tmp_path / "peers" / "eole" / "bin").mkdir(parents=True)
    (tmp_path / "peers" / "eole" / "bin" / "python").touch()  # can't be started
    texts = [f"--{name}={task.source}" for name in ("source", "target", "valid-source", "valid-target")]
    command = [sys.executable, ROOT / "scripts" / "race.py", tmp_path / "race", *texts]
    command += ["--programs", "eole", "joeynmt", f"--environments={tmp_path / 'peers'}", "--bleu", "20"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "eole: 0.0 minutes, status 127, 0 checkpoints." in done.stderr
    assert "Permission denied" in done.stderr
    assert "joeynmt: skipped, no " in done.stderr and "Install it there: pip install joeynmt" in done.stderr
    assert done.stdout.splitlines()[2:] == ["| eole | not reached | no checkpoint |  |  | 0 |"]
    assert (tmp_path / "race" / "race.md").read_text("utf-8") == done.stdout
    assert (tmp_path / "race" / "race.svg").exists()


def test_table() -> None:
    points = [(1.0, 10.0), (2.5, None), (4.0, 31.0), (9.0, 30.0)]
    entry = {"points": [{"minutes": m, "bleu": b, "chrf": b} for m, b in points]}
    assert table({"a": entry}, [5, 20, 40]).splitlines()[2:] == [
        "| a | 1.0 | 4.0 | not reached | 31.00 | 31.00 | 4.00 | 3 |"
    ]


@pytest.mark.parametrize("name", PROGRAMS)
def test_commands_name_the_texts_and_the_guide_the_recipe(name: str, tmp_path: Path, task: Task) -> None:
    program = PROGRAMS[name](task, Path("/e/bin/python"), tmp_path)
    commands = program.commands()
    given = " ".join(word for command in commands for word in command)
    given += "".join(path.read_text("utf-8") for path in tmp_path.glob("*.yaml"))
    assert str(task.source) in given and all(command[0].startswith("/e/bin/") for command in commands)
    output = tmp_path / "output"
    assert str(output) in " ".join(program.translation(tmp_path / "c", output))
    if name.startswith("fairseq"):  # its translations are in the order of length, among other lines
        output.mkdir()
        (output / "generate-valid.txt").write_text(
            "S-1\tx\nD-1\t-0.5\tb c\nH-1\t-0.5\tx\nD-0\t-1\ta\n", "utf-8"
        )
        assert program.hypotheses(output) == ["a", "b c"]
    else:
        output.write_text("a\u2028b\n\nc\n", "utf-8")
        assert program.hypotheses(output) == lines_of(output) == ["a\u2028b", "", "c"]
    guide = " ".join((ROOT / "docs" / "recipes.md").read_text("utf-8").split())
    assert program.recipe in guide and program.install.removeprefix("pip install ") in guide
