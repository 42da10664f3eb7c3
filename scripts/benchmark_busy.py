"""Measures training and translation while other programs use the same cores.

    python scripts/benchmark_busy.py

The commands run with the default number of threads and with one thread, on an idle machine and with one busy
process (`while True: pass`) for each core. Each round measures all eight cases in turn. The table shows the
medians of the rounds, with the lowest and the highest value.

- Training: the quickstart's corpus and model in one process (`training.micro_batches=1`), in target tokens
  per second.
- Translation: 30 lines of the quickstart's test set, in seconds from the first line to the last, as
  `nmt-translate` logs them. The time to load the model is not included.

The idle figures are valid only on a machine where nothing else runs. The commands inherit OMP_WAIT_POLICY and
GOMP_SPINCOUNT, so that other wait policies can be compared.
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
from nmt.runtime.machine import available_cores

LINES = 30
WARM_UP_UPDATES = 3
_PATIENCE = 600.0

Case = tuple[str, str, bool]
"""`training` or `translating`; `default` or `threads=1`; whether the cores are busy."""


def main() -> None:
    """Measures and prints the table."""
    parser = argparse.ArgumentParser(description="Measures training and translation on busy cores.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=15.0, help="duration of each training")
    parser.add_argument(
        "--model-dir", type=Path, help="model that translates; default: trains a quickstart model first"
    )
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
    """Runs `count` other processes that compute."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def trained(folder: Path) -> Path:
    """Trains a model on the quickstart corpus for 300 updates, and returns its folder."""
    options = [f"run_dir={folder / 'model'}", "training.max_updates=300"]
    subprocess.run(command("train", *options), check=True, env=environment(), stdout=subprocess.DEVNULL)
    return folder / "model"


def training_speed(folder: Path, threads: str, seconds: float) -> float:
    """Returns the target tokens per second of a training that is killed after `seconds` of updates."""
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
    """Waits until `happened` is true; exits with the log if the process ends first or the time is over."""
    deadline = time.monotonic() + _PATIENCE
    while not happened():
        if process.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(log.read_text(encoding="utf-8", errors="replace"))
        time.sleep(0.05)


def records(metrics: Path) -> list[dict[str, Any]]:
    """Returns the records of a training's updates so far; ignores the last line, which may be incomplete."""
    found = []
    with contextlib.suppress(FileNotFoundError):
        for line in metrics.read_text(encoding="utf-8").split("\n")[:-1]:
            record = json.loads(line)
            if record["kind"] == "train":
                found.append(record)
    return found


def speed(updates: Sequence[Mapping[str, Any]]) -> float:
    """Returns the target tokens per second over all of these updates."""
    tokens = [update["filling"] for update in updates]  # shares of the same token budget
    seconds = [share / update["tokens_per_second"] for share, update in zip(tokens, updates, strict=True)]
    return float(sum(tokens) / sum(seconds))


def translating_seconds(folder: Path, model: Path, threads: str) -> float:
    """Returns the seconds that `nmt-translate` logs for some lines of the quickstart's test set."""
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
    return logged_seconds(result.stderr)


def logged_seconds(log: str) -> float:
    """Returns the seconds from the last log line of `nmt-translate`: lines / rate has more digits."""
    lines, rate = re.findall(r"^([\d,]+) lines, .* s, ([\d,]+) lines/s$", log, re.MULTILINE)[-1]
    return int(lines.replace(",", "")) / max(1, int(rate.replace(",", "")))


def command(name: str, *options: str) -> list[str]:
    """Returns the command line of a command of this checkout."""
    return [sys.executable, "-m", "nmt", name, *options]


def environment() -> dict[str, str]:
    """Returns the environment without OMP_NUM_THREADS, so that the commands choose the number of threads."""
    return {key: value for key, value in os.environ.items() if key != "OMP_NUM_THREADS"}


def table(found: Mapping[Case, Sequence[float]]) -> str:
    """Returns a row per case; the last column is the speed relative to one thread under the same load."""
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
    return "\n".join([*lines, "training: target tokens per second; translating: seconds"])


if __name__ == "__main__":
    main()
