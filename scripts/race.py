"""Measures how many minutes translation programs need from raw text to a score, all costs included.

    python scripts/race.py RACE --source train.en --target train.de --valid-source valid.en \
        --valid-target valid.de --langs en de --minutes 30 --environments peers

The programs of `race_programs.py` prepare their data and train, one after another, on the same cores. The
clock of a program starts before its first command: vocabulary, preparation, start-up and its own validation
count. After the minutes each program gets SIGINT, and after 3 % more it is killed. Then each checkpoint
translates the validation text. This time does not count. A point of the curve is (minutes until the
checkpoint was written, scores of the translation): sacreBLEU's BLEU with case and chrF2, on raw text.

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
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from race_programs import PROGRAMS, Program, Task, lines_of

from nmt.runtime.files import replaced

GRACE = 0.03  # of the minutes, between SIGINT and the kill
LONGEST = 3600.0  # seconds of a translation

Entry = dict[str, Any]
"""A program in race.json: `minutes` until the end, `status` of the last command (None: stopped), and
`points`, each with `checkpoint`, `minutes`, and after its translation `bleu` and `chrf` (None: failed)."""


class Race:
    """A race in a folder, and its record.

    Attributes:
        record: the path of race.json.
        task: the texts, the minutes and the cores, as JSON has them.
        entries: name of a program → its entry; contains programs that ended training.
    """

    def __init__(self, folder: Path, task: Task) -> None:
        """Reads the record, if there is one.

        Raises:
            SystemExit: the race in the folder has another task.
        """
        self.record, self.entries = folder / "race.json", dict[str, Entry]()
        self.task = json.loads(json.dumps(asdict(task), default=str))
        if self.record.exists():
            saved = json.loads(self.record.read_text("utf-8"))
            if saved["task"] != self.task:
                raise SystemExit(f"{folder}: has a race with other texts or minutes. Give another folder.")
            self.entries = saved["programs"]

    def run(self, name: str, program: Program) -> None:
        """Trains a program, translates with each of its checkpoints, and scores the translations."""
        if not self.entries.get(name, {}).get("points"):
            shutil.rmtree(program.work, ignore_errors=True)
            program.work.mkdir(parents=True)
            self.entries[name] = trained(name, program)
            self._save()
        for number, point in enumerate(self.entries[name]["points"]):
            if point.get("bleu") is None:
                point |= scored(name, program, Path(point["checkpoint"]), number)
                self._save()

    def _save(self) -> None:
        with replaced(self.record) as temporary:
            content = {"task": self.task, "programs": self.entries}
            temporary.write_text(json.dumps(content, indent=1) + "\n", "utf-8")


def trained(name: str, program: Program) -> Entry:
    """Runs the commands of a program until the end of its time; returns its entry, without scores."""
    begin, seconds, status = time.time(), 60 * program.task.minutes, None
    log, source = program.work / "log", program.task.valid_source
    for command in program.commands():
        status = run_until(command, begin + seconds, log, source, GRACE * seconds)
        if status != 0:
            break
    minutes = round((time.time() - begin) / 60, 3)
    paths = [path for pattern in program.checkpoints for path in program.work.glob(pattern)]
    points: list[Entry] = [
        {"checkpoint": str(path), "minutes": round((written(path) - begin) / 60, 3)} for path in paths
    ]
    points.sort(key=lambda point: float(point["minutes"]))
    if status or not points:
        report(f"{name}: {minutes:.1f} minutes, status {status}, {len(points)} checkpoints", log)
    return {"minutes": minutes, "status": status, "points": points}


def scored(name: str, program: Program, checkpoint: Path, number: int) -> Entry:
    """Returns cased BLEU (13a) and chrF2 of a checkpoint; None if it can't translate."""
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    log, output = program.work / f"log-{number}", program.work / f"translation-{number}"
    command = program.translation(checkpoint, output)
    status = run_until(command, time.time() + LONGEST, log, program.task.valid_source)
    hypotheses = program.hypotheses(output) if status == 0 and output.exists() else []
    references = lines_of(program.task.valid_target)
    if len(hypotheses) != len(references):
        found = f"status {status}, {len(hypotheses)} of {len(references)} translations"
        report(f"{name}: {checkpoint.name}: {found}", log)
        return {"bleu": None, "chrf": None}
    metrics = {"bleu": BLEU(), "chrf": CHRF()}
    return {key: round(each.corpus_score(hypotheses, [references]).score, 2) for key, each in metrics.items()}


