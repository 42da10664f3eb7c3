"""Measures how many minutes translation programs need from raw text to a score, all costs included.

    python scripts/race.py RACE --source train.en --target train.de --valid-source valid.en \
        --valid-target valid.de --langs en de --minutes 60 --python joeynmt=ENVIRONMENT/bin/python

The programs of `race_programs.py` prepare their data and train, one after another, on the same cores. The
clock of a program starts before its first command: vocabulary, preparation, start-up and its own validation
count. After its training, each checkpoint translates the validation text. This time does not count. A point
of its curve is (minutes until the checkpoint was written, scores of the translation). The scores are
sacreBLEU's BLEU with case and chrF2, on raw text.

RACE gets `race.json`, written after each point, `race.md`, `race.svg` and a folder for each program. The same
command again continues: ended trainings and measured points are not repeated. A training that was interrupted
or left no checkpoint begins again.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from race_programs import PROGRAMS, Program, Task

from nmt.runtime.files import replaced

OVERTIME = 1.2  # of the minutes, for a program that ends by itself
PATIENCE = 20.0  # seconds between the request to stop and the kill

Entry = dict[str, Any]
"""A program in race.json: `recipe`, `minutes` until the end, `status` of the last command (None: stopped by
the clock), and `points`, each with `checkpoint`, `minutes`, and after its translation `bleu` and `chrf`
(None: it can't translate)."""


class Race:
    """A race in a folder, and its record.

    Attributes:
        folder: the folder of the race.
        task: the texts, the minutes and the cores.
        entries: name of a program → its entry; contains programs that ended training.
    """

    def __init__(self, folder: Path, task: Task) -> None:
        """Reads the record, if there is one.

        Raises:
            SystemExit: the race in the folder has another task.
        """
        self.folder, self.task = folder, task
        self.entries: dict[str, Entry] = {}
        if self._record.exists():
            record = json.loads(self._record.read_text("utf-8"))
            if record["task"] != task.as_dict():
                raise SystemExit(f"{folder}: has a race with other texts or minutes. Give another folder.")
            self.entries = record["programs"]

    def run(self, program: Program) -> None:
        """Trains a program, translates with each of its checkpoints, and scores the translations."""
        work = self.folder / program.name
        if not self.entries.get(program.name, {}).get("points"):
            if work.exists():
                shutil.rmtree(work)
            work.mkdir(parents=True)
            self.entries[program.name] = self._trained(program, work)
            self._save()
        for number, point in enumerate(self.entries[program.name]["points"]):
            if point.get("bleu") is None:
                output = work / f"translation-{number}"
                point.update(self._scores(program, work, Path(point["checkpoint"]), output))
                self._save()

    def _trained(self, program: Program, work: Path) -> Entry:
        begin = time.time()
        overtime = OVERTIME if program.ends_by_itself else 1.0
        end = begin + 60 * self.task.minutes * overtime
        status: int | None = 0
        with (work / "log").open("wb") as log:
            for command in program.commands(self.task, work):
                status = run_until(command, end, log, self.task.environment())
                if status != 0:
                    break
        minutes = round((time.time() - begin) / 60, 3)
        if status:
            report(f"{program.name}: ended with status {status}: see {work / 'log'}")
        points: list[Entry] = [
            {"checkpoint": str(path), "minutes": round((written(path) - begin) / 60, 3)}
            for path in program.checkpoints(work)
        ]
        points.sort(key=lambda point: float(point["minutes"]))
        return {"recipe": program.recipe, "minutes": minutes, "status": status, "points": points}

    def _scores(self, program: Program, work: Path, checkpoint: Path, output: Path) -> Entry:
        """Returns `bleu` and `chrf` of a checkpoint; None if it can't translate."""
        command = program.translation(self.task, work, checkpoint, output)
        with (work / "log").open("ab") as log, self.task.valid_source.open("rb") as source:
            environment = self.task.environment()
            done = subprocess.run(command, stdin=source, stdout=log, stderr=log, env=environment, check=False)
        hypotheses = program.hypotheses(output) if output.exists() else []
        references = lines_of(self.task.valid_target)
        if done.returncode != 0 or len(hypotheses) != len(references):
            found = f"status {done.returncode}, {len(hypotheses)} of {len(references)} translations"
            report(f"{program.name}: {checkpoint}: {found}: see {work / 'log'}")
            return {"bleu": None, "chrf": None}
        return scores(hypotheses, references)

    @property
    def _record(self) -> Path:
        return self.folder / "race.json"

    def _save(self) -> None:
        content = {"task": self.task.as_dict(), "programs": self.entries}
        with replaced(self._record) as temporary:
            temporary.write_text(json.dumps(content, indent=1) + "\n", "utf-8")


def run_until(command: Sequence[str], end: float, log: Any, environment: Mapping[str, str]) -> int | None:
    """Runs a command until a time of the clock; returns its status, or None if it was stopped."""
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, start_new_session=True
    )
    try:
        return process.wait(max(0.0, end - time.time()))
    except subprocess.TimeoutExpired:
        return None
    finally:  # its workers too, also when the race is interrupted
        stop_group(process)


