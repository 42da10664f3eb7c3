"""The notebooks: the same code in both languages, the encoding of the program, links, and plain English.

tests/integration/test_notebook_runs.py runs one of them.
"""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from doc_pages import ROOT
from test_plain_english import findings

from nmt.model.reference import naive_positions

FOLDER = ROOT / "docs" / "notebooks"
ENGLISH, KOREAN = FOLDER / "transformer.ipynb", FOLDER / "transformer.ko.ipynb"
BOTH = ENGLISH, KOREAN


def cells(path: Path, kind: str) -> list[str]:
    """The text of the cells of one kind, `code` or `markdown`."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    return ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == kind]


def test_both_languages_have_the_same_code_except_comments() -> None:
    english, korean = ([ast.dump(ast.parse(cell)) for cell in cells(path, "code")] for path in BOTH)
    assert len(english) > 9
    assert english == korean
    assert len(cells(ENGLISH, "markdown")) == len(cells(KOREAN, "markdown"))


def test_outputs_are_small_and_the_same() -> None:
    """They are those of a run, without its log; pictures have fewer colours."""
    english, korean = (json.loads(path.read_text(encoding="utf-8"))["cells"] for path in BOTH)
    outputs = [cell.get("outputs") for cell in english]
    assert outputs == [cell.get("outputs") for cell in korean]
    assert len(json.dumps(outputs)) < 150_000
    assert {one.get("name", "picture") for some in outputs for one in some or ()} == {"stdout", "picture"}


@pytest.mark.parametrize("path", BOTH, ids=lambda path: path.name)
def test_links_lead_to_files(path: Path) -> None:
    text = "\n".join(cells(path, "markdown"))
    targets = [target for target in re.findall(r"\]\(([^)\s]+)\)", text) if ":" not in target]
    assert len(targets) >= 4
    assert [target for target in targets if not (FOLDER / target).exists()] == []


def test_plain_english() -> None:
    assert [*findings("\n".join(cells(ENGLISH, "markdown")))] == []


def test_the_encoding_is_that_of_the_program() -> None:
    [cell] = [cell for cell in cells(ENGLISH, "code") if cell.startswith("length, width = ")]
    values: dict[str, Any] = {"np": np}
    exec(cell.partition("\n\n")[0], values)
    expected = naive_positions(values["length"], values["width"])
    np.testing.assert_allclose(values["encoding"], expected, atol=1e-12)
