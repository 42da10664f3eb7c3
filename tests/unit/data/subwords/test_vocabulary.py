"""The word of each piece: literal cases, and agreement with the words that a user sees."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from toy_corpus import learnt, toy_pairs

from nmt.config import Segmentation
from nmt.data.subwords.tokenizer import Tokenizer
from nmt.data.subwords.vocabulary import NO_WORD, words_at


@pytest.fixture(scope="module", params=[Segmentation.unigram, Segmentation.bpe], ids=str)
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return learnt(toy_pairs(300), vocab_size=330, segmentation=request.param, user_symbols=["<bt>"])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", []),
        ("  \t", []),
        ("\xa0", []),
        ("a", [[0, "a"]]),
        (" a  b ", [[0, "a"], [1, "b"]]),
        ("a\xa0b\tc\u3000d", [[0, "a"], [1, "b"], [2, "c"], [3, "d"]]),
        ("½ a", [[0, "1⁄2"], [1, "a"]]),  # normalised to three characters
        ("a¨a b", [[0, "a ̈a"], [1, "b"]]),  # normalised to a space and a combining character
        ("a\u200ba b", [[0, "a a"], [1, "b"]]),  # an invisible space, which `str.split` does not split at
        ("日本 \U0001f600", [[0, "日本"], [1, "\U0001f600"]]),  # pieces of one byte
        ("<bt> a b", [[0, "<bt>"], [1, "a"], [2, "b"]]),
        (" <bt>\xa0a", [[0, "<bt>"], [1, "a"]]),
    ],
)
def test_words_of_a_source(tokenizer: Tokenizer, text: str, words: list[list[object]]) -> None:
    [ids] = tokenizer.encode_source([text])
    numbers = tokenizer.source_word_numbers(text)
    assert len(numbers) == len(ids)
    assert numbers == sorted(numbers)
    found = []
    for number in sorted(set(numbers)):
        pieces = [one for one, word in zip(ids, numbers, strict=True) if word == number]
        found.append([number, tokenizer.source.processor.decode(pieces)])
    assert found == words


@given(text=st.text(st.sampled_from("ab ½¨日é\xa0\u3000\u200b\t\x1c\u2028\x85\U0001f600"), max_size=20))
def test_pieces_are_in_the_words_of_the_text(tokenizer: Tokenizer, text: str) -> None:
    for encode, number in (
        (tokenizer.encode_source, tokenizer.source_word_numbers),
        (tokenizer.encode_target, tokenizer.target.word_numbers),
    ):
        [ids], numbers = encode([text]), number(text)
        assert len(numbers) == len(ids)
        placed = [word for word in numbers if word != NO_WORD]
        assert all(0 <= word < len(text.split()) for word in placed)
        assert placed == sorted(placed)
        # SentencePiece has pieces for some characters that `str.split` takes for white space.
        assert placed == numbers[: len(placed)]


@given(data=st.data())
def test_words_of_a_translation(tokenizer: Tokenizer, data: st.DataObject) -> None:
    """Any ids: each word of the text has a piece, and the pieces of a word decode to it."""
    ids = data.draw(st.lists(st.integers(0, tokenizer.target.size - 1), max_size=12))
    [text] = tokenizer.decode_target([ids])
    numbers = tokenizer.decoded_word_numbers(ids)
    assert len(numbers) == len(ids)
    assert {word for word in numbers if word != NO_WORD} == set(range(len(text.split())))
    placed = [word for word in numbers if word != NO_WORD]
    assert placed == sorted(placed)


def test_words_of_a_translation_by_hand(tokenizer: Tokenizer) -> None:
    piece = tokenizer.target.processor.piece_to_id
    ids = [
        *(piece("▁"), 1, *tokenizer.encode_target(["ab"])[0], piece("<0x7F>")),
        *(*tokenizer.encode_target(["c"])[0], piece("<0xC3>"), piece("<0xA9>"), piece("▁")),
    ]
    assert tokenizer.decode_target([ids]) == ["ab  cé "]
    numbers = tokenizer.decoded_word_numbers(ids)
    assert numbers[:2] == [0, NO_WORD]
    assert numbers[-3:] == [1, 1, NO_WORD]
    assert set(numbers) == {0, 1, NO_WORD}


def test_a_place_between_words_belongs_to_the_second() -> None:
    assert words_at("é b\x01c ", "é b c ", [0, 1, 2, 3, 4, 5, 6]) == [0, 0, 1, 1, 2, 2, NO_WORD]
