"""Draws the positional encodings: PNG files and one HTML page that needs nothing else.

    pip install "nmt[plots]"
    python scripts/position_gallery.py gallery/
    python scripts/position_gallery.py gallery/ --language ko      labels in Korean

The encodings are computed by the classes that training uses (`nmt.model.positions`), so the pictures show
what a model sees.
"""

from __future__ import annotations

import argparse
import base64
import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import torch
from jinja2 import Template
from matplotlib.figure import Figure
from position_experiments import korean
from position_experiments.figures import NO_FONT, korean_font, save_figure
from torch import Tensor

from nmt.config import PositionsConfig
from nmt.model.positions import Places, Shape, SineOrder, build_positions, sinusoids

WIDTH, LENGTH = 64, 100
"""d_model and positions of the heat maps."""
HEADS = 8
SIGNED = "RdBu_r"
"""Colours from -1 over 0 to 1."""
LANGUAGES = {
    "en": (
        "Positional encodings",
        "Computed by the classes that nmt trains with. Each picture is also a PNG file beside this page.",
    ),
    "ko": (
        "위치 인코딩",
        "nmt가 학습에 쓰는 클래스로 계산한 값이다. 그림마다 이 페이지 옆에 PNG 파일이 있다.",
    ),
}
"""Language → title and introduction of the page."""


@dataclass(frozen=True)
class Picture:
    """A figure, and a sentence or two that say what to see in it."""

    name: str
    title: str
    text: str
    draw: Callable[[], Figure]


def main() -> None:
    """Draws all pictures into a folder."""
    parser = argparse.ArgumentParser(description="Draws the positional encodings.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--language", choices=LANGUAGES, default="en", help="of the labels and of the page")
    arguments = parser.parse_args()
    font = korean_font() if arguments.language == "ko" else None
    if arguments.language == "ko" and font is None:
        print(f"--language ko: {NO_FONT}", file=sys.stderr)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    images = {}
    for picture in PICTURES:
        path = arguments.folder / f"{picture.name}.png"
        save_figure(picture.draw, path, font)
        images[picture.name] = path.read_bytes()
        print(path)
    page = arguments.folder / "index.html"
    page.write_text(html(images, arguments.language), encoding="utf-8")
    print(page)


def html(images: Mapping[str, bytes], language: str) -> str:
    """The page; its images are part of it."""
    pictures = []
    for picture in PICTURES:
        title, text = korean.PICTURES[picture.name] if language == "ko" else (picture.title, picture.text)
        data = base64.b64encode(images[picture.name]).decode()
        pictures.append({"title": title, "text": text, "name": picture.name, "data": data})
    title, introduction = LANGUAGES[language]
    page: str = Template(PAGE, autoescape=True).render(
        pictures=pictures, language=language, title=title, introduction=introduction
    )
    return page


def encoding(name: str, **options: Any) -> Tensor:
    """(LENGTH, WIDTH), what an encoding adds to the embeddings of one sentence."""
    shape = Shape(WIDTH, HEADS, 2, False, (WIDTH / HEADS) ** -0.5)
    positions = torch.arange(LENGTH)
    places = Places(positions, LENGTH, lambda: torch.full((LENGTH,), LENGTH))
    torch.manual_seed(1)
    built = build_positions(PositionsConfig(name, options), shape)
    with torch.no_grad():
        return built.embed(torch.zeros(LENGTH, WIDTH), places)


