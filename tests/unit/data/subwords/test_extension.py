"""An extended vocabulary: old ids and old text stay as they are, new characters and symbols get pieces."""

from __future__ import annotations

import random
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from odd_letters import LINES
from toy_corpus import learnt

from nmt.config import ModelConfig, Segmentation, Tie, TokenizerConfig
from nmt.data.subwords.extension import byte_shares, extended, is_extension, replaced_pieces
from nmt.data.subwords.segmentation import Sampler
from nmt.data.subwords.tokenizer import MarianTokenizer, Tokenizer
from nmt.errors import UserError
from nmt.model import build_model
from nmt.runtime.arrays import Side
from nmt.training.state.new_pieces import sides_of_weights, with_new_pieces

WORDS = "the cat sat on a mat and saw one old dog run home again".split()
CYRILLIC = "привіт світ це довгий текст про мову та слова які вивчаємо щодня".split()


def lines(words: list[str], count: int, seed: int) -> list[str]:
    chance = random.Random(seed)
    return [" ".join(chance.choices(words, k=6)) for _ in range(count)]


OLD = [*zip(lines(WORDS, 200, 1), lines(WORDS, 200, 2), strict=True)]
NEW = [*zip(lines(WORDS, 200, 3), lines([*CYRILLIC, "on"], 200, 4), strict=True)]

Both = tuple[Tokenizer, Tokenizer]


@pytest.fixture(
    scope="module",
    params=product((True, False), Segmentation, ({}, "nmt_nfkc")),
    ids=lambda case: f"{'joint' if case[0] else 'two'}-{case[1].value}-{case[2] and 'one rule'}",
)
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Both:
    """A vocabulary, and the same with new pieces, read from its files."""
    joint, segmentation, normalization = request.param
    options = {"joint": joint, "segmentation": segmentation, "normalization": normalization}
    old = learnt(OLD, vocab_size=330, user_symbols=["<a>"], **options)
    folder = tmp_path_factory.mktemp("extended")
    extended(old, lambda: iter(NEW), ["<2uk>"], TokenizerConfig()).save(folder)
    return old, Tokenizer.load(folder)


def test_the_new_pieces_follow_the_old_ones(both: Both) -> None:
    old, new = both
    assert is_extension(new, old) and not is_extension(old, new)
    assert (new.joint, new.segmentation, new.model_files) == (old.joint, old.segmentation, old.model_files)
    assert new.source_symbols == {"<a>": 4, "<2uk>": old.source.size}
    pieces = new.target.names[old.target.size :]
    assert pieces[0] == "<2uk>" and all(set(piece) & set("".join(CYRILLIC)) for piece in pieces[1:])
    assert new.source.pieces_of(new.encode_source(["<2uk> cat"])[0])[0] == "<2uk>"


def test_new_text_has_no_bytes_and_comes_back(both: Both) -> None:
    old, new = both
    targets = [target for _, target in NEW]
    assert byte_shares(NEW, old)[0] == 0 and byte_shares(NEW, old)[1] > 0.7
    assert byte_shares(NEW, new) == [0.0, 0.0]
    assert new.decode_target(new.encode_target(targets)) == targets
    side = new.target.encode(Side.of_lines(targets))
    sampled = Sampler(new.target, new.segmentation, 0.3).resegment(side, 1)
    assert new.decode_target([ids.tolist() for ids in sampled]) == targets


LETTERS = "".join(WORDS)
TEXTS = st.lists(st.text(st.sampled_from([*LETTERS, " ", "Ａ", "…", "\u200b"]), max_size=9)).map(" ".join)


@given(TEXTS)
def test_text_without_new_characters_has_the_ids_of_before(both: Both, text: str) -> None:
    old, new = both
    assert new.encode_source([text]) == old.encode_source([text])
    assert new.encode_target([text]) == old.encode_target([text])


def test_a_new_piece_replaces_pieces_of_the_same_text(both: Both) -> None:
    old, new = both
    names = new.target.names[old.target.size + 1 :]
    replaced = [*replaced_pieces(old.target, names)]
    texts = old.target.decode(replaced)
    assert [text.strip() for text in texts] == [name.replace("▁", " ").strip() for name in names]
    space = old.target.names.index("▁")
    assert [ids[0] == space for ids in replaced] == [name.startswith("▁") for name in names]


@pytest.mark.parametrize("language", ["zh", "th", "hi", "ko"])
def test_every_script(language: str) -> None:
    old = learnt(OLD, vocab_size=330)
    pairs = [(f"a cat {number}", line) for number, line in enumerate(LINES[language])]
    new = extended(old, lambda: iter(pairs), [], TokenizerConfig())
    assert byte_shares(pairs, old)[1] > 0.3 and byte_shares(pairs, new)[1] == 0
    assert new.decode_target(new.encode_target(LINES[language])) == LINES[language]


def test_nothing_new_changes_nothing() -> None:
    old = learnt(OLD, vocab_size=330)
    assert extended(old, lambda: iter(OLD), [], TokenizerConfig()).fingerprint == old.fingerprint


def test_rare_characters_remain_bytes_if_so_asked() -> None:
    old = learnt(OLD, vocab_size=330)
    pairs = [*NEW, ("a cat", "ґ")]
    new = extended(old, lambda: iter(pairs), [], TokenizerConfig(character_coverage=0.999))
    assert "ґ" not in new.target.names and "і" in new.target.names


@pytest.mark.parametrize(
    ("symbols", "message"),
    [
        (["cat x"], "without white space"),
        (["a"], "'a' is an ordinary piece"),
        (["<s>"], "is a special piece"),
    ],
)
def test_symbols_that_are_refused(symbols: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        extended(learnt(OLD, vocab_size=330), lambda: iter(OLD), symbols, TokenizerConfig())


@pytest.mark.parametrize("architecture", ["transformer", "rnn_attention"])
@pytest.mark.parametrize("tie", list(Tie))
def test_each_weight_gets_the_rows_of_its_side(architecture: str, tie: Tie) -> None:
    old = learnt(OLD, vocab_size=330, joint=tie is Tie.all)
    new = extended(old, lambda: iter(NEW), ["<2uk>"], TokenizerConfig())
    config = ModelConfig(
        architecture=architecture, tie=tie, output_bias=True,
        encoder_layers=1, decoder_layers=1, d_model=16, d_ff=16, heads=2,
    )  # fmt: skip
    before, after = (
        build_model(config, tokenizer.source.size, tokenizer.target.size) for tokenizer in (old, new)
    )
    expected = {"target_embedding.weight": "target", "logit_bias": "target"}
    if tie is not Tie.all:
        expected["source_embedding.weight"] = "source"
    if tie is Tie.none:
        expected["output.weight"] = "target"
    assert sides_of_weights(config) == expected
    after.load_state_dict(with_new_pieces(before.state_dict(), config, old, new))
    for name, side in expected.items():
        vocabulary, rows = getattr(old, side), after.state_dict()[name]
        assert rows[: vocabulary.size].equal(before.state_dict()[name])
        ids = vocabulary.processor.encode("<2uk>")
        ids = ids[1:] if vocabulary.names[ids[0]] == "▁" else ids
        assert rows[vocabulary.size].allclose(rows[ids].mean(0))


def test_a_vocabulary_of_marian_is_refused() -> None:
    own = learnt(OLD, vocab_size=330)
    marian = MarianTokenizer((own.source.model, own.target.model), own.source.names, None)
    with pytest.raises(UserError, match="data.tokenizer.extend: the vocabulary of a Marian model can't get"):
        extended(marian, lambda: iter(NEW), ["<x>"], TokenizerConfig())
