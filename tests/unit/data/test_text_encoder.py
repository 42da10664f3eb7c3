"""Encoding by remembered words gives what SentencePiece gives for whole texts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.config import Normalization, Segmentation, TokenizerConfig
from nmt.data import text_encoder
from nmt.data.text_encoder import TextEncoder, source_encoder, target_encoder
from nmt.data.tokenizer import Tokenizer, train_tokenizer

SYMBOLS = ["<bt>", "##"]


def words() -> list[str]:
    random = Random(3)
    return ["".join(random.choices("aäbceéghi", k=random.randint(1, 7))) for _ in range(120)]


def pairs() -> list[tuple[str, str]]:
    random, known = Random(4), words()
    return [(" ".join(random.choices(known, k=7)), " ".join(random.choices(known, k=7))) for _ in range(300)]


@pytest.fixture(
    scope="module",
    params=[*product(Segmentation, [Normalization.nmt_nfkc, Normalization.identity]),
            (Segmentation.unigram, Normalization.nfkc_cf)],
    ids=lambda kind: "-".join(option.value for option in kind),
)  # fmt: skip
def tokenizer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    segmentation, normalization = request.param
    config = TokenizerConfig(
        vocab_size=400, segmentation=segmentation, normalization=normalization, user_symbols=SYMBOLS
    )
    return train_tokenizer(lambda: iter(pairs()), config, tmp_path_factory.mktemp("spm"))


WORD = st.one_of(
    st.sampled_from(words()),
    st.text(st.sampled_from("aäbceé")),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=4),
    st.sampled_from(
        [*SYMBOLS, "<bt>a", "a##b", "▁", "a▁", "▁a", "\u200b", "\u3000", "a\u00a0", "\u0308", "ﷺ", "☃"]
    ),
)
TEXTS = st.lists(st.lists(WORD, max_size=6).map(" ".join), max_size=5)


@given(TEXTS)
def test_against_whole_texts(tokenizer: Tokenizer, texts: list[str]) -> None:
    source, target = source_encoder(tokenizer), target_encoder(tokenizer)
    for _ in range(2):  # the second time the words are known
        for ids, text in zip(source(texts), texts, strict=True):
            assert is_as_good(tokenizer, ids.tolist(), tokenizer.encode_source([text])[0])
        for ids, text in zip(target(texts), texts, strict=True):
            assert is_as_good(tokenizer, ids.tolist(), tokenizer.encode_target([text])[0])


def is_as_good(tokenizer: Tokenizer, ids: list[int], expected: list[int]) -> bool:
    """Whether ids are those expected, or, with a unigram model, others of the same text and score."""
    if ids == expected or tokenizer.segmentation is Segmentation.bpe:
        return ids == expected
    processor = tokenizer.source_processor
    scores = [math.fsum(map(processor.get_score, either)) for either in (ids, expected)]
    return processor.decode(ids) == processor.decode(expected) and math.isclose(*scores, abs_tol=1e-3)


class Counted:
    """`encode_source`, and the texts it was asked for."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer, self.asked = tokenizer, list[str]()

    def __call__(self, texts: Sequence[str]) -> list[list[int]]:
        self.asked += texts
        return self.tokenizer.encode_source(texts)


def counted(tokenizer: Tokenizer) -> tuple[TextEncoder, Counted]:
    counter = Counted(tokenizer)
    return TextEncoder(counter, tokenizer.source_processor, SYMBOLS), counter


def test_each_word_is_encoded_once(tokenizer: Tokenizer) -> None:
    encode, counter = counted(tokenizer)
    texts = [source for source, _ in pairs()]
    side = encode(texts)
    assert sorted(counter.asked) == sorted({word for text in texts for word in text.split(" ")})
    assert side.ids.dtype == np.uint16
    assert [ids.tolist() for ids in side] == tokenizer.encode_source(texts)
    counter.asked.clear()
    again = encode([*texts, f"{texts[0]} {texts[1]}"])
    assert counter.asked == []
    assert again[300].tolist() == [*side[0].tolist(), *side[1].tolist()]
    assert len(encode([])) == 0


@pytest.mark.parametrize("text", ["<bt> ab", "ab <bt>", "a##b ab", "ab▁ ab"])
def test_seen_as_a_whole(tokenizer: Tokenizer, text: str) -> None:
    encode, counter = counted(tokenizer)
    for _ in range(2):
        assert encode([text, "ab"])[0].tolist() == tokenizer.encode_source([text])[0]
    assert counter.asked == [text, "ab", text]


def test_a_symbol_that_reaches_beyond_a_space(tmp_path: Path) -> None:
    config = TokenizerConfig(vocab_size=400, user_symbols=["a▁b"])
    learnt = train_tokenizer(lambda: iter(pairs()), config, tmp_path)
    encode = source_encoder(learnt)
    for _ in range(2):
        assert [ids.tolist() for ids in encode(["a b", "b a"])] == learnt.encode_source(["a b", "b a"])


def test_memory_is_bounded(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_encoder, "_MOST_WORDS", 50)
    encode, counter = counted(tokenizer)
    texts = [*sorted(set(words()))[:79], "a" * 33]
    for expected in (80, 30):
        counter.asked.clear()
        assert [ids.tolist() for ids in encode(texts)] == tokenizer.encode_source(texts)
        assert len(counter.asked) == expected
    encode, counter = counted(tokenizer)
    encode(["a" * 33])
    encode(["a" * 33])
    assert len(counter.asked) == 2
