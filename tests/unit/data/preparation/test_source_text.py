"""Facts about the lines of the training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nmt.data.preparation.source_text import text_facts


def facts_of(lines: Sequence[tuple[str, str]]) -> dict[str, Any]:
    return text_facts([(line, "") for line, _ in lines], [(lang, "") for _, lang in lines])


def test_sentences_and_lengths() -> None:
    lines = [
        ("One. Two.", "en"),
        ("彼が来た。私は帰った。", "ja"),
        ("Er kam z. B. gestern.", "de"),
        ("x" * 30, "en"),
    ]
    facts = facts_of(lines * 30)
    assert (facts["several_sentences"], facts["characters"]) == (0.5, 30)
    rare = facts_of([("short", "en")] * 200 + [("x" * 99, "en")])
    assert (rare["several_sentences"], rare["characters"]) == (0.0, 5)


def test_tags_variables_and_addresses() -> None:
    lines = [
        "a <b>b</b>",
        "<br/>",
        "{name}",
        "%d files < 3",
        "a {b} <c>",
        "http://a me@b.c",
        "50 % of it",
        "x@",
    ]
    facts = facts_of([(line, "en") for line in lines])
    assert (facts["tags"], facts["variables"], facts["addresses"]) == (0.375, 0.375, 0.125)


def test_numbers_in_words() -> None:
    pairs = [
        ("I am 15", "ich bin fünfzehn"),
        ("I have 3", "ich habe drei"),  # small numbers may be words in any text
        ("I am 15", "ich bin 16"),
        ("in 1985", "damals"),
        ("in 1985", "1985"),
        ("no digits", "keine"),
    ]
    assert text_facts(pairs, [("en", "de")] * len(pairs))["number_words"] == 0.2
    assert text_facts(pairs[-1:], [("en", "de")])["number_words"] == 0.0
