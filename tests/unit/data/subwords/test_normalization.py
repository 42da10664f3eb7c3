"""The target is written as in the training text; the source is normalised; both may have the same pieces."""

from __future__ import annotations

import unicodedata
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from odd_letters import LINES

from nmt.config import Segmentation, TokenizerConfig
from nmt.data.subwords.learning import compositions, train_tokenizer
from nmt.data.subwords.model_file import (
    normalizer_of,
    normalizer_section,
    protobuf_fields,
    with_normalizer,
)
from nmt.data.subwords.segmentation import Sampler
from nmt.data.subwords.tokenizer import Tokenizer
from nmt.data.subwords.vocabulary import UNK_ID
from nmt.errors import UserError
from nmt.runtime.arrays import Side

ALL = [line for lines in LINES.values() for line in lines]


def learnt(folder: Path, targets: list[str] = ALL, **options: Any) -> Tokenizer:
    pairs = [(f"sentence {number} of the text, {line}", line) for number, line in enumerate(targets)]
    chosen = TokenizerConfig(**({"vocab_size": 1500} | options))
    train_tokenizer(lambda: iter(pairs), chosen, folder)
    return Tokenizer.load(folder)


def returned(tokenizer: Tokenizer, texts: list[str]) -> list[str]:
    return tokenizer.decode_target(tokenizer.encode_target(texts))


@pytest.fixture(scope="module", params=list(Segmentation), ids=lambda kind: kind.value)
def tokenizer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return learnt(tmp_path_factory.mktemp("spm"), segmentation=request.param)


@pytest.mark.parametrize("language", LINES)
def test_the_target_comes_back_byte_for_byte(tokenizer: Tokenizer, language: str) -> None:
    lines = LINES[language]
    assert len(set(lines)) == 30
    assert [text.encode() for text in returned(tokenizer, lines)] == [line.encode() for line in lines]
    assert tokenizer.target.normalized(lines) == lines


@pytest.mark.parametrize("language", LINES)
def test_its_own_letters_have_pieces(tokenizer: Tokenizer, language: str) -> None:
    ids = [id for line in tokenizer.encode_target(LINES[language]) for id in line]
    assert not any(map(tokenizer.target.is_byte, ids)), "learnt from the text as it is encoded"


def test_the_source_is_normalised(tokenizer: Tokenizer) -> None:
    one, other = tokenizer.encode_source(["他说：“ＡＢ”  می‌خواهم ½ ™", "他说:“AB” می خواهم 1⁄2 TM"])
    assert one == other
    assert tokenizer.source.normalized(["Ａ，\u00a0ﬁ  ½"]) == ["A, fi 1⁄2"]


@pytest.mark.parametrize("joint", [True, False])
def test_each_side_has_its_own_model_with_the_same_pieces(tmp_path: Path, joint: bool) -> None:
    tokenizer = learnt(tmp_path, joint=joint)
    assert tokenizer.joint is joint
    assert tokenizer.model_files == ("source.spm", "target.spm")
    assert {path.name for path in tmp_path.iterdir()} == {"source.spm", "target.spm"}
    assert (tokenizer.source.names == tokenizer.target.names) is joint
    assert normalizer_of(tokenizer.source.model).name == "nmt_nfkc"
    assert normalizer_of(tokenizer.target.model).name == "identity"
    assert not normalizer_of(tokenizer.source.model).keeps_spaces
    assert returned(tokenizer, ALL) == ALL


def test_one_name_is_for_both_sides_as_in_earlier_versions(tmp_path: Path) -> None:
    tokenizer = learnt(tmp_path, normalization="nmt_nfkc")
    assert [path.name for path in tmp_path.iterdir()] == ["joint.spm"]
    assert tokenizer.joint and tokenizer.target is tokenizer.source
    assert returned(tokenizer, ["你好，  Ａ½"]) == ["你好, A1⁄2"]


def test_a_vocabulary_replaces_one_with_other_files(tmp_path: Path) -> None:
    learnt(tmp_path, ["one"] * 9, vocab_size=300, normalization="nmt_nfkc")
    tokenizer = learnt(tmp_path, ["two"] * 9, vocab_size=300)
    assert {path.name for path in tmp_path.iterdir()} == {"source.spm", "target.spm"}
    assert returned(tokenizer, ["Ａ"]) == ["Ａ"]
    learnt(tmp_path, ["one"] * 9, vocab_size=300, normalization="nmt_nfkc")
    assert [path.name for path in tmp_path.iterdir()] == ["joint.spm"]


