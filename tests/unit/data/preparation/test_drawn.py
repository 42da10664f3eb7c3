"""Validation and test pairs from the training text: which are drawn, the files, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from hashlib import blake2b
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from toy_corpus import write_pairs

from nmt.config import (
    CleaningConfig,
    CorpusConfig,
    DataConfig,
    SplitConfig,
    TokenizerConfig,
    TrainSplitConfig,
)
from nmt.data.cleaning.rules.basic import comparison_key
from nmt.data.preparation.drawn import lowest, with_drawn, write_drawn
from nmt.data.preparation.prepare import prepare

PAIRS = [(f"source {number}", f"target {number}") for number in range(60)]


def digest(source: str) -> bytes:
    return blake2b(comparison_key(source).encode(), digest_size=8).digest()


@given(st.lists(st.tuples(st.text("abA ", max_size=4), st.text("xy", max_size=2))), st.integers(1, 8))
def test_the_lowest_are_those_of_a_sorted_list(pairs: list[tuple[str, str]], count: int) -> None:
    firsts = {comparison_key(pair[0]): pair for pair in reversed(pairs)}
    expected = sorted(firsts.values(), key=lambda pair: digest(pair[0]))[:count]
    assert lowest(iter(pairs), count) == expected


@given(st.permutations(PAIRS), st.integers(1, 30), st.integers(30, 60))
def test_neither_order_nor_growth_changes_the_choice(
    pairs: list[tuple[str, str]], count: int, size: int
) -> None:
    chosen = lowest(pairs, count)
    assert chosen == lowest(PAIRS, count)
    assert lowest(pairs[:size], count)[: len({*chosen} & {*pairs[:size]})] == [
        pair for pair in chosen if pair in pairs[:size]
    ]


def test_a_literal_choice() -> None:
    """Another choice with the same text would make scores of runs incomparable."""
    assert [source for source, _ in lowest(PAIRS, 4)] == ["source 32", "source 30", "source 11", "source 9"]


@pytest.fixture
def config(tmp_path: Path) -> DataConfig:
    return DataConfig(
        name="toy",
        source_lang="xx",
        target_lang="yy",
        train=TrainSplitConfig(**write_pairs(tmp_path, "train", [*PAIRS, ("", "empty"), PAIRS[5]])),
        valid=SplitConfig(from_train=6),
        test=SplitConfig(from_train=4),
        tokenizer=TokenizerConfig(vocab_size=300),
        cache_dir=str(tmp_path / "cache"),
        workers=1,
    )


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").split("\n")[:-1]


def test_what_is_drawn_is_not_learnt(config: DataConfig, tmp_path: Path) -> None:
    folder = tmp_path / "held_out"
    write_drawn(config, folder, again=True)
    drawn = lowest(PAIRS, 10)
    for name, pairs in (("valid", drawn[:6]), ("test", drawn[6:])):
        assert list(zip(lines(folder / f"{name}.xx"), lines(folder / f"{name}.yy"), strict=True)) == pairs
    prepared = prepare(with_drawn(config, folder))
    learnt = [pair for block in prepared.cleaned() for pair in zip(*block, strict=True)]
    assert sorted([*learnt, *drawn]) == sorted(PAIRS)
    assert (prepared.valid[""].sources, prepared.test[""].references) == (
        [source for source, _ in drawn[:6]],
        [target for _, target in drawn[6:]],
    )


def test_a_test_is_not_drawn_from_a_validation_of_its_own(config: DataConfig, tmp_path: Path) -> None:
    own = lowest(PAIRS, 3)
    given = replace(config, valid=SplitConfig(**write_pairs(tmp_path, "own", own)))
    write_drawn(given, tmp_path / "held_out", again=True)
    assert lines(tmp_path / "held_out/test.xx") == [source for source, _ in lowest(PAIRS, 7)[3:]]
    with pytest.raises(ValueError, match=r"^data\.valid: names no data"):
        write_drawn(replace(config, valid=SplitConfig()), tmp_path / "new", again=True)
    assert not (tmp_path / "new").exists()


def test_the_files_of_a_begun_run_stay(config: DataConfig, tmp_path: Path) -> None:
    folder = tmp_path / "held_out"
    write_drawn(config, folder, again=False)
    (folder / "valid.xx").write_text("mine\n" * 6)
    write_drawn(config, folder, again=False)
    assert lines(folder / "valid.xx") == ["mine"] * 6
    other = replace(config, valid=SplitConfig(from_train=5))
    with pytest.raises(
        ValueError, match=r"^data\.valid\.from_train=5: 6 pairs were drawn when this run began"
    ):
        write_drawn(other, folder, again=False)
    write_drawn(other, folder, again=True)
    assert len(lines(folder / "valid.xx")) == 5


def test_languages_of_the_same_code_have_two_files(config: DataConfig, tmp_path: Path) -> None:
    changed = with_drawn(replace(config, target_lang="xx"), tmp_path)
    assert (changed.valid.source, changed.valid.target) == (
        str(tmp_path / "valid.source"),
        str(tmp_path / "valid.target"),
    )


def test_only_corpora_of_the_languages_without_a_tag_are_drawn_from(
    config: DataConfig, tmp_path: Path
) -> None:
    corpora = {
        "mine": CorpusConfig(**write_pairs(tmp_path, "mine", PAIRS[:30])),
        "tagged": CorpusConfig(**write_pairs(tmp_path, "tagged", PAIRS[30:45]), tag="<bt>"),
        "other": CorpusConfig(**write_pairs(tmp_path, "other", PAIRS[45:]), target_lang="zz"),
    }
    several = replace(config, train=TrainSplitConfig(corpora=corpora))
    write_drawn(several, tmp_path / "held_out", again=True)
    assert lines(tmp_path / "held_out/valid.xx") == [source for source, _ in lowest(PAIRS[:30], 6)]
    tagged = {name: corpora[name] for name in ("tagged", "other")}
    with pytest.raises(ValueError, match="no training corpus without a tag is in the languages of the data"):
        write_drawn(replace(several, train=TrainSplitConfig(corpora=tagged)), tmp_path / "new", again=True)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"valid": SplitConfig(from_train=27)}, "has 60 pairs, of which 31 were to be held out"),
        ({"valid": SplitConfig(from_train=61)}, "has 60 pairs, of which 65 were to be held out"),
        ({"cleaning": CleaningConfig(drop_leaked=False)}, "these pairs would also be learnt"),
    ],
)
def test_what_can_not_be_drawn(
    changes: dict[str, object], message: str, config: DataConfig, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=message):
        write_drawn(replace(config, **changes), tmp_path / "held_out", again=True)  # type: ignore[arg-type]
    assert not (tmp_path / "held_out").exists()


@pytest.mark.parametrize(
    ("split", "message"),
    [
        (SplitConfig(from_train=6, path="a.tsv"), r"from_train=6: data\.valid\.path is also given\. Remove"),
        (SplitConfig(from_train=6, names=["a"]), r"from_train=6: data\.valid\.names is also given\. Remove"),
    ],
)
def test_wrong_options(split: SplitConfig, message: str, config: DataConfig, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        with_drawn(replace(config, valid=split), tmp_path)


def test_without_the_option_nothing_changes(config: DataConfig, tmp_path: Path) -> None:
    plain = replace(config, valid=SplitConfig(path="valid.tsv"), test=SplitConfig())
    assert with_drawn(plain, tmp_path) == plain
    write_drawn(plain, tmp_path / "held_out", again=True)
    assert not (tmp_path / "held_out").exists()
