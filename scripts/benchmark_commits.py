"""Compares the speed and the memory of two commits: training and translating, in turns.

    python scripts/benchmark_commits.py f477c37 HEAD --pairs 9 --json commits.json

Each commit is unpacked into a temporary folder, and its own code runs there with the packages that are
installed here. The order of the commits changes from pair to pair. Each case is reported as the median of
the ratios of its pairs, with the lowest and the highest. A ratio above 1 means that the second commit is
faster or needs more memory.

- Training: the quickstart's corpus. The trainings of both commits exist at the same time, on the same
  batches; one of them is always stopped (SIGSTOP). A pair is a number of updates of each, in turn.
- Translating: lines of the quickstart's test set by a model that the first commit has trained. A pair is one
  run of the whole command by each commit.
- Memory: the highest resident set of the process.

The figures mean something only on a machine where nothing else runs.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmark_busy import records

from nmt.data.corpora.text import expand, read_lines

ROOT = Path(__file__).resolve().parents[1]
LINES = 500
WARM_UP_UPDATES = 2
_PATIENCE = 900.0


@dataclass(frozen=True)
class Training:
    """One configuration that is trained for a number of updates."""

    options: tuple[str, ...]
    updates: int


CASES: Mapping[str, Training] = {
    "training tiny fp32": Training(("model=tiny", "training.precision=fp32", "data.max_tokens=1000"), 30),
    "training tiny bf16": Training(("model=tiny", "training.precision=bf16", "data.max_tokens=500"), 4),
    "training base fp32": Training(("model=base", "training.precision=fp32", "data.max_tokens=500"), 4),
    "training base bf16": Training(("model=base", "training.precision=bf16", "data.max_tokens=60"), 1),
}
TRANSLATING = "translating"


@dataclass(frozen=True)
class Figures:
    """What one turn yields: updates a second or, of translating, runs a second; and bytes."""

    speed: float
    peak_memory: int


def main() -> None:
    """Measures and prints the table."""
    parser = argparse.ArgumentParser(description="Compares the speed and the memory of two commits.")
    parser.add_argument("commits", nargs=2, metavar="COMMIT")
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--cases", nargs="+", choices=[*CASES, TRANSLATING], default=[*CASES, TRANSLATING])
    parser.add_argument("--json", type=Path, help="also writes all figures to this file")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        trees = [unpacked(commit, Path(folder) / str(i)) for i, commit in enumerate(arguments.commits)]
        found = {name: pairs_of(name, trees, arguments.pairs) for name in arguments.cases}
    print(table(arguments.commits, found))
    if arguments.json:
        rows = [
            {"case": name, "commit": commit, "speed": run.speed, "peak_memory_bytes": run.peak_memory}
            for name, pairs in found.items()
            for pair in pairs
            for commit, run in zip(arguments.commits, pair, strict=True)
        ]
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


def unpacked(commit: str, tree: Path) -> Path:
    """The files of a commit, in a folder of their own."""
    tree.mkdir()
    archive = subprocess.run(["git", "archive", commit], cwd=ROOT, stdout=subprocess.PIPE, check=True)
    subprocess.run(["tar", "-x", "-C", str(tree)], input=archive.stdout, check=True)
    return tree


def pairs_of(name: str, trees: Sequence[Path], count: int) -> list[tuple[Figures, Figures]]:
    """The pairs of one case; the first one, which warms the caches, is not counted."""
    if name in CASES:
        return training_pairs(name, trees, count)
    train(trees[0], ("training.max_updates=300", f"run_dir={trees[0] / 'model'}"))
    pairs = []
    for i in range(count + 1):
        runs = {tree: translating(tree, trees[0] / "model") for tree in (trees if i % 2 else trees[::-1])}
        pairs.append((runs[trees[0]], runs[trees[1]]))
        print(name, i, pairs[-1], file=sys.stderr, flush=True)
    return pairs[1:]


def training_pairs(name: str, trees: Sequence[Path], count: int) -> list[tuple[Figures, Figures]]:
    """Trains with both commits, some updates of each in turn."""
    running = [PausedTraining(tree, CASES[name]) for tree in trees]
    try:
        speeds = []
        for i in range(count + 1):
            turns = {run: run.turn() for run in (running if i % 2 else running[::-1])}
            speeds.append((turns[running[0]], turns[running[1]]))
            print(name, i, speeds[-1], file=sys.stderr, flush=True)
        first, second = (run.peak_memory() for run in running)
        return [(Figures(a, first), Figures(b, second)) for a, b in speeds[1:]]
    finally:
        for run in running:
            run.end()


class PausedTraining:
    """A training that is stopped except during its turns.

    Args:
        tree: the folder of the commit.
        case: its options, and the updates of a turn.
    """

    def __init__(self, tree: Path, case: Training) -> None:
        self._tree, self._updates = tree, case.updates
        self._run = tempfile.TemporaryDirectory(dir=tree)
        self._metrics = Path(self._run.name) / "metrics.jsonl"
        options = [
            f"run_dir={self._run.name}",
            *case.options,
            "training.micro_batches=1",
            "training.max_updates=100000",
            "training.validate_every=100000",
            "training.log_every=1",
        ]
        self._process = start(tree, "train", options)
        self._wait(WARM_UP_UPDATES)
        self._process.send_signal(signal.SIGSTOP)

    def turn(self) -> float:
        """Trains for the updates of a turn; returns updates a second."""
        before, begin = len(records(self._metrics)), time.perf_counter()
        self._process.send_signal(signal.SIGCONT)
        self._wait(before + self._updates)
        seconds = time.perf_counter() - begin
        self._process.send_signal(signal.SIGSTOP)
        return self._updates / seconds

    def peak_memory(self) -> int:
        """The highest resident set so far, in bytes."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024

    def end(self) -> None:
        """Kills the process."""
        self._process.kill()
        self._process.wait()
        self._run.cleanup()

    def _wait(self, updates: int) -> None:
        deadline = time.monotonic() + _PATIENCE
        while len(records(self._metrics)) < updates:
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit((self._tree / "log").read_text(encoding="utf-8", errors="replace"))
            time.sleep(0.02)


