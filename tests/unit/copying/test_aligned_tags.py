"""Tags that are placed by word links."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.copying.aligned_tags import removed_tags, with_tags
from nmt.copying.removal import word_numbers


@pytest.mark.parametrize(
    ("line", "bare"),
    [
        ("A <b>dog</b> runs", "A dog runs"),
        ("un<b>able</b>", "unable"),
        ("A <img/> dog", "A dog"),
        ("<i>A</i>", "A"),
        ("plain", "plain"),
    ],
)
def test_a_line_without_its_tags(line: str, bare: str) -> None:
    assert removed_tags(line).text == bare


@pytest.mark.parametrize(
    ("line", "translation", "links", "expected"),
    [
        ("A <b>dog</b> runs", "Ein Hund rennt", [(0, 0), (1, 1), (2, 2)], "Ein <b>Hund</b> rennt"),
        ("A <b>dog</b> runs", "Rennt Hund ein", [(2, 0), (1, 1), (0, 2)], "Rennt <b>Hund</b> ein"),
        (
            "A <b>black <i>dog</i></b> runs",
            "Rennt Hund schwarzer ein",
            [(3, 0), (2, 1), (1, 2), (0, 3)],
            "Rennt <b><i>Hund</i> schwarzer</b> ein",
        ),
        # The words of b are apart: the longest run, or the first one
        ("<b>Switch off</b> it", "Schalte es aus", [(0, 0), (2, 1), (1, 2)], "<b>Schalte</b> es aus"),
        # A word without a link inside the run
        ("<b>a b</b> c", "A x B C", [(0, 0), (1, 2), (2, 3)], "<b>A x B</b> C"),
        ("a <img/> b", "B A", [(1, 0), (0, 1)], "<img/> B A"),
        ("a b <img/>", "A B", [(0, 0), (1, 1)], "A B <img/>"),
        ("a <b></b> c", "A C", [(0, 0), (1, 1)], "A <b></b>C"),
        ("a <b>c <i></i></b> d", "A C D", [(0, 0), (1, 1), (2, 2)], "A <b>C<i></i></b> D"),
        ("a </b> c <i>d", "A C D", [(0, 0), (1, 1), (2, 2)], "A </b> C <i>D"),
        # A word whose counterpart is part of another word
        ("A dog <b>is</b> running.", "Ein Hund rennt.", [(0, 0), (1, 1), (3, 2)], "Ein Hund <b>rennt</b>."),
        ("<b>the</b> <i>dog</i> runs", "Hund rennt", [(1, 0), (2, 1)], "<b></b><i>Hund</i> rennt"),
        ("<b>a</b> b c d", "D C B", [(3, 0), (2, 1), (1, 2)], "D C <b>B</b>"),
        # Punctuation is inside as in the source
        ("Press <b>Save</b>.", "Taste Speichern.", [(0, 0), (1, 1)], "Taste <b>Speichern</b>."),
        ("<b>Press.</b> Go", "Drücken. Los", [(0, 0), (1, 1)], "<b>Drücken.</b> Los"),
        ("The <b>end</b> now", 'Das „Ende“ "jetzt"', [(0, 0), (1, 1), (2, 2)], 'Das „<b>Ende</b>“ "jetzt"'),
        ('A <b>"b"</b> (<i>c</i>)', "A „B“ (C)", [(0, 0), (1, 1), (2, 2)], "A <b>„B“</b> (<i>C</i>)"),
        ("a <b>file</b> b", "A Datei(en) B", [(0, 0), (1, 1), (2, 2)], "A <b>Datei(en)</b> B"),
        ("<b>5 percent</b> of it", "5% davon", [(0, 0), (2, 1)], "<b>5%</b> davon"),
        ("a <b><i>x.</i> y</b> z", "A Y X. Z", [(0, 0), (2, 1), (1, 2), (3, 3)], "A <b>Y <i>X</i></b>. Z"),
        ("<b>...</b> a", "... A", [(0, 0), (1, 1)], "<b>...</b> A"),
        ("<b>a</b> b", "... B", [(0, 0), (1, 1)], "<b>.</b>.. B"),
        ("<b>a</b>", "", [], "<b></b>"),
        ("<b>a</b> c", "A C", [], "A C<b></b>"),
    ],
)
def test_tags_enclose_the_linked_words(
    line: str, translation: str, links: list[tuple[int, int]], expected: str
) -> None:
    assert with_tags(translation, removed_tags(line).strings, links).text == expected


@given(
    st.lists(st.sampled_from(["<b>", "</b>", "<i>", "</i>", "<x/>", "a", "b c", " "]), max_size=14),
    st.lists(st.tuples(st.integers(0, 8), st.integers(0, 6)), max_size=8),
)
def test_every_tag_is_there_once(parts: list[str], links: list[tuple[int, int]]) -> None:
    elements = removed_tags("".join(parts)).strings
    placed = with_tags(
        "A B C D", elements, [*{target: (source, target) for source, target in links}.values()]
    ).text
    assert sorted(re.findall("<[^>]*>", placed)) == sorted(part for part in parts if "<" in part)
    assert re.sub("<[^>]*>", "", placed).split() == ["A", "B", "C", "D"]


NESTED = st.recursive(
    st.sampled_from(["a", "b c", "(d)", ", ", " ", "e."]),
    lambda inner: st.tuples(st.sampled_from("uvw"), st.lists(inner, max_size=4)).map(
        lambda pair: f"<{pair[0]}>{''.join(pair[1])}</{pair[0]}>"
    ),
    max_leaves=9,
)


@given(
    st.lists(NESTED, max_size=5).map("".join),
    st.lists(st.tuples(st.integers(0, 8), st.integers(0, 6)), max_size=8),
)
def test_tags_enclose_each_other_as_in_the_source(line: str, links: list[tuple[int, int]]) -> None:
    elements = removed_tags(line).strings
    text = '(A, B.) "C" D... (E'
    placed = with_tags(
        text, elements, [*{target: (source, target) for source, target in links}.values()]
    ).text
    assert re.sub("<[^>]*>", "", placed) == text
    opened = []
    for tag in re.findall("<[^>]*>", placed):
        if tag.startswith("</"):
            assert opened.pop() == tag.replace("/", "")
        else:
            opened.append(tag)
    assert sorted(re.findall("<[^>]*>", placed)) == sorted(re.findall("<[^>]*>", line))


@given(st.lists(st.sampled_from(["<b>", "</b>", '<x y="a b">', "a", "a", " ", "  "]), max_size=14))
def test_the_number_of_a_word_is_that_of_its_first_letter(parts: list[str]) -> None:
    line = "".join(chr(0xAC00 + place) if part == "a" else part for place, part in enumerate(parts))
    words = line.split()
    expected = [
        next(number for number, other in enumerate(words) if word[0] in other)
        for word in removed_tags(line).text.split()
    ]
    bare, _, parts_of_line, _ = removed_tags(line)
    assert word_numbers(bare, line, parts_of_line) == expected
