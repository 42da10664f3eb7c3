"""The metric of the recipe for parsing: F1 of labelled brackets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from doc_pages import ROOT, page

from nmt.config import EvaluationConfig
from nmt.evaluation.metrics import METRICS

TREE = "(S (NP XX ) (VP XX (NP XX XX ) ) XX )"


@pytest.fixture
def example() -> Iterator[dict[str, Any]]:
    [text] = [
        block.text for block in page(ROOT / "docs" / "recipes.md")[1] if "class Brackets(" in block.text
    ]
    values: dict[str, Any] = {}
    exec(text, values)
    yield values
    del METRICS["brackets"]


@pytest.mark.parametrize(
    ("hypothesis", "score"),
    [
        (TREE, 100.0),
        ("(S (NP XX ) (VP XX ) (NP XX XX ) XX )", 75.0),  # the phrase ends too early
        ("(S (NP XX ) (VP XX (NP XX XX", 200 / 5),  # one of the four is closed
        ("XX ) XX", 0.0),
        ("", 0.0),
    ],
)
def test_f1(example: dict[str, Any], hypothesis: str, score: float) -> None:
    metric = METRICS["brackets"]("zxx", EvaluationConfig())
    assert metric.score([hypothesis], [[TREE]], []) == pytest.approx(score)
    counts = example["constituents"](TREE)
    assert counts == {("NP", 0, 1): 1, ("NP", 2, 4): 1, ("VP", 1, 4): 1, ("S", 0, 5): 1}


def test_the_artificial_treebank(
    example: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each tree has as many words as its sentence, and one constituent over all of them."""
    [text] = [block.text for block in page(ROOT / "docs" / "recipes.md")[1] if "RULES = {" in block.text]
    monkeypatch.chdir(tmp_path)
    exec(text.replace("_000", "0"), {})  # 420 sentences, as 42_000
    for split, count in (("train", 400), ("valid", 10), ("test", 10)):
        words, trees = (
            Path(f"{split}.{kind}").read_text(encoding="utf-8").splitlines() for kind in ("words", "trees")
        )
        assert len(set(words)) == len(trees) == count
        for sentence, tree in zip(words, trees, strict=True):
            length = len(sentence.split())
            assert tree.split().count("XX") == length and tree.count("(") == tree.count(")")
            assert example["constituents"](tree)["S", 0, length] == 1
