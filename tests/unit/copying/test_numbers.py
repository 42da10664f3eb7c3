"""Numbers: which ones a translation lacks or changes, however it writes them."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.copying.numbers import NumberComparison
from nmt.copying.strings import find
from nmt.data.cleaning.rules.agreement import NumbersRule

KEPT = [
    ("en", "de", "1,234.56 euros", "1.234,56 Euro"),
    ("en", "fr", "1,234,567 people", "1\u202f234\u202f567 personnes"),
    ("de", "en", "Im Jahr 1985", "In 1985"),
    ("en", "de", "3.5 % of 20", "3,5 % von zwanzig"),
    ("en", "de", "12 dogs and 2 cats", "zwölf Hunde und zwei Katzen"),
    ("en", "de", "on 10/25/2020", "am 25.10.2020"),
    ("en", "de", "at 12:30", "um 12.30 Uhr"),
    ("en", "de", "at 3 p.m.", "um 15 Uhr"),
    ("en", "de", "at 12:05am", "um 0.05 Uhr"),
    ("de", "en", "um 15:30 Uhr", "at 3:30 PM"),
    ("en", "fr", "the 19th century", "le XIXe siècle"),
    ("en", "ru", "the 21st century", "XXI век"),
    ("en", "de", "the 1st, in the 1980s", "der 1., in den 1980er Jahren"),
    ("en", "de", "10-20 pages", "10 bis 20 Seiten"),
    ("en", "de", "1.5 million", "1.500.000"),
    ("en", "de", "the B2B A380", "der A380 im B2B"),
    ("en", "ar", "1,234.5 in 2020", "١٬٢٣٤٫٥ في ٢٠٢٠"),
    ("en", "hi", "12,34,567", "१२,३४,५६७"),
    ("en", "hi", "1,234,567", "12,34,567"),
    ("zh", "en", "一九八五年", "in 1985"),
    ("en", "zh", "in 1985", "一九八五年"),
    ("ja", "en", "12万3456円", "123,456 yen"),
    ("ko", "en", "3억5000만 원", "350,000,000 won"),
    ("zh", "en", "3万5千元", "35,000 yuan"),
    ("ko", "en", "3만 5천 원", "35,000 won"),
    ("ko", "en", "3만 5,000원과 1억 2,000만 원", "120 million and 35,000 won"),
    ("ko", "en", "5천 3백 명", "5,300 people"),
    ("ko", "en", "2만 3만", "20,000, 30,000"),
    ("ja", "en", "1億2千万円", "120,000,000 yen"),
    ("zh", "en", "5万人", "50,000 people"),
    ("en", "de", "twenty dogs", "20 Hunde"),
    ("en", "de", "007", "7"),
    ("en", "de", "", "5"),
]
MISSING = [
    ("en", "de", "in 1985", "in 1986", ("1985",)),
    ("en", "de", "in 1985", "damals", ("1985",)),
    ("en", "de", "2 dogs", "3 Hunde", ("2",)),
    ("en", "de", "2 dogs and 5 cats", "2 Hunde und 6 Katzen", ("5",)),
    ("en", "de", "1,234.56 euros", "1.235,56 Euro", ("1,234",)),
    ("en", "de", "3.5 %", "3,6 %", ("5",)),
    ("en", "de", "20 dogs", "30 Hunde", ("20",)),
    ("en", "de", "1.5", "15", ("1", "5")),
    ("en", "de", "at 3 p.m.", "um 16 Uhr", ("3",)),
    ("en", "fr", "the 19th century", "le XVIIIe siècle", ("19",)),
    ("en", "de", "17 and 17", "17", ("17",)),
    ("en", "de", "the A380", "der A350", ("380",)),
    ("zh", "en", "2020年", "in 2021", ("2020",)),
    ("en", "ar", "in 2020", "في ٢٠٢١", ("2020",)),
    ("hi", "en", "२०२०", "2021", ("२०२०",)),
    ("ja", "en", "12万3456円", "123,457 yen", ("12万3456",)),
    ("ja", "en", "1億2千万円", "130 million yen", ("1億2千万",)),
    ("ko", "en", "3만 5,000원", "36,000 won", ("3만 5,000",)),
    ("ja", "en", "5百円", "600 yen", ("5",)),
    ("en", "de", "I am 35", "Ich bin fünfunddreißig", ("35",)),
]


@pytest.mark.parametrize(("source_lang", "target_lang", "source", "translation"), KEPT)
def test_numbers_that_a_translation_has(
    source_lang: str, target_lang: str, source: str, translation: str
) -> None:
    assert NumberComparison(source_lang, target_lang).missing(source, translation) == ()


@pytest.mark.parametrize(("source_lang", "target_lang", "source", "translation", "missing"), MISSING)
def test_numbers_that_a_translation_lacks_or_changes(
    source_lang: str, target_lang: str, source: str, translation: str, missing: tuple[str, ...]
) -> None:
    assert NumberComparison(source_lang, target_lang).missing(source, translation) == missing


def test_numbers_in_words_where_the_training_has_them() -> None:
    plain, words = NumberComparison("en", "de"), NumberComparison("en", "de", words=True)
    for source, translation, in_words in (
        ("I am 35", "Ich bin fünfunddreißig", True),
        ("I am 35", "Ich bin 36", False),
        ("I have 3", "Ich habe drei", False),
        ("in 1985", "damals", False),
        ("35 in 1985", "fünfunddreißig damals", False),
    ):
        assert plain.has_words(source, translation) is in_words
    assert words.missing("I am 35", "Ich bin fünfunddreißig") == ()
    assert words.missing("I am 35", "Ich bin 36") == ("35",)
    assert words.missing("in 1985", "damals") == ("1985",)


def test_the_cleaning_rule_compares_in_the_same_way() -> None:
    for source_lang, target_lang, source, translation in KEPT[:4] + KEPT[15:21]:
        assert not NumbersRule(source_lang, target_lang).drops(source, translation)
    for source_lang, target_lang, source, translation, _ in MISSING[:2]:
        assert NumbersRule(source_lang, target_lang).drops(source, translation)


NUMBERS = st.from_regex(r"\A[1-9][0-9]{0,6}\Z")


@given(st.lists(NUMBERS, min_size=1, max_size=6))
def test_a_changed_number_is_found_in_any_order(numbers: list[str]) -> None:
    comparison = NumberComparison("en", "de")
    turned = numbers[::-1]
    assert comparison.missing(" and ".join(numbers), "; ".join(turned)) == ()
    changed = [*turned[:-1], f"9{turned[-1]}"]
    assert comparison.missing(" and ".join(numbers), "; ".join(changed)) != ()


@given(st.text(st.characters(categories=["Nd", "P", "Lu", "Zs"])))
def test_a_text_has_its_own_numbers(text: str) -> None:
    assert NumberComparison("zh", "ja").missing(text, text) == ()


@pytest.mark.parametrize(
    "part", ["22,", "3 pm ", "1.", "7", "1,234", "XIV ", "5万6千", "3만 5,000 ", "一二", "1' ", "1 234 ", "0"]
)
def test_the_time_is_in_proportion_to_the_length(part: str) -> None:
    comparison, start = NumberComparison("zh", "ja"), time.process_time()
    text = part * (150_000 // len(part))
    comparison.missing(text, "")
    comparison.missing(text, f"9 {text[1:]}")
    find(text, numbers=True)
    assert time.process_time() - start < 5
