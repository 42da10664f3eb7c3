"""Text to pieces and back: no unknown pieces, no lost text, and one line remains one line."""

from __future__ import annotations

import logging
import random
import re
import signal
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.config import Normalization, Segmentation, TokenizerConfig
from nmt.data.subwords import tokenizer
from nmt.data.subwords.learning import train_tokenizer
from nmt.data.subwords.tokenizer import Tokenizer
from nmt.data.subwords.vocabulary import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from nmt.errors import UserError
from nmt.runtime.arrays import Side, offsets_of


def corpus(count: int = 400) -> list[tuple[str, str]]:
    generator = random.Random(5)
    words = ["".join(generator.choices("abcdefghilmnorstu", k=generator.randint(2, 6))) for _ in range(150)]
    return [
        (" ".join(generator.choices(words, k=7)), " ".join(generator.choices(words, k=6)).upper())
        for _ in range(count)
    ]


PAIRS = corpus()


def train(folder: Path, pairs: list[tuple[str, str]] = PAIRS, **options: Any) -> Tokenizer:
    return train_tokenizer(lambda: iter(pairs), TokenizerConfig(**({"vocab_size": 400} | options)), folder)


@pytest.fixture(scope="module", params=list(Segmentation), ids=lambda kind: kind.value)
def segmentation(request: pytest.FixtureRequest) -> Segmentation:
    return request.param


@pytest.fixture(scope="module")
def plain(segmentation: Segmentation, tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """A tokenizer learnt without any normalisation."""
    return train(
        tmp_path_factory.mktemp("spm"), segmentation=segmentation, normalization=Normalization.identity
    )


def round_trip(tokenizer: Tokenizer, text: str) -> str:
    return tokenizer.decode_target(tokenizer.encode_target([text]))[0]


NO_CONTROL = st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\u2028\u2029▁ ")
WORDS = st.one_of(
    st.text(NO_CONTROL, min_size=1), st.sampled_from(["</s>", "<s>", "<unk>", "<pad>", "<0x41>", "\t"])
)


@given(st.lists(WORDS).map(" ".join))
def test_text_comes_back(plain: Tokenizer, text: str) -> None:
    ids = plain.encode_target([text])[0]
    assert plain.decode_target([ids]) == [text]
    assert all(UNK_ID < i < plain.target.size for i in ids)


@given(st.lists(WORDS).map(" ".join))
def test_the_pieces_of_a_text_are_those_of_its_words(plain: Tokenizer, text: str) -> None:
    naive = [i for word in text.split(" ") for i in plain.source.processor.encode(word)]
    assert plain.encode_source([text, text]) == [naive, naive]


@given(st.lists(st.one_of(WORDS, st.sampled_from([word for pair in PAIRS[:50] for word in pair]))))
def test_sentencepiece_finds_no_better_pieces(plain: Tokenizer, words: list[str]) -> None:
    """It may find other pieces with the same score; BPE has no such ties."""
    text = " ".join(words)
    (ids,), other = plain.encode_source([text]), plain.source.processor.encode(text)
    if plain.segmentation is Segmentation.bpe:
        assert ids == other
    else:
        scores = [sum(map(plain.source.processor.get_score, way)) for way in (ids, other)]
        assert scores[0] == pytest.approx(scores[1], rel=1e-5)
        assert plain.decode_target([ids]) == plain.decode_target([other])


@given(st.lists(st.lists(WORDS.filter(lambda word: "\n" not in word)).map(" ".join)))
def test_lines_as_bytes(plain: Tokenizer, lines: list[str]) -> None:
    content = [f"{line}\n".encode() for line in lines]
    side = Side(
        np.frombuffer(b"".join(content), np.uint8), offsets_of(np.array(list(map(len, content)), int))
    )
    for ids, expected in (
        (plain.source_ids(side), plain.encode_source(lines)),
        (plain.target.encode(side), plain.encode_target(lines)),
    ):
        assert [row.tolist() for row in ids] == expected
        assert ids.ids.dtype == np.uint16


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_can_be_encoded_and_stays_one_line(plain: Tokenizer, text: str) -> None:
    ids = plain.encode_source([text])[0]
    assert all(UNK_ID < i < plain.source.size for i in ids)
    assert_one_line(round_trip(plain, text))


@given(st.lists(st.lists(st.integers(0, 399))))
def test_any_ids_can_be_decoded_to_one_line_each(plain: Tokenizer, sequences: list[list[int]]) -> None:
    texts = plain.decode_target(sequences)
    assert len(texts) == len(sequences)
    for text in texts:
        assert_one_line(text)
        text.encode("utf-8")


def assert_one_line(text: str) -> None:
    assert len(text.splitlines()) <= 1
    assert not [c for c in text if unicodedata.category(c) == "Cc" and c != "\t"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        ("   ", ""),
        ("a\nb", "a b"),
        ("a\r\nb", "a  b"),
        ("\x00", " "),
        ("a\x00\x07\x1b[31m\x7f\x85b\u2028c\u2029\x0b\x0c\x1e", "a   [31m  b c"),
        ("a\tb", "a\tb"),
        ("a  b ", "a b"),  # SentencePiece joins runs of spaces
    ],
)
def test_controls(plain: Tokenizer, text: str, expected: str) -> None:
    assert round_trip(plain, text).rstrip(" ") == expected.rstrip(" ")


