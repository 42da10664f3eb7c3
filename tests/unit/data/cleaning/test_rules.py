"""The rules that are off by default, on literal pairs."""

from __future__ import annotations

import logging
import pickle
import sys

import pytest
from test_cleaner import first_rule

from nmt.config import CleaningConfig
from nmt.data.cleaning.cleaner import Rule, build_rules
from nmt.data.cleaning.rules.language import LanguageRule, detector
from nmt.errors import UserError

AGREEMENT = build_rules(CleaningConfig(drop_unequal_numbers=True, drop_unequal_addresses=True, max_ratio=0))
SCRIPT = CleaningConfig(min_script=0.6, max_ratio=0, drop_identical=False)
WORDING = CleaningConfig(max_word=10, max_copied=0.6)
LANGUAGE = CleaningConfig(langid_confidence=0.95)


def name_of(rules: list[Rule], source: str, target: str) -> str | None:
    rule = first_rule(rules, source, target)
    return rule.name if rule else None


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("In 1990 it was new.", "1990 war es neu.", None),
        ("In 1990 it was new.", "1991 war es neu.", "numbers"),
        ("In 1990 it was new.", "Damals war es neu.", "numbers"),
        ("1990, 1990", "1990", "numbers"),  # counts differ
        ("17 of 45", "45 von 17", None),  # in any order
        ("three dogs", "3 Hunde", None),  # small numbers may be words
        ("13 dogs", "zehn Hunde", "numbers"),
        ("20 dogs", "zwanzig Hunde", None),  # round numbers may be words too
        ("1,234,567 people", "1.234.567 Menschen", None),
        ("1 234 567 people", "1\u202f234\u202f567 Menschen", None),
        ("1,500.75", "1.500,75", None),
        ("15 million", "15.000.000", None),
        ("on 03.05.2010", "am 3. Mai 2010", None),  # leading zeros
        ("a score of 27.5", "27,5 Punkte", None),
        ("a score of 27.5", "28,5 Punkte", "numbers"),
        ("1.5 million people", "1,500,000 Menschen", None),
        ("1.5 million people", "1,5 Mio. Menschen", None),
        ("1.25 million people", "1,35 Millionen Menschen", "numbers"),
        ("1.25 million people", "1,25 miriad Menschen", None),  # an unknown word
        ("1.5 million people", "anderthalb Millionen Menschen", None),
        ("3 million people", "drei Millionen Menschen", None),
        ("3 million people", "2.000.000 Menschen", "numbers"),
        ("2 billion", "2 Milliarden", None),
        ("1.5 million people", "150万人", None),
        ("15,000 people", "15k Menschen", None),
        ("1500 millimetres", "15 Millimeter", "numbers"),  # not a million
        ("1500 metres", "15m", "numbers"),
        ("rooms 101,102", "Zimmer 101 und 102", None),  # a list
        ("rooms 101,102", "Zimmer 101 und 103", "numbers"),
        ("rooms 101,102,103", "Zimmer 101 102, 103", None),
        ("1 100 200", "1, 100, 200", None),
        ("1 100 200", "2, 100, 200", "numbers"),  # small numbers of a list count too
        ("1,100 dogs", "elfhundert Hunde", None),
        ("2,100 people", "100 Menschen", "numbers"),
        ("13,000 people", "13 Menschen", "numbers"),  # neither a list nor a fraction
        ("1,000 people", "1.000.000 Menschen", "numbers"),
        ("20 people", "2000 Menschen", "numbers"),
        ("1000 people", "tausend Menschen", None),
        ("2,50 kg", "2.5 kg", None),  # trailing zeros of a fraction
        ("27.2500 kg", "27,25 kg", None),
        ("27.2500 kg", "27,26 kg", "numbers"),
        ("at 10:30", "um halb elf", None),
        ("in ١٩٩٠", "1990", None),  # digits of any script
        ("9" * 5000, "9" * 5000 + "8", "numbers"),  # no limit on the length
        ("a b³", "a b³ c", None),  # a superscript is not a digit
        ("see https://nmt.org/a.", "siehe nmt.org", "addresses"),
        ("see https://nmt.org/a/", "siehe http://NMT.org/a!", None),
        ("see (www.nmt.org)", "siehe www.nmt.org.", None),
        ("see www.nmt.org", "siehe www.mt.org", "addresses"),
        ("mail a.b@nmt.org, please", "bitte an a.b@nmt.org", None),
        ("mail a@nmt.org", "bitte an b@nmt.org", "addresses"),
        ("visit www.nmt.org, thanks", "请访问www.nmt.org。谢谢", None),
        ("mail info@nmt.org.", "联系info@nmt.org。", None),
        ("mail info@nmt.org", "联系inf@nmt.org。", "addresses"),
        ("see https://nmt.org/a?b=1&c=2.", "参见“https://nmt.org/a?b=1&c=2”。", None),
        ("see http://nmt.org/a", "http://nmt.org/bをご覧ください", "addresses"),
        ("see www.nmt.org, please", "詳細は、www.nmt.org）へ", None),
        ("at www.nmt.org", "www.nmt.org에서", None),  # a particle
        ("see www.münchen.de", "siehe www.münchen.de!", None),  # names in other letters
        ("see www.münchen.de", "siehe www.mönchengladbach.de", "addresses"),
        ("see http://правда.рф/о", "siehe http://правда.рф/я.", "addresses"),
        ("see http://例え.jp/a", "http://例え.jp/b", None),  # cannot be separated from the text around it
        ("mail jörg@müller.de", "an jürg@müller.de", "addresses"),
        ("@home at a dog's", "zu Hause @ Hund", None),
    ],
)
def test_numbers_and_addresses_that_disagree(source: str, target: str, expected: str | None) -> None:
    assert name_of(AGREEMENT, source, target) == name_of(AGREEMENT, target, source) == expected


