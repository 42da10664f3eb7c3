"""`scripts/gpu_day.sh`, which no machine without a GPU runs as a whole: the files that it names exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "scripts/gpu_day.sh"


def test_the_files_that_the_script_names_exist() -> None:
    names = set(re.findall(r"\b(?:tests|scripts|data)/[\w/.-]+\.(?:py|sh)\b", SCRIPT.read_text()))
    assert "scripts/benchmark_training.py" in names and any(name.startswith("tests/") for name in names)
    assert [name for name in sorted(names) if not (ROOT / name).is_file()] == []


def test_its_quick_tests_are_of_the_gpu() -> None:
    (name,) = re.findall(r"files=\((tests/\S+)\)", SCRIPT.read_text())
    assert "mark.gpu" in (ROOT / name).read_text()
