"""The notebook of docs/notebooks runs from its first cell to its last one, and shows what its text says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

nbformat: Any = pytest.importorskip("nbformat", reason="nbformat is not installed")
nbclient: Any = pytest.importorskip("nbclient", reason="nbclient is not installed")
pytest.importorskip("ipykernel", reason="ipykernel is not installed")
pytest.importorskip("matplotlib", reason="the extra plots is not installed")

NOTEBOOK = Path(__file__).parents[2] / "docs" / "notebooks" / "transformer.ipynb"


@pytest.mark.slow
def test_all_cells(tmp_path: Path) -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    folder = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=3600, kernel_name="python3", resources=folder).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    text = "".join(output["text"] for output in outputs if output.get("name") == "stdout")
    pictures = [output for output in outputs if "image/png" in output.get("data", {})]
    assert len(pictures) == 2
    assert "largest weight above the diagonal of the decoder: 0.0" in text
    assert "\u2581teacher" in (tmp_path / "attention.html").read_text(encoding="utf-8")

    bleu = {name: float(score) for name, score in re.findall(r"^(\w+): BLEU ([\d.]+)$", text, re.MULTILINE)}
    assert bleu["sinusoidal"] > bleu["none"] + 10
    with_positions, without = re.findall(r"^(?:sinusoidal|none)\n((?:    .*\n){3})", text, re.MULTILINE)
    assert len({line.split(" → ")[1] for line in with_positions.splitlines()}) == 3
    assert len({line.split(" → ")[1] for line in without.splitlines()}) == 1
