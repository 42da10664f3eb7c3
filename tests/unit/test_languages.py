"""Codes of languages: a table of their facts, for all modules that need them."""

from __future__ import annotations

import unicodedata

import langcodes
import pytest
from langcodes.language_distance import _DISTANCE_CACHE

from nmt.languages import _UNICODE_NAMES, distance, language_of


def test_every_name_of_a_script_is_one_that_letters_have() -> None:
    names = {unicodedata.name(chr(code), "").split(" ")[0] for code in range(0x20000)}
    assert set().union(*_UNICODE_NAMES.values()) <= names


@pytest.mark.parametrize("code", ["", "xx", "src", "SRC", "qq", "x-foo", "und", "chinese", "ＥＮ", "a", "x"])
def test_other_names_have_no_facts(code: str) -> None:
    language = language_of(code)
    assert (language.tag, language.language, language.letters, language.has_spaces) == (code, "", None, True)


def test_the_script_of_another_name_is_known() -> None:
    assert language_of("xx_Cyrl").letters == frozenset({"CYRILLIC"})


def test_a_malformed_rest_is_ignored() -> None:
    assert language_of("zh_CN.UTF-8") == language_of("zh")


def test_caches_are_limited() -> None:
    """A client of a server may send any number of codes."""
    for number in range(10_000):
        distance(f"de-{number:05}", "de")
    assert len(langcodes.Language._PARSE_CACHE) < 6000
    assert len(langcodes.Language._INSTANCES) < 20_000
    assert len(_DISTANCE_CACHE) < 6000
