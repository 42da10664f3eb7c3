"""Placeholders inserted into training pairs: where, how many, their numbers, and resuming."""

from __future__ import annotations

import itertools
import pickle
import random
import re
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_corpus import learnt

from nmt.config import (
    CleaningConfig,
    CorpusConfig,
    DataConfig,
    Segmentation,
    TrainSplitConfig,
)
from nmt.copying.correspondence import Lexicon, Units, equal_units
from nmt.copying.insertion import count_placeholders, drawn_steps, renumbered
from nmt.copying.strings import NUM_PLACEHOLDERS, PLACEHOLDERS, mask_pair
from nmt.data.batches.blocks import Plan, inserter_of, pieces_of, steps_in_chains
from nmt.data.store import Store
from nmt.data.subwords.tokenizer import Tokenizer
from nmt.runtime.arrays import Side

ENGLISH = "the small big red dog cat man sees hears London 1999 Bob house tree bird fish Munich".split()
GERMAN = (
    "der kleine große rote Hund Katze Mann sieht hört London 1999 Bob Haus Baum Vogel Fisch München".split()
)


def texts(count: int = 400) -> list[tuple[str, str]]:
    chance = random.Random(count)
    found = []
    for number in range(count):
        words = chance.sample(range(len(ENGLISH)), chance.randint(1, 4))
        marks = chance.choices(["{}", "{}", "{},", "({})"], k=len(words))
        source = " ".join(mark.format(ENGLISH[i]) for mark, i in zip(marks, words, strict=True))
        target = " ".join(mark.format(GERMAN[i]) for mark, i in zip(marks[::-1], words[::-1], strict=True))
        if number % 7 == 0:
            source, target = f"{source} <b>{{x}}</b>", f"<b>{{x}}</b> {target}"
        found.append((source, target))
    return found


@cache
def tokenizer(segmentation: Segmentation = Segmentation.bpe, joint: bool = True) -> Tokenizer:
    symbols = ["<t>", *PLACEHOLDERS]
    return learnt(texts(), segmentation=segmentation, vocab_size=420, joint=joint, user_symbols=symbols)


def stored(pairs: list[tuple[str, str]], own: Tokenizer) -> Store:
    masked = [mask_pair(*pair)[:2] for pair in pairs]
    return Store.of(own.encode_source([x for x, _ in masked]), own.encode_target([y for _, y in masked]))


def shown(ids: Any, own: Tokenizer, target: bool = False) -> str:
    processor = own.target.processor if target else own.source.processor
    text = processor.decode([int(i) for i in ids])
    return re.sub(f"[{PLACEHOLDERS[0]}-{PLACEHOLDERS[-1]}]", lambda one: f"⟦{ord(one[0]) - 0xF0000}⟧", text)


def numbers(text: str) -> list[int]:
    return [int(one) for one in re.findall("⟦([0-9]+)⟧", text)]


def inserted(
    pairs: list[tuple[str, str]], own: Tokenizer, limit: int = 100, seed: int = 1
) -> list[tuple[str, str]]:
    store = stored(pairs, own)
    source, target = store.take(np.arange(store.num_pairs))
    tags = np.zeros(len(source), np.bool_)
    new = inserter_of(own, stored(texts(), own)).insert(source, target, tags, (limit, limit), seed)
    assert new[0].ids.dtype == source.ids.dtype
    return [(shown(x, own), shown(y, own, True)) for x, y in zip(*new, strict=True)]


KINDS = list(itertools.product(Segmentation, [True, False]))


@pytest.mark.parametrize(("segmentation", "joint"), KINDS)
def test_numbers_are_in_the_order_of_the_source(segmentation: Segmentation, joint: bool) -> None:
    own = tokenizer(segmentation, joint)
    before = inserted(texts(), own, limit=1)  # nothing fits
    assert before == [
        (shown(x, own), shown(y, own, True))
        for x, y in zip(*stored(texts(), own).take(np.arange(400)), strict=True)
    ]
    after = inserted(texts(), own)
    changed = 0
    for (source, target), (old_source, old_target) in zip(after, before, strict=True):
        assert numbers(source) == list(range(len(numbers(source)))) == sorted(numbers(target))
        if (source, target) != (old_source, old_target):
            changed += 1
            assert len(numbers(source)) > len(numbers(old_source))
    assert 0.25 * 400 < changed < 0.45 * 400


def test_places_correspond() -> None:
    own = tokenizer()
    placed = set()
    for seed in range(3):
        for source, target in inserted(texts(), own, seed=seed):
            for left, right in zip(ENGLISH, GERMAN, strict=True):
                around = re.findall(rf"(⟦\d+⟧) {left} (⟦\d+⟧)", source)
                if around and re.search(rf"{around[0][0]} {right} {around[0][1]}", target):
                    placed.add(left)
    assert {"dog", "cat", "man", "Bob"} <= placed


def test_phrases_have_placeholders_around_them() -> None:
    own = tokenizer()
    in_order = [("dog the the man", "Hund der Mann")] * 200
    swapped = [("dog the the man", "Mann der Hund")] * 200
    third = [("dog the man Bob", "Hund Bob Mann"), ("dog Bob man", "Hund Mann Bob")] * 100
    long = [("dog" + " the" * 12 + " man", "Hund der Mann")] * 200
    found = {}
    for name, pairs in (("in order", in_order), ("swapped", swapped), ("third", third), ("long", long)):
        around = [
            (match[1], match[2], target)
            for source, target in inserted([(f"big {x} big", f"rote {y} rote") for x, y in pairs], own)
            if (match := re.search(r"⟦(\d+)⟧ dog (?:the |Bob )+man ⟦(\d+)⟧", source))
        ]
        found[name] = around
    assert len(found["in order"]) > 5
    for first, last, target in found["in order"]:
        assert f"⟦{first}⟧ Hund der Mann ⟦{last}⟧" in target
    assert not any(rf"⟦{a}⟧ Mann der Hund ⟦{b}⟧" in target for a, b, target in found["swapped"])
    assert not any(rf"⟦{a}⟧ Hund Bob Mann ⟦{b}⟧" in target for a, b, target in found["third"])
    assert not any(rf"⟦{a}⟧ Hund der Mann ⟦{b}⟧" in target for a, b, target in found["long"])


def test_tags_of_phrases_and_words_are_nested() -> None:
    own = tokenizer()
    pairs = [("dog the man the cat the Bob", "Hund der Mann der Katze der Bob")] * 400
    several = 0
    for source, target in inserted(pairs, own, seed=3):
        at = {side: re.findall(r"⟦\d+⟧|\w+", side) for side in (source, target)}
        order = [[one for one in at[side] if one.startswith("⟦")] for side in (source, target)]
        assert order[0] == order[1]
        several += len(order[0]) > 2
    assert several > 50


def test_numbers_and_names_are_replaced_on_both_sides() -> None:
    own = tokenizer()
    pairs = [("Bob sees 1999, dog Munich", "1999, Hund sieht Bob München")] * 60
    found = inserted(pairs, own)
    assert any("Bob" not in x and "Bob" not in y for x, y in found)
    assert any("1999" not in x and "1999" not in y and ", dog" in x for x, y in found)
    assert all(("Bob" in x) == ("Bob" in y) and ("1999" in x) == ("1999" in y) for x, y in found)
    # Words that only translate each other are never replaced.
    assert all("dog" in x and "Hund" in y and "Munich" in x and "München" in y for x, y in found)
    assert any(re.search(r"⟦\d+⟧ Munich", x) and re.search(r"⟦\d+⟧ München", y) for x, y in found)


def test_a_tag_stays_in_front() -> None:
    own = tokenizer()
    pairs = [("<t> the dog", "der Hund")] * 50 + [("<t>", "der")]
    store = stored(pairs, own)
    source, target = store.take(np.arange(51))
    new, _ = inserter_of(own, store).insert(source, target, np.ones(51, np.bool_), (50, 50), 1)
    tag = own.source_symbols["<t>"]
    assert all(one[0] == tag and tag not in one[1:] for one in new)
    assert count_placeholders(new, own.placeholders[0]).sum() > 10
    assert new[50].tolist() == [tag]


def test_units_do_not_depend_on_the_pieces() -> None:
    own = tokenizer()
    pieces = pieces_of(own.source, [*own.source_symbols.values(), *own.placeholders])
    lines = ["(London) 1999, Bob,red dog", f"{PLACEHOLDERS[0]} dog"]
    side = Side.of(own.encode_source(lines), np.int32)
    units = Units.of(side, pieces)
    assert [shown(side.ids[b:e], own) for b, e in zip(units.begins, units.ends, strict=True)] == [
        "London", "1999", "Bob", "red", "dog", "dog",
    ]  # fmt: skip
    assert units.rows.tolist() == [0, 0, 0, 0, 0, 1]
    assert units.names.tolist() == [True, True, True, False, False, False]
    assert units.letters[4] == units.letters[5]
    # The same letters one by one: ▁ d o g
    letters = [own.source.processor.piece_to_id(one) for one in "▁dog"]
    assert Units.of(Side.of([letters]), pieces).letters[0] == units.letters[4]
    assert letters != own.encode_source(["dog"])[0]
    pairs = equal_units(units, units.letters, units)
    assert pairs[0].tolist() == pairs[1].tolist() == [0, 1, 2, 3, 4, 5]


def test_the_lexicon() -> None:
    own = tokenizer(joint=False)
    symbols = [*own.source_symbols.values(), *own.placeholders]
    pieces = pieces_of(own.source, symbols), pieces_of(own.target, symbols)
    store = stored(texts(), own)
    lexicon = Lexicon.counted(store.take(np.arange(store.num_pairs)), pieces)

    def letters(word: str, side: int) -> Any:
        ids = (own.encode_source if side == 0 else own.encode_target)([word])[0]
        return Units.of(Side.of([ids]), pieces[side]).letters

    found = {
        (left, right)
        for left in ("dog", "cat", "man", "small", "Bob")
        for right in ("Hund", "Katze", "Mann", "kleine", "Bob")
        if lexicon.translated(letters(left, 0))[0] == letters(right, 1)[0]
    }
    assert found == {("dog", "Hund"), ("cat", "Katze"), ("man", "Mann"), ("small", "kleine"), ("Bob", "Bob")}
    unknown = np.array([12345], np.uint64)
    assert lexicon.translated(unknown).tolist() == [12345]
    empty = Lexicon.counted((Side.of([[]]), Side.of([[]])), pieces)
    assert empty.translated(unknown).tolist() == [12345]


def test_steps_of_numbers() -> None:
    counts = np.array([2, 0, 3, 1])
    assert steps_in_chains(counts, Side.of([[2, 0, 3], [1]])).tolist() == [3, 0, 0, 5]
    side = Side.of([[7, 10, 11], [], [10, 4, 73]], np.uint16)
    assert count_placeholders(side, 10).tolist() == [2, 0, 2]
    assert [one.tolist() for one in renumbered(side, 10, np.array([1, 5, 63]))] == [
        [7, 11, 12],
        [],
        [73, 4, 72],
    ]
    steps = drawn_steps(4000, 1)
    assert steps.min() == 0 and steps.max() == NUM_PLACEHOLDERS - 1
    assert 0.2 < (steps == 0).mean() < 0.3 and 0.45 < (steps < 8).mean() < 0.55


def test_too_many_placeholders_leave_a_pair_unchanged() -> None:
    own = tokenizer()
    full = " ".join(f"{{v{number}}}" for number in range(NUM_PLACEHOLDERS))
    found = inserted([(f"{full} dog", f"{full} Hund")] * 40, own, limit=1000)
    assert len(set(found)) == 1 and len(numbers(found[0][0])) == NUM_PLACEHOLDERS