def test_specials(plain: Tokenizer) -> None:
    ids = plain.encode_target(["a"])[0]
    assert plain.encode_source([""]) == [[]]
    assert plain.encode_source([]) == plain.decode_target([]) == []
    assert plain.decode_target([[BOS_ID, PAD_ID, *ids, UNK_ID, EOS_ID], []]) == ["a", ""]
    assert plain.decode_target([np.array(ids)]) == ["a"]  # as tensors give them
    assert (PAD_ID, BOS_ID, EOS_ID, UNK_ID) == (0, 1, 2, 3)


def test_bytes_that_are_no_character(plain: Tokenizer) -> None:
    start, *_, end = plain.encode_target(["你"])[0][-3:]
    assert "\ufffd" in plain.decode_target([[start]])[0]
    assert "\ufffd" in plain.decode_target([[end]])[0]


class TestNormalization:
    @pytest.mark.parametrize(
        ("normalization", "expected"),
        [
            (Normalization.identity, "ﬁne Ａ\u200b½"),
            (Normalization.nfkc, "fine A\u200b1⁄2"),
            (Normalization.nfkc_cf, "fine a\u200b1⁄2"),
            (Normalization.nmt_nfkc, "fine A 1⁄2"),
            (Normalization.nmt_nfkc_cf, "fine a 1⁄2"),
        ],
    )
    def test_is_the_option(self, tmp_path: Path, normalization: Normalization, expected: str) -> None:
        tokenizer = train(tmp_path, normalization=normalization)
        assert round_trip(tokenizer, "ﬁne Ａ\u200b½") == expected
        if normalization is Normalization.nmt_nfkc:  # which may leave nothing
            assert tokenizer.encode_source(["\u200b", "\x07"]) == [[], []]


