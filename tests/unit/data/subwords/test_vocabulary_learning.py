"""`data.tokenizer.vocab_size=auto`: the table, and the size that preparation chooses, caches and logs."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from random import Random
from string import ascii_lowercase

import pytest
from toy_corpus import write_pairs

from nmt.config import CorpusConfig, DataConfig, SplitConfig, TokenizerConfig, TrainSplitConfig
from nmt.data.preparation.prepare import prepare
from nmt.data.subwords import learning
from nmt.data.subwords.learning import num_characters, recommended_size
from nmt.errors import UserError


@pytest.mark.parametrize(
    ("pairs", "characters", "joint", "expected"),
    [
        (999, 50, True, 2000),
        (1_000, 50, True, 8000),
        (99_999, 100, True, 8000),
        (100_000, 100, True, 16_000),
        (999_999, 100, True, 16_000),
        (1_000_000, 100, True, 32_000),
        (4_500_000, 500, True, 32_000),  # WMT14 English-German
        (999, 50, False, 1000),
        (25_000, 50, False, 4000),
        (10**7, 50, False, 16_000),
        (500, 1000, True, 2000),
        (500, 1001, True, 3000),  # twice the number of characters, rounded to thousands
        (500, 3200, True, 7000),  # Chinese and English
        (0, 0, True, 2000),
    ],
)
def test_the_table(pairs: int, characters: int, joint: bool, expected: int) -> None:
    assert recommended_size(pairs, characters, joint=joint) == expected


@pytest.mark.parametrize(
    ("pairs", "coverage", "joint", "expected"),
    [
        ([("abc", "cd")], 1.0, True, 4),
        ([("abc", "cd")], 1.0, False, 3),
        ([("aaab", "x"), ("aaac", "y")], 0.8, True, 3),  # `a` is 6 of 10 characters, each other is 1
        ([("aaab", "x"), ("aaac", "y")], 0.75, False, 2),
        ([("日本語", "a")], 1.0, False, 3),
        ([], 1.0, True, 0),
    ],
)
def test_characters(pairs: list[tuple[str, str]], coverage: float, joint: bool, expected: int) -> None:
    assert num_characters(pairs, coverage, joint=joint) == expected


def corpus(folder: Path, pairs: int, alphabet: str = "abcdefghij") -> DataConfig:
    random = Random(pairs)
    folder.mkdir()

    def text() -> str:
        return " ".join("".join(random.choices(alphabet, k=4)) for _ in range(4))

    return DataConfig(
        name="x",
        source_lang="xx",
        target_lang="yy",
        train=TrainSplitConfig(**write_pairs(folder, "train", [(text(), text()) for _ in range(pairs)])),
        valid=SplitConfig(**write_pairs(folder, "valid", [(text(), text()) for _ in range(5)])),
        tokenizer=TokenizerConfig(vocab_size="auto"),
        cache_dir=str(folder / "cache"),
        workers=1,
    )


def with_size(data: DataConfig, **tokenizer: object) -> DataConfig:
    return replace(data, tokenizer=replace(data.tokenizer, **tokenizer))  # type: ignore[arg-type]


def test_preparation_chooses_and_tells(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    data = corpus(tmp_path / "a", 900, ascii_lowercase)
    with caplog.at_level(logging.INFO, "nmt"):
        prepared = prepare(data)
    assert (prepared.vocab_size, prepared.report["vocab_size"]) == (2000, 2000)
    assert prepared.tokenizer.source.size == 2000
    assert "data.tokenizer.vocab_size=auto: 2000, for 900 cleaned training pairs" in caplog.messages
    # A second run finds the data in the cache, also when it gives the number explicitly.
    caplog.clear()
    for same in (data, with_size(data, vocab_size=2000)):
        with caplog.at_level(logging.INFO, "nmt"):
            again = prepare(same)
        assert (again.fingerprint, again.report, again.vocab_size) == (
            prepared.fingerprint,
            prepared.report,
            2000,
        )
    assert sum("already prepared" in message for message in caplog.messages) == 2
    assert prepare(with_size(data, vocab_size=400)).fingerprint != prepared.fingerprint


def test_characters_that_need_more_get_more(tmp_path: Path) -> None:
    """With the 2,000 of the table, SentencePiece would fail: the text has 2,400 characters."""
    data = corpus(tmp_path / "a", 900, "".join(map(chr, range(0x4E00, 0x4E00 + 2400))))
    assert prepare(data).vocab_size == 5000
    with pytest.raises(UserError, match="vocab_size=2000: the characters of both sides need at least"):
        prepare(with_size(data, vocab_size=2000))


def test_one_vocabulary_a_side_has_half(tmp_path: Path) -> None:
    data = with_size(corpus(tmp_path / "a", 900, ascii_lowercase), joint=False)
    prepared = prepare(data)
    assert prepared.vocab_size == 1000
    assert (prepared.tokenizer.source.size, prepared.tokenizer.target.size) == (1000, 1000)


def test_several_corpora_count_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learning, "SIZES", ((0, 2000), (900, 4000)))
    small, large = corpus(tmp_path / "a", 400), corpus(tmp_path / "b", 600)
    parts = {
        name: CorpusConfig(source=data.train.source, target=data.train.target)
        for name, data in (("a", small), ("b", large))
    }
    both = replace(small, train=TrainSplitConfig(corpora=parts), workers=2)
    assert prepare(large).vocab_size == 2000
    assert prepare(both).vocab_size == 4000


def test_given_pieces_keep_their_number(tmp_path: Path) -> None:
    data = corpus(tmp_path / "a", 900)
    prepare(with_size(data, vocab_size=400)).tokenizer.save(tmp_path / "given")
    assert prepare(with_size(data, path=str(tmp_path / "given"))).vocab_size == 400


@pytest.mark.parametrize(("given", "level"), [("auto", "INFO"), (2000, "WARNING")])
def test_only_a_given_size_that_the_text_does_not_allow_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, given: int | str, level: str
) -> None:
    with caplog.at_level(logging.INFO, "nmt"):
        prepared = prepare(with_size(corpus(tmp_path / "a", 20), vocab_size=given))
    assert prepared.vocab_size == 2000 > prepared.tokenizer.source.size
    said = "data.tokenizer.vocab_size=2000: the text of both sides allows only"
    assert [each.levelname for each in caplog.records if each.getMessage().startswith(said)] == [level]


@pytest.mark.parametrize("size", ["automatic", 8000.0, True, None, "8000", "", 299])
def test_anything_else_is_refused(size: object) -> None:
    with pytest.raises(UserError, match="^data.tokenizer.vocab_size=.*: must be "):
        TokenizerConfig(vocab_size=size)
