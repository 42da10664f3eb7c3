"""The gallery of positional encodings: every picture, and a self-contained page, in English and Korean."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

pytest.importorskip("matplotlib", reason="the extra plots is not installed")
import position_gallery
from matplotlib.text import Text
from position_experiments import figures, korean, plots
from position_experiments.results import FILE, read_results

from nmt.config.model import ENCODINGS

NAMES = {*ENCODINGS, "ALiBi", "tensor2tensor", "BLEU", "base", "mathdefault"}
"""Words that a label has in Korean too, and the command of Matplotlib in a power of ten."""


@pytest.mark.slow
@pytest.mark.parametrize("language", position_gallery.LANGUAGES)
def test_the_gallery(language: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["position_gallery.py", str(tmp_path), "--language", language])
    position_gallery.main()
    names = [picture.name for picture in position_gallery.PICTURES]
    for name in names:
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert len(page) < 5_000_000
    assert f'<html lang="{language}">' in page and position_gallery.LANGUAGES[language][0] in page
    sources = re.findall(r'(?:src|href)="([^"]{0,22})', page)
    assert len(sources) == 1 + 2 * len(names)  # the icon, and for each picture a link and an image
    assert all(source.startswith(("data:", "#")) for source in sources)


@pytest.mark.slow
def test_every_label_has_korean_words() -> None:
    """A new label is missing in `position_experiments/korean.py` if this fails."""
    records = read_results(Path(__file__).resolve().parents[3] / "docs" / FILE)
    drawn = [picture.draw() for picture in position_gallery.PICTURES]
    drawn += [draw(records) for _, draw in plots.PLOTS.values()]
    english = []
    for figure in drawn:
        figures.label_in_korean(figure)
        labels = {text.get_text() for text in figure.findobj(Text)}
        english += [label for label in labels if {*re.findall(r"[A-Za-z][A-Za-z0-9]{3,}", label)} - NAMES]
        figures.plt.close(figure)
    assert not english
    assert {picture.name for picture in position_gallery.PICTURES} == set(korean.PICTURES)


def test_without_a_korean_font_the_labels_stay_in_english(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(figures, "KOREAN_FONTS", ())
    monkeypatch.setattr(
        position_gallery, "PICTURES", [one for one in position_gallery.PICTURES if one.name == "norms"]
    )
    monkeypatch.setattr(sys, "argv", ["position_gallery.py", str(tmp_path), "--language", "ko"])
    position_gallery.main()
    assert capsys.readouterr().err == (
        "--language ko: no font with Korean letters is installed, so labels stay in English. "
        "Install Noto Sans CJK or Nanum (Debian: apt install fonts-noto-cjk), then repeat the command.\n"
    )
    assert (tmp_path / "norms.png").exists()
