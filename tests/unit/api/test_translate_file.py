"""`Model.translate_file`: a file in its own format, with a translator that returns capitals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from nmt.api.model import Model
from nmt.decoding.translation import ScoredText, Translation
from nmt.errors import UserError


class Capitals:
    def translate(
        self, lines: Sequence[str], advance: Callable[[int], object], *, markup: bool, **_: Any
    ) -> list[Translation]:
        assert markup == any("%d" in line for line in lines)
        return [Translation((ScoredText(line.upper().replace("%D", "%d"), -0.5),)) for line in lines]


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Model:
    model = object.__new__(Model)
    model.source_lang, model.target_lang, model._threads = "en", "de", 1
    monkeypatch.setattr(model, "_readers", lambda changes: (Capitals(), None), raising=False)
    return model


def test_a_file_is_translated_in_its_format(model: Model, tmp_path: Path) -> None:
    (tmp_path / "a.po").write_text('msgid "Delete %d files"\nmsgstr ""\n')
    model.translate_file(tmp_path / "a.po", tmp_path / "b.po")
    assert (tmp_path / "b.po").read_text() == (
        '#, fuzzy\nmsgid "Delete %d files"\nmsgstr "DELETE %d FILES"\n'
    )
    (tmp_path / "a.csv").write_text("x;y\n1;b\n")
    model.translate_file(tmp_path / "a.csv", tmp_path / "b.csv", column="y")
    assert (tmp_path / "b.csv").read_text() == "x;y;translation\n1;b;B\n"
    (tmp_path / "lines").write_bytes(b"a\r\nb")
    model.translate_file(tmp_path / "lines", tmp_path / "translated")
    assert (tmp_path / "translated").read_bytes() == b"A\r\nB"


def test_mistakes(model: Model, tmp_path: Path) -> None:
    (tmp_path / "a.xlf").write_text("<xliff>")
    (tmp_path / "a.jsonl").write_text('{"text": "a", "prefix": "b"}\n')
    for name, message in (
        ("a.xlf", r"a\.xlf:1: not valid XML"),
        ("a.jsonl", r"a\.jsonl: line 1: has a prefix or constraints"),
        ("none", "can't read .*none: it does not exist"),
    ):
        with pytest.raises(UserError, match=message):
            model.translate_file(tmp_path / name, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    with pytest.raises(UserError, match=r"^decoding\.nbest: translate_file writes only the best one"):
        model.translate_file(tmp_path / "a.xlf", tmp_path / "out", nbest=2)
