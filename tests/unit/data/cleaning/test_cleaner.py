"""The default rules on literal pairs, and the report of dropped pairs."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nmt.config import CleaningConfig
from nmt.data.cleaning.cleaner import (
    RULES,
    CleaningReport,
    PieceRule,
    Rule,
    build_rules,
    near_hash,
    normal_text,
    pair_hash,
)
from nmt.data.cleaning.rules.basic import LeakedRule
from nmt.data.corpora.held_out import HeldOut


def first_rule(rules: Sequence[Rule], source: str, target: str) -> Rule | None:
    """Returns the first rule that drops the pair, or None if no rule does."""
    return next((rule for rule in rules if rule.drops(source, target)), None)


HELD_OUT = (
    HeldOut("valid", ["A dog runs .", ""], ["Ein Hund rennt .", ""], None, {}),
    HeldOut("test", ["Big  Cat"], ["Große Katze"], None, {}),
)

CASES = [
    ("a dog", "ein Hund", None),
    ("", "ein Hund", "empty"),
    ("a dog", "", "empty"),
    ("", "", "empty"),
    ("a\tdog", "ein Hund", None),
    ("a dog", "ein\x00 Hund", "control"),
    ("a\x07 dog", "ein Hund", "control"),
    ("a dog", "ein\x85Hund", "control"),
    ("a dog", "ein\x1fHund", "control"),
    ("a dog", "ein\rHund", "control"),
    ("a\u200bdog", "ein\u2028Hund", None),  # format and separator, not control
    ("a\xa0dog", "ein Hund \ue000 \U0001f600", None),
    ("Obama", "Obama", "identical"),
    ("OBAMA", "Obama", "identical"),
    ("STRASSE", "straße", "identical"),
    ("Obama", "Obama.", None),
    ("ab", "123456789012345678", None),  # exactly nine times as long
    ("ab", "1234567890123456789", "ratio"),
    ("1234567890123456789", "ab", "ratio"),
    ("好", "123456789", None),  # in characters, not bytes
    ("好", "1234567890", "ratio"),
    ("A dog runs .", "etwas anderes", "leaked"),
    ("a Dog  runs.", "etwas anderes", "leaked"),
    ("something else", "EIN HUND RENNT.", "leaked"),
    ("Ein Hund rennt .", "etwas anderes", None),  # held out, but only on the other side
    ("bigcat", "etwas anderes", "leaked"),
    ("a dog runs", "ein Hund rennt", None),
    ("\x07", "\x07", "control"),  # the first matching rule counts
]


@pytest.mark.parametrize(("source", "target", "expected"), CASES)
def test_rules(source: str, target: str, expected: str | None) -> None:
    rule = first_rule(build_rules(CleaningConfig(), *HELD_OUT), source, target)
    assert (rule.name if rule else None) == expected


DEFAULTS = ["empty", "control", "identical", "ratio", "leaked"]
"""The rules that are on by default; test_rules.py has the cases of the others."""


def test_every_rule_has_cases_and_words() -> None:
    assert set(DEFAULTS) == {expected for _, _, expected in CASES if expected}
    assert [rule.name for rule in build_rules(CleaningConfig(), *HELD_OUT)] == DEFAULTS == list(RULES)[:5]
    assert all(rule.words and RULES[name] is rule for name, rule in RULES.items())


@pytest.mark.parametrize(
    ("option", "value", "name"),
    [
        ("drop_control", False, "control"),
        ("drop_identical", False, "identical"),
        ("max_ratio", 0, "ratio"),
        ("drop_leaked", False, "leaked"),
    ],
)
def test_rules_can_be_switched_off(option: str, value: object, name: str) -> None:
    rules = build_rules(CleaningConfig(**{option: value}), *HELD_OUT)
    assert [rule.name for rule in rules] == [other for other in DEFAULTS if other != name]
    assert [rule.name for rule in build_rules(CleaningConfig())] == DEFAULTS[:-1]  # nothing is held out


MARKS = st.sampled_from("xαι\u0301\u0308\u0316\u0323\u0327\u0345\u200b ")
LINES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n"))


@given(st.lists(st.tuples(LINES, LINES)))
@example([("ab", "x"), ("ßa", "SSA"), ("a\tb", "Ã\u00a0ä"), ("", "y"), ("ab", "abcdefghijklmnopqrstu")])
@example([(chr(code), "x") for code in range(0x20, 0x100) if code not in range(0x7F, 0xA0)])
@example([("the same beginning a", "x"), ("the same beginning b", "The  same b e g i n n i n g   a")])
@example([("ABc\td The Same", "x"), ("a" + " " * 60 + "b", "x"), ("ß" * 9, "x"), ("s" + "ss" * 9, "x")])
def test_what_a_rule_does_not_suspect_it_does_not_drop(pairs: list[tuple[str, str]]) -> None:
    held_out = ["the same beginning a", "a\tb\u00a0c\u3000d the same", "ab", "ss" * 9, "x y"]
    rules = build_rules(CleaningConfig(), HeldOut("valid", held_out, held_out, None, {}))
    assert len(rules) == 5
    sources, targets = [source for source, _ in pairs], [target for _, target in pairs]
    for rule in rules:
        suspects = list(rule.suspects(sources, targets))
        assert suspects == sorted(set(suspects))
        assert {place for place, pair in enumerate(pairs) if rule.drops(*pair)} <= set(suspects)


def test_suspects_are_few() -> None:
    rules = build_rules(CleaningConfig(), *HELD_OUT)
    sources = [f"line number {number} of many" for number in range(50)]
    targets = [f"Zeile Nummer {number} von vielen" for number in range(50)]
    assert [list(rule.suspects(sources, targets)) for rule in rules] == [[]] * 5


@given(st.text(), st.text())
@example("the same beginning a", "the same beginning b")
@example("the same beginning a", "The  same b e g i n n i n g   a")
@example("a" + " " * 60 + "b", "ab")
@example("a\tb\u00a0c\u3000d the same", "AB c\td The Same")
@example("ß" * 9, "ss" * 9)
@example("ß" * 9, "s" + "ss" * 9)
def test_leaked_is_what_the_plain_comparison_finds(one: str, other: str) -> None:
    def loose(text: str) -> str:
        shown = "".join(c for c in text if unicodedata.category(c) != "Cf")
        return "".join(unicodedata.normalize("NFKD", shown).replace("\u0345", "").casefold().split())

    expected = bool(loose(one)) and loose(one) == loose(other)
    assert LeakedRule([one], []).drops(other, "x") is expected
    assert LeakedRule([], [one]).drops("x", other) is expected


LOOK_ALIKES = [
    ("ein Bär", "ein Ba\u0308r"),  # composed and decomposed
    ("Ein BÄR", "ein ba\u0308r"),
    ("a bear", "a\u200b bear"),  # zero width
    ("a bear", "\ufeffa bear"),
    ("a b\u00adear", "a bear"),  # a soft hyphen
    ("ＡＢ １２", "ab 12"),
    ("ﬁne", "fine"),
    ("so …", "so ..."),
    ("a\u00a0b", "a b"),
    ("ｶﾞ", "ガ"),
    ("각", "\u1100\u1161\u11a8"),
    ("ᾳ\u0301", "α\u0301\u0345"),  # marks in another order
]


@pytest.mark.parametrize(("one", "other"), LOOK_ALIKES)
@pytest.mark.parametrize("rest", ["", " and more than twelve letters"])
def test_what_looks_alike_leaks(one: str, other: str, rest: str) -> None:
    one, other = one + rest, other + rest
    for held_out, line in ((one, other), (other, one)):
        rule = LeakedRule([held_out], [held_out])
        assert rule.drops(line, "x") and list(rule.suspects(["y", line], ["x", "x"])) == [0, 1]
        assert rule.drops("x", line) and list(rule.suspects(["x", "x"], ["y", line])) == [0, 1]
    assert not LeakedRule([one], [one]).drops("another" + other, other + "another")


@given(st.text(MARKS, max_size=9), st.text(MARKS, max_size=9), st.integers(0, 12))
def test_marks_at_the_end_of_the_head_hide_nothing(one: str, other: str, letters: int) -> None:
    held_out = "x" * letters + unicodedata.normalize("NFC", one + other) + "y" * 12
    line = "x" * letters + unicodedata.normalize("NFD", one + other) + "y" * 12
    rule = LeakedRule([held_out], [])
    assert rule.drops(line, "z") and list(rule.suspects([line], ["z"])) == [0]


@pytest.mark.parametrize(
    ("held_out", "line", "expected"),
    [
        ("<bt> A dog runs.", "a dog runs.", True),
        ("<2de>  A dog runs.", "a dog runs.", True),
        ("<2de> A dog runs.", "<2de> a dog runs.", True),  # written into the training text
        ("<2fr> A dog runs.", "a dog runs.", False),  # not a tag of any corpus
        ("<bt>A dog runs.", "a dog runs.", False),  # part of another word
        ("<bt>", "a", False),
    ],
)
def test_a_tag_before_a_held_out_source_hides_nothing(held_out: str, line: str, expected: bool) -> None:
    split = HeldOut("test", [held_out], ["x y z"], None, {})
    (rule,) = [
        rule
        for rule in build_rules(CleaningConfig(), split, tags=("<bt>", "<2de>"))
        if isinstance(rule, LeakedRule)
    ]
    assert rule.drops(line, "w") is expected
    assert not expected or list(rule.suspects([line], ["w"])) == [0]
    assert not rule.drops("w", line)


@pytest.mark.parametrize(
    ("languages", "leaked"), [(("en", "de"), "forth"), (("de", "en"), "back"), (("de", "fr"), "forth")]
)
def test_a_corpus_of_the_opposite_direction_has_leaks_on_the_other_side(
    languages: tuple[str, str], leaked: str
) -> None:
    split = HeldOut("test", ["A dog."], ["Ein Hund."], None, {}, None, "en", "de")
    rules = build_rules(CleaningConfig(), split, languages=languages)
    (rule,) = (rule for rule in rules if isinstance(rule, LeakedRule))
    for source, target, direction in (("A dog.", "x", "forth"), ("x", "A dog.", "back")):
        assert rule.drops(source, target) is (direction == leaked)
    for source, target, direction in (("x", "Ein Hund.", "forth"), ("Ein Hund.", "x", "back")):
        assert rule.drops(source, target) is (direction == leaked)


@pytest.mark.parametrize(
    ("max_pieces", "lengths", "expected"),
    [
        (4, (4, 4), False),
        (4, (5, 1), True),
        (4, (1, 5), True),
        (4, (0, 1), True),
        (4, (1, 0), True),
        (0, (9999, 1), False),
        (0, (0, 9), True),
    ],
)
def test_pieces(max_pieces: int, lengths: tuple[int, int], expected: bool) -> None:
    rule = PieceRule(CleaningConfig(max_pieces=max_pieces))
    pair = np.array([lengths[0], 1], np.uint16), np.array([lengths[1], 1], np.uint16)
    assert rule.drops(*pair).tolist() == [expected, False]


@pytest.mark.parametrize(
    ("text", "expected"),
    [("a", "a"), ("  a  b\t", "a  b"), ("\u3000a\xa0", "a"), (" \u2028", ""), ("\ufeffa", "\ufeffa")],
)
def test_normal_text(text: str, expected: str) -> None:
    assert normal_text(text) == expected


class TestHashes:
    def test_are_these_on_every_machine(self) -> None:
        assert int.from_bytes(pair_hash("a", "b"), "little") == 0x5F9761D5F2E96DA7

    def test_know_where_a_side_ends(self) -> None:
        assert (
            len({pair_hash("ab", "c"), pair_hash("a", "bc"), pair_hash("", "abc"), pair_hash("abc", "")}) == 4
        )

    @given(st.lists(st.tuples(LINES, LINES), unique=True))
    def test_fit_64_bits_and_differ(self, pairs: list[tuple[str, str]]) -> None:
        hashes = {pair_hash(*pair) for pair in pairs}
        assert len(hashes) == len(pairs) and all(len(each) == 8 for each in hashes)


class TestNearHashes:
    @pytest.mark.parametrize(
        ("one", "other", "same"),
        [
            (("Page 1 of 20", "Seite 1 von 20"), ("page 3 of 7:", "SEITE 3 von 7."), True),
            (("a b", "c"), ("ab", "c"), True),
            (("ab", "c"), ("a", "bc"), False),
            (("Straße", "x"), ("STRASSE", "x"), True),
            (("a dog", "ein Hund"), ("a dog", "kein Hund"), False),
            (("12", "zwölf"), ("13", "zwölf"), False),  # no letters: only equal text matches
            (("12", "zwölf"), ("12", "zwölf"), True),
            (("कि", "x"), ("की", "x"), False),  # vowel signs are marks and are retained
            (("好 的。", "x"), ("好的", "x"), True),
            (("ein Bär", "x"), ("ein Ba\u0308r", "x"), True),  # composed and decomposed
            (("ＡＢ", "x"), ("ab", "x"), True),
            (("ﬁne\u200b", "x"), ("fine", "x"), True),
            (("ein Bär", "x"), ("ein Bar", "x"), False),
        ],
    )
    def test_leave_aside_case_and_all_but_letters(
        self, one: tuple[str, str], other: tuple[str, str], same: bool
    ) -> None:
        assert (near_hash(*one) == near_hash(*other)) is same

    @given(st.text(), st.text())
    def test_against_naive(self, source: str, target: str) -> None:
        def key(text: str) -> str:
            folded = unicodedata.normalize("NFKD", text).casefold()
            return "".join(c for c in folded if unicodedata.category(c)[0] in "LM")

        pair = (key(source), key(target))
        assert near_hash(source, target) == pair_hash(*(pair if all(pair) else (source, target)))


class TestReport:
    def report(self) -> CleaningReport:
        report = CleaningReport()
        report.kept += 994
        for number in range(5):
            report.drop("ratio", "one side is far longer than the other", f"s{number}", f"t{number}")
        report.drop("empty", "one side is empty", "", "t")
        return report

    def test_as_dict(self) -> None:
        assert json.loads(json.dumps(self.report().as_dict())) == {
            "pairs": 1000,
            "kept": 994,
            "dropped": {"empty": 1, "ratio": 5},
            "examples": {"empty": [["", "t"]], "ratio": [["s0", "t0"], ["s1", "t1"], ["s2", "t2"]]},
        }

    def test_table(self) -> None:
        assert self.report().table() == (
            "pairs read                                      1,000  100.0%\n"
            "dropped: one side is empty                          1    0.1%\n"
            "dropped: one side is far longer than the other      5    0.5%\n"
            "pairs retained                                    994   99.4%"
        )

    def test_samples(self) -> None:
        report = CleaningReport()
        assert report.samples() == ""
        report.drop("control", "a side has control characters", "a\x07\u2028é", "t" * 61)
        assert report.samples() == (
            "examples of dropped pairs (longer in data_report.html):\n"
            f"  control: a\\x07\\u2028é ||| {'t' * 59}…"
        )

    def test_merge(self) -> None:
        other = CleaningReport(kept=6)
        other.drop("duplicate", "an equal pair came before", "a", "b")
        other.drop("empty", "one side is empty", "x", "")
        merged = self.report().merge(other)
        assert (merged.total, merged.kept) == (1008, 1000)
        assert merged.as_dict()["dropped"] == {"empty": 2, "ratio": 5, "duplicate": 1}
        assert merged.examples["empty"] == [("", "t"), ("x", "")]
        assert "an equal pair came before" in merged.table()
        assert self.report().merge(CleaningReport()) == CleaningReport().merge(self.report()) == self.report()

    def test_examples_are_short(self) -> None:
        report = CleaningReport()
        report.drop("length", "a side is too long", "s" * 10_000, "t")
        report.drop("length", "a side is too long", "s" * 200, "t" * 201)
        assert report.examples["length"] == [("s" * 199 + "…", "t"), ("s" * 200, "t" * 199 + "…")]

    def test_nothing_read(self) -> None:
        assert CleaningReport().table() == "pairs read      0    0.0%\npairs retained  0    0.0%"
