"""Batched look-up of words against a naive twin, for small tables and many collisions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nmt.data.subwords.words as module
from nmt.data.subwords.words import Words
from nmt.runtime.arrays import Side


class Letters:
    """A stand-in of a model: a word's ids are its code points; records the requested words."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, words: list[str]) -> list[list[int]]:
        self.asked += words
        return [[ord(c) for c in word] for word in words]


def naive(text: str) -> list[int]:
    return [ord(c) for c in text if c != " "]


def ids(words: Words, texts: list[str]) -> list[list[int]]:
    return [row.tolist() for row in words.encode(Side.of_lines(texts))]


TEXT = st.text(st.sampled_from("ab ü你\x00\n"), max_size=60)


@pytest.fixture(params=[0, 2, 18], ids=lambda bits: f"{2**bits} places")
def bits(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(module, "_BITS", request.param)
    return request.param


@given(batches=st.lists(st.lists(TEXT), max_size=4))
def test_ids_are_those_of_the_words(bits: int, batches: list[list[str]]) -> None:
    words = Words(Letters(), 70_000)
    for texts in batches:
        assert ids(words, texts) == [naive(text) for text in texts]


@given(st.lists(st.lists(TEXT), max_size=6))
def test_what_is_kept_is_bounded(batches: list[list[str]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_MAX_IDS", 20)
        words = Words(Letters(), 70_000)
        for texts in batches:
            assert ids(words, texts) == [naive(text) for text in texts]
            assert words._used <= 20 + sum(map(len, texts))


def test_a_word_is_encoded_once() -> None:
    letters = Letters()
    words = Words(letters, 128)
    assert ids(words, ["one two", "two one two", ""]) == [naive("onetwo"), naive("twoonetwo"), []]
    assert letters.asked == ["one", "two"]
    assert ids(words, ["three  two"]) == [naive("threetwo")]
    assert letters.asked == ["one", "two", "three"]
    assert words.encode(Side.of_lines(["two"])).ids.dtype == np.uint16


def test_long_words_and_zeros_are_not_kept() -> None:
    letters = Letters()
    words = Words(letters, 128)
    for text in ("x" * 24, "x" * 25, "a\x00", "a"):
        for _ in range(2):
            assert ids(words, [text]) == [naive(text)]
    assert letters.asked == ["x" * 24, "x" * 25, "x" * 25, "a\x00", "a\x00", "a"]


def test_part_of_a_side() -> None:
    texts = Side.of_lines(["one", "two", "three"])
    found = Words(Letters(), 128).encode(Side(texts.ids, texts.offsets[1:]))
    assert [row.tolist() for row in found] == [naive("two"), naive("three")]
    assert texts.ids.tobytes() == b"one\ntwo\nthree\n"