def run_until(command: Sequence[str], end: float, log: Path, source: Path, grace: float = 0) -> int | None:
    """Runs a command until a time of the clock, then for `grace` seconds after SIGINT.

    Returns:
        Its status, 127 if it can't be started, or None if it was stopped.
    """
    with log.open("ab") as out, source.open("rb") as text:
        try:
            process = subprocess.Popen(command, stdin=text, stdout=out, stderr=out, start_new_session=True)
        except OSError as error:
            out.write(f"{error}\n".encode())
            return 127
        try:
            return process.wait(max(0.0, end - time.time()))
        except subprocess.TimeoutExpired:
            return None
        finally:  # its workers too, also when the race is interrupted
            with suppress(ProcessLookupError, subprocess.TimeoutExpired):
                os.killpg(process.pid, signal.SIGINT)
                process.wait(grace)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def written(path: Path) -> float:
    """Returns the time at which a checkpoint, a file or a folder, was complete: that of its newest file."""
    return max(file.stat().st_mtime for file in (path, *path.rglob("*")))


def report(line: str, log: Path | None = None) -> None:
    """Prints a line to standard error; after a failure, with the last line of a log."""
    if log is not None:
        line += f". {log} ends: {log.read_text('utf-8', 'replace').strip().rpartition(chr(10))[2][:300]}"
    print(line, file=sys.stderr, flush=True)


def curve(entry: Entry) -> list[Entry]:
    """Returns the points of an entry that have scores, in the order of time."""
    return [point for point in entry["points"] if point.get("bleu") is not None]


def table(entries: Mapping[str, Entry], targets: Sequence[float]) -> str:
    """Returns the results in Markdown: minutes to each target, and the best checkpoint, for each program."""
    heads = ["Program", *(f"Minutes to {target:g} BLEU" for target in targets)]
    heads += ["Best BLEU", "chrF2", "after minutes", "Points"]
    rows = [heads, ["---"] * len(heads)]
    for name, entry in entries.items():
        points, cells = curve(entry), [name]
        for target in targets:
            reached = [point["minutes"] for point in points if point["bleu"] >= target]
            cells.append(f"{reached[0]:.1f}" if reached else "not reached")
        best = max(points, key=lambda point: float(point["bleu"]), default=None)
        values = (best["bleu"], best["chrf"], best["minutes"]) if best else ()
        cells += [f"{value:.2f}" for value in values] or ["no checkpoint", "", ""]
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


def main() -> int:
    """Runs the race; prints and writes its table, and draws its plot."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("folder", type=Path, help="folder of the race")
    parser.add_argument("--source", type=Path, required=True, help="training text, a sentence a line")
    parser.add_argument("--target", type=Path, required=True, help="its translation")
    parser.add_argument("--valid-source", type=Path, required=True, help="validation text")
    parser.add_argument("--valid-target", type=Path, required=True, help="its translation")
    parser.add_argument("--langs", nargs=2, default=("en", "de"), help="of source and target; default: en de")
    parser.add_argument("--minutes", type=float, default=30, help="of each program; default: 30")
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    parser.add_argument("--cores", type=int, default=available, help="of each program; default: all")
    parser.add_argument("--every", type=int, default=50, help="updates between checkpoints of the peers")
    parser.add_argument("--programs", nargs="+", choices=PROGRAMS, default=[*PROGRAMS], help="default: all")
    parser.add_argument("--environments", type=Path, default="peers", help="folder of an environment each")
    parser.add_argument("--bleu", type=float, nargs="*", default=[10, 20, 30], help="targets of the table")
    given = parser.parse_args()
    if given.minutes < 2 or given.every < 1 or not 1 <= given.cores <= available:
        parser.error(f"--minutes: at least 2; --every: at least 1; --cores: from 1 to {available}.")
    names = ("source", "target", "valid_source", "valid_target")
    texts = {name: getattr(given, name).absolute() for name in names}
    for path in texts.values():
        if not path.is_file():
            parser.error(f"{path}: no such file.")

    # The commands inherit the cores, no GPU, no network, and SIGINT, which a job in the background ignores.
    os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(given.cores))
    os.environ |= {"CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1", "PYTHONUTF8": "1"}
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: given.cores])
    for sign in (signal.SIGINT, signal.SIGTERM):
        signal.signal(sign, signal.default_int_handler)

    folder = given.folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    task = Task(
        **texts, langs=tuple(given.langs), minutes=given.minutes, cores=given.cores, every=given.every
    )
    race = Race(folder, task)
    for name in given.programs:
        shared = PROGRAMS[name].environment or name
        environment = given.environments.absolute() / shared / "bin" / "python"  # a link, not resolved
        program = PROGRAMS[name](task, Path(sys.executable) if name == "nmt" else environment, folder / name)
        if not program.python.exists():
            report(f"{name}: skipped, no {program.python}. Install it there: {program.install}")
            continue
        report(f"{name}: {program.recipe}")
        try:
            race.run(name, program)
        except Exception as error:  # the fault of a program does not stop the race
            report(f"{name}: {type(error).__name__}: {error}")
    text = table(race.entries, given.bleu)
    (folder / "race.md").write_text(text + "\n", "utf-8")
    draw(race.entries, folder / "race.svg")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
