"""The rules on over-long words and copied sources, on literal pairs."""

from __future__ import annotations

import pytest
from judging import first_rule

from nmt.config import CleaningConfig
from nmt.data.cleaning.cleaner import build_rules

CASES = [
    ("en", "de", "a dog", "ein Hund", None),
    ("en", "de", "0123456789 a", "ein Hund", None),
    ("en", "de", "01234567890 a", "ein Hund", "long_word"),
    ("en", "de", "a dog of it", "der 012345678901234567890", "long_word"),
    ("en", "zh", "a dog of it", "我们都喜欢这些非常可爱的小狗", None),  # no spaces, so no words
    ("zh_TW", "en", "我们都喜欢这些非常可爱的小狗", "a 012345678901234", "long_word"),
    ("en", "de", "one two three four five", "one two drei four fünf", None),  # exactly three of five
    ("en", "de", "one two three four five", "ONE two drei, four five!", "copied"),
    ("en", "de", "one two three four", "one two three four fünf", None),  # few words may all be names
    ("en", "de", "1 2 3 4 5 6 7 8 9", "1 2 3 4 5 6 7 8 9 x", None),  # numbers are not words
    ("en", "de", "eins zwei drei vier fünf", "one two three four five", None),
]


@pytest.mark.parametrize(("source_lang", "target_lang", "source", "target", "expected"), CASES)
def test_rules(source_lang: str, target_lang: str, source: str, target: str, expected: str | None) -> None:
    rules = build_rules(CleaningConfig(max_word=10, max_copied=0.6), languages=(source_lang, target_lang))
    rule = first_rule(rules, source, target)
    assert (rule.name if rule else None) == expected