words = st.sampled_from([*ENGLISH, "{x}", "<b>", "(", "7", "猫", "é", PLACEHOLDERS[3]])
lines = st.lists(words, max_size=6).map(" ".join)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(lines, lines), min_size=1, max_size=12), st.integers(0, 9), st.sampled_from(KINDS))
def test_any_pairs(pairs: list[tuple[str, str]], seed: int, kind: tuple[Segmentation, bool]) -> None:
    own = tokenizer(*kind)
    before = inserted(pairs, own, limit=1, seed=seed)
    after = inserted(pairs, own, limit=30, seed=seed)
    assert after == inserted(pairs, own, limit=30, seed=seed)
    for (source, target), (old_source, old_target) in zip(after, before, strict=True):
        assert sorted(numbers(source)) == sorted(numbers(target)) == list(range(len(numbers(source))))
        assert len(numbers(source)) >= len(numbers(old_source))
        if not numbers(source):
            assert (source, target) == (old_source, old_target)
        old_words = [old_source.split(), old_target.split()]
        for text, old in zip((source, target), old_words, strict=True):
            rest = [one for one in re.sub(r"⟦\d+⟧", " ", text).split() if one not in "().,"]
            assert set("".join(rest)) <= set("".join(old))


def data(**more: Any) -> DataConfig:
    values: dict[str, Any] = {"source_lang": "xx", "target_lang": "yy", "max_tokens": 90, "block_pairs": 40}
    values |= {"cleaning": CleaningConfig(max_pieces=40), "placeholders": True}
    return DataConfig(**(values | more))


def test_batches_of_two_epochs() -> None:
    store, own, first_id = stored(texts(103), tokenizer()), tokenizer(), tokenizer().placeholders[0]
    plan = pickle.loads(pickle.dumps(Plan(store, data(concatenate=0.5), 1, own)))
    blocks = [[plan.block(epoch, number) for number in range(3)] for epoch in range(2)]
    alone = Plan(store, data(concatenate=0.5), 1, own).block(1, 1)  # depends only on its place
    assert [ids.tolist() for ids in alone.source] == [ids.tolist() for ids in blocks[1][1].source]
    for epoch in blocks:
        assert sorted(row for block in epoch for row in block.rows.flat().tolist()) == list(range(103))
        for block in epoch:
            for source, target in zip(block.source, block.target, strict=True):
                own_ids = [
                    [one for one in ids.tolist() if one in own.placeholders] for ids in (source, target)
                ]
                assert sorted(own_ids[0]) == sorted(own_ids[1])
                assert len({*own_ids[0]}) == len(own_ids[0])
                assert max(len(source), len(target)) <= 40
    assert any(
        one.tolist() != other.tolist()
        for one, other in zip(blocks[0][0].source, blocks[1][0].source, strict=False)
    )
    assert any(
        one - first_id > 40
        for block in blocks[0]
        for one in block.source.flat().tolist()
        if one in own.placeholders
    )


def test_each_block_is_drawn_anew() -> None:
    own, pairs = tokenizer(), [("the dog sees", "der Hund sieht")] * 400
    plan = Plan(stored(pairs, own), data(block_pairs=200), 1, own)
    counts = [
        count_placeholders(plan.block(epoch, number).source, own.placeholders[0]) > 0
        for epoch, number in ((0, 0), (0, 1), (1, 0))
    ]
    assert all(0.2 < one.mean() < 0.5 for one in counts)
    assert np.logical_or.reduce(counts).mean() > 0.6  # with the same draws it would be at most 0.5


def test_a_corpus_with_a_tag() -> None:
    own = tokenizer()
    tag = own.source_symbols["<t>"]
    plain = stored(texts(60), own)
    source, target = plain.take(np.arange(60))
    tagged = Store.of([[tag, *one.tolist()] for one in source], [one.tolist() for one in target])
    corpora = {"tagged": CorpusConfig(tag="<t>"), "plain": CorpusConfig()}
    options = data(train=TrainSplitConfig(corpora=corpora), concatenate=0.5, block_pairs=200)
    block = Plan(Store.joined([tagged, plain]), options, 1, own).block(0, 0)
    assert {one.tolist().index(tag) for one in block.source if tag in one.tolist()} == {0}
