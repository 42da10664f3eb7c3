"""Tags before sources: the known tags, text with and without a tag, and the warning about a missing tag."""

from __future__ import annotations

import logging

import pytest

from nmt.config import CleaningConfig
from nmt.data.corpora.corpus import Corpus, HeldOut
from nmt.data.corpora.sources import Source, check_tags, first_words, known_tags, without_tag
from nmt.errors import UserError


def corpora(*tags: str | None) -> list[Source]:
    corpus = Corpus("c", {}, lambda: iter(()))
    return [Source("c", corpus, CleaningConfig(), ("en", "de"), tag) for tag in tags]


def held_out(*sources: str, tag: str | None = None) -> HeldOut:
    return HeldOut("h", list(sources), [""] * len(sources), None, {}, tag)


def test_known_are_symbols_and_tags_each_once() -> None:
    assert known_tags(["<x>", "<2de>"], corpora("<bt>", None, "<2de>", "<bt>")) == ["<x>", "<2de>", "<bt>"]
    assert known_tags(["<x>", "<x>"], corpora(None)) == ["<x>", "<x>"]  # the tokenizer reports duplicates


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<bt> a b", "a b"),
        ("<bt>\u3000a  b", "a  b"),
        (" <bt> a", "a"),
        ("<bt> <bt> a", "<bt> a"),  # only the first is a tag
        ("<bt>", "<bt>"),
        ("<bt>a b", "<bt>a b"),
        ("<2fr> a b", "<2fr> a b"),
        ("", ""),
    ],
)
def test_without_tag(text: str, expected: str) -> None:
    assert without_tag(text, ["<2de>", "<bt>"]) == expected


def test_first_words() -> None:
    assert first_words(["<bt> a", " <bt>\tb", "a", "", "  ", "<bt>c d"]) == {"<bt>", "a", "<bt>c"}


def test_a_tag_goes_before_every_source_but_blank_ones() -> None:
    assert held_out("a b", "", " ", "c", tag="<2de>").inputs == ["<2de> a b", "", " ", "<2de> c"]
    assert held_out("a b", "").inputs == ["a b", ""]


@pytest.mark.parametrize(
    ("tags", "test", "warned"),
    [
        (["<2de>", "<2fr>"], held_out("a", "b"), True),
        (["<2de>", "<2fr>"], held_out("a", "b", tag="<2fr>"), False),
        (["<2de>", "<2fr>"], held_out("<2de> a", "", "<2fr> b"), False),  # written into the text
        (["<2de>", "<2fr>"], held_out("<2de> a", "b"), True),
        (["<2de>", None], held_out("a", "b"), False),
        ([None], held_out("a", "b"), False),
        (["<2de>"], held_out("a", "b"), True),
    ],
)
def test_a_forgotten_tag_is_told(
    tags: list[str | None], test: HeldOut, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    sources = corpora(*tags)
    with caplog.at_level(logging.WARNING, "nmt"):
        check_tags({"valid": held_out("<2de> a"), "test": test}, sources, known_tags([], sources))
    known = ", ".join(tag for tag in tags if tag)
    assert [record.getMessage() for record in caplog.records] == [
        "data.test has no tag, but every training corpus has one, so the model sees no source without "
        f"a tag in training. Set data.test.tag to one of {known}."
    ] * warned


def test_an_unknown_tag_is_told() -> None:
    sources = corpora("<2de>", "<2fr>")
    for known, rest in ((known_tags([], sources), ", only <2de>, <2fr>"), ([], "")):
        with pytest.raises(UserError) as caught:
            check_tags({"valid": held_out("a", tag="<2ru>")}, sources, known)
        assert str(caught.value) == f"data.valid.tag=<2ru>: no training corpus has this tag{rest}"
    check_tags({"valid": held_out("a", tag="<x>")}, sources, known_tags(["<x>"], sources))
