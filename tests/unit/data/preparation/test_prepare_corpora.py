"""Preparation of several corpora: a cache for each, duplicates across corpora, tags, the report."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from toy_corpus import pairs, stamps, write_pairs

from nmt.config import (
    CleaningConfig,
    CorpusConfig,
    DataConfig,
    SplitConfig,
    TokenizerConfig,
    TrainSplitConfig,
)
from nmt.data.corpora.mixture import Mixture
from nmt.data.preparation import prepare as preparation
from nmt.data.preparation.prepare import Prepared, prepare
from nmt.data.preparation.report import data_report
from nmt.errors import UserError

SHARD = 16

Pairs = list[tuple[str, str]]


def some_pairs(seed: int, count: int) -> Pairs:
    random = Random(seed)
    words = ["".join(random.choices("abcdefgh", k=random.randint(1, 6))) for _ in range(80)]
    sources = [" ".join(random.choices(words, k=random.randint(2, 9))) for _ in range(count)]
    return [(source, source[::-1] + " x") for source in sources]


A, B, C = some_pairs(1, 40), some_pairs(2, 30), some_pairs(3, 50)
B[3], B[29], C[0], C[1], C[2] = A[7], B[5], A[39], B[5], C[9]  # duplicates across and within corpora
C[20] = ("", "empty")


@pytest.fixture
def config(tmp_path: Path) -> DataConfig:
    return DataConfig(
        name="toy",
        source_lang="xx",
        target_lang="yy",
        train=TrainSplitConfig(
            corpora={
                "a": CorpusConfig(**write_pairs(tmp_path, "a", A)),
                "b": CorpusConfig(**write_pairs(tmp_path, "b", B), tag="<bt>", weight=2.0),
                "c": CorpusConfig(**write_pairs(tmp_path, "c", C), weight=0.5),
            }
        ),
        valid=SplitConfig(**write_pairs(tmp_path, "valid", some_pairs(4, 5))),
        tokenizer=TokenizerConfig(vocab_size=320),
        cache_dir=str(tmp_path / "cache"),
        workers=1,
    )


def change(config: DataConfig, name: str, **options: Any) -> DataConfig:
    corpora = config.train.corpora
    return replace(
        config, train=TrainSplitConfig(corpora={**corpora, name: replace(corpora[name], **options)})
    )


def made_between(before: dict[str, tuple[int, int]], after: dict[str, tuple[int, int]]) -> Counter[str]:
    """Returns how many folders of each stage are new."""
    assert {name: after[name] for name in before} == before
    return Counter(
        name.split("-")[0] for name in {name.split("/")[1] for name in after.keys() - before.keys()}
    )


def expected_ids(
    prepared: Prepared, parts: list[tuple[Pairs, list[int]]]
) -> list[tuple[list[int], list[int]]]:
    found = []
    for part, tag in parts:
        sources = prepared.tokenizer.encode_source([source for source, _ in part])
        targets = prepared.tokenizer.encode_target([target for _, target in part])
        found += [([*tag, *x], y) for x, y in zip(sources, targets, strict=True)]
    return found


def without(part: Pairs, *rows: int) -> Pairs:
    return [pair for row, pair in enumerate(part) if row not in rows]


def test_against_naive(config: DataConfig) -> None:
    prepared = prepare(config, shard_pairs=SHARD)
    tag = prepared.tokenizer.source_symbols["<bt>"]
    parts = [(A, []), (without(B, 3, 29), [tag]), (without(C, 0, 1, 9, 20), [])]
    assert prepared.train.sizes == (40, 28, 46)
    assert pairs(prepared) == expected_ids(prepared, parts)
    source, _ = prepared.train.take(np.array([39, 40, 67, 68]))
    assert [row[0] == tag for row in source] == [False, True, True, False]
    assert prepared.tokenizer.encode_source(["<bt> abc"])[0][0] == tag
    mixed = Mixture.of(prepared.train.sizes, config)
    assert mixed.counts(0) == [40, 56, 23]


def test_report(config: DataConfig, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "nmt"):
        report = prepare(config, shard_pairs=SHARD).report
    assert "toy, a, cleaned:" in caplog.text and "toy, c, cleaned:" in caplog.text
    corpora = report["train"]["corpora"]
    assert list(corpora) == ["a", "b", "c"]
    assert [corpora[name]["cleaning"]["kept"] for name in corpora] == [40, 28, 46]
    assert [corpora[name]["draws_per_epoch"] for name in corpora] == [40.0, 56.0, 23.0]
    assert corpora["b"]["tag"] == "<bt>" and corpora["b"]["corpus"] == "b.xx + b.yy"
    assert corpora["c"]["cleaning"]["dropped"] == {"empty": 1, "duplicate": 3}
    assert corpora["b"]["cleaning"]["examples"]["duplicate"] == [list(A[7]), list(B[5])]
    assert report["cleaning"]["dropped"] == {"empty": 1, "duplicate": 5}
    assert (report["cleaning"]["pairs"], report["cleaning"]["kept"]) == (120, 114)
    caplog.clear()
    with caplog.at_level("INFO", "nmt"):
        assert prepare(config, shard_pairs=SHARD).report == report
    assert "toy, b: already prepared, 28 of 30 pairs retained" in caplog.text


def test_a_corpus_more_leaves_the_text_of_the_others(config: DataConfig, tmp_path: Path) -> None:
    prepare(config, shard_pairs=SHARD)
    before = stamps(config)
    corpora = {**config.train.corpora, "d": CorpusConfig(**write_pairs(tmp_path, "d", some_pairs(5, 20)))}
    more = prepare(replace(config, train=TrainSplitConfig(corpora=corpora)), shard_pairs=SHARD)
    assert more.train.sizes == (40, 28, 46, 20)
    # More text yields other pieces, so all ids are new.
    assert made_between(before, stamps(config)) == {
        "text": 1,
        "facts": 1,
        "tokenizer": 1,
        "repeats": 1,
        "ids": 4,
    }


@pytest.mark.parametrize(
    ("options", "made"),
    [
        ({"weight": 3.0}, {"tokenizer": 1, "facts": 1}),
        ({"tag": "<2yy>"}, {"tokenizer": 1, "facts": 1, "ids": 3}),
        ({"cleaning": {"max_pieces": 100}}, {"ids": 1}),
        (
            {"cleaning": {"drop_control": False}},
            {"text": 1, "facts": 1, "tokenizer": 1, "repeats": 1, "ids": 2},
        ),
    ],
)
def test_an_option_makes_again_what_it_touches(
    config: DataConfig, options: dict[str, Any], made: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The pieces do not depend on the mixture here: only the option decides which stages run again.
    monkeypatch.setattr(preparation, "pairs_for_pieces", lambda texts, config: iter([*A, *C]))
    prepare(config, shard_pairs=SHARD)
    before = stamps(config)
    prepare(change(config, "b", **options), shard_pairs=SHARD)
    assert made_between(before, stamps(config)) == made


def test_one_named_corpus_is_the_same_as_one_without_a_name(config: DataConfig, tmp_path: Path) -> None:
    plain = replace(config, train=TrainSplitConfig(**write_pairs(tmp_path, "c", C)))
    named = replace(
        config, train=TrainSplitConfig(corpora={"c": CorpusConfig(**write_pairs(tmp_path, "c", C))})
    )
    first = prepare(plain, shard_pairs=SHARD)
    before = stamps(config)
    second = prepare(named, shard_pairs=SHARD)
    assert stamps(config) == before
    assert (pairs(first), first.fingerprint) == (pairs(second), second.fingerprint)


def test_a_corpus_may_keep_what_stands_in_others(config: DataConfig) -> None:
    prepared = prepare(change(config, "c", cleaning={"drop_duplicates": False}), shard_pairs=SHARD)
    assert prepared.train.sizes == (40, 28, 49)


def dropped(prepared: Prepared) -> list[dict[str, int]]:
    """Returns how many duplicates each corpus lost."""
    corpora = prepared.report["train"]["corpora"].values()
    return [
        {name: count for name, count in corpus["cleaning"]["dropped"].items() if "duplicate" in name}
        for corpus in corpora
    ]


def test_each_corpus_is_judged_by_its_own_languages(config: DataConfig, tmp_path: Path) -> None:
    write_pairs(tmp_path, "c", [(source, "的一是不了人我在有他这为之大来以个中上们" * 2) for source, _ in C])
    rules = CleaningConfig(min_script=0.6, max_word=30)
    config = replace(config, source_lang="en", target_lang="de", cleaning=rules)
    with pytest.raises(UserError, match=r"^data\.train\.corpora\.c: no pairs remain .*over-long word 49"):
        prepare(config, shard_pairs=SHARD)
    before = stamps(config)
    mixed = change(config, "c", target_lang="zh")
    prepared = prepare(mixed, shard_pairs=SHARD)
    assert prepared.train.sizes == (40, 28, 48)
    # The text of the other corpora is reused; the first run failed before it learnt pieces.
    assert made_between(before, stamps(config)) == {
        "text": 1,
        "facts": 1,
        "repeats": 1,
        "tokenizer": 1,
        "ids": 3,
    }
    corpora = prepared.report["train"]["corpora"]
    assert [(c["source_lang"], c["target_lang"]) for c in corpora.values()] == [
        ("en", "de"), ("en", "de"), ("en", "zh"),
    ]  # fmt: skip
    page = data_report(prepared)
    assert (page["source"]["lang"], page["target"]["lang"]) == ("en", "de, zh")


def test_held_out_tags(config: DataConfig, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    plain = prepare(config, shard_pairs=SHARD)
    before = stamps(config)
    tagged = prepare(replace(config, valid=replace(config.valid, tag="<bt>")), shard_pairs=SHARD)
    assert stamps(config) == before  # the tag is not part of the comparison with the training text
    assert (plain.report["valid"]["tag"], tagged.report["valid"]["tag"]) == (None, "<bt>")
    tag = tagged.tokenizer.source_symbols["<bt>"]
    for row in range(5):
        source, target = plain.valid_stores[""].pair(row)
        assert tagged.valid_stores[""].pair(row)[0].tolist() == [tag, *source.tolist()]
        assert tagged.valid_stores[""].pair(row)[1].tolist() == target.tolist()
    with pytest.raises(
        UserError, match=r"^data\.test\.tag=<2xx>: no training corpus has this tag, only <bt>$"
    ):
        prepare(replace(config, test=replace(config.valid, tag="<2xx>")), shard_pairs=SHARD)

    assert "has no tag" not in caplog.text
    everywhere = change(change(config, "a", tag="<2yy>"), "c", tag="<2zz>")
    with caplog.at_level("WARNING", "nmt"):
        prepare(everywhere, shard_pairs=SHARD)
    assert "data.valid has no tag, but every training corpus has one" in caplog.text


@pytest.mark.parametrize(("tag", "left"), [("<bt>", 39), ("<2zz>", 40)])
def test_a_tag_written_before_held_out_text_hides_no_leakage(
    config: DataConfig, tmp_path: Path, tag: str, left: int
) -> None:
    held_out = [(f"{tag} {source}", target + " y") for source, target in [A[20], *some_pairs(4, 5)]]
    valid = SplitConfig(**write_pairs(tmp_path, "tagged", held_out))
    assert prepare(replace(config, valid=valid), shard_pairs=SHARD).train.sizes[0] == left


NEAR = {"drop_near_duplicates": True}


@pytest.mark.parametrize(
    ("cleaning", "expected"),
    [
        ([{}, {}, {}], [{}, {"duplicate": 2}, {"duplicate": 3}]),
        (
            [NEAR, NEAR, NEAR],
            [{}, {"duplicate": 2, "near_duplicate": 1}, {"duplicate": 3, "near_duplicate": 3}],
        ),
        ([{}, NEAR, NEAR], [{}, {"duplicate": 2}, {"duplicate": 3, "near_duplicate": 2}]),  # `a` is exempt
        ([NEAR, {}, NEAR], [{}, {"duplicate": 2}, {"duplicate": 3, "near_duplicate": 2}]),  # `b` is exempt
        (
            [NEAR, NEAR, {"drop_near_duplicates": True, "drop_duplicates": False}],
            [{}, {"duplicate": 2, "near_duplicate": 1}, {"near_duplicate": 6}],  # equal pairs count as near
        ),
        ([NEAR, NEAR, {"drop_duplicates": False}], [{}, {"duplicate": 2, "near_duplicate": 1}, {}]),
    ],
)
def test_near_repeats_across_the_corpora_that_ask(
    config: DataConfig, tmp_path: Path, cleaning: list[dict[str, Any]], expected: list[dict[str, int]]
) -> None:
    b, c = list(B), list(C)
    b[10] = (A[11][0] + ".", A[11][1])
    c[10], c[11] = (A[12][0].upper(), A[12][1] + " !"), (B[12][0], "»" + B[12][1])
    c[12] = (c[13][0] + ",", c[13][1])  # the earlier pair of two in `c`
    write_pairs(tmp_path, "b", b), write_pairs(tmp_path, "c", c)
    for name, options in zip("abc", cleaning, strict=True):
        config = change(config, name, cleaning=options)
    prepared = prepare(config, shard_pairs=SHARD)
    assert dropped(prepared) == expected
    if cleaning == [NEAR, NEAR, NEAR]:
        parts: list[tuple[Pairs, list[int]]] = [
            (A, []),
            (without(b, 3, 10, 29), [prepared.tokenizer.source_symbols["<bt>"]]),
            (without(c, 0, 1, 9, 10, 11, 13, 20), []),
        ]
        assert pairs(prepared) == expected_ids(prepared, parts)
        report = prepared.report["train"]["corpora"]["b"]["cleaning"]
        assert report["words"]["near_duplicate"] == "nearly the same pair occurs earlier"
        assert report["examples"]["near_duplicate"] == [list(b[10])]


def test_pieces_are_learnt_in_proportion_to_the_draws(
    config: DataConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    samples: list[Pairs] = []
    real = preparation.train_tokenizer

    def train(sample: Any, *rest: Any, **named: Any) -> Any:
        samples.append(list(sample()))
        return real(sample, *rest, **named)

    monkeypatch.setattr(preparation, "train_tokenizer", train)
    prepare(config, shard_pairs=SHARD)
    (sample,) = samples
    found = [sum(pair in part for pair in sample) for part in (A, without(B, 3), without(C, 0, 1))]
    assert found == [38, 54, 22]  # 114 pairs in the ratio 40 : 56 : 23
    assert set(Counter(pair for pair in sample if pair in without(B, 3)).values()) == {1, 2}
    assert not any("<bt>" in source for source, _ in sample)


def test_a_corpus_of_nothing_new_is_named(config: DataConfig, tmp_path: Path) -> None:
    corpora = {**config.train.corpora, "d": CorpusConfig(**write_pairs(tmp_path, "d", A[:9]))}
    with pytest.raises(UserError, match=r"^data\.train\.corpora\.d: no pairs remain .*occurs earlier 9 100"):
        prepare(replace(config, train=TrainSplitConfig(corpora=corpora)), shard_pairs=SHARD)


def test_a_tag_counts_as_a_piece(config: DataConfig) -> None:
    prepared = prepare(config, shard_pairs=SHARD)
    longest = max(len(prepared.train.pair(row)[0]) for row in range(40, 68))
    assert max(map(len, prepared.tokenizer.encode_source([source for source, _ in B]))) == longest - 1
    less = prepare(replace(config, cleaning=CleaningConfig(max_pieces=longest - 1)), shard_pairs=SHARD)
    assert less.train.sizes[1] < 28
