"""Sides in another language, on literal pairs."""

from __future__ import annotations

import pickle
import sys

import pytest
from judging import first_rule

from nmt.config import CleaningConfig
from nmt.data.cleaning.cleaner import build_rules
from nmt.data.cleaning.rules.language import LanguageRule, detector
from nmt.errors import UserError

CASES = [
    ("Two young men are outside near many bushes.", "Zwei junge Männer sind im Freien.", None),
    ("Two young men are outside near many bushes.", "Deux jeunes hommes sont devant le mur.", "language"),
    ("Zwei junge Männer sind im Freien vor Büschen.", "Zwei junge Männer sind im Freien.", "language"),
    ("Le chien court.", "Zwei junge Männer sind im Freien.", None),  # too short to tell
    ("John Smith, Mary Jones, Paris, 1990", "John Smith und Mary Jones", None),  # not confident
]  # fmt: skip


@pytest.mark.parametrize(("source", "target", "expected"), CASES)
def test_rule(source: str, target: str, expected: str | None) -> None:
    rules = build_rules(CleaningConfig(langid_confidence=0.95), languages=("en_GB", "de"))
    rule = first_rule(rules, source, target)
    assert (rule.name if rule else None) == expected


def test_norwegian_is_either_of_two() -> None:
    rule = LanguageRule(0.9, "no", "en")
    assert not rule.drops("To unge menn er ute ved siden av mange busker i skogen.", "two men outside")


def test_the_detector_is_made_once_and_does_not_travel() -> None:
    rule = LanguageRule(0.9, "en", "de")
    assert detector() is detector()
    assert len(pickle.dumps(rule)) < 1000


def test_an_unknown_language_is_told() -> None:
    with pytest.raises(UserError, match="lingua does not support language 'qq'"):
        build_rules(CleaningConfig(langid_confidence=0.9), languages=("en", "qq"))


def test_a_missing_package_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lingua", None)
    with pytest.raises(UserError, match=r'pip install "nmt\[langid\]"'):
        build_rules(CleaningConfig(langid_confidence=0.9), languages=("en", "de"))
