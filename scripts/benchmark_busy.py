"""Measures training and translating beside other programs that want the cores, too.

    python scripts/benchmark_busy.py

The commands run as they are, once with the number of threads they choose and once with one thread, on the
machine as it is and beside a busy process for each core (`while True: pass`). All eight take turns within a
round, and the table shows the medians of the rounds with the lowest and the highest.

- Training: the quickstart's corpus and model in one process (`training.micro_batches=1`), target tokens a
  second.
- Translating: 30 lines of the quickstart's test set, seconds from the first line to the last, as
  `nmt-translate` logs them. Loading is not counted in.

The idle figures mean something only on a machine where nothing else runs. OMP_WAIT_POLICY and GOMP_SPINCOUNT
are handed on, so that other ways to wait can be compared.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from nmt.data.corpora.text import expand, read_lines
from nmt.runtime import available_cores

LINES = 30
WARM_UP_UPDATES = 3
_PATIENCE = 600.0

Case = tuple[str, str, bool]
"""What is measured, `default` or `threads=1`, and whether the cores are busy."""


def main() -> None:
    """Measures and prints the table."""
    parser = argparse.ArgumentParser(description="Measures training and translating on busy cores.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=15.0, help="of each training")
    parser.add_argument("--model-dir", type=Path, help="translates; default: a quickstart is trained first")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model = (arguments.model_dir or trained(Path(folder))).resolve()
        found: dict[Case, list[float]] = {}
        for _ in range(arguments.rounds):
            for busy in (False, True):
                for threads in ("default", "threads=1"):
                    with busy_cores(available_cores() if busy else 0):
                        speed = training_speed(Path(folder), threads, arguments.seconds)
                        found.setdefault(("training", threads, busy), []).append(speed)
                        seconds = translating_seconds(Path(folder), model, threads)
                        found.setdefault(("translating", threads, busy), []).append(seconds)
    print(table(found))


@contextlib.contextmanager
def busy_cores(count: int) -> Iterator[None]:
    """Within, so many other processes compute."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def trained(folder: Path) -> Path:
    """A model that translates as the quickstart's does, more or less."""
    options = [f"run_dir={folder / 'model'}", "training.max_updates=300"]
    subprocess.run(command("train", *options), check=True, env=environment(), stdout=subprocess.DEVNULL)
    return folder / "model"


def training_speed(folder: Path, threads: str, seconds: float) -> float:
    """Target tokens a second of a training that is broken off after so many seconds of updates."""
    with tempfile.TemporaryDirectory(dir=folder) as run:
        options = [
            f"run_dir={run}",
            "training.micro_batches=1",
            "training.max_updates=100000",
            "training.validate_every=100000",
            "training.log_every=1",
            *([f"training.{threads}"] if threads != "default" else []),
        ]
        metrics = Path(run) / "metrics.jsonl"
        with open(folder / "log", "wb") as log:
            process = subprocess.Popen(
                command("train", *options), env=environment(), stdout=subprocess.DEVNULL, stderr=log
            )
        try:
            until(lambda: len(records(metrics)) > WARM_UP_UPDATES, process, folder / "log")
            time.sleep(seconds)
        finally:
            process.kill()
            process.wait()
        return speed(records(metrics)[WARM_UP_UPDATES:])


def until(happened: Callable[[], bool], process: subprocess.Popen[bytes], log: Path) -> None:
    """Waits for something that a process brings about."""
    deadline = time.monotonic() + _PATIENCE
    while not happened():
        if process.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(log.read_text(encoding="utf-8", errors="replace"))
        time.sleep(0.05)


def records(metrics: Path) -> list[dict[str, Any]]:
    """What a training has recorded of its updates so far; the last line may be half written."""
    found = []
    with contextlib.suppress(FileNotFoundError):
        for line in metrics.read_text(encoding="utf-8").split("\n")[:-1]:
            record = json.loads(line)
            if record["kind"] == "train":
                found.append(record)
    return found


def speed(updates: Sequence[Mapping[str, Any]]) -> float:
    """Target tokens a second of these updates together."""
    tokens = [update["filling"] for update in updates]  # as a share of what all may hold alike
    seconds = [share / update["tokens_per_second"] for share, update in zip(tokens, updates, strict=True)]
    return float(sum(tokens) / sum(seconds))


def translating_seconds(folder: Path, model: Path, threads: str) -> float:
    """Seconds that `nmt-translate` says for some lines of the quickstart's test set."""
    source = folder / "source.txt"
    if not source.exists():
        [path] = expand("bundled:quickstart/test.en.gz", "source")
        lines = itertools.islice(read_lines(path), LINES)
        source.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    options = [f"model_dir={model}", f"input={source}", f"output={folder / 'target.txt'}"]
    options += [threads] if threads != "default" else []
    result = subprocess.run(
        command("translate", *options), env=environment(), capture_output=True, text=True, check=True
    )
    return said_seconds(result.stderr)


def said_seconds(log: str) -> float:
    """The seconds that the last line of `nmt-translate` comes to, in more digits than it shows."""
    lines, rate = re.findall(r"^([\d,]+) lines, .* s, ([\d,]+) lines/s$", log, re.MULTILINE)[-1]
    return int(lines.replace(",", "")) / max(1, int(rate.replace(",", "")))


def command(name: str, *options: str) -> list[str]:
    """A command of this checkout."""
    return [sys.executable, "-m", "nmt", name, *options]


def environment() -> dict[str, str]:
    """Without a number of threads, which the commands are to choose."""
    return {key: value for key, value in os.environ.items() if key != "OMP_NUM_THREADS"}


def table(found: Mapping[Case, Sequence[float]]) -> str:
    """A row for each case; the last column is the speed over that of one thread on cores as busy."""
    lines = [f"{'':<12}{'cores':<7}{'threads':<11}{'median':>9}  {'lowest-highest':<20}{'of threads=1':>12}"]
    for what in ("training", "translating"):
        for busy in (False, True):
            for threads in ("default", "threads=1"):
                values = found[what, threads, busy]
                one = median(found[what, "threads=1", busy])
                ratio = median(values) / one if what == "training" else one / median(values)
                digits = ",.0f" if what == "training" else ".2f"
                between = f"{min(values):{digits}}-{max(values):{digits}}"
                lines.append(
                    f"{what:<12}{'busy' if busy else 'idle':<7}{threads:<11}{median(values):>9{digits}}  "
                    f"{between:<20}{ratio:>11.2f}x"
                )
    return "\n".join([*lines, "training: target tokens a second; translating: seconds"])


if __name__ == "__main__":
    main()
