"""Measures positional encodings and what the Transformer replaced, for docs/positional_encoding.md.

    python scripts/position_study.py study/                                the estimate, part by part
    python scripts/position_study.py study/ --run --multi30k multi30k/     everything, 4 hours on two cores
    python scripts/position_study.py study/ --run --parts tasks layers     these parts
    python scripts/position_study.py study/ --report docs/                 tables and plots

Each experiment writes one JSON file into `study/results/`. Those that are there are not measured again, and
trainings resume, so the same command goes on after an interruption. Experiments whose time is measured run
alone, with all cores, after the others, which share the cores.

Multi30k is read from a folder with train.en.gz, train.de.gz, val.en.gz and val.de.gz.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from position_experiments import captions, comparisons, layers, speed, tasks
from position_experiments.experiment import Experiment, Place
from tqdm import tqdm

from nmt.runtime.files import replaced

PARTS: Mapping[str, str] = {
    "tasks": "copy, reverse and sort, every encoding, three seeds",
    "bases": "copy and sort, sinusoids of other bases, three seeds",
    "mixed": "copy and reverse, different encodings in encoder and decoder",
    "concatenated": "copy, with concatenated pairs in training",
    "probe": "position in the hidden states, with and without residual connections",
    "attention": "scores, widths and numbers of heads on the tasks",
    "captions": "Multi30k without its longest fifth",
    "captions-attention": "Multi30k, attention variants",
    "speed": "speed of training with each encoding",
    "recurrence": "Multi30k, recurrence against attention, 20 minutes each",
    "layers": "table 1: time, memory and path length of one layer",
    "scores": "time and memory of dot products and additive scores, by the width of the keys",
}

OF_MULTI30K = ("captions", "captions-attention", "recurrence")
"""The parts that read Multi30k."""


def all_experiments() -> list[Experiment]:
    """Returns all experiments, in the order in which they run; those that measure time come last."""
    found = [
        *tasks.experiments(),
        *comparisons.probe_experiments(),
        *comparisons.attention_experiments(),
        *captions.experiments(),
        *speed.experiments(),
        *comparisons.recurrence_experiments(),
        *layers.experiments(),
    ]
    assert len({experiment.name for experiment in found}) == len(found)
    return sorted(found, key=lambda experiment: experiment.alone)


def main() -> int:
    """Prints the estimate, runs experiments, or writes the report."""
    parser = argparse.ArgumentParser(
        description="Measures positional encodings and what the Transformer replaced.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="\n".join(f"{name:<20}{text}" for name, text in PARTS.items()),
    )
    parser.add_argument("folder", type=Path, help="folder of the study")
    parser.add_argument("--run", action="store_true", help="run the experiments that are not complete")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), metavar="PART")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="experiments at the same time")
    parser.add_argument("--multi30k", type=Path, help="folder of Multi30k")
    parser.add_argument("--report", type=Path, metavar="DOCS", help="write results, tables and plots there")
    parser.add_argument("--only", help=argparse.SUPPRESS)  # one experiment, in this process
    arguments = parser.parse_args()
    place = Place(arguments.folder, arguments.multi30k)
    chosen = [experiment for experiment in all_experiments() if experiment.part in arguments.parts]
    if arguments.only:
        measure(next(each for each in chosen if each.name == arguments.only), place)
        return 0
    pending = [experiment for experiment in chosen if not _place(place, experiment).result.exists()]
    print(estimate(chosen, pending, arguments.jobs), file=sys.stderr)
    of_multi30k = [each.name for each in pending if each.part in OF_MULTI30K]
    if arguments.run and of_multi30k and arguments.multi30k is None:
        parser.error(
            "--multi30k FOLDER is required for the parts " + ", ".join(OF_MULTI30K) + ". Or give --parts."
        )
    failed = run_all(pending, place, arguments.jobs, sys.argv[1:]) if arguments.run else []
    if arguments.report:
        from position_experiments.report import write_report

        write_report(place.folder, arguments.report)
    return 1 if failed else 0


def estimate(chosen: Sequence[Experiment], pending: Sequence[Experiment], jobs: int) -> str:
    """Returns a table of the parts: experiments, those complete, and the minutes that remain."""
    lines = [f"{'part':<20}{'experiments':>12}{'complete':>10}{'minutes left':>14}"]
    for part in dict.fromkeys(experiment.part for experiment in chosen):
        those = [experiment for experiment in chosen if experiment.part == part]
        left = [experiment for experiment in pending if experiment.part == part]
        lines.append(f"{part:<20}{len(those):>12}{len(those) - len(left):>10}{_minutes(left, jobs):>14,.0f}")
    lines.append(
        f"{'all':<20}{len(chosen):>12}{len(chosen) - len(pending):>10}{_minutes(pending, jobs):>14,.0f}"
    )
    return "\n".join(lines)


def run_all(pending: Sequence[Experiment], place: Place, jobs: int, given: Sequence[str]) -> list[str]:
    """Runs experiments, each in a separate process; returns the names of those that failed."""
    failed = []
    with tqdm(total=len(pending), unit="experiments", desc="Measuring") as bar:

        def run(experiment: Experiment) -> None:
            begin = time.monotonic()
            code = subprocess.run([sys.executable, __file__, *given, "--only", experiment.name]).returncode
            minutes = (time.monotonic() - begin) / 60
            tqdm.write(
                f"{experiment.name}: {'failed' if code else 'done'} after {minutes:.1f} min", sys.stderr
            )
            if code:
                failed.append(experiment.name)
            bar.update()

        _run_each([each for each in pending if not each.alone], jobs, run)
        _run_each([each for each in pending if each.alone], 1, run)
    return failed


def _run_each(experiments: Sequence[Experiment], jobs: int, run: Callable[[Experiment], None]) -> None:
    with ThreadPoolExecutor(jobs) as pool:
        for finished in as_completed([pool.submit(run, experiment) for experiment in experiments]):
            finished.result()


def measure(experiment: Experiment, place: Place) -> None:
    """Runs one experiment in this process and writes its result."""
    place = _place(place, experiment)
    begin = time.monotonic()
    found = dict(experiment.measure(place))
    record = {
        "name": experiment.name,
        "part": experiment.part,
        **experiment.facts,
        "minutes": round((time.monotonic() - begin) / 60, 2),
        **found,
    }
    place.result.parent.mkdir(parents=True, exist_ok=True)
    with replaced(place.result) as temporary:
        temporary.write_text(json.dumps(record) + "\n", encoding="utf-8")


def _place(place: Place, experiment: Experiment) -> Place:
    return Place(place.folder, place.multi30k, experiment.name)


def _minutes(experiments: Sequence[Experiment], jobs: int) -> float:
    together = sum(experiment.minutes for experiment in experiments if not experiment.alone)
    return together / jobs + sum(experiment.minutes for experiment in experiments if experiment.alone)


if __name__ == "__main__":
    sys.exit(main())
