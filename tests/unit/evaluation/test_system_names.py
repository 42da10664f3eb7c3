"""The names of two systems, from their paths."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nmt.evaluation.systems import SYSTEMS, system_names, the

NAMES = [
    ("ours.de", "theirs.de", ("ours", "theirs")),
    ("runs/a/out.de", "runs/b/out.de", ("a", "b")),
    ("test.p25.txt", "test.p1.txt", ("p25", "p1")),
    ("a/big.beam4.de", "b/small.beam8.de", ("big.beam4", "small.beam8")),
    ("runs/p25/test.hypotheses.txt", "runs/p1/test.hypotheses.txt", ("p25", "p1")),
    ("runs/mine", "runs/other/test.news.hypotheses.txt", ("mine", "other")),
    ("runs/mine/model", "theirs.de", ("mine", "theirs.de")),
    ("deep/out.de", "out.de", ("deep", "here")),
    ("out.de", "out.de", SYSTEMS),
    ("ours.de", None, ("ours.de", "baseline")),
    (["runs/a", "runs/b"], "theirs.de", ("hypotheses", "theirs.de")),
    (None, None, SYSTEMS),
]


@pytest.mark.parametrize("hypotheses, baseline, names", NAMES)
def test_names(
    hypotheses: Any, baseline: Any, names: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert system_names(hypotheses, baseline) == names


def test_only_the_words_of_unknown_systems_have_an_article() -> None:
    assert [the(name) for name in ("p25", *SYSTEMS)] == ["p25", "the hypotheses", "the baseline"]
