"""Letter case: the case of lines, and text in lower case, capitals and title case in several languages."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.data.letter_case import (
    Case,
    CaseFacts,
    begins_with_capital,
    case_of,
    in_capitals,
    in_title_case,
    lowered,
    outside,
    with_capital,
)

CAPITALS = """
A DOG RUNS|I AM HERE|NATO|STOP!|USB 3.0|SEE ROOM B2B NOW|"WELCOME" (BACK)|McDONALD'S OPENS|iPHONE SALES FALL
GRÜẞE AUS STRAßE 5|L'ÉTÉ|ПРИВЕТ, МИР|ΚΑΛΗΜΕΡΑ ΣΑΣ|ԲԱՐԵՎ|WELL-KNOWN|AB'S|É\u0301TÉ
"""
TITLES = """
A Man Is Killed|The Man in the Moon Is Tired|Two Dogs Play with a Ball|Man Killed In A Car Crash
Who Is Who Here?|NATO Leaders Meet in Paris|The iPhone Is Sold Out|Der Alte Mann Und Das Meer
Что Такое Хорошо И Плохо|Tom Is Unreliable.|"You Are Right!"|How It Works…
"""
ORDINARY = """
A dog runs.|I|A 5|B2B|john|NATO leaders meet in Paris|He saw John Smith in New York|USB, HDMI or DP
HELLO world|New York Times|John Smith|The Old Man|That's not Tom. That's John.|Tom. Ann. Bob. Eve. Joe.
102|三百|ქართული|How It Works|Stop It!|Ann. Bob Smith.
Ein Mann Mit Hut schläft|NATO峰会|이것은 POSIX 입니다|eBay|VMs|The DVD, the CPU and the GPU of a PC
"""


def listed(text: str) -> list[str]:
    return text.strip("\n").replace("\n", "|").split("|")


@pytest.mark.parametrize("line", listed(CAPITALS))
def test_lines_in_capitals(line: str) -> None:
    assert case_of(line) is Case.capitals


@pytest.mark.parametrize("line", listed(TITLES))
def test_lines_in_title_case(line: str) -> None:
    assert case_of(line, "en") is Case.title


@pytest.mark.parametrize("line", listed(ORDINARY))
def test_ordinary_lines(line: str) -> None:
    assert case_of(line, "en") is None


def test_small_words_of_languages() -> None:
    assert case_of("Le Chat et le Chien Sont Là", "fr") is Case.title
    assert case_of("Le Chat avec le Chien Est Là", "fr") is None
    nouns = "Es war Blut auf Toms Kopfkissen."
    assert case_of(nouns, "nl") is Case.title and case_of(nouns, "de") is None
    assert case_of("Haben Sie Toms Adresse?", "de-AT") is None
    assert case_of("Ein Mann Mit Hut Schläft", "de") is Case.title


def test_shares_of_lines_in_each_case() -> None:
    lines = ["A DOG RUNS", "a dog", "A dog", "the iPhone", "The Man Is Very Old", "102", "", "三百"]
    facts = CaseFacts.of((line, "en") for line in lines)
    assert facts == CaseFacts(capitals=0.2, title=0.2, initial=0.6, mixed=0.8)
    assert CaseFacts.of([("102", "en"), ("三百", "zh")]) is None


@pytest.mark.parametrize(
    ("lang", "text", "capitals"),
    [
        ("en", "it is 5 p.m. – café", "IT IS 5 P.M. – CAFÉ"),
        ("tr", "Iğdır ili, istanbul", "IĞDIR İLİ, İSTANBUL"),
        ("az_Latn", "bizim", "BİZİM"),
        ("de", "Straße, Füße", "STRAẞE, FÜẞE"),
        ("de-CH", "Füsse", "FÜSSE"),
        ("nl", "het ijs", "HET IJS"),
        ("fr", "L’été à Noël", "L’ÉTÉ À NOËL"),
        ("el", "ο άνθρωπος", "Ο ΑΝΘΡΩΠΟΣ"),
        ("el", "μάιος, ρολόι, προϋπόθεση", "ΜΑΪΟΣ, ΡΟΛΟΪ, ΠΡΟΫΠΟΘΕΣΗ"),
        ("el", "αυτό ή εκείνο, ήταν", "ΑΥΤΟ Ή ΕΚΕΙΝΟ, ΗΤΑΝ"),
        ("el", "οἱ ἄνθρωποι του café", "ΟΙ ΑΝΘΡΩΠΟΙ ΤΟΥ CAFÉ"),
        ("hy", "և", "ԵՎ"),
        ("hyw", "և", "ԵՒ"),
        ("lt", "i\u0307\u0300", "I\u0300"),
        ("ka", "საქართველო", "საქართველო"),
        ("ru", "ёлка", "ЁЛКА"),
        ("zh", "峰会 nato", "峰会 NATO"),
        ("hi", "नमस्ते", "नमस्ते"),
        ("??", "straße", "STRASSE"),
    ],
)
def test_capitals_of_languages(lang: str, text: str, capitals: str) -> None:
    assert in_capitals(text, lang) == capitals


@pytest.mark.parametrize(
    ("lang", "text", "low"),
    [
        ("en", "THE US IN İSTANBUL", "the us in istanbul"),
        ("tr", "IĞDIR İLİ", "ığdır ili"),
        ("el", "Ο ΑΝΘΡΩΠΟΣ", "ο ανθρωπος"),
        ("de", "STRAẞE", "straße"),
    ],
)
def test_lower_case_of_languages(lang: str, text: str, low: str) -> None:
    assert lowered(text, lang) == low


@pytest.mark.parametrize(
    ("lang", "text", "title"),
    [
        ("en", "a man in the moon", "A Man in the Moon"),
        ("en", "what it's made of", "What It's Made Of"),
        ("en-GB", "the 3rd iPhone: an end of eBay", "The 3rd iPhone: An End of eBay"),
        ("en", "“well-known” words", "“Well-Known” Words"),
        ("id", "seorang pria di jalan", "Seorang Pria di Jalan"),
        ("de", "ein Mann bei Unfall getötet", "Ein Mann bei Unfall getötet"),
        ("fr", "« un homme tué »", "« Un homme tué »"),
        ("tr", "istanbul'da bir adam", "İstanbul'da bir adam"),
        ("nl", "ijs op het dak", "IJs op het dak"),
        ("es", "¿qué pasa?", "¿Qué pasa?"),
        ("zh", "峰会 nato", "峰会 nato"),
        ("zh", "nato 峰会", "Nato 峰会"),
        ("en", "102 %", "102 %"),
        ("en", "", ""),
    ],
)
def test_titles_of_languages(lang: str, text: str, title: str) -> None:
    assert in_title_case(text, lang) == title


def test_fixed_parts_remain() -> None:
    assert in_title_case("a kater of the sea", "en", [(2, 7)]) == "A kater of the Sea"
    assert in_title_case("ein Kater", "de", [(0, 3)]) == "ein Kater"
    assert outside("ein Kater schläft", [(4, 9)], str.upper) == "EIN Kater SCHLÄFT"
    assert outside("ein", [], str.upper) == "EIN" and outside("", [(0, 0)], str.upper) == ""


def test_first_letters() -> None:
    assert [begins_with_capital(text) for text in ("A", "«É", "5 a", "ǅ", "ｘ", "102", "三")] == [
        *(True, True, False, True, False, None, None)
    ]
    assert [with_capital(word, "nl") for word in ("ijs", "ij", "island", "IJs", "")] == [
        *("IJs", "IJ", "Island", "IJs", "")
    ]


@given(st.text())
def test_case_keeps_words_and_never_fails(text: str) -> None:
    for lang in ("en", "tr", "de", "el", "lt", "zh", ""):
        assert len(in_title_case(text, lang).split()) == len(text.split())
        assert len(in_capitals(text, lang).split()) == len(text.split())
        assert len(lowered(text, lang).split()) == len(text.split())
    case_of(text)


@given(st.text(st.characters(categories=["Lu"], max_codepoint=0x17F), min_size=2))
def test_words_of_capitals_are_capitals_and_remain(text: str) -> None:
    assert case_of(text) is Case.capitals
    assert in_capitals(lowered(text, "en"), "en").casefold() == lowered(text, "en").casefold()
