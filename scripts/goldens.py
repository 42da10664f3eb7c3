"""Records the outcomes of the program at one commit, and compares two recordings.

    python scripts/goldens.py record before.json --tree ../old     all outcomes of a checkout; takes minutes
    python scripts/goldens.py record after.json --only 'train/*'   a part of those of this checkout
    python scripts/goldens.py compare before.json after.json       names each difference; exit status 1 if any

An outcome is a file or the output of a command: weights, translations, reports, messages, an HTTP transcript,
launches of a GPU. The commands run in real processes. A recording has the SHA-256 of each outcome; the texts
themselves are in a folder beside it (before.texts), and `compare` prints the lines that differ.
Times, speeds, ports and versions are removed first: `golden_parts.workshop.NORMALISERS` lists them.

Parts: train, translate, eval, export, serve, help, show, errors, kernels, ledger.
"""

from __future__ import annotations

import argparse
import difflib
import json
import shutil
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path

from golden_parts import answers, gpu, models, serving, trainings
from golden_parts.corpus import write_corpora
from golden_parts.workshop import Workshop

PARTS = {
    "help": answers.record_help,
    "show": answers.record_show,
    "errors": answers.record_errors,
    "train": trainings.record,
    "translate": models.record_translations,
    "eval": models.record_evaluations,
    "export": models.record_exports,
    "serve": serving.record,
    "kernels": gpu.record_kernels,
    "ledger": gpu.record_ledger,
}


def main() -> int:
    """Records or compares."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    actions = parser.add_subparsers(dest="action", required=True)
    recording = actions.add_parser("record", help="record the outcomes of a checkout")
    recording.add_argument("out", type=Path, metavar="OUT.json")
    recording.add_argument(
        "--only", nargs="+", default=["*"], metavar="GLOB", help="names, such as 'train/*' or 'serve'"
    )
    recording.add_argument(
        "--tree", type=Path, default=Path(__file__).parents[1], help="the checkout; default: this one"
    )
    recording.add_argument(
        "--gpu-options", nargs="*", default=[], metavar="KEY=VALUE", help="more options for the GPU ledger"
    )
    recording.add_argument("--keep", type=Path, metavar="DIR", help="run there, and do not delete the files")
    comparison = actions.add_parser("compare", help="compare two recordings")
    comparison.add_argument("first", type=Path, metavar="A.json")
    comparison.add_argument("second", type=Path, metavar="B.json")
    comparison.add_argument("--only", nargs="+", default=["*"], metavar="GLOB")
    comparison.add_argument("--lines", type=int, default=12, help="lines of each difference; default: 12")
    arguments = parser.parse_args()
    if arguments.action == "compare":
        return compare(arguments.first, arguments.second, tuple(arguments.only), arguments.lines)
    if arguments.keep:
        arguments.keep.mkdir(parents=True)
        record(arguments, arguments.keep.resolve())
    else:
        with tempfile.TemporaryDirectory(prefix="goldens-", ignore_cleanup_errors=True) as folder:
            record(arguments, Path(folder))
    return 0


def record(arguments: argparse.Namespace, folder: Path) -> None:
    """Records the parts that are wanted, and writes them even if one of them fails."""
    workshop = Workshop(arguments.tree.resolve(), folder, tuple(arguments.only), tuple(arguments.gpu_options))
    write_corpora(folder)
    try:
        for part, run in PARTS.items():
            if workshop.wants_part(part):
                start = time.monotonic()
                run(workshop)
                print(f"{part}: {time.monotonic() - start:.0f} seconds", file=sys.stderr, flush=True)
    finally:
        write(workshop, arguments.out)


def write(workshop: Workshop, path: Path) -> None:
    """Writes a recording and the folder of its texts."""
    outcomes = dict(sorted(workshop.outcomes.items()))
    path.write_text(json.dumps(outcomes, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    texts = texts_of(path)
    shutil.rmtree(texts, ignore_errors=True)
    for name, text in workshop.texts.items():
        file = texts / f"{name}.txt"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8", errors="backslashreplace", newline="")
    print(f"{len(outcomes)} outcomes in {path}, their texts in {texts}", file=sys.stderr)


def texts_of(recording: Path) -> Path:
    """Returns the folder of the texts of a recording."""
    return recording.with_suffix(".texts")


def compare(first: Path, second: Path, only: tuple[str, ...] = ("*",), num_lines: int = 12) -> int:
    """Prints each difference; returns 1 if there is one, else 0."""
    before, after = (json.loads(path.read_text(encoding="utf-8")) for path in (first, second))
    globs = Workshop(Path(), Path(), only)
    names = [name for name in sorted(before.keys() | after.keys()) if globs.wants(name)]
    both = [name for name in names if name in before and name in after]
    different = [name for name in both if before[name] != after[name]]
    for name in different:
        print(f"DIFFERENT {name}: {before[name]} -> {after[name]}")
        old, new = (texts_of(path) / f"{name}.txt" for path in (first, second))
        for line in changed_lines(old, new, num_lines):
            print(f"    {line[:200]}")
    for path, of_other in ((first, after), (second, before)):
        cases = {case_of(name) for name in of_other}  # a recording may have only some cases
        missing = [name for name in names if name not in of_other and case_of(name) in cases]
        if missing:
            print(f"only in {path}: {len(missing)} outcomes: {', '.join(missing[:20])}")
    print(f"{len(both) - len(different)} outcomes are equal, {len(different)} differ")
    return 1 if different else 0


def case_of(name: str) -> str:
    """Returns the case to which an outcome belongs."""
    return "/".join(name.split("/")[:2])


def changed_lines(first: Path, second: Path, num_lines: int) -> list[str]:
    """Returns the first lines that differ; none if a text is not there."""
    if not (first.exists() and second.exists()):
        return []
    before, after = (path.read_text(encoding="utf-8").split("\n") for path in (first, second))
    lines = difflib.unified_diff(before, after, lineterm="", n=0)
    return [line for line in islice(lines, 2, 2 + num_lines)]


if __name__ == "__main__":
    sys.exit(main())
