"""The pictures of docs/transformer.md as SVG in each language: triangle, softmax, cross-attention."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape

from torch import Tensor

from transformer_page.example import Example, cross_weights
from transformer_page.experiments import padded_mask, padded_names, softmax_examples, together

LANGUAGES = ("en", "ko")
_INK, _BLUE, _GREY, _LINE = "#222222", (33, 95, 165), "#d8d8d8", "#999999"

WORDS: Mapping[str, Mapping[str, str]] = {
    "en": {
        "query": "query",
        "key": "key",
        "head": "head",
        "seen": "seen",
        "future": "hidden: the future",
        "padding": "padding",
        "reads": "the decoder reads",
        "predicts": "it predicts",
        "source": "source",
        "plain": "q·k",
        "scaled": "q·k / √d_k",
        "keys": "ten keys, largest weight first",
    },
    "ko": {
        "query": "쿼리",
        "key": "키",
        "head": "헤드",
        "seen": "보이는 칸",
        "future": "가려진 칸: 미래",
        "padding": "패딩",
        "reads": "디코더가 읽는 조각",
        "predicts": "예측할 조각",
        "source": "원문",
        "plain": "q·k",
        "scaled": "q·k / √d_k",
        "keys": "키 열 개, 가중치가 큰 것부터",
    },
}


def pictures(example: Example, longer: Example) -> dict[str, str]:
    """File name → SVG, for each picture and language."""
    drawn: dict[str, Callable[[Mapping[str, str]], str]] = {
        "triangle": lambda words: triangle(example, longer, words),
        "softmax": softmax,
        "heads": lambda words: heads(example, words),
        "cross_attention": lambda words: cross_attention(example, words),
    }
    return {
        f"{name}.svg" if language == "en" else f"{language}/{name}.svg": draw(WORDS[language])
        for name, draw in drawn.items()
        for language in LANGUAGES
    }


def triangle(example: Example, longer: Example, words: Mapping[str, str]) -> str:
    """The causal mask of a pair, padded to the length of a longer one."""
    [mask] = padded_mask(together(example, longer).target, causal=True)
    length, size = len(example.reads), 34
    names = [_plain(piece) for piece in padded_names(example.reads, longer.reads)]
    colours = {"seen": _shade(0.75), "future": _GREY, "padding": "url(#hatch)"}
    parts = [
        '<defs><pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse">'
        f'<rect width="6" height="6" fill="white"/><path d="M0 6 6 0" stroke="{_LINE}"/></pattern></defs>'
    ]
    left, top = 110, 92
    for i, row in enumerate(mask.tolist()):
        for j, value in enumerate(row):
            kind = "padding" if max(i, j) >= length else "seen" if value == 0 else "future"
            parts.append(_rect(left + j * size, top + i * size, size, size, colours[kind]))
    parts += _names(names, names, left, top, size, words["query"], words["key"])
    right = left + len(names) * size + 24
    for place, (kind, colour) in enumerate(colours.items()):
        parts.append(_rect(right, top + 28 * place, 18, 18, colour))
        parts.append(_text(right + 26, top + 28 * place + 14, words[kind]))
    return _svg(right + 170, top + len(names) * size + 12, parts)


def heads(example: Example, words: Mapping[str, str]) -> str:
    """The heat maps of the first two heads of the first layer of the encoder."""
    weights = example.model.attention_weights(example.batch).encoder
    assert weights is not None
    left, top, size = 100, 100, 36
    names = [_plain(piece) for piece in example.source]
    step = len(names) * size + 120
    parts: list[str] = []
    for number, head in enumerate(weights[0, :2]):
        x = left + number * step
        parts += _cells(head, x, top, size)
        parts += _names(names, names, x, top, size, words["query"], f"{words['head']} {number + 1}")
    return _svg(left + 2 * step - 100, top + len(names) * size + 12, parts)


def cross_attention(example: Example, words: Mapping[str, str]) -> str:
    """The heat map of the attention to the source in the last layer."""
    weights = cross_weights(example)
    left, top, size = 266, 100, 44
    parts = _cells(weights, left, top, size)
    reads, sources = ([_plain(piece) for piece in pieces] for pieces in (example.reads, example.source))
    parts += _names(reads, sources, left, top, size, words["reads"], words["source"], column=142)
    parts.append(_text(left - 10, 22, words["predicts"], anchor="end", weight="bold"))
    for i, piece in enumerate(example.predicts):
        parts.append(_text(left - 10, top + i * size + size / 2 + 5, _plain(piece), anchor="end"))
    return _svg(left + len(sources) * size + 20, top + len(reads) * size + 12, parts)


def softmax(words: Mapping[str, str]) -> str:
    """The weights of ten random keys, for keys of 16 and of 512 dimensions, without and with scale."""
    parts, width, height = [], 250, 120
    for place, ((d_k, is_scaled), weights) in enumerate(softmax_examples().items()):
        left, top = 20 + (place // 2) * (width + 40), 34 + (place % 2) * (height + 46)
        title = f"d_k = {d_k}, {words['scaled' if is_scaled else 'plain']}"
        parts.append(_text(left, top - 10, title, weight="bold"))
        parts.append(f'<path d="M{left} {top + height}h{width}" stroke="{_LINE}"/>')
        for number, weight in enumerate(weights):
            bar = weight * (height - 16)
            parts.append(_rect(left + number * 25 + 3, top + height - bar, 19, bar, _shade(0.8)))
        parts.append(_text(left + 4, top + height - weights[0] * (height - 16) - 4, f"{weights[0]:.2f}", 11))
    parts.append(_text(20, 34 + 2 * height + 70, words["keys"], 12))
    return _svg(2 * width + 80, 2 * height + 118, parts)


def _cells(values: Tensor, left: int, top: int, size: int) -> list[str]:
    parts = []
    for i, row in enumerate(values.tolist()):
        for j, value in enumerate(row):
            parts.append(_rect(left + j * size, top + i * size, size, size, _shade(value)))
            x, y = left + j * size + size / 2, top + i * size + size / 2 + 4
            parts.append(_text(x, y, f"{value:.2f}", 11, "middle", "white" if value > 0.5 else _INK))
    return parts


def _names(
    rows: Sequence[str],
    columns: Sequence[str],
    left: int,
    top: int,
    size: int,
    row_title: str,
    column_title: str,
    column: int | None = None,
) -> list[str]:
    """The names of rows and columns; `column` is the right edge of those of the rows."""
    edge = left - 10 if column is None else column
    parts = [_text(edge, 22, row_title, anchor="end", weight="bold")]
    parts.append(_text(left + len(columns) * size / 2, 22, column_title, anchor="middle", weight="bold"))
    for i, name in enumerate(rows):
        parts.append(_text(edge, top + i * size + size / 2 + 5, name, anchor="end"))
    for j, name in enumerate(columns):
        x, y = left + j * size + size / 2 + 4, top - 6
        turned = f' transform="rotate(-45 {x:g} {y:g})"'
        parts.append(_text(x, y, name, more=turned))
    return parts


def _plain(code: str) -> str:
    return code.strip("`")


def _shade(value: float) -> str:
    """White for 0, blue for 1."""
    return "#" + "".join(f"{round(255 + (full - 255) * min(max(value, 0.0), 1.0)):02x}" for full in _BLUE)


def _rect(x: float, y: float, width: float, height: float, fill: str) -> str:
    return (
        f'<rect x="{x:g}" y="{y:.2f}" width="{width:g}" height="{height:.2f}" fill="{fill}" '
        f'stroke="{_LINE}" stroke-width="0.5"/>'
    )


def _text(
    x: float,
    y: float,
    text: str,
    size: int = 13,
    anchor: str = "start",
    fill: str = _INK,
    weight: str = "normal",
    more: str = "",
) -> str:
    return (
        f'<text x="{x:g}" y="{y:.2f}" font-size="{size}" text-anchor="{anchor}" fill="{fill}" '
        f'font-weight="{weight}"{more}>{escape(text)}</text>'
    )


def _svg(width: float, height: float, parts: Sequence[str]) -> str:
    """An image on white, so that it can be read in a dark theme too."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}" '
        f'viewBox="0 0 {width:g} {height:g}" font-family="system-ui, sans-serif">\n'
        f'<rect width="100%" height="100%" fill="white"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )
