"""Augmentation of blocks: a pure function of their place that changes what it may change."""

from __future__ import annotations

import pickle
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_corpus import learnt

from nmt.config import (
    AugmentationConfig,
    CleaningConfig,
    CorpusConfig,
    DataConfig,
    SamplingConfig,
    TrainSplitConfig,
)
from nmt.copying.strings import PLACEHOLDERS
from nmt.data.batches import augmentation
from nmt.data.batches.augmentation import Augmenter
from nmt.data.batches.blocks import Plan
from nmt.data.store import Store
from nmt.data.subwords.tokenizer import Tokenizer
from nmt.runtime.arrays import Side

PAIRS = [
    ("a young man with a hat walks.", "Ein junger Mann geht."),
    ("Two dogs run over the grass!", "Zwei Hunde laufen."),
    (f"see {PLACEHOLDERS[0]} and {PLACEHOLDERS[1]}.", f"siehe {PLACEHOLDERS[1]}, {PLACEHOLDERS[0]}"),
    ("the house @@ is very large.", "Das Haus @@ ist groß."),
    ("Where is the station?", "Wo ist der Bahnhof?"),
    ("no", "nein"),
]
ALL = {"capitals": 0.3, "titles": 0.3, "unpunctuated": 0.5, "typos": 0.8}


@cache
def own() -> Tokenizer:
    symbols = ["<de>", "@@", *PLACEHOLDERS]
    return learnt(PAIRS * 3, vocab_size=430, user_symbols=symbols)


def options(rates: dict[str, float], **more: Any) -> DataConfig:
    values = {"max_tokens": 200, "block_pairs": 20, "source_lang": "en", "target_lang": "de"}
    return DataConfig(**{**values, "augmentation": AugmentationConfig(**rates), **more})


def encoded(pairs: list[tuple[str, str]], tag: str = "") -> tuple[Side, Side]:
    sources, targets = zip(*pairs, strict=True)
    ids = own().encode_source([f"{tag}{source}" for source in sources])
    return Side.of(ids, np.uint16), Side.of(own().encode_target(targets), np.uint16)


def decoded(pairs: tuple[Side, Side]) -> list[tuple[str, str]]:
    texts = [own().source.decode([ids.tolist() for ids in side]) for side in pairs]
    return list(zip(*texts, strict=True))


def augmented(rates: dict[str, float], tag: str = "", seed: int = 1) -> list[tuple[str, str]]:
    augmenter = Augmenter(own(), options(rates))
    pairs = encoded(PAIRS, tag)
    return decoded(augmenter.augmented(*pairs, np.zeros(len(PAIRS), np.int64), seed))


def test_literal_pairs() -> None:
    assert augmented({}) == PAIRS
    capitals = augmented({"capitals": 1.0}, "<de> ")
    assert capitals[0] == ("<de> A YOUNG MAN WITH A HAT WALKS.", "EIN JUNGER MANN GEHT.")
    assert capitals[2] == (f"<de> {PAIRS[2][0].upper()}", PAIRS[2][1].upper())
    assert capitals[3] == ("<de> the house @@ is very large.", "Das Haus @@ ist groß.")  # a user symbol
    titles = augmented({"titles": 1.0})
    assert titles[4] == ("Where Is The Station?", "Wo ist der Bahnhof?")
    assert augmented({"unpunctuated": 1.0})[1] == ("Two dogs run over the grass", "Zwei Hunde laufen.")
    typos = augmented({"typos": 1.0})
    assert typos[:2] == [
        ("a young man with a hat wlaks.", "Ein junger Mann geht."),
        ("Two dogs run over the gras s!", "Zwei Hunde laufen."),
    ]
    assert typos[5] == PAIRS[5]
    assert [target for _, target in typos] == [target for _, target in PAIRS]


@pytest.mark.parametrize(
    ("source", "pieces", "numbers"), [("the station", 9, {1}), ("large hat walk" * 3, 29, {1, 2, 3})]
)
def test_a_longer_source_has_more_typos(
    source: str, pieces: int, numbers: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(augmentation, "with_typos", lambda text, most, seed: str(most))
    pairs = encoded([(source, "nein")] * 50)
    assert pairs[0].lengths().tolist() == [pieces] * 50
    new = Augmenter(own(), options({"typos": 1.0})).augmented(*pairs, np.zeros(50, np.int64), 1)
    assert {int(text) for text, _ in decoded(new)} == numbers


@given(
    st.integers(0, 2**62), st.lists(st.integers(0, 5), min_size=1, max_size=8), st.sampled_from(["", "<de> "])
)
@settings(max_examples=40)
def test_pairs_are_independent_and_whole(seed: int, rows: list[int], tag: str) -> None:
    """The number of pairs and their placeholders remain, no side is empty, and the seed decides alone."""
    augmenter = pickle.loads(pickle.dumps(Augmenter(own(), options(ALL))))
    pairs, corpora = encoded([PAIRS[row] for row in rows], tag), np.zeros(len(rows), np.int64)
    new = augmenter.augmented(*pairs, corpora, seed)
    for old_side, side in zip(pairs, new, strict=True):
        assert len(side) == len(rows) and side.lengths().all() and side.ids.dtype == old_side.ids.dtype
        for old, ids in zip(old_side, side, strict=True):
            kept = [[id for id in each.tolist() if id in own().placeholders] for each in (old, ids)]
            assert kept[0] == kept[1]
            assert old[0] == ids[0] or not tag or side is new[1]
    again = Augmenter(own(), options(ALL)).augmented(*pairs, corpora, seed)
    assert decoded(again) == decoded(new)


def plan(data: DataConfig, pairs: list[tuple[str, str]], sizes: tuple[int, ...]) -> Plan:
    stores = [Store.of(*map(list, encoded(pairs[:size]))) for size in sizes]
    return Plan(Store.joined(stores), data, 7, own())


def test_rates_and_languages_of_corpora() -> None:
    """A tenth of 1,000 pairs is changed, another one in each epoch; a corpus has its own languages."""
    line = ("istanbul is large.", "istanbul ist groß.")
    corpora = {"tr": CorpusConfig(source_lang="tr"), "en": CorpusConfig()}
    data = options({"capitals": 0.1}, train=TrainSplitConfig(corpora=corpora), block_pairs=1000)
    both = plan(data, [line] * 500, (500, 500))
    blocks = [both.block(epoch, 0) for epoch in (0, 1)]
    texts = [np.array([source for source, _ in decoded((block.source, block.target))]) for block in blocks]
    assert [(part == "istanbul is large.").sum() for part in texts] == [892, 910]
    assert {*texts[0]} == {"istanbul is large.", "ISTANBUL IS LARGE.", "İSTANBUL İS LARGE."}
    turkish = np.isin(blocks[0].rows.flat(), np.arange(500))
    assert not (texts[0][turkish] == "ISTANBUL IS LARGE.").any()
    assert (texts[0] != texts[1]).sum() > 100


def test_a_pair_that_grows_too_long_is_the_old_one() -> None:
    longest = max(max(side.lengths()) for side in encoded(PAIRS[:2]))
    data = options({"capitals": 1.0}, cleaning=CleaningConfig(max_pieces=int(longest)))
    block = plan(data, PAIRS[:2], (2,)).block(0, 0)
    assert sorted(decoded((block.source, block.target))) == sorted(PAIRS[:2])


@pytest.mark.parametrize("alpha", [0.0, 0.3])
def test_samples_are_of_the_changed_text(alpha: float) -> None:
    data = options(ALL, sampling=SamplingConfig(alpha=alpha))
    block = plan(data, PAIRS, (6,)).block(3, 0)
    plain = plan(options(ALL), PAIRS, (6,)).block(3, 0)
    assert decoded((block.source, block.target)) == decoded((plain.source, plain.target))
    assert (block.source.ids.tolist() == plain.source.ids.tolist()) == (alpha == 0)