def stop_group(process: subprocess.Popen[bytes]) -> None:
    """Ends a process and the processes that it started."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, sign)
            process.wait(PATIENCE)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            pass


def written(path: Path) -> float:
    """Returns the time at which a checkpoint, a file or a folder, was complete: that of its newest file."""
    return max(file.stat().st_mtime for file in (path, *path.rglob("*")) if file.is_file())


def lines_of(path: Path) -> list[str]:
    """Returns the lines of a text; a line ends at a line feed and nowhere else."""
    return path.read_text("utf-8").removesuffix("\n").split("\n")


def scores(hypotheses: Sequence[str], references: Sequence[str]) -> Entry:
    """Returns cased BLEU (13a) and chrF2 of sacreBLEU."""
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    return {
        "bleu": round(BLEU().corpus_score(hypotheses, [references]).score, 2),
        "chrf": round(CHRF().corpus_score(hypotheses, [references]).score, 2),
    }


def curve(entry: Entry) -> list[Entry]:
    """Returns the points of an entry that have scores, in the order of time."""
    return [point for point in entry["points"] if point.get("bleu") is not None]


def minutes_to(entry: Entry, bleu: float) -> float | None:
    """Returns the minutes until the first checkpoint with at least a score; None if there is none."""
    return next((float(point["minutes"]) for point in curve(entry) if point["bleu"] >= bleu), None)


def table(entries: Mapping[str, Entry], targets: Sequence[float]) -> str:
    """Returns the results in Markdown: minutes to each target, and the best checkpoint, for each program."""
    heads = ["Program", *(f"Minutes to {target:g} BLEU" for target in targets)]
    heads += ["Best BLEU", "chrF2", "after minutes", "Points"]
    rows = [heads, ["---"] * len(heads)]
    for name, entry in entries.items():
        points = curve(entry)
        reached = [minutes_to(entry, target) for target in targets]
        cells = [name, *("not reached" if each is None else f"{each:.1f}" for each in reached)]
        if points:
            best = max(points, key=lambda point: float(point["bleu"]))
            cells += [f"{best['bleu']:.2f}", f"{best['chrf']:.2f}", f"{best['minutes']:.1f}"]
        else:
            cells += ["no checkpoint", "", ""]
        rows.append([*cells, str(len(points))])
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def draw(entries: Mapping[str, Entry], path: Path) -> None:
    """Draws BLEU against minutes, a line for each program."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(8, 5), layout="constrained")
    for name, entry in entries.items():
        points = curve(entry)
        axis.plot([each["minutes"] for each in points], [each["bleu"] for each in points], ".-", label=name)
    axis.set(xlabel="minutes since the start, all costs included", ylabel="BLEU on the validation text")
    axis.set(xlim=(0, None), ylim=(0, None))
    axis.grid(alpha=0.3)
    if entries:
        axis.legend()
    figure.savefig(path)
    plt.close(figure)