def bias(name: str, *, causal: bool = False, length: int = 48) -> Tensor:
    """(HEADS, length, length), what an encoding adds to the scores of one layer."""
    shape = Shape(WIDTH, HEADS, 1, causal, (WIDTH / HEADS) ** -0.5)
    torch.manual_seed(1)
    built = build_positions(PositionsConfig(name), shape)
    positions = torch.arange(length)
    queries = torch.randn(1, HEADS, length, WIDTH // HEADS)
    with torch.no_grad():
        added = built.bias(queries, positions, positions, 0)
    assert added is not None
    return added.expand(1, HEADS, length, length)[0]


def heat_maps() -> Figure:
    """Every encoding that is added to the embeddings."""
    maps = {
        "sinusoidal, interleaved (the paper)": encoding("sinusoidal"),
        "sinusoidal, halves": encoding("sinusoidal", layout="halves"),
        "sinusoidal, tensor2tensor": encoding("sinusoidal", layout="tensor2tensor"),
        "learned (before training: noise)": encoding("learned"),
        "integer (note the scale)": encoding("integer"),
        "normalised": encoding("normalised"),
        "binary": encoding("binary"),
        "none": encoding("none"),
    }
    figure, axes = plt.subplots(2, 4, figsize=(17, 9), layout="constrained")
    for axis, (title, values) in zip(axes.flat, maps.items(), strict=True):
        largest = max(1.0, values.abs().max().item())
        image = axis.imshow(values.numpy(), cmap=SIGNED, vmin=-largest, vmax=largest, aspect="auto")
        axis.set(title=title, xlabel="dimension", ylabel="position")
        figure.colorbar(image, ax=axis)
    return figure


def rotations() -> Figure:
    """The cosine of rotary's angles, and the product of a rotated query and key."""
    width = 64
    shape = Shape(width, 1, 1, False, width**-0.5)
    rotary = build_positions(PositionsConfig("rotary"), shape)
    positions = torch.arange(LENGTH)
    ones = torch.ones(LENGTH, 1, width)
    q, k = rotary.rotate(ones, ones, positions)
    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 5), layout="constrained")
    angles = positions[:, None] / 10000.0 ** (torch.arange(0, width, 2) / width)
    image = left.imshow(angles.cos().numpy(), cmap=SIGNED, vmin=-1, vmax=1, aspect="auto")
    left.set(title="cosine of the angle", xlabel="pair of dimensions", ylabel="position")
    figure.colorbar(image, ax=left)
    image = right.imshow((q[:, 0] @ k[:, 0].T).numpy(), cmap=SIGNED, vmin=-width, vmax=width)
    right.set(
        title="q·k of equal vectors: depends on n - m alone",
        xlabel="position n of k",
        ylabel="position m of q",
    )
    figure.colorbar(image, ax=right)
    return figure


def biases() -> Figure:
    """Every encoding that is added to the scores, for two heads."""
    maps = {
        "ALiBi, encoder": bias("alibi"),
        "ALiBi, decoder": bias("alibi", causal=True).masked_fill(torch.ones(48, 48).triu(1) > 0, math.nan),
        "T5 (before training)": bias("t5"),
        "relative (before training)": bias("relative"),
    }
    figure, axes = plt.subplots(2, 4, figsize=(16, 7.5), layout="constrained")
    for column, (title, values) in enumerate(maps.items()):
        for row, head in enumerate((0, HEADS - 1)):
            axis = axes[row, column]
            largest = values[head].nan_to_num().abs().max().item()
            image = axis.imshow(values[head].numpy(), cmap=SIGNED, vmin=-largest, vmax=largest)
            axis.set(title=f"{title}, head {head + 1}", xlabel="key", ylabel="query")
            figure.colorbar(image, ax=axis)
    return figure


