"""Saves figures as small PNG files, in English or Korean."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import matplotlib
from matplotlib import font_manager
from matplotlib.figure import Figure
from matplotlib.text import Text
from PIL import Image

from position_experiments.korean import translated

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402 (the backend is chosen first)

KOREAN_FONTS = (
    *("Noto Sans CJK KR", "Noto Sans KR", "NanumGothic", "Nanum Gothic", "NanumBarunGothic"),
    *("Apple SD Gothic Neo", "AppleGothic", "Malgun Gothic", "UnDotum", "Baekmuk Gulim"),
    "Noto Sans CJK JP",  # the file of all CJK fonts, which some versions of Matplotlib know by its first name
)
"""Fonts with Korean letters, the preferred ones first."""
NO_FONT = (
    "no font with Korean letters is installed, so labels stay in English. "
    "Install Noto Sans CJK or Nanum (Debian: apt install fonts-noto-cjk), then repeat the command."
)


def korean_font() -> str | None:
    """Returns the name of an installed font with Korean letters.

    Matplotlib caches a list of fonts, so a font that was installed later has to be added.
    """
    manager = font_manager.fontManager
    if (font := _listed_font()) is None:
        listed = {entry.fname for entry in manager.ttflist}
        for path in set(font_manager.findSystemFonts()) - listed:
            with suppress(Exception):  # a font that Matplotlib can't read
                manager.addfont(path)
        font = _listed_font()
    return font


def _listed_font() -> str | None:
    installed = set(font_manager.get_font_names())
    return next((name for name in KOREAN_FONTS if name in installed), None)


def save_figure(draw: Callable[[], Figure], path: Path, font: str | None = None) -> None:
    """Draws a figure and writes it with a palette of 256 colours, half the size of one without.

    Args:
        draw: draws the figure, with English labels.
        path: the PNG file.
        font: a font with Korean letters; the labels are then in Korean.
    """
    with matplotlib.rc_context({} if font is None else {"font.family": [font, "DejaVu Sans"]}):
        figure = draw()
        if font is not None:
            label_in_korean(figure)
        figure.savefig(path, dpi=100, bbox_inches="tight")
        plt.close(figure)
    with Image.open(path) as image:
        reduced = image.convert("RGB").quantize(256, dither=Image.Dither.NONE)
    reduced.save(path, optimize=True)


def label_in_korean(figure: Figure) -> None:
    """Translates all texts of a figure, the names of categories on its axes included."""
    for axes in figure.axes:
        names = [text.get_text() for text in axes.get_xticklabels()]
        if any(translated(name) != name for name in names):
            axes.set_xticks(axes.get_xticks(), [translated(name) for name in names])
    for text in figure.findobj(Text):
        assert isinstance(text, Text)
        text.set_text(translated(text.get_text()))
