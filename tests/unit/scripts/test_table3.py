"""The sweep over the rows of table 3: their options and weights, its results and the table of the guide."""

from __future__ import annotations

from pathlib import Path

import pytest
import table3
from position_experiments.results import chosen, read_results
from table3 import ROWS, Row, Size, check_settings, collected, run_all

from nmt.config import ModelConfig
from nmt.model.size import num_weights

DOCS = Path(__file__).resolve().parents[3] / "docs"
PAPER = Size(6, 512, 2048)
RESULTS = read_results(DOCS / table3.FILE)


def config_of(row: Row, size: Size) -> ModelConfig:
    given = dict(option.split("=") for option in row.options(size))
    kinds = {"model.dropout": float, "training.label_smoothing": float, "model.positions.name": str}
    values = {key: kinds.get(key, int)(value) for key, value in given.items()}
    names = {key.removeprefix("model."): value for key, value in values.items() if key.count(".") == 1}
    return ModelConfig(**{key: value for key, value in names.items() if not key.startswith("training.")})


def test_rows_are_the_papers_and_scale_with_the_base() -> None:
    assert len(ROWS) == len({row.name for row in ROWS}) == 19
    assert all(row.here(PAPER) == row.changed for row in ROWS)
    base = config_of(ROWS[0], PAPER)
    assert base == ModelConfig()
    small = {row.name: list(row.here(Size(3, 128, 512)).values()) for row in ROWS}
    assert [small[f"C-layers-{number}"] for number in (2, 4, 8)] == [[1], [2], [4]]
    assert [small[f"C-d_model-{width}"] for width in (256, 1024)] == [[64], [256]]
    assert [small[f"B-key_width-{width}"] for width in (16, 32)] == [[4], [8]]
    assert small["A-heads-32"] == [32] and small["D-label_smoothing-0.2"] == [0.2]
    assert {"model.encoder_layers=1", "model.decoder_layers=1"} <= {*ROWS[7].options(Size())}


def test_the_weights_of_the_paper_need_a_larger_vocabulary() -> None:
    """Rounded to millions, all numbers agree with about 41,000 shared pieces, and none with 37,000."""
    rows = [(config_of(row, PAPER), row.millions) for row in ROWS if row.millions]
    assert len(rows) == 10

    def agreeing(pieces: int) -> int:
        return sum(round(num_weights(config, pieces, pieces) / 1e6) == millions for config, millions in rows)

    assert num_weights(ModelConfig(), 37_000, 37_000) == 63_082_496
    assert agreeing(37_000) == 0
    fitting = [pieces for pieces in range(36_000, 45_001, 10) if agreeing(pieces) == 10]
    assert fitting == list(range(40_940, 41_161, 10))
    big = ModelConfig(d_model=1024, d_ff=4096, heads=16)
    assert num_weights(big, 37_000, 37_000) == 214_245_376
    fitting = [n for n in range(30_000, 45_001, 10) if round(num_weights(big, n, n) / 1e6) == 213]
    assert (fitting[0], fitting[-1]) == (35_300, 36_270)


RECORD = {"seed": 1, "parameters": 1_500_000, "updates": 600}


def test_the_table_has_the_spread_over_seeds_beside_the_papers_figures() -> None:
    records = [
        {**RECORD, "row": "B-key_width-16", "here": {"key_width": 4}, "perplexity": 1.5, "bleu": 80.04},
        {**RECORD, "row": "base", "here": {}, "perplexity": 1.4, "bleu": 81.0, "parameters": 1_600_000},
        {**RECORD, "row": "base", "here": {}, "perplexity": 1.3, "bleu": 82.0, "parameters": 1_600_000},
    ]
    assert table3.table(records).splitlines()[2:] == [
        "| base |  |  | 1.60 | 1.350 (1.300–1.400) | 81.5 (81.0–82.0) | 4.92 | 25.8 | 65 |",
        "| B | d_k 16 | d_k 4 | 1.50 | 1.500 | 80.0 | 5.16 | 25.1 | 58 |",
    ]


def test_a_folder_has_trainings_with_the_same_options(tmp_path: Path) -> None:
    settings = {"size": {"layers": 3}, "options": ["training.max_updates=2"]}
    folder = tmp_path / "new" / "folder"
    assert check_settings(folder, settings) is None
    assert check_settings(folder, settings) is None
    problem = check_settings(folder, {**settings, "options": []})
    assert problem == f"{folder / 'settings.json'}: its trainings have another size or other options. " + (
        "Give these, or another folder."
    )


@pytest.mark.slow
def test_a_sweep_from_trainings_to_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second call trains nothing, and a training that fails is reported."""
    monkeypatch.setenv("NMT_CACHE", str(tmp_path / "cache"))
    size, row = Size(1, 16, 32), ROWS[5]
    options = ["training.max_updates=2", "decoding.max_length_offset=1"]
    check_settings(tmp_path, {"size": {"layers": 1, "d_model": 16, "d_ff": 32}, "options": options})
    assert run_all(tmp_path, [(row, 1)], size, options, 1) == []
    [record] = collected(tmp_path)
    assert (record["row"], record["here"], record["seed"]) == ("B-key_width-16", {"key_width": 1}, 1)
    assert record["updates"] == 2 and record["perplexity"] > 100 and record["bleu"] >= 0
    written = (tmp_path / row.name / "1" / "results.json").stat().st_mtime_ns
    assert run_all(tmp_path, [(row, 1), (row, 2)], size, ["model.heads=3"], 1) == ["B-key_width-16/2"]
    assert (tmp_path / row.name / "1" / "results.json").stat().st_mtime_ns == written


@pytest.mark.parametrize("guide", table3.GUIDES)
def test_the_tables_of_the_guides_are_those_of_the_results(guide: str) -> None:
    text = (DOCS / guide).read_text(encoding="utf-8")
    assert table3.with_results(text, RESULTS, table3.GUIDES[guide]) == text


def test_what_the_guide_concludes() -> None:
    """The rows all of whose seeds have a higher, or all a lower perplexity than each of the base."""
    found = {row.name: [each["perplexity"] for each in chosen(RESULTS, row=row.name)] for row in ROWS}
    base = found.pop("base")
    assert len(base) == 3
    assert {name for name, values in found.items() if min(values) > max(base)} == {
        *("A-heads-1", "A-heads-32", "B-key_width-16", "B-key_width-32", "C-layers-2", "C-layers-4"),
        *("C-d_model-256", "C-d_ff-1024", "D-dropout-0.0", "D-dropout-0.2", "D-label_smoothing-0.2"),
        "E-positions-learned",
    }
    assert {name for name, values in found.items() if max(values) < min(base)} == {
        *("C-d_model-1024", "C-d_ff-4096", "D-label_smoothing-0.0")
    }