@pytest.mark.parametrize("joint", [True, False])
class TestFiles:
    def test_save_and_load(self, tmp_path: Path, segmentation: Segmentation, joint: bool) -> None:
        first = train(tmp_path / "a", segmentation=segmentation, joint=joint)
        assert {path.name for path in (tmp_path / "a").iterdir()} == {"source.spm", "target.spm"}
        second = Tokenizer.load(tmp_path / "a")
        second.save(tmp_path / "b" / "c")
        third = Tokenizer.load(tmp_path / "b" / "c")
        assert first.fingerprint == second.fingerprint == third.fingerprint
        assert re.fullmatch("[0-9a-f]{64}", first.fingerprint)
        assert third.joint is joint
        assert third.segmentation is segmentation
        assert (third.source.size, third.target.size) == (400, 400)
        sources, targets = map(list, zip(*PAIRS[:20], strict=True))
        assert third.encode_source(sources) == first.encode_source(sources)
        assert third.encode_target(targets) == first.encode_target(targets)
        assert (first.encode_source(["abc"]) == first.encode_target(["abc"])) is joint

    def test_missing_and_damaged(self, tmp_path: Path, joint: bool) -> None:
        with pytest.raises(UserError, match="lacks joint.spm, or source.spm and target.spm"):
            Tokenizer.load(tmp_path)
        train(tmp_path, joint=joint)
        file = tmp_path / "target.spm"
        whole = file.read_bytes()
        half = whole[: len(whole) // 2]
        for content in (b"", b"garbage", whole[:100], half, whole[:-1000], whole + b"\xff"):
            file.write_bytes(content)
            with pytest.raises(UserError, match="is damaged or from another program"):
                Tokenizer.load(tmp_path)
        file.unlink()
        with pytest.raises(UserError, match="lacks joint.spm"):
            Tokenizer.load(tmp_path)


class TestTraining:
    def test_is_repeatable(self, tmp_path: Path, segmentation: Segmentation) -> None:
        one, two = (train(tmp_path / name, segmentation=segmentation) for name in "ab")
        assert one.fingerprint == two.fingerprint

    def test_too_large_a_vocabulary_is_lowered_with_a_warning(
        self, tmp_path: Path, segmentation: Segmentation, caplog: pytest.LogCaptureFixture
    ) -> None:
        with caplog.at_level(logging.WARNING, "nmt"):
            size = train(tmp_path, PAIRS[:5], segmentation=segmentation, vocab_size=32000).source.size
        assert 260 < size < 1000
        (message,) = caplog.messages
        assert message == (
            f"data.tokenizer.vocab_size=32000: the text of both sides allows only {size} pieces. "
            f"The vocabulary size is {size}."
        )

    def test_one_pair_is_enough(self, tmp_path: Path, segmentation: Segmentation) -> None:
        tokenizer = train(tmp_path, [("a", "b")], segmentation=segmentation)
        assert round_trip(tokenizer, "something else") == "something else"

    def test_too_small_a_vocabulary_names_the_least(self, tmp_path: Path, segmentation: Segmentation) -> None:
        pairs = [("".join(map(chr, range(0x4E00, 0x4E00 + 100))), "x")]
        with pytest.raises(UserError, match="data.tokenizer.vocab_size=300: .* need at least 362"):
            train(tmp_path, pairs, segmentation=segmentation, vocab_size=300)
        assert list(tmp_path.iterdir()) == []
        assert train(tmp_path, pairs, segmentation=segmentation, vocab_size=362).source.size == 362

    def test_rare_characters_may_be_left_to_bytes(self, tmp_path: Path) -> None:
        pairs = [("a b c d " * 50, "你")]
        kept, left = train(tmp_path / "a", pairs), train(tmp_path / "b", pairs, character_coverage=0.99)
        assert kept.source.pieces_of(kept.encode_source(["你"])[0]) == ["▁", "你"]
        assert left.source.pieces_of(left.encode_source(["你"])[0]) == ["▁", "<0xE4>", "<0xBD>", "<0xA0>"]

    @pytest.mark.parametrize("pairs", [[], [("", "")], [("\u200b", "\x07")]])
    def test_no_text(self, tmp_path: Path, pairs: list[tuple[str, str]]) -> None:
        with pytest.raises(UserError, match="data.train: both sides .* no text"):
            train(tmp_path, pairs, normalization="nmt_nfkc")

    def test_odd_text(self, tmp_path: Path, segmentation: Segmentation) -> None:
        odd = [("a\x00b\x01", "▁▁ c"), ("x" * 50_000, "y " * 20_000), ("\x00", "\u2585"), ("a\nb", "\ufffd")]
        for normalization in (Normalization.identity, Normalization.nmt_nfkc):
            tokenizer = train(tmp_path, odd, segmentation=segmentation, normalization=normalization)
            assert round_trip(tokenizer, "abc") == "abc"

    def test_user_symbols_are_one_piece(self, tmp_path: Path, segmentation: Segmentation) -> None:
        tokenizer = train(tmp_path, segmentation=segmentation, user_symbols=["<2de>", "a,b", "é"])
        assert "<2de>" in tokenizer.source.pieces_of(tokenizer.encode_source(["x <2de> y"])[0])
        assert "a,b" in tokenizer.source.pieces_of(tokenizer.encode_source(["xa,by"])[0])
        assert round_trip(tokenizer, "x<2de> é a,b") == "x<2de> é a,b"

    def test_a_symbol_as_the_first_word_of_a_source_is_the_first_piece(
        self, tmp_path: Path, segmentation: Segmentation
    ) -> None:
        tokenizer = train(tmp_path, segmentation=segmentation, user_symbols=["<bt>", "<2de>"])
        texts = ["ab cd", "<bt> ab cd", " <2de>\tab cd", "<bt>", "<bt> ", "<bt>ab cd", "ab <bt> cd", ""]
        plain, tagged, other, alone, spaced, glued, inside, empty = tokenizer.encode_source(texts)
        tag, second = tokenizer.source_symbols["<bt>"], tokenizer.source_symbols["<2de>"]
        assert tokenizer.source.processor.id_to_piece([tag, second]) == ["<bt>", "<2de>"]
        assert (tagged, other, alone, spaced) == ([tag, *plain], [second, *plain], [tag], [tag])
        for ids, text in ((glued, "<bt>ab cd"), (inside, "ab <bt> cd"), (empty, "")):
            assert ids == tokenizer.source.processor.encode(text)
        assert tokenizer.encode_target(["<bt> ab"])[0] == tokenizer.target.processor.encode("<bt> ab")
        loaded = Tokenizer.load(tmp_path)
        assert loaded.encode_source(texts) == tokenizer.encode_source(texts)
        assert train(tmp_path / "plain", segmentation=segmentation).source_symbols == {}

    @pytest.mark.parametrize(
        ("symbols", "message"),
        [
            ([""], "'' must be text without white space"),
            (["a b"], "'a b' must be text without"),
            (["</s>"], "'</s>' is a special piece of the tokenizer"),
            (["<0x41>"], "'<0x41>' is a special piece of the tokenizer"),
            (["x", "y", "x"], "'x' is given twice"),
        ],
    )
    def test_symbols_that_cannot_be(self, tmp_path: Path, symbols: list[str], message: str) -> None:
        with pytest.raises(UserError, match=f"data.tokenizer.user_symbols: {message}"):
            train(tmp_path, user_symbols=symbols)

    def test_nothing_is_printed(self, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
        train(tmp_path)
        with pytest.raises(UserError):
            train(tmp_path, [])
        assert capfd.readouterr() == ("", "")


def test_signals_end_the_learning_on_the_spot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def learn(**options: Any) -> None:
        seen.append([signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)])
        raise RuntimeError("enough")

    monkeypatch.setattr(tokenizer.spm.SentencePieceTrainer, "train", learn)
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN), signal.getsignal(signal.SIGINT)
    try:
        with pytest.raises(UserError, match="enough"):
            train(tmp_path, normalization=Normalization.nmt_nfkc)
        assert seen == [[signal.SIG_DFL, signal.SIG_IGN]]  # an ignored signal remains ignored
        assert signal.getsignal(signal.SIGINT) == before[1]
    finally:
        signal.signal(signal.SIGTERM, before[0])