def test_one_name_identity_joins_spaces_as_in_earlier_versions(tmp_path: Path) -> None:
    tokenizer = learnt(tmp_path, normalization="identity")
    assert returned(tokenizer, ["Ａ  ½"]) == ["Ａ ½"]
    assert tokenizer.target.normalized(["Ａ  ½"]) == ["Ａ ½"]


def test_a_target_in_nfc(tmp_path: Path) -> None:
    tokenizer = learnt(tmp_path, normalization={"target": "nfc"})
    text = unicodedata.normalize("NFD", "Tiếng Việt, Ａ½  ㅋㅋ 각")
    assert returned(tokenizer, [text, ""]) == [unicodedata.normalize("NFC", text), ""]
    assert len(tokenizer.target.word_numbers(text)) == len(tokenizer.encode_target([text])[0])
    assert tokenizer.target.normalized([text]) == [unicodedata.normalize("NFC", text)]


def test_sentencepiece_alone_composes_a_target_in_nfc(tmp_path: Path) -> None:
    """As an export does. NFC has no finite table: see `compositions`."""
    tokenizer = learnt(tmp_path, normalization={"target": "nfc"})
    composed = ["Tiếng Việt,  Ａ½ ㅋㅋ 각 ậ ộ", "\u212b \u1e69 क़"]
    texts = [unicodedata.normalize("NFD", composed[0]), "A\u030a s\u0307\u0323 \u0958"]
    texts += ["\u1ea1\u0302 a\u0302\u0323"]
    processor = tokenizer.target.processor
    decoded = processor.decode(processor.encode(texts))
    assert decoded == [composed[0], "Å ṩ \u0915\u093c", "ậ ậ"]
    assert processor.encode(texts) == tokenizer.encode_target(texts)


def test_compositions() -> None:
    table = dict(compositions())
    assert table["a\u0302\u0323"] == table["a\u0323\u0302"] == table["â\u0323"] == "ậ"
    assert table["\u1100\u1161\u11a8"] == table["가\u11a8"] == "각"
    assert table["\u0958"] == "\u0915\u093c" and table["\u212b"] == "Å"
    assert not table.keys() & set(table.values())
    assert all(unicodedata.normalize("NFC", form) == composed for form, composed in table.items())


LETTERS = st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\u2028\u2029")
TEXTS = st.lists(
    st.one_of(
        st.sampled_from([" ", "  ", "   ", "\u2581", "\u00a0", "\u3000", "\u200b", "\u200c", "\t", "</s>"]),
        st.text(LETTERS, max_size=6),
        st.sampled_from(ALL),
    ),
    max_size=6,
).map("".join)


@given(st.lists(TEXTS, max_size=4))
def test_every_text_comes_back_without_the_spaces_at_its_ends(tokenizer: Tokenizer, texts: list[str]) -> None:
    ids = tokenizer.encode_target(texts)
    assert tokenizer.decode_target(ids) == [text.strip(" ") for text in texts]
    assert all(id > UNK_ID for sentence in ids for id in sentence)
    for text, sentence in zip(texts, ids, strict=True):
        assert tokenizer.encode_target([text]) == [sentence]  # the cache and the neighbours change nothing
        assert tokenizer.target.word_numbers(text) == tokenizer.decoded_word_numbers(sentence)


@given(st.lists(TEXTS, max_size=4))
def test_sentencepiece_alone_decodes_the_same(tokenizer: Tokenizer, texts: list[str]) -> None:
    """As an export does, which has the model of the target side."""
    processor = tokenizer.target.processor
    for text, ids in zip(texts, tokenizer.encode_target(texts), strict=True):
        assert processor.decode(ids) == text.strip(" ")


