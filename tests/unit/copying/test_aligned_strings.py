"""URLs and variables that are placed by word links."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.copying.aligned_strings import removed_strings, with_strings
from nmt.copying.removal import word_numbers
from nmt.copying.strings import ADDRESS, VARIABLE

STRINGS = re.compile(f"{ADDRESS.pattern}|{VARIABLE.pattern}")


def in_order(text: str) -> list[tuple[int, int]]:
    return [(place, place) for place in range(len(text.split()))]


@pytest.mark.parametrize(
    ("line", "bare", "translation", "expected"),
    [
        ("See {x} for more.", "See for more.", "Siehe für mehr.", "Siehe {x} für mehr."),
        ("{x} runs.", "runs.", "läuft.", "{x} läuft."),
        # Punctuation remains behind the string
        ("Open {x}.", "Open.", "Öffnen.", "Öffnen {x}."),
        ("Open {x}, it is.", "Open, it is.", "Öffne, es ist.", "Öffne {x}, es ist."),
        ("Look (in {x}) now.", "Look (in) now.", "Sieh (in) jetzt.", "Sieh (in {x}) jetzt."),
        ("A man at me@a.b", "A man at ", "Ein Mann bei.", "Ein Mann bei me@a.b."),
        ("It is: https://a.b/c.", "It is: ", "Es ist:", "Es ist: https://a.b/c."),
        ("{x}, come here.", "come here.", "komm her.", "{x}, komm her."),
        ("https://a.b: not found", "not found", "nicht da", "https://a.b: nicht da"),
        ("https://a.b: c", "c", "D c", "https://a.b: D c"),
        # Brackets and quotation marks
        ("Open ({x}) now.", "Open now.", "Öffne jetzt.", "Öffne ({x}) jetzt."),
        ('Open "%s" {x}', "Open ", "Öffne", 'Öffne "%s" {x}'),
        ("Is ``{x}``.", "Is.", "Ist.", "Ist ``{x}``."),
        ('Call f("%d") now', "Call f now", "Rufe f auf", 'Rufe f("%d") auf'),
        ("`A B <https://a.b>`_ c", "`A B `_ c", "`A B `_ C", "`A B <https://a.b>`_ C"),
        ('Say "{x} is" a', 'Say "is" a', "Sag „ist“ A", "Sag „{x} ist“ A"),
        # Several with only punctuation between them
        ("Open {x}, {y} and {z}.", "Open and.", "Öffne und.", "Öffne {x}, {y} und {z}."),
        ("{x}{y}", "", "", "{x}{y}"),
        # Parts of a word
        ("The {x}-bit file", "The -bit file", "Die -Bit Datei", "Die {x}-Bit Datei"),
        ("file-{x} is", "file- is", "Datei- ist", "Datei-{x} ist"),
        ("file-{x} is", "file- is", "Datei ist", "Datei {x} ist"),
        ("pre{x}post a", "prepost a", "Vorpost A", "{x}Vorpost A"),
        ("{x}'s dog", "'s dog", "des Hundes", "{x} des Hundes"),
        ("Sum:{x} of {y}", "Sum: of ", "Summe: von", "Summe:{x} von {y}"),
        # A tag that remains
        ('<a b="{x}">A {y}</a>', '<a b="{x}">A </a>', '<a b="{x}">A </a>', '<a b="{x}">A {y}</a>'),
        ("a <b>b</b>", "a <b>b</b>", "A B", "A B"),
    ],
)
def test_strings_are_next_to_the_linked_words(line: str, bare: str, translation: str, expected: str) -> None:
    removed = removed_strings(line, STRINGS)
    assert removed.text == bare
    assert with_strings(translation, removed.strings, in_order(translation)).text == expected


def test_strings_follow_their_words() -> None:
    line = "%d dogs see {x} here, me@a.b, and https://a.b runs"
    removed = removed_strings(line, STRINGS)
    assert removed.text == "dogs see here, and runs"
    links = [(4, 0), (2, 1), (3, 2), (1, 3), (0, 4)]
    placed = with_strings("Rennt hier, und sieht Hunde", removed.strings, links)
    assert placed.text == "Rennt hier, me@a.b, und https://a.b sieht {x} %d Hunde"
    without_previous = with_strings("Rennt hier, und Hunde", removed.strings, [(4, 0), (2, 1), (0, 3)])
    assert without_previous.text == "https://a.b Rennt {x} hier, me@a.b, und %d Hunde"
    part = removed_strings("Use a=b{x}.", STRINGS)
    assert with_strings("a=b nutzen.", part.strings, [(0, 1), (1, 0)]).text == "a=b{x} nutzen."
    assert with_strings("dies nutzen.", part.strings, [(0, 1)]).text == "dies nutzen {x}."
    variable = removed_strings("{x} dogs run", STRINGS)
    assert with_strings("Es rennen Hunde", variable.strings, [(0, 2), (1, 1)]).text == "Es rennen {x} Hunde"
    assert with_strings("A.", removed_strings("a {x} b.", STRINGS).strings, []).text == "A {x}."
    assert with_strings("A B", removed.strings, []).text == "A B %d {x} me@a.b, https://a.b"


@given(
    st.lists(
        st.sampled_from(
            ["{x}", "%d", "https://a.b/c", "me@a.b", "a", "b c", " ", "(", ")", ",", '"', ". ", "-"]
        ),
        max_size=12,
    ),
    st.lists(st.sampled_from(["A", "B", " ", ",", "(", ").", '"', "。"]), max_size=9),
    st.lists(st.tuples(st.integers(0, 8), st.integers(0, 6)), max_size=8),
)
def test_every_string_is_there_once(parts: list[str], text: list[str], links: list[tuple[int, int]]) -> None:
    line, translation = "".join(parts), "".join(text)
    removed = removed_strings(line, STRINGS)
    one_link_each = [*{target: (source, target) for source, target in links}.values()]
    placed = with_strings(translation, removed.strings, one_link_each)
    texts = [string.text for string in removed.strings]
    assert [line[place:].startswith(text) for text, place in zip(texts, removed.places, strict=True)] == [
        True for _ in texts
    ]
    assert [
        placed.text[place:].startswith(text) for text, place in zip(texts, placed.places, strict=True)
    ] == [True for _ in texts]
    rest = placed.text
    for text, place in sorted(zip(texts, placed.places, strict=True), key=lambda pair: -pair[1]):
        rest = rest[:place] + rest[place + len(text) :]
    assert "".join(rest.split()) == "".join(translation.split())
    assert sorted("".join([removed.text, *texts, " "]).replace(" ", "")) == sorted(line.replace(" ", ""))
    assert all(number >= 0 for number in word_numbers(removed.text, line, removed.parts))
    assert all(number >= 0 for number in word_numbers(translation, placed.text, placed.parts))
