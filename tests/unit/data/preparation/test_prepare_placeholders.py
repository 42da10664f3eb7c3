"""Placeholders in prepared data: literal pairs, the cache, and nothing changed without the option."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from toy_corpus import SHARD, files, pairs, write_corpus

from nmt.config import CorpusConfig, DataConfig, TokenizerConfig, TrainSplitConfig
from nmt.copying.strings import PLACEHOLDERS
from nmt.data.preparation import prepare as preparation
from nmt.data.preparation.prepare import prepare
from nmt.errors import UserError

VOCAB = 420
PAIRS = [
    ("abc {x} d, e http://a.b.", "{x} D CBA http://a.b E."),
    ("abc {x} only", "CBA ONLY"),
    (f"abc {PLACEHOLDERS[1]} def", f"{PLACEHOLDERS[1]} FED"),
    (f"abd {PLACEHOLDERS[1]} def", "FED"),
]


@pytest.fixture
def config(tmp_path: Path) -> DataConfig:
    config = write_corpus(tmp_path)
    for side, name in enumerate(("train.xx", "train.yy")):
        with open(tmp_path / name, "a", encoding="utf-8") as file:
            file.writelines(f"{pair[side]}\n" for pair in PAIRS)
    return replace(config, tokenizer=TokenizerConfig(vocab_size=VOCAB))


def on(config: DataConfig) -> DataConfig:
    return replace(config, placeholders=True)


def test_literal_pairs(config: DataConfig) -> None:
    prepared = prepare(on(config), shard_pairs=SHARD)
    own, [first, second] = prepared.tokenizer, PLACEHOLDERS[:2]
    assert len(own.placeholders) == len(PLACEHOLDERS) and own.source_symbols == {}
    expected = [
        (f"abc {first} d, e {second}.", f"{first} D CBA {second} E."),
        ("abc {x} only", "CBA ONLY"),
        (f"abc {first} def", f"{first} FED"),
        ("abd \ufffd def", "FED"),
    ]
    sources, targets = ([pair[side] for pair in expected] for side in (0, 1))
    encoded = list(zip(own.encode_source(sources), own.encode_target(targets), strict=True))
    assert pairs(prepared)[-len(PAIRS) :] == encoded
    assert encoded[0][0].count(own.placeholders[0]) == encoded[0][1].count(own.placeholders[0]) == 1
    again = prepare(on(config), shard_pairs=SHARD)
    assert (again.report, again.fingerprint) == (prepared.report, prepared.fingerprint)


def test_the_validation_set_has_placeholders(config: DataConfig, tmp_path: Path) -> None:
    for name, line in (("valid.xx", "abc <b>d</b>"), ("valid.yy", "<b>D</b> CBA")):
        with open(tmp_path / name, "a", encoding="utf-8") as file:
            print(line, file=file)
    prepared = prepare(on(config), shard_pairs=SHARD)
    first, second = prepared.tokenizer.placeholders[:2]
    valid = prepared.valid_stores[""]
    for side in valid.pair(valid.num_pairs - 1):
        assert [i for i in side.tolist() if i in (first, second)] == [first, second]
    assert prepared.valid[""].sources[-1] == "abc <b>d</b>"


def test_without_the_option_nothing_depends_on_it(
    config: DataConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts: list[Any] = []
    actual = preparation.fingerprint

    def recorded(value: Any) -> str:
        facts.append(value)
        return actual(value)

    monkeypatch.setattr(preparation, "fingerprint", recorded)
    prepared = prepare(config, shard_pairs=SHARD)
    assert len(facts) > 3
    assert "placeholder" not in repr(facts) and not any(one in repr(facts) for one in PLACEHOLDERS)
    assert not prepared.tokenizer.placeholders
    before = files(config)
    prepare(on(config), shard_pairs=SHARD)
    after = files(config)
    assert {name: content for name, content in after.items() if name in before} == before
    new = {name.split("/")[1].split("-")[0] for name in after.keys() - before.keys()}
    assert new == {"tokenizer", "ids"}  # the cleaned text is shared
    assert any("placeholders" in repr(one) for one in facts)


def test_a_tag_is_not_a_placeholder(config: DataConfig, tmp_path: Path) -> None:
    corpus = CorpusConfig(source=config.train.source, target=config.train.target, tag="<2yy>")
    tagged = replace(config, train=TrainSplitConfig(corpora={"one": corpus}))
    prepared = prepare(on(tagged), shard_pairs=SHARD)
    assert list(prepared.tokenizer.source_symbols) == ["<2yy>"]
    assert pairs(prepared)[0][0][0] == prepared.tokenizer.source_symbols["<2yy>"]


@pytest.mark.parametrize("has", [True, False])
def test_a_given_vocabulary_must_fit(config: DataConfig, tmp_path: Path, has: bool) -> None:
    prepare(replace(config, placeholders=has), shard_pairs=SHARD).tokenizer.save(tmp_path / "pieces")
    path = str(tmp_path / "pieces")
    given = replace(config, tokenizer=TokenizerConfig(path=path))
    reused = prepare(replace(given, placeholders=has), shard_pairs=SHARD)
    assert bool(reused.tokenizer.placeholders) is has
    shown, words = ("false", "has placeholders") if has else ("true", "has no placeholders")
    with pytest.raises(UserError) as caught:
        prepare(replace(given, placeholders=not has), shard_pairs=SHARD)
    fix = f"Set data.placeholders={str(has).lower()}."
    assert str(caught.value) == f"data.placeholders={shown}: the vocabulary of {path} {words}. {fix}"


def test_other_patterns_make_other_ids(
    config: DataConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(on(config), shard_pairs=SHARD).tokenizer.save(tmp_path / "pieces")
    given = on(replace(config, tokenizer=TokenizerConfig(path=str(tmp_path / "pieces"))))
    first = prepare(given, shard_pairs=SHARD)
    monkeypatch.setattr(preparation, "VERSION", preparation.VERSION + 1)
    second = prepare(given, shard_pairs=SHARD)
    assert second.tokenizer.fingerprint == first.tokenizer.fingerprint
    assert second.fingerprint != first.fingerprint