def test_long_runs_without_a_space_take_no_time_by_their_square() -> None:
    # A search from every possible start of an address or a number would take an hour.
    runs = ["." * 300_000, "ü" * 300_000, "a@" * 100_000, "a." * 100_000, "@a" * 100_000 + "."]
    assert AGREEMENT[-1].name == "addresses"
    for run in runs:
        assert not AGREEMENT[-1].drops(f"{run} a@nmt.org", f"a@nmt.org {run}")
        assert AGREEMENT[-1].drops(f"{run} a@nmt.org", f"b@nmt.org {run}")
    for run in ("1" * 200_000, "1," * 20_000, "1 111" * 9_000, "1.1" * 9_000, "1 " * 20_000):
        assert not AGREEMENT[-2].drops(f"{run} 1990", f"1990 {run}")
        assert AGREEMENT[-2].drops(f"{run} 1990", f"1991 {run}")


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("In 1985 it was new.", "一九八五年的时候它是新的。", None),
        ("In 1985 it was new.", "一千九百八十五年的时候它是新的。", None),
        ("In 2005 it was new.", "二〇〇五年的时候它是新的。", None),
        ("In 2005 it was new.", "二零零五年的时候它是新的。", None),
        ("In 1985 it was new.", "一九八六年的时候它是新的。", "numbers"),
        ("In 1985 it was new.", "那时候它是新的。", "numbers"),
        ("1985 and 1986", "一九八五年和1986年", None),
        ("35,000 people", "三万五千人", None),
        ("3.5 million people", "三百五十万人", None),
        ("1.3 billion people", "十三亿人", None),
        ("10,203 people", "一万零二百零三人", None),
        ("250,000,015 people", "兩億五千萬零十五人", None),
        ("35 people", "三十四人", "numbers"),
        ("three or four of thirty-five", "三十五个里面的三四个", None),  # needs no counterpart
        ("1985 (the year)", "1985年（一九八五）", None),
    ],
)
def test_chinese_numerals_may_have_a_counterpart(source: str, target: str, expected: str | None) -> None:
    config = CleaningConfig(drop_unequal_numbers=True, max_ratio=0)
    for language in ("zh-Hant", "ja"):
        assert name_of(build_rules(config, languages=("en", language)), source, target) == expected
        assert name_of(build_rules(config, languages=(language, "en")), target, source) == expected


