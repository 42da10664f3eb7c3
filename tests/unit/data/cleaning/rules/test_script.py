"""The rule on sides in a wrong script, on literal pairs."""

from __future__ import annotations

import logging

import pytest
from judging import first_rule

from nmt.config import CleaningConfig
from nmt.data.cleaning.cleaner import build_rules
from nmt.data.cleaning.rules.language import SCRIPTS, script_of

CASES = [
    ("en", "de", "a dog", "ein Hund", None),
    ("en", "de", "a dog", "größer – ﬁn", None),
    ("en", "de", "a dog", "собака бежит", "script"),
    ("en", "de", "собака бежит", "ein Hund", "script"),
    ("en", "ru", "a dog", "собака", None),
    ("en", "ru", "a dog", "a dog", "script"),
    ("en", "ru", "a dog", "ab соб", None),  # three letters of five
    ("en", "ru", "a dog", "abc соб", "script"),  # three of six
    ("en", "de", "12 – 13 !", "😀", None),  # no letters, so none are wrong
    ("en", "sr", "a dog", "pas трчи", None),
    ("en", "ja", "a dog", "犬がハーイ走ります", None),
    ("en", "ja", "a dog", "개가 달린다", "script"),
    ("en", "zh_CN", "a dog", "狗在跑", None),
    ("en", "zh", "a dog", "犬がはしります", "script"),
    ("en", "ko", "a dog", "개가 달린다", None),
    ("en", "el", "a dog", "ο σκύλος", None),
    ("ＥＮ", "en", "ａ ｄｏｇ", "a dog", None),  # full-width letters are Latin
    ("en", "hi", "a dog", "कुत्ता", None),
]


@pytest.mark.parametrize(("source_lang", "target_lang", "source", "target", "expected"), CASES)
def test_rule(source_lang: str, target_lang: str, source: str, target: str, expected: str | None) -> None:
    config = CleaningConfig(min_script=0.6, max_ratio=0, drop_identical=False)
    rule = first_rule(build_rules(config, languages=(source_lang, target_lang)), source, target)
    assert (rule.name if rule else None) == expected


def test_a_language_without_known_script_is_not_judged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "nmt"):
        rules = build_rules(CleaningConfig(min_script=0.6), languages=("qq", "en"))
    assert "no script is known for 'qq'" in caplog.text
    assert first_rule(rules, "собака бежит", "a dog") is None


def test_every_script_is_one_that_letters_have() -> None:
    wanted = set().union(*SCRIPTS.values())
    assert wanted <= {script_of(chr(code)) for code in range(0x10000)}
