"""docs/transformer.md in both languages: its numbers are those of the script, its functions exist."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest
import torch
import transformer_steps
from page_tables import without_tables
from transformer_page.experiments import KEYS
from transformer_page.searching import BEAM, STEPS
from transformer_steps import LONGER, MODEL, PAGES, PAIR, Numbers

from nmt.bundle import load_bundle
from nmt.model.reference import naive_hidden, naive_log_probs

PAPER = {
    *("3.2", "3.2.3", "37,000", "512", "2,048", "64", "65", "6,500", "0.1", "0.6", "0.00001", "16"),
    *("2014", "2015", "2016", "2017"),
}
"""Numbers of the prose that are not measured: of the paper, of its sections, and years."""
_NUMBER = r"(?<![\w.,])\d[\d,]*(?:\.\d+)*(?:e-\d+)?"


@pytest.fixture(scope="module")
def values() -> Numbers:
    return transformer_steps.numbers(MODEL)


def test_tables_and_pictures_are_up_to_date(values: Numbers) -> None:
    contents = transformer_steps.contents(values)
    assert len(contents) == len(PAGES) + 8
    for path, wanted in contents.items():
        assert path.read_text(encoding="utf-8") == wanted, "Run python scripts/transformer_steps.py --write."
    for page in PAGES:
        names = re.findall(r"<!-- table: ([\w-]+) -->", page.read_text(encoding="utf-8"))
        assert sorted(names) == sorted(values.tables)


def prose(page: Path) -> str:
    """A page without its tables, code, addresses and headings."""
    text = without_tables(page.read_text(encoding="utf-8"))
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    return re.sub(r"`[^`]*`|\]\([^)]*\)|^#.*$|\w+_?\w*=\S+", "", text, flags=re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_numbers_of_the_prose(page: Path, values: Numbers) -> None:
    cells = {cell.lstrip("-") for table in values.tables.values() for row in table.rows for cell in row}
    known = PAPER | set(values.facts.values()) | cells
    found = [number.rstrip(",") for number in re.findall(_NUMBER, prose(page))]
    assert [number for number in found if len(number) > 1 and number not in known] == []
    text = page.read_text(encoding="utf-8")
    missing = [
        f"{name}: {value}"
        for name, value in values.facts.items()
        if not re.search(rf"(?<![\d.]){re.escape(value)}(?!\d)", text)
    ]
    assert missing == []


def test_numbers_of_one_digit() -> None:
    """The pages write them in their words, too."""
    example, _ = transformer_steps.examples(load_bundle(MODEL))
    config = example.model.config
    assert (config.encoder_layers, config.decoder_layers, config.heads) == (2, 2, 2)
    assert (KEYS, BEAM, STEPS) == (10, 4, 4)
    assert example.source[example.query] == "`▁close`"
    assert config.norm.name == "post"
    test_set = [*zip(*transformer_steps.corpus("test"), strict=True)]
    assert PAIR in test_set and LONGER in test_set


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_functions_exist(page: Path) -> None:
    names = re.findall(r"`(nmt\.[\w.]+)", page.read_text(encoding="utf-8"))
    assert len(set(names)) > 15
    for name in names:
        module, *rest = name.split(".")
        found = import_module(module)
        for part in rest:
            module = f"{module}.{part}"
            found = getattr(found, part) if hasattr(found, part) else import_module(module)


def test_the_steps_are_those_of_the_equations() -> None:
    """The naive Transformer gives the same probabilities, from the same weights."""
    example, _ = transformer_steps.examples(load_bundle(MODEL))
    weights, config = dict(example.model.state_dict()), example.model.config
    source, target = example.batch.source_ids.tolist(), example.batch.target_in.tolist()[:3]
    with torch.no_grad():
        naive = naive_log_probs(weights, config, naive_hidden(weights, config, source, target))
        torch.testing.assert_close(example.log_probs()[:3], naive, rtol=1e-9, atol=1e-9)


def test_the_numbers_of_another_model(
    values: Numbers, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["transformer_steps.py", str(MODEL)])
    monkeypatch.setattr(transformer_steps, "numbers", lambda folder: values)
    transformer_steps.main()
    lines = capsys.readouterr().out.splitlines()
    assert lines == [*transformer_steps.lines(values)]
    assert (
        lines[0]
        == '{"table": "source", "row": ["0", "`▁Paul`", "' + values.tables["source"].rows[0][2] + '"]}'
    )