def translating(tree: Path, model: Path) -> Figures:
    """Translates some lines of the quickstart's test set."""
    source = tree / "source.txt"
    if not source.exists():
        [path] = expand("bundled:quickstart/test.en.gz", "source")
        lines = itertools.islice(read_lines(path), LINES)
        source.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    begin = time.perf_counter()
    options = [f"model_dir={model}", f"input={source}", f"output={tree / 'target.txt'}"]
    process = start(tree, "translate", options)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = status
    if status:
        raise SystemExit((tree / "log").read_text(encoding="utf-8", errors="replace"))
    return Figures(1 / (time.perf_counter() - begin), usage.ru_maxrss * 1024)


def train(tree: Path, options: Sequence[str]) -> None:
    """A whole training."""
    if start(tree, "train", options).wait():
        raise SystemExit((tree / "log").read_text(encoding="utf-8", errors="replace"))


def start(tree: Path, name: str, options: Sequence[str]) -> subprocess.Popen[bytes]:
    """A command of the commit in this folder, with caches of its own."""
    code = f"from nmt.cli.{name} import main; main()"
    environment = {**os.environ, "PYTHONPATH": str(tree), "NMT_CACHE": str(tree / "cache")}
    with open(tree / "log", "wb") as log:
        return subprocess.Popen(
            [sys.executable, "-c", code, *options],
            cwd=tree,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=log,
        )


def table(commits: Sequence[str], found: Mapping[str, Sequence[tuple[Figures, Figures]]]) -> str:
    """A row for each case."""
    lines = [f"{'':<20}{f'speed {commits[1]} / {commits[0]}':>28}{'peak memory':>24}"]
    for name, pairs in found.items():
        speed = spread([second.speed / first.speed for first, second in pairs])
        memory = spread([second.peak_memory / first.peak_memory for first, second in pairs])
        lines.append(f"{name:<20}{speed:>28}{memory:>24}")
    return "\n".join(lines)


def spread(ratios: Sequence[float]) -> str:
    """The median with the lowest and the highest."""
    return f"{median(ratios):.3f} ({min(ratios):.3f}-{max(ratios):.3f})"


if __name__ == "__main__":
    main()
