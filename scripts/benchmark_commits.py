"""Compares the speed and the memory of two commits: training and translating, in turns.

    python scripts/benchmark_commits.py f477c37 HEAD --pairs 9 --json commits.json

Each commit is unpacked into a temporary folder, and its own code runs there with the packages that are
installed here. A pair is one run of each commit; the order changes from pair to pair. Each
case is reported as the median of the ratios of its pairs, with the lowest and the highest. A ratio above 1
means that the second commit is faster or needs more memory.

- Training: the quickstart's corpus, target tokens a second of the updates after the first ones.
- Translating: lines of the quickstart's test set by a model that the first commit has trained, seconds of the
  whole command.
- Memory: the highest resident set of the process.

The figures mean something only on a machine where nothing else runs.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmark_busy import records, speed

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
    "training tiny bf16": Training(("model=tiny", "training.precision=bf16", "data.max_tokens=500"), 8),
    "training base fp32": Training(("model=base", "training.precision=fp32", "data.max_tokens=500"), 8),
    "training base bf16": Training(("model=base", "training.precision=bf16", "data.max_tokens=100"), 3),
}
TRANSLATING = "translating"


@dataclass(frozen=True)
class Figures:
    """What one run yields: target tokens a second or, of translating, runs a second; and bytes."""

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
    """The runs of one case; the first pair, which prepares the data, is not counted."""
    if name == TRANSLATING:
        train(trees[0], ("training.max_updates=300", f"run_dir={trees[0] / 'model'}"))
    pairs = []
    for i in range(count + 1):
        runs = {tree: measured(name, tree, trees[0]) for tree in (trees if i % 2 else trees[::-1])}
        pair = (runs[trees[0]], runs[trees[1]])
        print(name, i, pair, file=sys.stderr, flush=True)
        pairs.append(pair)
    return pairs[1:]


def measured(name: str, tree: Path, first: Path) -> Figures:
    """One run of one commit."""
    if name == TRANSLATING:
        return translating(tree, first / "model")
    return training(tree, CASES[name])


def training(tree: Path, case: Training) -> Figures:
    """Trains until enough updates are recorded, then kills the process."""
    with tempfile.TemporaryDirectory(dir=tree) as run:
        metrics = Path(run) / "metrics.jsonl"
        options = [
            f"run_dir={run}",
            *case.options,
            "training.micro_batches=1",
            "training.max_updates=100000",
            "training.validate_every=100000",
            "training.log_every=1",
        ]
        process = start(tree, "train", options)
        deadline = time.monotonic() + _PATIENCE
        while len(records(metrics)) < WARM_UP_UPDATES + case.updates:
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit((tree / "log").read_text(encoding="utf-8", errors="replace"))
            time.sleep(0.1)
        process.kill()
        _, _, usage = os.wait4(process.pid, 0)
        process.returncode = 0  # reaped above
        updates = records(metrics)[WARM_UP_UPDATES : WARM_UP_UPDATES + case.updates]
        return Figures(speed(updates), usage.ru_maxrss * 1024)


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
