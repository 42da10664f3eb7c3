"""Links of raw words, from links of words with placeholders."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from test_strings import written

from nmt.copying.strings import PLACEHOLDERS, mask, mask_pair, restore
from nmt.copying.translation import RawWords, identity_links, raw_links


def links(line: str, target: str, given_links: tuple[tuple[int, int], ...]) -> tuple[str, str]:
    """The restored target, and its links as pairs of words."""
    masked = mask(line)
    whole, _ = restore(written(target), masked.strings)
    source = RawWords.of(masked.text, line, masked.strings)
    found = raw_links(given_links, source, RawWords.of(written(target), whole, masked.strings))
    return whole, " ".join(f"{line.split()[one]}~{whole.split()[other]}" for one, other in found)


def test_words_of_a_line() -> None:
    masked = mask('a <b c="d"> Hello<i>, x{y}z')
    assert masked.text == written("a ⟦0⟧ Hello ⟦1⟧, x ⟦2⟧ z")
    words = RawWords.of(masked.text, 'a <b c="d"> Hello<i>, x{y}z', masked.strings)
    assert [*words.words] == [range(1), range(1, 3), *[range(3, 4)] * 2, *[range(4, 5)] * 3]
    assert words.plain == [True, False, True, False, True, False, True]
    assert words.strings == {0: range(1, 3), 1: range(3, 4), 2: range(4, 5)}


def test_a_string_is_linked_to_itself_word_by_word() -> None:
    line = 'see <a href="b"> words'
    assert links(line, "Worte ⟦0⟧ sehen", ((2, 0), (0, 1), (0, 2))) == (
        'Worte <a href="b"> sehen',
        'words~Worte <a~<a href="b">~href="b"> see~sehen',
    )


def test_a_word_that_is_joined_to_a_string_has_its_own_link() -> None:
    assert links("a <b>big</b> dog", "ein ⟦0⟧ Hund ⟦1⟧ groß", ((0, 0), (0, 1), (4, 2), (2, 4))) == (
        "ein <b>Hund</b> groß",
        "a~ein dog~<b>Hund</b> <b>big</b>~groß",
    )


def test_removed_and_appended_placeholders() -> None:
    assert links("see {a} and {b}", "sehe ⟦0⟧ ⟦0⟧ ⟦9⟧", ((0, 0), (3, 1), (2, 2), (2, 3))) == (
        "sehe {a} {b}",
        "see~sehe {a}~{a} {b}~{b}",
    )
    assert links("see this", "sehe ⟦0⟧ dies", ((0, 0), (0, 1), (1, 2))) == (
        "sehe dies",
        "see~sehe this~dies",
    )


def test_a_placeholder_that_touches_a_word() -> None:
    assert links("see {a} this", "sehe⟦0⟧ dies", ((0, 0), (2, 1))) == (
        "sehe {a} dies",
        "see~sehe {a}~{a} this~dies",
    )


STRINGS = ["a", " ", "Ä.", "{x}", "<b>", '<a b="c d">', "http://a.b/c", "\t", PLACEHOLDERS[2]]
PARTS = st.lists(st.sampled_from(STRINGS))


@given(PARTS, PARTS)
def test_every_word_of_a_copy_is_linked_to_itself(parts: list[str], others: list[str]) -> None:
    line = "".join(parts)
    masked = mask(line)
    whole, _ = restore(masked.text, masked.strings)
    words = RawWords.of(masked.text, whole, masked.strings)
    same = tuple((number, number) for number in range(len(masked.text.split())))
    assert raw_links(same, words, words) == identity_links(whole)
    source, target, strings = mask_pair(line, "".join(others))
    for text, raw in ((source, line), (target, "".join(others))):
        found = RawWords.of(text, raw, strings)
        assert {one for span in found.words for one in span} == {*range(len(raw.split()))}
