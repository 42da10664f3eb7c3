"""The study of positional encodings: its experiments, measurements and tables."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch
from position_experiments import layers, speed, symbols
from position_experiments.experiment import Place
from position_experiments.fixed_length import FixedLength, FixedLengthOptions
from position_experiments.korean import translated
from position_experiments.report import GUIDES, TABLES, with_tables
from position_experiments.results import FILE, Spread, read_results
from position_experiments.tasks import task_experiment
from position_study import PARTS, all_experiments, measure

from nmt.decoding.processors import PROCESSORS, SearchInput

DOCS = Path(__file__).resolve().parents[3] / "docs"


def test_experiments() -> None:
    found = all_experiments()
    assert {experiment.part for experiment in found} == set(PARTS)
    alone = sum(experiment.minutes for experiment in found if experiment.alone)
    assert alone + sum(each.minutes for each in found if not each.alone) / 2 < 7 * 60


def test_tasks() -> None:
    assert symbols.TASKS["reverse"]("ab9") == "9ba" and symbols.TASKS["sort"]("b9a") == "9ab"
    assert symbols.accuracies(["abc", "abd", "a"], ["abc", "abc", "abc"]) == {
        "symbols": 6 / 9,
        "sentences": 1 / 3,
        "length_ratio": 7 / 9,
    }
    sources, targets = symbols.test_sentences("reverse")[25]
    assert len(sources) == 50 and {len(text) for text in sources} == {25}
    assert targets[0] == sources[0][::-1]


def test_fixed_length() -> None:
    search = SearchInput(1, [[5]], [9], bos_id=0, eos_id=2, device=torch.device("cpu"))
    processor = FixedLength(FixedLengthOptions(2)).start(search)
    for num_ids, eos in ((1, False), (2, False), (3, True), (4, True)):
        found = processor(torch.zeros(1, 1, 4), torch.zeros(1, 1, num_ids, dtype=torch.int64))
        allowed = (found > -torch.inf).flatten().tolist()
        assert allowed == ([False, False, True, False] if eos else [True, True, False, True])


@pytest.mark.slow
def test_an_experiment_from_data_to_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A training of a few updates; the result has every length, and a second call changes nothing."""
    monkeypatch.setattr(symbols, "_TRAIN", 300)
    monkeypatch.setattr(symbols, "TEST_SENTENCES", 2)
    monkeypatch.setattr(symbols, "TEST_LENGTHS", (5, 25))
    short = ["training.max_updates=4", "training.validate_every=4", "training.schedule.warmup_updates=2"]
    experiment = task_experiment("tasks", "copy", 1, ("none", "none"), short)
    monkeypatch.setenv("NMT_CACHE", str(tmp_path / "cache"))
    place = Place(tmp_path, None)
    try:
        measure(experiment, place)
    finally:
        PROCESSORS.pop("fixed_length", None)  # other tests expect the built-in processors
    (path,) = (tmp_path / "results").iterdir()
    record = json.loads(path.read_text())
    assert path.name == "tasks-copy-none-1.json" and record["encoder"] == "none"
    assert list(record["by_length"]) == ["5", "25"]
    assert set(record["by_length"]["25"]["forced"]) == {"symbols", "sentences", "length_ratio"}
    assert record["permutation"] < 1e-5  # no encoding


@pytest.mark.parametrize(
    ("kind", "length", "expected"),
    [
        ("self-attention", 16, 1),
        ("recurrent", 16, 1),
        ("restricted", 64, 2),
        ("convolutional", 16, 15),
        ("dilated", 16, 5),
        ("dilated", 64, 8),
    ],
)
def test_path_lengths(kind: str, length: int, expected: int) -> None:
    assert layers.path_length(kind, length) == expected


def test_slope() -> None:
    rows = [{"length": float(n), "seconds": 3e-9 * n**2} for n in (16, 256, 512, 4096)]
    assert layers.slope(rows, "seconds") == pytest.approx(2.0)


def test_the_table_of_scores_has_the_longest_sentence() -> None:
    rows = [{"seconds": 9.0, "memory_bytes": 9}, {"seconds": 0.0125, "memory_bytes": 4_000_000}]
    records = [{"part": "scores", "kind": "additive", "width": 64, "rows": rows}]
    assert TABLES["scores"](records) == [
        ["`scaled_dot`", *("–",) * 6],
        ["`additive`", "–", "12.5", "–", "–", "4.0", "–"],
    ]


@pytest.mark.parametrize("kind", (*layers.KINDS, *layers.SCORES))
def test_a_layer_is_measured(kind: str) -> None:
    seconds, memory = layers.time_and_memory(kind, 64, 64)
    assert 0 < seconds < 60 and memory >= 0


@pytest.mark.slow
def test_speeds_are_measured_in_pairs() -> None:
    found = speed.ratios("tiny", "alibi", pairs=2, tokens=100)
    assert len(found) == 2 and all(0.01 < ratio < 100 for ratio in found)


def test_spread() -> None:
    assert Spread([1.0, 2.0, 6.0]).text() == "3 (1–6)"
    assert Spread([99.6, 100.0]).text() == "100"
    assert Spread([0.25]).text(1) == "0.2"


def table(name: str, head: str, *rows: str) -> str:
    body = "".join(f"{row}\n" for row in rows)
    return f"Before.\n\n<!-- table: {name} -->\n\n{head}\n{body}\n<!-- end of table -->\n\nAfter.\n"


def test_a_table_is_written_and_written_again() -> None:
    """The head remains, in the language of the guide; the rows are those of the results."""
    rows = [{"kind": "self-attention", "length": n, "layers": 1} for n in (16, 64, 256, 1024)]
    records = [{"part": "layers", "kind": "path", "rows": rows}]
    head = "| 층 | 경로 | 16 | 64 | 256 | 1,024 |"
    with pytest.raises(AssertionError, match="paths: rows of another width"):
        with_tables(table("paths", "| too | short |"), records)
    records[0]["rows"] = [
        {**row, "kind": kind}
        for row in rows
        for kind in ("self-attention", "restricted", "recurrent", "convolutional", "dilated")
    ]
    text = with_tables(table("paths", head), records)
    lines = text.splitlines()
    assert lines[4:7] == [head, "|" + "---|" * 6, "| self-attention | 1 | 1 | 1 | 1 | 1 |"]
    assert lines[-1] == "After."
    assert with_tables(text, records) == text
    assert "| 셀프 어텐션 | 1 | 1 | 1 | 1 | 1 |" in with_tables(text, records, translated).splitlines()


@pytest.mark.parametrize("guide", GUIDES)
def test_the_tables_of_the_guides_are_those_of_the_results(guide: str) -> None:
    text = (DOCS / guide).read_text(encoding="utf-8")
    names = re.findall(r"<!-- table: ([\w-]+) -->", text)
    assert set(names) <= set(TABLES) and len(set(names)) == len(names)
    if names:
        assert with_tables(text, read_results(DOCS / FILE), GUIDES[guide]) == text


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        ("position", "위치"),
        ("not scaled, 4 heads", "스케일링 미적용, 헤드 4개"),
        ("sinusoidal, with residual connections", "sinusoidal, 잔차 연결 있음"),
        ("dot product with (12, 12)", "(12, 12)과의 내적"),
        ("18-", "18 이상"),
        ("1-8", "1-8"),
        ("memory bytes, d = 512", "메모리(바이트), d = 512"),
        ("99 (98–100)", "99 (98–100)"),
    ],
)
def test_labels_in_korean(label: str, expected: str) -> None:
    assert translated(label) == expected