def report(line: str) -> None:
    """Prints a line of progress to standard error."""
    print(line, file=sys.stderr, flush=True)


def pythons(pairs: Sequence[str], folder: Path | None) -> dict[str, Path]:
    """Returns the Python of each program: `NAME=PATH`, else that in the environment `folder/NAME`.

    Programs without one run in the Python of this script.

    Raises:
        ValueError: an argument is not NAME=PATH with the name of a program.
    """
    found = {name: Path(sys.executable) for name in PROGRAMS}
    for name in PROGRAMS:
        if folder is not None and (inside := folder / name / "bin" / "python").exists():
            found[name] = inside
    for pair in pairs:
        name, equals, path = pair.partition("=")
        if name not in PROGRAMS or not equals or not path:
            raise ValueError(f"--python {pair}: must be NAME=PATH, with a NAME of {', '.join(PROGRAMS)}.")
        found[name] = Path(path)
    return {name: path.absolute() for name, path in found.items()}  # not resolved: a link has an environment


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Returns the arguments; ends with a message if they are wrong."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("folder", type=Path, help="folder of the race")
    parser.add_argument("--source", type=Path, required=True, help="training text, a sentence a line")
    parser.add_argument("--target", type=Path, required=True, help="its translation")
    parser.add_argument("--valid-source", type=Path, required=True, help="validation text")
    parser.add_argument("--valid-target", type=Path, required=True, help="its translation")
    parser.add_argument("--langs", nargs=2, default=("en", "de"), help="of source and target; default: en de")
    parser.add_argument("--minutes", type=float, default=60, help="of each program; default: 60")
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    parser.add_argument("--cores", type=int, default=available, help="of each program; default: all")
    parser.add_argument("--every", type=int, default=200, help="updates between checkpoints of the peers")
    parser.add_argument("--programs", nargs="+", choices=PROGRAMS, default=[*PROGRAMS], help="default: all")
    parser.add_argument(
        "--python", action="append", default=[], metavar="NAME=PATH", help="Python of a program"
    )
    parser.add_argument("--environments", type=Path, help="folder with an environment for each NAME")
    parser.add_argument("--bleu", type=float, nargs="*", default=[20, 30, 35], help="targets of the table")
    given = parser.parse_args(arguments)
    try:
        given.pythons = pythons(given.python, given.environments)
    except ValueError as error:
        parser.error(str(error))
    if given.minutes < 1 or given.every < 1 or not 1 <= given.cores <= available:
        parser.error(f"--minutes, --every: at least 1; --cores: from 1 to {available}.")
    for path in (given.source, given.target, given.valid_source, given.valid_target):
        if not path.is_file():
            parser.error(f"{path}: no such file.")
    return given


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the race; prints and writes its table, and draws its plot."""
    given = parsed(arguments)
    names = ("source", "target", "valid_source", "valid_target")
    texts = {name: getattr(given, name).absolute() for name in names}
    task = Task(
        **texts, langs=tuple(given.langs), minutes=given.minutes, cores=given.cores, every=given.every
    )
    if hasattr(os, "sched_setaffinity"):  # inherited by all commands
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: given.cores])
    folder = given.folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    race = Race(folder, task)
    for name in given.programs:
        program = PROGRAMS[name](given.pythons[name])
        if not program.installed():
            report(f"{name}: skipped, not installed in {program.python}. Install it with: {program.install}")
            continue
        report(f"{name}: {program.recipe}")
        race.run(program)
    text = table(race.entries, given.bleu)
    (folder / "race.md").write_text(text + "\n", "utf-8")
    draw(race.entries, folder / "race.svg")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
