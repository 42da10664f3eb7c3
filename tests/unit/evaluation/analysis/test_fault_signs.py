"""Signs of faults: each planted fault is named alone, and sound translations show none."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import pytest

from nmt.evaluation.analysis.signs import SIGNS, Count, Texts, counts_of

NUMBERS = [(row + 13, 3 * row + 14) for row in range(40)]
SOURCES = [
    f"www.a{row}.org/x: At {first} Anna went to Hamburg with {second} friends and looked for a small house "
    "near the old river that she liked."
    for row, (first, second) in enumerate(NUMBERS)
]
REFERENCES = [
    f"www.a{row}.org/x: Um {first} fuhr Anna mit {second} Freunden nach Hamburg und suchte ein kleines Haus "
    "am alten Fluss, das ihr gefiel."
    for row, (first, second) in enumerate(NUMBERS)
]
SOUND = [
    f"www.a{row}.org/x: Anna fuhr um {first} mit {second} Freunden nach Hamburg, um dort ein Haus am Fluss "
    "zu suchen, das sie sehr sehr mochte."
    for row, (first, second) in enumerate(NUMBERS)
]
TEXTS = Texts([REFERENCES], SOURCES, "en", "de")


def faults(lines: Sequence[str], texts: Texts = TEXTS) -> list[str]:
    return [name for name, count in counts_of(texts, lines).items() if count.is_fault]


def words(line: str) -> list[str]:
    return line.split(" ")


PLANTED: dict[str, tuple[Callable[[str], str], list[str]]] = {
    "drops numbers": (lambda line: re.sub(r" \d+", "", line), ["numbers"]),
    "changes numbers": (lambda line: re.sub(r" (\d+)", r" 9\1", line), ["numbers"]),
    "loops": (lambda line: " ".join([*words(line)[:10], *["Haus und"] * 5]), ["loops"]),
    "repeats a phrase": (lambda line: f"{line[:-25]} zu suchen, zu suchen, zu suchen,", ["loops"]),
    "truncates": (lambda line: " ".join(words(line)[:10]), ["short"]),
    "writes more": (lambda line: f"{line} {' '.join(sorted(words(line)[2:]))}", ["long"]),
    "loses names": (lambda line: line.replace("Anna", "Emma").replace("Hamburg", "Hannover"), ["names"]),
    "loses addresses": (lambda line: line.split(": ")[1], ["strings"]),
    "is silent": (lambda line: "", ["empty", "short", "numbers", "strings", "names"]),
}


@pytest.mark.parametrize("plant, expected", PLANTED.values(), ids=PLANTED)
def test_planted_faults(plant: Callable[[str], str], expected: list[str]) -> None:
    """The fault is in half of the translations."""
    assert faults([plant(line) if row % 2 else line for row, line in enumerate(SOUND)]) == expected


def test_copied_sources() -> None:
    assert faults([*SOURCES[:20], *SOUND[20:]]) == ["copied"]


def test_sound_translations_show_none() -> None:
    assert faults(SOUND) == faults(REFERENCES) == []
    assert faults(SOUND, Texts([REFERENCES])) == []
    assert faults(REFERENCES, Texts([SOUND, REFERENCES], SOURCES, "en", "de")) == []


def test_what_the_references_show_too_is_not_a_fault() -> None:
    shortened = [" ".join(words(line)[:6]) for line in REFERENCES]
    assert faults(shortened, Texts([shortened], SOURCES, "en", "de")) == []


def test_without_sources_lengths_are_those_of_the_references() -> None:
    texts = Texts([REFERENCES])
    assert faults([line[:50] for line in SOUND], texts) == ["short"]
    assert set(counts_of(texts, SOUND)) == {"empty", "short", "long", "loops"}


ONE_LINE = [
    ("copied", "We go home by bus now.", "We go home mit dem bus now.", True),
    ("copied", "We go home by bus now.", "Wir fahren jetzt mit dem Bus.", False),
    ("copied", "Anna Meier", "anna meier", True),
    ("copied", "Hello Anna", "Hallo Anna", False),
    ("copied", "12:30", "12:30", None),
    ("loops", "x", "ja ja ja", False),
    ("loops", "x", "ja ja ja ja", True),
    ("loops", "x", "das rote Haus Das rote Haus", True),
    ("loops", "x", "das Haus das Haus", False),
    ("numbers", "It has 250 pages", "Es hat 2500 Seiten", True),
    ("numbers", "It has 2,500 pages", "Es hat 2.500 Seiten", False),
    ("numbers", "It has 3 pages", "Es hat drei Seiten", False),
    ("numbers", "It has pages", "Es hat 7 Seiten", None),
    ("strings", "Open <b>{name}</b>", "Öffne <b>{name}</b>", False),
    ("strings", "Open <b>{name}</b>", "Öffne <b>name</b>", True),
    ("names", "I met Anna there", "Ich traf sie dort", True),
    ("names", "I met Anna there", "Annas Treffen", False),
    ("names", "Anna met me", "Ich traf sie dort", None),  # a sentence begins with a capital
]


@pytest.mark.parametrize("name, source, line, expected", ONE_LINE)
def test_one_line(name: str, source: str, line: str, expected: bool | None) -> None:
    reference = "Ich traf Anna dort" if name == "names" else "Unbekannt"
    assert SIGNS[name].find(Texts([[reference]], [source], "en", "de"), [line]) == [expected]


REPEATED_LETTERS = [
    ("de", "Anna runs", "Anna rennt", "Anna rennt und Entrammmmm", True),
    ("de", "Anna runs", "Anna rennt", "Anna hahahaha", True),
    ("de", "Ha!", "Ha!", "Hahahaha!", True),
    ("de", "a ball", "ein Ball", "ein Ball-Ball-Ball-Ball", True),
    ("de", "on 2026-11-11", "am 11-11-2026", "am 11-11-2026 um 11-12 Uhr - oder - nein", False),
    ("de", "Hahaha!", "Haha!", "Hahahaha!", False),
    ("de", "No!", "Neeein!", "Neeeeeein!", False),
    ("de", "a ship", "ein Schiff", "Schifffahrt, Teeei, Barbara, Mississippi, papperlapapp", False),
    ("de", "10 million", "10 Millionen", "10000000 0,0000000 1111 11111111", False),
    ("de", "a line", "eine Linie", "... ---- ______ !!!!!! =====", False),
    ("de", "See www.aaaaaa.org", "Siehe dort", "Siehe www.aaaaaa.org", False),
    ("de", "See there", "Siehe dort", "Siehe https://wwwww.example.org", False),
    ("de", "battery", "Batterie", "AAAA VIII XXX", False),
    ("ko", "lol", "웃겨", "ㅋㅋㅋㅋㅋㅋㅋ ㅠㅠㅠㅠㅠㅠ", False),
    ("ko", "lol", "웃겨", "하하하하하", True),
    ("ko", "hahaha", "ㅋㅋㅋ", "하하하하하", False),
    ("ar", "hello", "مرحبا", "مرحبـــــــــا", False),
    ("ar", "hello", "مرحبا", "مرحبااااااا", True),
    ("ja", "yes", "はい", "はいはいはいはい", True),
    ("ja", "yes", "はい", "はい、そうです", False),
    ("ja", "lol", "笑", "面白いwwwwww", False),
    ("ja", "hahaha", "ははは", "ははははは", False),
    ("ja", "1, 2", "1、2", "10000000、………、----、1、2、3", False),
]


@pytest.mark.parametrize("lang, source, reference, line, expected", REPEATED_LETTERS)
def test_repeated_letters(lang: str, source: str, reference: str, line: str, expected: bool) -> None:
    assert SIGNS["loops"].find(Texts([[reference]], [source], "en", lang), [line]) == [expected]


def test_the_sign_test_counts_the_sentences_where_only_one_shows_it() -> None:
    texts = Texts([["a", "", *["b"] * 12]])
    count = counts_of(texts, ["a a a a", "", *["c c c c"] * 9, *["d"] * 3])["loops"]
    assert count == Count(14, 10, 0, [0, *range(2, 11)], pytest.approx(1 / 1024), True)
    assert count.as_dict()["lines"] == [1, *range(3, 12)]
    few = counts_of(texts, ["a a a a", *["d"] * 13])["loops"]
    assert (few.p_value, few.is_fault, few.is_open(SIGNS["loops"])) == (pytest.approx(0.5), False, False)
    assert few.against(count) == pytest.approx(2 / 2**9)
    assert count.against(count) == 1


OPEN = [
    ("names", 15, 9, 0, True),  # 9 of 9: p = 0.002
    ("names", 15, 10, 0, False),  # a fault
    ("names", 100, 19, 0, False),  # less than 20%
    ("names", 15, 5, 0, True),
    ("names", 15, 4, 0, False),  # p = 0.06
    ("numbers", 15, 3, 3, False),
    ("loops", 1000, 9, 0, False),
]


@pytest.mark.parametrize("name, sentences, hypotheses, references, is_open", OPEN)
def test_too_few_sentences_to_tell(
    name: str, sentences: int, hypotheses: int, references: int, is_open: bool
) -> None:
    ours = [row < hypotheses for row in range(sentences)]
    theirs = [row >= sentences - references for row in range(sentences)]
    assert Count.of(SIGNS[name], ours, theirs).is_open(SIGNS[name]) == is_open
