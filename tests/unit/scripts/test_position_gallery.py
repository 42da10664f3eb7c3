"""The gallery of positional encodings: every picture, and a self-contained page."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

pytest.importorskip("matplotlib", reason="the extra plots is not installed")
import position_gallery


@pytest.mark.slow
def test_the_gallery(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["position_gallery.py", str(tmp_path)])
    position_gallery.main()
    names = [picture.name for picture in position_gallery.PICTURES]
    for name in names:
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert len(page) < 5_000_000
    sources = re.findall(r'(?:src|href)="([^"]{0,22})', page)
    assert len(sources) == 1 + 2 * len(names)  # the icon, and for each picture a link and an image
    assert all(source.startswith(("data:", "#")) for source in sources)
