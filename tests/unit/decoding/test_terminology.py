"""Terminology files: their format, their errors, and the terms of a line."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.config import DecodingConfig, TranslateConfig
from nmt.decoding.terminology import (
    Terminology,
    configured_terms,
    continuing_ids,
    load_terminology,
    split_words,
)
from nmt.errors import UserError


def terminology(**terms: str) -> Terminology:
    return of({source.replace("_", " "): target for source, target in terms.items()})


def of(terms: dict[str, str]) -> Terminology:
    return Terminology({tuple(split_words(source)): target for source, target in terms.items()})


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str | bytes], Path]:
    def written(content: str | bytes) -> Path:
        path = tmp_path / "terms.tsv"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return written


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", []),
        ("  The  cat,\tcat's 3rd ", ["The", " cat", ",", " cat", "'", "s", " 3rd"]),
        ("e\u0301te\u0301", ["été"]),  # NFC
        ("q\u0307x", ["q\u0307x"]),  # a mark without a composed character belongs to the word
        ("हिन्दी की", ["हिन्दी", " की"]),  # vowel signs are marks
        ("U.S.", ["U", ".", "S", "."]),
        ("ABC猫ネコ9", ["ABC", "猫", "ネ", "コ", "9"]),
        ("고양이가", ["고", "양", "이", "가"]),
    ],
)
def test_words(text: str, parts: list[str]) -> None:
    assert split_words(text) == parts


@given(text=st.text())
def test_words_are_the_whole_text(text: str) -> None:
    parts = split_words(text)
    assert all(part.strip() for part in parts)
    assert "".join(parts).split() == "".join(split_words(" ".join(text.split()))).split()


@pytest.mark.parametrize(
    ("line", "targets"),
    [
        ("cat", ["K"]),
        ("The cat, the CAT and the Cat.", ["K", "K", "K"]),
        ("catalogue bobcat cat_ _cat", ["K", "K"]),
        ("cats", []),
        ("cat food", ["KF"]),  # the longest first
        ("cat   food cat", ["KF", "K"]),
        ("cat cat food", ["K", "KF"]),
        ("cat foods", ["K"]),
        ("US us Us", ["V"]),  # a term with a capital matches exactly
        ("cat\u0301", []),  # another letter
        ("U.S. u.s. U . S .", ["W"]),
    ],
)
def test_terms_of_a_line(line: str, targets: list[str]) -> None:
    terms = of({"cat": "K", "cat food": "KF", "US": "V", "U.S.": "W"})
    assert terms.targets(line) == targets


def test_an_exact_term_comes_before_one_in_any_case() -> None:
    terms = terminology(polish="polieren", Polish="polnisch", polish_it="poliere")
    assert terms.targets("Polish it, polish, Polish") == ["poliere", "polieren", "polnisch"]


def test_scripts_without_spaces() -> None:
    assert of({"猫": "cat", "黒猫": "black cat"}).targets("この黒猫は猫です") == ["black cat", "cat"]
    assert of({"고양이": "cat"}).targets("고양이가 들고양이와 고양이") == ["cat", "cat"]


def test_a_target_term_is_as_in_the_file(write: Callable[[str | bytes], Path]) -> None:
    term = "20\u00a0m² …\u200c，  ½"
    assert load_terminology(write(f"area\t {term}\n")).targets("an area") == [term]


def test_a_file(write: Callable[[str | bytes], Path]) -> None:
    content = "\ufeffcat\tKatze\r\n\n# a comment\tx\ty\n \nblack  cat\t schwarze   Katze \ncat\tKatze\n"
    terms = load_terminology(write(content))
    assert terms.targets("a cat and a black cat") == ["Katze", "schwarze   Katze"]
    assert load_terminology(write("")).targets("a cat") == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a\tb\ncat\n", ":2: must be a source term, a tab and a target term, not 'cat'."),
        ("cat\t \n", ":1: must be a source term, a tab and a target term, not 'cat\\t '."),
        ("\tKatze", ":1: must be a source term, a tab and a target term, not '\\tKatze'."),
        ("a\tb\tc", ":1: must be a source term, a tab and a target term, not 'a\\tb\\tc'."),
        (
            "cat\tKatze\n\ncat\tKater",
            ":3: 'cat' has another target term in line 1. Remove one of the two lines.",
        ),
        (b"cat\tK\xe4tzchen", ":1: not valid UTF-8 (byte 0xe4)"),
    ],
)
def test_mistakes(content: str | bytes, message: str, write: Callable[[str | bytes], Path]) -> None:
    path = write(content)
    with pytest.raises(UserError, match="^" + re.escape(f"{path}{message}")):
        load_terminology(path)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="terminology=.*: there is no such file"):
        load_terminology(tmp_path / "none")
    with pytest.raises(UserError, match="terminology=.*: is a folder. Give a file."):
        load_terminology(tmp_path)


def test_samples_have_no_terms(write: Callable[[str | bytes], Path]) -> None:
    config = TranslateConfig("m", terminology=str(write("cat\tKatze")), decoding=DecodingConfig(samples=2))
    with pytest.raises(UserError, match="samples can't have constraints. Set decoding.samples=0."):
        configured_terms(config)
    assert configured_terms(TranslateConfig("m")) is None


def test_pieces_that_continue_a_word() -> None:
    pieces = ["<pad>", "</s>", "\u2581the", "\u2581", "s", "9", ",", "\u0301", "-a", "猫", "가", "é"]
    pieces += ["<0x41>", "<0x2C>", "<0xC3>", ""]
    found = {pieces[number] for number in continuing_ids(pieces)}
    assert found == {"s", "9", "\u0301", "é", "<0x41>", "<0xC3>"}
