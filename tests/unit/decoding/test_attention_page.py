"""The page of attention: its weights and figures are those of the model, and no text can end its script."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from nmt.decoding import attention_page as module
from nmt.decoding.attention_page import figures
from nmt.decoding.pairs import PairAttention
from nmt.runtime.arrays import Array

ALPHABET = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+/"


def attention_page(pairs: Iterable[PairAttention], title: str) -> str:
    page = module.attention_page(pairs, title)
    assert page is not None
    return page


def softmax(x: Array) -> Array:
    weights = np.exp(x) / np.exp(x).sum(-1, keepdims=True)
    return weights.astype(np.float32)


def pair(num_source: int = 3, num_target: int = 4, text: str = "a") -> PairAttention:
    random = np.random.default_rng(num_source)
    scores = random.normal(size=(3, 2, 2, 9, 9)) * 3
    scores[1] = np.where(np.tri(9, dtype=bool), scores[1], -np.inf)
    return PairAttention(
        source=(*[text] * (num_source - 1), "</s>"),
        target=("<s>", *[text] * (num_target - 1)),
        predicted=(*[text] * (num_target - 1), "</s>"),
        cross=softmax(scores[2, :, :, :num_target, :num_source]),
        encoder=softmax(scores[0, :, :, :num_source, :num_source]),
        decoder=softmax(scores[1, :, :, :num_target, :num_target]),
    )


def data_of(page: str) -> dict[str, Any]:
    [content] = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    found: dict[str, Any] = json.loads(content)
    return found


def test_weights_are_those_of_the_model() -> None:
    seen = pair()
    [record] = data_of(attention_page([seen], "t"))["pairs"]
    assert record["source"] == ["a", "a", "</s>"]
    assert record["target"] == ["<s>", "a", "a", "a"]
    assert record["predicted"] == ["a", "a", "a", "</s>"]
    for kind in ("encoder", "decoder", "cross"):
        weights = getattr(seen, kind)
        for layer in range(2):
            for head in range(2):
                levels = np.array([ALPHABET.index(code) for code in record[kind][layer][head]])
                expected = weights[layer, head]
                expected = expected[np.tri(4, dtype=bool)] if kind == "decoder" else expected.ravel()
                np.testing.assert_allclose((levels / 63) ** 2, expected, atol=0.016)
    assert sum(map(len, record["decoder"][0])) == 2 * (1 + 2 + 3 + 4)


def test_figures() -> None:
    weights = np.array([[[[0, 1, 0], [0.5, 0, 0.5], [0, 0.25, 0.75]]]], np.float32)
    seen = PairAttention(("a", "b", "</s>"), ("<s>", "c", "d"), ("c", "d", "</s>"), weights)
    assert figures([seen, seen]) == {
        "cross": [
            [
                {
                    "distance": 0.75,
                    "entropy": 0.604,
                    "previous": 0.25,
                    "same": 0.25,
                    "next": 0.5,
                    "first": 0.167,
                    "last": 0.417,
                }
            ]
        ]
    }


@pytest.mark.parametrize("text", ["</script><script>alert(1)</script>", "<!--<script>", "\u2028\"'&\u202e"])
def test_no_text_ends_the_script(text: str) -> None:
    page = attention_page([pair(text=text)], "<b>&")
    assert page.count("<script") == 2
    assert "<title>&lt;b&gt;&amp;</title>" in page
    assert data_of(page)["pairs"][0]["source"][0] == text


def test_pairs_that_do_not_fit_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(data_of(attention_page([pair()] * 3, "t"))["pairs"]) == 3
    monkeypatch.setattr(module, "MOST_BYTES", 1000)
    found = data_of(attention_page([pair(), pair(), pair(5)], "t"))
    assert len(found["pairs"]) == 2
    assert found["figures"] == figures([pair(), pair()])
    monkeypatch.setattr(module, "MOST_BYTES", 1)
    remaining = iter([pair()] * 9)
    assert len(data_of(attention_page(remaining, "t"))["pairs"]) == 1
    assert len([*remaining]) == 7  # no pair is computed after the first that does not fit
    assert module.attention_page([]) is None


def test_ten_sentences_of_the_base_model_are_small() -> None:
    """40 pieces a side, six layers of eight heads."""
    weights = np.full((6, 8, 40, 40), 1 / 40, np.float32)
    pieces = ("\u2581word",) * 40
    page = attention_page([PairAttention(pieces, pieces, pieces, weights, weights, weights)] * 10, "t")
    assert len(page.encode()) < 2_000_000
    assert len(data_of(page)["pairs"]) >= 9


def test_the_korean_labels_are_those_of_the_page() -> None:
    """Each English label of the table is also elsewhere in the page, literally."""
    page = " ".join(attention_page([pair()], "Attention").split())
    table = page.partition('.startsWith("ko") ? {')[2].partition("} : null;")[0]
    labels = re.findall(r'"([^"]+)": *"', table)
    assert len(labels) == 22
    rest = page.replace(table, "")
    assert not [label for label in labels if f">{label}<" not in rest and f'"{label}"' not in rest]