def test_other_languages_have_no_chinese_numerals() -> None:
    assert name_of(AGREEMENT, "In 1985 it was new.", "一九八五年的时候它是新的。") == "numbers"
    assert (
        next(rule for rule in AGREEMENT if rule.name == "numbers").facts() == {}
    )  # text is not cleaned again


SCRIPT_CASES = [
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
    ("en", "uz_Cyrl", "a dog", "ит югуради", None),
    ("en", "uz_Cyrl", "a dog", "it yuguradi", "script"),
    ("en", "uz", "a dog", "it yuguradi", None),
    ("en", "sr-Latn", "a dog", "pas trči", None),
    ("en", "sr-Latn", "a dog", "пас трчи", "script"),
    ("en", "pa-PK", "a dog", "کتا", None),
    ("iw", "EN", "כלב", "a dog", None),
    ("en", "src", "a dog", "собака", None),  # not a code, so its script is not known
    ("en", "zh", "a dog", "犬がはしります", "script"),
    ("en", "ko", "a dog", "개가 달린다", None),
    ("en", "el", "a dog", "ο σκύλος", None),
    ("ＥＮ", "en", "ａ ｄｏｇ", "a dog", None),  # full-width letters are Latin
    ("en", "hi", "a dog", "कुत्ता", None),
]
WORDING_CASES = [
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
LANGUAGE_CASES = [
    ("Two young men are outside near many bushes.", "Zwei junge Männer sind im Freien.", None),
    ("Two young men are outside near many bushes.", "Deux jeunes hommes sont devant le mur.", "language"),
    ("Zwei junge Männer sind im Freien vor Büschen.", "Zwei junge Männer sind im Freien.", "language"),
    ("Le chien court.", "Zwei junge Männer sind im Freien.", None),  # too short to identify
    ("John Smith, Mary Jones, Paris, 1990", "John Smith und Mary Jones", None),  # low confidence
]
SERBIAN = "Dva mlada čoveka su napolju pored mnogo žbunova i razgovaraju o lepom vremenu."


@pytest.mark.parametrize(
    ("config", "source_lang", "target_lang", "source", "target", "expected"),
    [
        *((SCRIPT, *case) for case in SCRIPT_CASES),
        *((WORDING, *case) for case in WORDING_CASES),
        *((LANGUAGE, "en_GB", "de", *case) for case in LANGUAGE_CASES),
    ],
)
def test_scripts_words_and_languages(
    config: CleaningConfig, source_lang: str, target_lang: str, source: str, target: str, expected: str | None
) -> None:
    assert name_of(build_rules(config, languages=(source_lang, target_lang)), source, target) == expected


def test_a_language_without_known_script_is_not_judged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "nmt"):
        rules = build_rules(CleaningConfig(min_script=0.6), languages=("qq", "en"))
    assert "no script is known for 'qq'" in caplog.text
    assert first_rule(rules, "собака бежит", "a dog") is None


def test_norwegian_is_either_of_two() -> None:
    rule = LanguageRule(0.9, "no", "en")
    assert not rule.drops("To unge menn er ute ved siden av mange busker i skogen.", "two men outside")


def test_serbian_in_latin_script_is_not_mistaken_for_bosnian() -> None:
    assert not LanguageRule(0.8, "sr-Latn", "en").drops(SERBIAN, "two men outside")
    assert LanguageRule(0.8, "sr-Cyrl", "en").drops(SERBIAN, "two men outside")


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