def products() -> Figure:
    """Dot product and distance of two sinusoidal encodings against their offset."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(13, 5), layout="constrained")
    offsets = torch.arange(-100, 101)
    for width in (64, 128, 512):
        table = sinusoids(301, width).double()
        centre = table[150]
        others = table[150 + offsets]
        left.plot(offsets, others @ centre / (width / 2), label=f"d = {width}")
        right.plot(offsets, (others - centre).norm(dim=1) / width**0.5, label=f"d = {width}")
    left.axvline(43, color="grey", linewidth=0.7, linestyle="--")
    left.annotate(
        "d = 512: first local minimum, k = 43",
        (43, 0.526),
        xytext=(8, 0.85),
        arrowprops={"arrowstyle": "->", "color": "grey"},
        fontsize=9,
    )
    left.set(title="PE(p) · PE(p + k), divided by d/2", xlabel="offset k", ylabel="dot product")
    right.set(title="|PE(p) - PE(p + k)|, divided by √d", xlabel="offset k", ylabel="distance")
    left.legend()
    right.legend()
    return figure


def norms() -> Figure:
    """The norm of what each encoding adds, against the position."""
    figure, axis = plt.subplots(figsize=(8, 4.5), layout="constrained")
    for name in ("sinusoidal", "learned", "integer", "normalised", "binary"):
        axis.plot(encoding(name).norm(dim=1).clamp(min=1e-2), label=name)
    axis.axhline(WIDTH**0.5, color="grey", linestyle="--", linewidth=0.8)
    axis.annotate("an embedding of variance 1", (2, WIDTH**0.5 * 1.15), fontsize=9)
    axis.set(title=f"norm of what is added, d = {WIDTH}", xlabel="position", ylabel="norm", yscale="log")
    axis.legend()
    return figure


def wavelengths() -> Figure:
    """The wavelength of every pair of dimensions by base, and that of the authors' program."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(13, 5), layout="constrained")
    width = 512
    pairs = torch.arange(width // 2, dtype=torch.float64)
    for base, style in ((20_000, "--"), (10_000, "-"), (100, "-.")):
        label = f"base {base:,}" + (", the paper" if base == 10_000 else "")
        left.plot(pairs, 2 * math.pi * base ** (2 * pairs / width), style, label=label)
    for height, text, place in (
        (100, "one turn in 100 positions", (165, 65)),
        (2000 * math.pi, "0.1 rad in 100 positions", (0, 7000)),
    ):
        left.axhline(height, color="grey", linewidth=0.7)
        left.annotate(text, place, fontsize=9)
    left.set(title="wavelength, d = 512", xlabel="pair i", ylabel="positions", yscale="log")
    left.legend(loc="lower right")
    # On the axis at the left, this line would be hidden under that of the paper.
    ratio = 10_000 ** (pairs / (width / 2 - 1) - 2 * pairs / width)
    right.plot(pairs, 100 * (ratio - 1))
    right.set(title="tensor2tensor: longer wavelengths than the paper's", xlabel="pair i", ylabel="%")
    return figure


def circle_and_curve() -> Figure:
    """One pair of dimensions is a circle; three dimensions are a curve that does not meet itself."""
    figure = plt.figure(figsize=(12, 5.5), layout="constrained")
    table = sinusoids(64, 8)
    flat = figure.add_subplot(1, 2, 1)
    sines, cosines, slower = table[:, 2:5].T.numpy()
    flat.plot(cosines, sines, color="lightgrey")
    flat.scatter(cosines[:32], sines[:32], c=range(32), cmap="viridis", s=25)
    for position in range(0, 32, 4):
        flat.annotate(str(position), (cosines[position], sines[position]), fontsize=9)
    flat.set(title="dimensions 2 and 3: a circle", xlabel="cos", ylabel="sin", aspect="equal")
    solid = figure.add_subplot(1, 2, 2, projection="3d")
    solid.plot(sines, cosines, slower, color="grey", linewidth=0.8)
    solid.scatter(sines, cosines, slower, c=range(64), cmap="viridis", s=15)
    solid.set(title="with dimension 4: a curve in space", xlabel="sin", ylabel="cos", zlabel="sin, slower")
    return figure


def bits_and_waves() -> Figure:
    """The bits of a binary counter beside sinusoids of the same wavelengths."""
    figure, axes = plt.subplots(4, 1, figsize=(10, 6), sharex=True, layout="constrained")
    positions = torch.arange(0, 32)
    fine = torch.arange(0, 32, 0.05)
    for bit, axis in enumerate(axes):
        values = encoding("binary")[:32, bit]
        axis.step(positions, values, where="post", label=f"bit {bit} of the position")
        # A wave of the same wavelength that is high where the bit is 1.
        wave = (1 - torch.sin(2 * math.pi * fine / 2 ** (bit + 1))) / 2
        axis.plot(fine, wave, label=f"wave of length {2 ** (bit + 1)}", alpha=0.8)
        axis.set(yticks=[0, 1])
        axis.legend(loc="upper right", fontsize=8)
    axes[-1].set(xlabel="position")
    figure.suptitle("a sinusoid is a bit that changes gradually")
    return figure


def two_dimensions() -> Figure:
    """Rows and columns of an image, half of the width each."""
    side, half = 24, 32
    table = sinusoids(side, half, SineOrder.interleaved)
    rows = table[:, None].expand(side, side, half)
    columns = table[None].expand(side, side, half)
    both = torch.cat([rows, columns], 2)
    figure, axes = plt.subplots(1, 4, figsize=(16, 4.2), layout="constrained")
    for axis, dimension in zip(axes[:2], (2, half + 2), strict=True):
        image = axis.imshow(both[:, :, dimension].numpy(), cmap=SIGNED, vmin=-1, vmax=1)
        axis.set(title=f"dimension {dimension}", xlabel="column", ylabel="row")
        figure.colorbar(image, ax=axis)
    for axis, (row, column) in zip(axes[2:], ((12, 12), (4, 18)), strict=True):
        similar = both.flatten(0, 1) @ both[row, column] / half
        image = axis.imshow(similar.view(side, side).numpy(), cmap="viridis")
        axis.plot(column, row, "r+")
        axis.set(title=f"dot product with ({row}, {column})", xlabel="column", ylabel="row")
        figure.colorbar(image, ax=axis)
    return figure


PICTURES = (
    Picture(
        "heat_maps",
        "What is added to the embeddings",
        "A row is a position, a column a dimension. The sinusoids of low dimensions turn fast, those of high "
        "dimensions hardly change over a sentence. The layouts hold the same kind of waves in another order.",
        heat_maps,
    ),
    Picture(
        "products",
        "Dot product and distance against the offset",
        "Both depend on the offset k alone and are symmetric in k. Near positions are similar.",
        products,
    ),
    Picture(
        "norms",
        "Norm against the position",
        "Sinusoids have the norm √(d/2) at every position. Integers grow without bound and drown the words.",
        norms,
    ),
    Picture(
        "wavelengths",
        "Wavelength of every dimension",
        "The wavelengths form a geometric progression from 2π to nearly 10000 · 2π. Those of the authors' "
        "program are up to 3.7 % longer.",
        wavelengths,
    ),
    Picture(
        "circle_and_curve",
        "A circle in two dimensions, a curve in three",
        "A pair of dimensions is a point on a circle. A step of k positions is a rotation by a fixed angle.",
        circle_and_curve,
    ),
    Picture(
        "bits_and_waves",
        "Bits and sinusoids",
        "Bit i of the position has the wavelength 2^(i+1). A sinusoid of that length is its smooth version.",
        bits_and_waves,
    ),
    Picture(
        "rotations",
        "Rotary: what turns queries and keys",
        "Each pair of dimensions of a query and a key is rotated by an angle that grows with the position. "
        "Their product depends on the difference of the positions.",
        rotations,
    ),
    Picture(
        "biases",
        "What is added to the scores of attention",
        "ALiBi penalises distance with a slope per head. T5 and Shaw's relative positions learn their "
        "values. Here they are as before training, to show which distances share a value.",
        biases,
    ),
    Picture(
        "two_dimensions",
        "Two dimensions",
        "For an image, half of the dimensions encode the row and half the column. The dot product is largest "
        "near the same place.",
        two_dimensions,
    ),
)

PAGE = """<!doctype html>
<html lang="{{ language }}">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ title }}</title>
<link rel="icon" href="data:,">
<style>
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 70rem; padding: 1rem; }
nav a { margin-right: 1rem; white-space: nowrap; }
img { background: white; border-radius: 4px; height: auto; max-width: 100%; }
</style>
</head>
<body>
<h1>{{ title }}</h1>
<p>{{ introduction }}</p>
<nav>{% for picture in pictures %}<a href="#{{ picture.name }}">{{ picture.title }}</a> {% endfor %}</nav>
{% for picture in pictures %}
<section id="{{ picture.name }}">
<h2>{{ picture.title }}</h2>
<p>{{ picture.text }}</p>
<img alt="{{ picture.title }}" src="data:image/png;base64,{{ picture.data }}">
</section>
{% endfor %}
</body>
</html>
"""


if __name__ == "__main__":
    main()