@pytest.mark.parametrize("seed", range(3))
def test_sampled_pieces_have_the_same_text(tokenizer: Tokenizer, seed: int) -> None:
    texts = [*ALL, "a   b", "\u2581 x  \u2581y"]
    side = tokenizer.target.encode(Side.of_lines(texts))
    sampled = Sampler(tokenizer.target, tokenizer.segmentation, 0.3).resegment(side, seed)
    assert tokenizer.decode_target([ids.tolist() for ids in sampled]) == texts
    assert [ids.tolist() for ids in sampled] != [ids.tolist() for ids in side]


def test_spaces(tokenizer: Tokenizer) -> None:
    texts = ["", " ", "   ", "a", " a ", "a  b", "  a   b  ", "", "  "]
    assert returned(tokenizer, texts) == ["", "", "", "a", "a", "a  b", "a   b", "", ""]
    assert tokenizer.encode_target(["", "   "]) == [[], []]
    side = Side.of_lines(texts)
    halves = Side(side.ids, side.offsets[4:7])  # a view into the middle
    assert [ids.tolist() for ids in tokenizer.target.encode(halves)] == tokenizer.encode_target(texts[4:6])
    space = tokenizer.target.names.index("▁")
    one, many = tokenizer.encode_target(["a b", "a    b"])
    assert [id for id in many if id != space] == [id for id in one if id != space]
    assert many.count(space) == one.count(space) + 3


def test_a_models_normaliser_is_replaced(tokenizer: Tokenizer) -> None:
    source, target = tokenizer.source.model, tokenizer.target.model
    assert with_normalizer(target, normalizer_section(source)) == source
    assert with_normalizer(source, normalizer_section(target)) == target


def test_user_symbols_are_not_normalised(tmp_path: Path) -> None:
    tokenizer = learnt(tmp_path, user_symbols=["Ａ！", "<2ｄe>"])
    assert tokenizer.source_symbols.keys() == {"Ａ！", "<2ｄe>"}
    assert tokenizer.source.pieces_of(tokenizer.encode_source(["<2ｄe> x"])[0])[0] == "<2ｄe>"
    assert "Ａ！" in tokenizer.source.pieces_of(tokenizer.encode_source(["xＡ！Ｂ"])[0])
    assert returned(tokenizer, ["xＡ！Ｂ <2ｄe>"]) == ["xＡ！Ｂ <2ｄe>"]


@pytest.mark.parametrize("symbols", [["a"], ["\u2581a", "a"], ["ab", "a\u0301", "\u2581"]])
def test_any_user_symbol_can_be_a_piece(tmp_path: Path, symbols: list[str]) -> None:
    text = "a  b abc \u2581a"
    assert returned(learnt(tmp_path, user_symbols=symbols), [text]) == [text]


@pytest.mark.parametrize(
    ("given", "finished"),
    [
        ("nfkc", "nfkc"),
        ({}, {"source": "nmt_nfkc", "target": "identity"}),
        ({"target": "nfc"}, {"source": "nmt_nfkc", "target": "nfc"}),
        ({"source": "identity", "target": "nfkc"}, {"source": "identity", "target": "nfkc"}),
    ],
)
def test_both_forms_of_the_option(given: Any, finished: Any) -> None:
    assert TokenizerConfig(normalization=given).normalization == finished


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("nfc", "data.tokenizer.normalization=nfc: must be one of .* nfc is for .*target alone"),
        ("NFKC", "data.tokenizer.normalization=NFKC: must be one of nmt_nfkc, "),
        (None, "data.tokenizer.normalization=null: must be"),
        ({"source": "nfc"}, "data.tokenizer.normalization.source=nfc: must be"),
        ({"target": "nfd"}, "data.tokenizer.normalization.target=nfd: must be .* nfc"),
        ({"both": "nfkc"}, "data.tokenizer.normalization.both: there is no such side"),
    ],
)
def test_wrong_values_of_the_option(given: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        TokenizerConfig(normalization=given)


def test_one_name_gives_the_file_of_earlier_versions(tmp_path: Path) -> None:
    pairs = [(f"the cat {number}", f"die Katze {number}") for number in range(50)]
    tokenizer = train_tokenizer(
        lambda: iter(pairs), TokenizerConfig(vocab_size=320, normalization="nmt_nfkc"), tmp_path
    )
    fields = dict(protobuf_fields(normalizer_section(tokenizer.source.model)))
    assert fields.keys() == {1, 2} and fields[1] == b"nmt_nfkc"  # only what earlier versions gave
