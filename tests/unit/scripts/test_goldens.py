"""Goldens: what is removed from outcomes, and how recordings are compared."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import goldens
import pytest
from golden_parts.trainings import _nested
from golden_parts.workshop import Workshop, normalised, short_value, stable_json


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-27 00:11:23,939 INFO new run", "<time> INFO new run"),
        ("scored in 0.3 seconds", "scored in <number> seconds"),
        ("1,342 target tokens in 0.0 minutes (7,227 a second)",)
        + ("1,342 target tokens in <number> minutes (<number> a second)",),
        ("40 lines, 214 tokens, 0.6 s, 68 lines/s", "40 lines, 214 tokens, <number> lines/s"),
        ("Listening on http://127.0.0.1:40123", "Listening on http://127.0.0.1:<port>"),
        ("process 123 was killed", "process <number> was killed"),
        ("nmt 0.1.0", "nmt <version>"),
        ("/work/a/nmt/x.py:12", "<tree>/nmt/x.py:<line>"),
        ("loss 6.3131  BLEU   0.00  update 3", "loss 6.3131  BLEU   0.00  update 3"),
    ],
)
def test_normalisers(text: str, expected: str) -> None:
    assert normalised(text, {"/work/a": "<tree>"}) == expected


def test_times_are_removed_from_reports() -> None:
    report = {
        "test": {"bleu": 1.5},
        "training": {"seconds": 3.0, "updates": 6},
        "rows": [{"time": 1, "a": 2}],
    }
    assert stable_json(report) == {"test": {"bleu": 1.5}, "training": {"updates": 6}, "rows": [{"a": 2}]}


def test_short_values_are_recorded_as_they_are() -> None:
    assert short_value("2 4 6") == "2 4 6"
    assert short_value("a\nb").startswith("sha256:") and short_value("x" * 61).startswith("sha256:")


def test_the_parts_that_are_wanted() -> None:
    workshop = Workshop(Path(), Path(), ("train/*", "serve", "help/train/-h"))
    wanted = ("train/fp32", "train/fp32/model", "serve/page", "help/train/-h")
    assert all(map(workshop.wants, wanted)) and not workshop.wants("help/train/--help")
    assert [part for part in goldens.PARTS if workshop.wants_part(part)] == ["help", "train", "serve"]


def test_tensors_are_listed_one_by_one(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    header = json.dumps({"a": {"dtype": "U8", "shape": [2], "data_offsets": [0, 2]}}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + b"\x01\x02")
    workshop = Workshop(tmp_path, tmp_path)
    workshop.note_tensors("x", path)
    workshop.note_tensors("y", tmp_path / "none")
    assert workshop.texts["x"].splitlines()[1].startswith("a U8 [2] ") and workshop.outcomes["y"] == "missing"


def test_sections_of_a_yaml_file() -> None:
    options = {"a.b": "3e-3", "a.c": "[x,'*_y']", "d": "null", "name": "e-5"}
    assert _nested(options) == {"a": {"b": 3e-3, "c": ["x", "*_y"]}, "d": None, "name": "e-5"}


def recording(path: Path, texts: dict[str, str]) -> Path:
    workshop = Workshop(Path("/tree"), Path("/folder"))
    for name, text in texts.items():
        workshop.note(name, text)
    goldens.write(workshop, path)
    return path


def test_recordings_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = recording(
        tmp_path / "a.json", {"help/x": "one\ntwo\n", "train/y/model": "w 1\n", "train/y/z": "3", "a/b": "4"}
    )
    second = recording(tmp_path / "b.json", {"help/x": "one\n2\n", "train/y/model": "w 1\n", "new": "4"})
    assert goldens.compare(first, first) == 0
    assert goldens.compare(first, second) == 1
    output = capsys.readouterr().out
    assert "DIFFERENT help/x: sha256:" in output and "    -two\n    +2\n" in output
    assert (
        "1 outcomes: train/y/z" in output
        and "a/b" not in output
        and "1 outcomes are equal, 1 differ" in output
    )
    assert goldens.compare(first, second, ("train/*",)) == 0
