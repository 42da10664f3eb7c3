"""Codes of languages: a table of their facts, for all modules that need them."""

from __future__ import annotations

import unicodedata

import pytest

from nmt.languages import _UNICODE_NAMES, language_of


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
