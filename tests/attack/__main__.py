"""Attacks the commands and prints a table; see `--help`."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from collections import Counter, defaultdict
from pathlib import Path

_TESTS = Path(__file__).resolve().parents[1]
for folder in (_TESTS.parent, _TESTS / "integration", _TESTS):
    sys.path.insert(0, str(folder))

from attack.prepared import TRAINING  # noqa: E402
from attack.process import import_everything  # noqa: E402
from attack.runner import Outcome, prepare, run  # noqa: E402
from attack.table import chosen, part  # noqa: E402


def main() -> int:
    """Runs the cases that the command line asks for; exit status 1 if one fails."""
    parser = argparse.ArgumentParser(prog="python tests/attack", description="Attacks the commands.")
    parser.add_argument("patterns", nargs="*", help="names of cases, with * and ?; default: all")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="of the cases every Nth alone")
    parser.add_argument(
        "--first", type=_numbers, default=[0], metavar="K[,K]", help="... from the Kth on, from 0 to N-1"
    )
    parser.add_argument("--jobs", type=int, default=1, help="cases at a time")
    parser.add_argument("--fresh", action="store_true", help="a fresh interpreter for each, not a fork")
    parser.add_argument("--list", action="store_true", help="print the cases instead of running them")
    parser.add_argument("--prepared", type=Path, help="folder to keep the corpus and the trained model in")
    parser.add_argument("--keep", type=Path, help="folder in which the files of failing cases stay")
    parser.add_argument("-v", "--verbose", action="store_true", help="a line for each case")
    options = parser.parse_args()
    cases = part(chosen(options.patterns), options.every, options.first)
    if options.list:
        print("\n".join(f"{case.name:<60} {case.command} {' '.join(case.arguments)!a}" for case in cases))
        return 0
    import_everything()
    # Not a TemporaryDirectory: the exit handlers of each fork would remove it.
    scratch = Path(tempfile.mkdtemp(prefix="attack-"))
    try:
        outcomes = run(
            cases,
            prepare(options.prepared or scratch / "prepared"),
            options.keep or scratch / "rooms",
            jobs=options.jobs,
            fresh=options.fresh,
            keep=options.keep is not None,
            told=lambda outcome: _tell(outcome, options.verbose),
        )
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    print(table(outcomes))
    return 1 if any(outcome.complaints for outcome in outcomes) else 0


def table(outcomes: list[Outcome]) -> str:
    """Returns a table of outcomes: for each family, the number of cases and how they ended."""
    rows: dict[str, Counter[str]] = defaultdict(Counter)
    for outcome in outcomes:
        for name in (outcome.case.family, "all"):
            row = rows[name]
            row["cases"] += 1
            row["worked"] += outcome.status == 0
            row["refused"] += outcome.status == 2
            row["stopped"] += outcome.status not in (0, 2, None)
            row["traceback"] += any("Traceback" in text for text in outcome.complaints)
            row["hang"] += any("hangs" in text for text in outcome.complaints)
            row["half-written"] += any(
                "half-written" in text or "left" in text for text in outcome.complaints
            )
            row["failed"] += bool(outcome.complaints)
            row["seconds"] += round(outcome.seconds * 1000)
    columns = ["cases", "worked", "refused", "stopped", "traceback", "hang", "half-written", "failed"]
    lines = [f"{'family':<14}" + "".join(f"{name:>13}" for name in (*columns, "seconds"))]
    for name in (*sorted(rows.keys() - {"all"}), "all"):
        counts = "".join(f"{rows[name][column]:>13}" for column in columns)
        lines.append(f"{name:<14}{counts}{rows[name]['seconds'] / 1000:>13.1f}")
    return "\n".join(lines)


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


def _tell(outcome: Outcome, verbose: bool) -> None:
    case = outcome.case
    if outcome.complaints:
        arguments = " ".join(map(ascii, case.arguments)).replace(" ".join(map(ascii, TRAINING)), "(training)")
        print(f"FAILED {case.name}: {case.command} {arguments[:600]}")
        for text in outcome.complaints:
            print(f"  {text}")
        lines = [line for line in outcome.stderr.splitlines() if line.strip()][-6:]
        print("".join(f"    | {ascii(line)[1:-1][:300]}\n" for line in lines), end="", flush=True)
    elif verbose:
        last = (outcome.stderr.splitlines() or [""])[-1] if outcome.status else ""
        print(f"{outcome.status!s:>5} {outcome.seconds:5.1f} s  {case.name}  {last[:160]!a}", flush=True)


if __name__ == "__main__":
    os.nice(10)
    sys.exit(main())
