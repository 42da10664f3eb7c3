"""The places of words in lines without some of their strings, and in translations with these."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from nmt.copying.removal import proportional_links, with_inserted, word_number, word_numbers


def test_strings_are_inserted_at_their_places() -> None:
    placed = with_inserted("ab c", [(4, " z"), (0, "x "), (2, "1"), (2, "2")])
    assert placed.text == "x ab12 c z"
    assert [placed.text[place] for place in placed.places] == ["z", "x", "1", "2"]
    assert word_numbers("ab c", placed.text, placed.parts) == [1, 2]


@given(
    st.text("ab ", max_size=9),
    st.lists(st.tuples(st.integers(0, 9), st.sampled_from(["x", " y", "z ", " "])), max_size=5),
)
def test_words_are_found_again(text: str, strings: list[tuple[int, str]]) -> None:
    text = "".join(chr(0xAC00 + place) if letter != " " else " " for place, letter in enumerate(text))
    placed = with_inserted(text, [(min(place, len(text)), string) for place, string in strings])
    words = placed.text.split()
    for word, number in zip(text.split(), word_numbers(text, placed.text, placed.parts), strict=True):
        assert word[0] in words[number]


def test_the_number_of_a_word() -> None:
    assert [word_number(" ab  c", place) for place in (1, 2, 5)] == [0, 0, 1]


def test_links_without_attention_are_in_order() -> None:
    assert proportional_links("a b c", "A B C D E F") == [(0, 0), (0, 1), (1, 2), (1, 3), (2, 4), (2, 5)]
    assert proportional_links("", "A") == []
