"""Goldens of a GPU on a machine without one: launches of the ledger, and kernels in the interpreter."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from golden_parts.workshop import CASES, Workshop

INTERPRETED = ("interpreted_fused.py", "interpreted_attention.py", "interpreted_loss_kernel.py")
"""Programs in tests/unit that print the values of kernels as JSON, one object a line."""


def record_ledger(workshop: Workshop) -> None:
    """Records the launches of updates and searches with their shapes, and the sums of the ledger."""
    for name, options in CASES["ledger"].items():
        if not workshop.wants(f"ledger/{name}"):
            continue
        out = workshop.folder / "ledger.json"
        out.unlink(missing_ok=True)
        cache = workshop.folder / "device"
        cache.mkdir(exist_ok=True)
        more = [] if "--search" in options else ["--tokens", "25000"]
        program = Path(__file__).with_name("launches.py")
        result = subprocess.run(
            [sys.executable, program, workshop.tree, out, *options.split(), *more, *workshop.gpu_options],
            cwd=workshop.folder,
            env=workshop.environment(DRY_GPU_CACHE=str(cache)),
            capture_output=True,
            text=True,
        )
        if not out.exists():
            workshop.note(f"ledger/{name}/error", result.stderr[-3000:])
            continue
        for key, text in json.loads(out.read_text()).items():
            workshop.note(f"ledger/{name}/{key}", text)


def record_kernels(workshop: Workshop) -> None:
    """Records the values of each kernel, and of layers computed by them."""
    environment = workshop.environment(TRITON_INTERPRET="1")
    if workshop.wants("kernels/values"):
        program = Path(__file__).with_name("kernel_values.py")
        _note_rows(workshop, "kernels/values", program, environment)
    for file in INTERPRETED:
        name = f"kernels/{Path(file).stem.removeprefix('interpreted_')}"
        for program in (workshop.tree / "tests/unit").rglob(file):
            if workshop.wants(name):
                path = os.pathsep.join((str(workshop.tree), str(program.parent)))
                _note_rows(workshop, name, program, environment | {"PYTHONPATH": path})


def _note_rows(workshop: Workshop, name: str, program: Path, environment: dict[str, str]) -> None:
    """Runs a program and records each object that it prints, by its case."""
    result = subprocess.run(
        [sys.executable, program], cwd=workshop.folder, env=environment, capture_output=True, text=True
    )
    if result.returncode:
        workshop.note(f"{name}/error", result.stderr[-3000:])
    for row in map(json.loads, result.stdout.splitlines()):
        case = [str(row[key]) for key in ("case", "dtype", "rdrop") if key in row]
        values = "\n".join(f"{key}: {json.dumps(value)}" for key, value in row.items())
        workshop.note(f"{name}/{' '.join(case).replace('/', ' ')}", values)
