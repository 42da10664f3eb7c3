"""Cached text depends on its cleaning rules: a new or changed rule cleans the text again."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from toy_corpus import SHARD, stamps

from nmt.config import CleaningConfig, DataConfig
from nmt.data.cache import fingerprint
from nmt.data.cleaning.cleaner import RULES, CleaningReport, build_rules, rule_facts
from nmt.data.cleaning.rules.rule import Rule, Setting
from nmt.data.preparation.prepare import prepare


class LetterRule(Rule):
    """A user's rule, added as the README describes."""

    name = "letter"
    words = "the source begins with that letter"
    letter: str | None = "a"

    def __init__(self, letter: str) -> None:
        self.first = {letter}

    @classmethod
    def build(cls, config: CleaningConfig, setting: Setting) -> Rule | None:
        return cls(cls.letter) if cls.letter else None

    def drops(self, source: str, target: str) -> bool:
        return source[:1] in self.first


def dropped(config: DataConfig) -> int:
    report = prepare(config, shard_pairs=SHARD).report
    return int(report["cleaning"]["dropped"].get(LetterRule.name, 0))


def test_a_rule_of_ones_own_is_applied_to_what_was_prepared(
    prepared_config: DataConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(RULES, LetterRule.name, LetterRule)
    lines = (tmp_path / "train.xx").read_text().split("\n")
    starts = [line[:1] for line in lines[:30] + lines[31:]]  # row 30 is dropped by another rule
    assert dropped(prepared_config) == starts.count("a") > 2
    monkeypatch.setattr(LetterRule, "letter", "b")
    assert dropped(prepared_config) == starts.count("b")
    monkeypatch.setattr(LetterRule, "letter", "a")
    monkeypatch.setattr(LetterRule, "drops", lambda self, source, target: source.endswith("a"))
    assert dropped(prepared_config) == starts.count(
        "a"
    )  # this change is invisible, so a new version is needed
    monkeypatch.setattr(LetterRule, "version", 2)
    assert dropped(prepared_config) not in (starts.count("a"), 0)


def test_rules_and_options_that_are_off_change_nothing(
    prepared_config: DataConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    @dataclass
    class Wider(CleaningConfig):
        drop_odd: bool = False

    config = prepared_config
    before = stamps(config)
    monkeypatch.setitem(RULES, LetterRule.name, LetterRule)
    monkeypatch.setattr(LetterRule, "letter", None)
    prepare(replace(config, cleaning=Wider(max_pieces=60)), shard_pairs=SHARD)
    assert stamps(config) == before
    monkeypatch.setattr(LetterRule, "letter", "a")
    prepare(config, shard_pairs=SHARD)
    assert stamps(config).keys() > before.keys()


def test_other_text_held_out_cleans_again(prepared_config: DataConfig, tmp_path: Path) -> None:
    config = prepared_config
    before = stamps(config)
    lines = (tmp_path / "valid.xx").read_text().split("\n")
    (tmp_path / "valid.xx").write_text("\n".join(["other words", *lines[1:]]))
    prepare(replace(config, cleaning=replace(config.cleaning, drop_leaked=False)), shard_pairs=SHARD)
    unseen = stamps(config)
    prepare(config, shard_pairs=SHARD)
    assert len({Path(name).parent for name in stamps(config).keys() - unseen.keys()}) == 4
    assert before.keys() < unseen.keys()


@pytest.mark.parametrize(("leaked", "hinted"), [(0, False), (50, False), (51, True), (100, True)])
def test_a_rule_that_drops_most_pairs_names_its_option(leaked: int, hinted: bool) -> None:
    """Trees and labels repeat, so they are also in the held-out text."""
    report = CleaningReport(100 - leaked, Counter(leaked=leaked))
    assert (report.hint or "").endswith("set data.cleaning.drop_leaked=false.") is hinted


def test_facts() -> None:
    """The facts name the enabled rules and their arguments."""

    def facts(source_lang: str = "en", target_lang: str = "de", **options: float) -> list[object]:
        return rule_facts(build_rules(CleaningConfig(**options), languages=(source_lang, target_lang)))

    default = [["EmptyRule", 1, {}], ["ControlRule", 1, {}], ["IdenticalRule", 1, {}],
               ["RatioRule", 1, {"max_ratio": 9.0}]]  # fmt: skip
    assert facts() == facts("xx", "yy") == default
    assert facts(max_ratio=3)[-1] == ["RatioRule", 1, {"max_ratio": 3}]
    assert facts(max_word=50)[-1] == ["LongWordRule", 1, {"max_word": 50, "spaced": (True, True)}]
    assert facts("ja", max_word=50) != facts(max_word=50)
    assert facts("ja", min_script=0.5) != facts(min_script=0.5) == facts("fr", min_script=0.5)
    assert facts("ja", langid_confidence=0.9) != facts(langid_confidence=0.9)
    fingerprint(facts(min_script=0.5, langid_confidence=0.9))


def test_sets_have_one_fingerprint() -> None:
    words = [f"word {number}" for number in range(100)]
    assert fingerprint({"a": set(words)}) == fingerprint({"a": frozenset(reversed(words))})
    assert fingerprint({"a": set(words)}) != fingerprint({"a": set(words[1:])})
    with pytest.raises(TypeError, match="JSON can't represent <object"):
        fingerprint([object()])
