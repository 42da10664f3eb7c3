"""Placeholders in text: the strings that they replace, restoring them, and hostile text."""

from __future__ import annotations

import re
import time
from re import _constants as constants  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.copying.strings import (
    NUM_PLACEHOLDERS,
    PLACEHOLDERS,
    STRING,
    TagPair,
    find,
    has_words,
    mask,
    mask_pair,
    mask_texts,
    restore,
    tag_pairs,
    without_tags,
)


def shown(text: str) -> str:
    """The text with ⟦0⟧ for placeholder 0."""
    return "".join(f"⟦{PLACEHOLDERS.index(one)}⟧" if one in PLACEHOLDERS else one for one in text)


def written(text: str) -> str:
    """The reverse of `shown`."""
    return re.sub(r"⟦(\d+)⟧", lambda match: PLACEHOLDERS[int(match[1])], text)


def strings(text: str) -> list[str]:
    return [text[start:end] for start, end in find(text)]


@pytest.mark.parametrize(
    "marked",
    [
        "See «https://en.wikipedia.org/wiki/A_(b)», or «www.x.de/a?b=c&d=%20».",
        "[«http://a.com»] («ftp://b.com/c») «http://x/{id}/y» «http://[::1]/»",
        "请看«http://a.cn/b»。谢谢",
        "«http://привет.рф/путь»!",
        "no URL: http:// www. :// a://",
        "mail «a.b+c@x-y.co.uk», or me@home",
        "«<b>»bold«</b>» «<br/>» «<a href=\"http://x.y/?a=1\" id='k'>»x«</a>» «<x1>» «<1/>»",
        '«<?xml version="1.0"?>»«<!-- a - note -->»«<ns:tag a:b=c>»',
        "a < b > c, x <y and z> w, I <3 you, <-, <>, <b",
        "«{name}» «{0}» «{}» «{a.b!r:>5}» «${user}» «%{x}» «#{y}» «{{ item }}» {«{{z}}»}",
        "{ not this } {nor this} }{",
        "«%s» «%d» «%(name)s» «%1$s» «%.2f» «%-5d» «%@» «%ld», «%s».",
        "100% sure, 5%, 50%discount, % d, %%",
        f"own «{PLACEHOLDERS[3]}»«{PLACEHOLDERS[0]}»",
    ],
)
def test_literal_strings(marked: str) -> None:
    text, expected = re.sub("[«»]", "", marked), re.findall("«(.*?)»", marked)
    assert strings(text) == expected
    masked = mask(text)
    assert [original.text for original in masked.strings] == expected
    assert restore(masked.text, masked.strings) == (text, 0)


def test_literal_masks() -> None:
    text = "Click <b>here</b>, {a}{b} (%s) or mail a@b.cd"
    masked = mask(text)
    assert shown(masked.text) == "Click ⟦0⟧ here ⟦1⟧, ⟦2⟧ ⟦3⟧ (⟦4⟧) or mail ⟦5⟧"
    found = restore(written("Mailen Sie an ⟦5⟧ oder klicken Sie ⟦0⟧ hier ⟦1⟧ (⟦4⟧), ⟦2⟧ ⟦3⟧"), masked.strings)
    assert found == ("Mailen Sie an a@b.cd oder klicken Sie <b>hier</b> (%s), {a}{b}", 0)


def test_each_string_is_restored_once() -> None:
    strings = mask("an https://a.b and <i>word</i> {x}").strings
    assert restore(written("⟦0⟧⟦3⟧⟦0⟧ und ⟦9⟧"), strings) == ("https://a.b {x} und <i> </i>", 2)
    assert restore("", strings) == ("https://a.b <i> </i> {x}", 4)
    # Strings with white space around them do not join words or other strings.
    assert restore(written("an⟦0⟧und ⟦1⟧ Wort ⟦2⟧⟦3⟧."), strings) == (
        "an https://a.b und <i>Wort</i> {x}.",
        0,
    )
    assert restore(written("a⟦0⟧b"), ()) == ("ab", 0)


PARTS = ["https://a.b/c", "www.a.de", "x@y.zz", "<b>", "</b>", "<a b='c'>", "{v}", "${w}", "%s", "%(n)d"]
MIXED = st.lists(st.sampled_from([*PARTS, *PLACEHOLDERS[:3], " ", " ", ".", ",", "wort", "7", "(", ")"]))


ANY = st.text(st.one_of(st.characters(), st.sampled_from([*"<>{}%@:/.$ \na1", *PLACEHOLDERS[:2]])))


@given(st.one_of(ANY, MIXED.map("".join)))
def test_round_trip(text: str) -> None:
    masked = mask(text)
    assert restore(masked.text, masked.strings) == (text, 0)
    assert [one for one in masked.text if one in PLACEHOLDERS] == [*PLACEHOLDERS[: len(masked.strings)]]


@given(MIXED, st.lists(st.sampled_from([" ", "wort", ".", *PLACEHOLDERS[:6]])))
def test_nothing_is_lost_in_any_translation(parts: list[str], output: list[str]) -> None:
    masked = mask("".join(parts))
    found, appended = restore("".join(output), masked.strings)
    for text in {original.text for original in masked.strings} - {*PLACEHOLDERS}:
        assert found.count(text) >= sum(original.text == text for original in masked.strings)
    given = {PLACEHOLDERS.index(one) for one in output if one in PLACEHOLDERS}
    assert appended == len({*range(len(masked.strings))} - given)


def test_the_last_placeholder_hides_what_exceeds_the_vocabulary() -> None:
    urls = [f"https://a.b/{number}" for number in range(10_000)]
    masked = mask("see " + " and ".join(urls) + " there")
    assert len(masked.strings) == NUM_PLACEHOLDERS
    assert masked.text.endswith(f"{PLACEHOLDERS[62]} and {PLACEHOLDERS[63]} there")
    assert masked.strings[-1].text == " and ".join(urls[63:])
    assert masked.skipped == 5 * (10_000 - 64)
    found = restore(masked.text, masked.strings)[0].split(" and ")
    assert found == ["see " + urls[0], *urls[1:-1], urls[-1] + " there"]
    assert mask(" ".join(urls)).skipped == mask(" or ".join(urls[:64])).skipped == 0
    full, own = [PLACEHOLDERS[5]] * 100, mask(PLACEHOLDERS[5] * 100)
    assert restore(own.text, own.strings) == ("".join(full), 0)


def test_a_tag_in_front_remains() -> None:
    assert shown(mask("<2de> a <b>", ["<2de>"]).text) == "<2de> a ⟦0⟧"
    assert shown(mask("<2de> a <b>").text) == "⟦0⟧ a ⟦1⟧"
    assert shown(mask("a <2de>", ["<2de>"]).text) == "a ⟦0⟧"
    assert [*map(shown, mask_pair("<2de> {a}", "<2de> {a}", ["<2de>"])[:2])] == ["<2de> ⟦0⟧", "<2de> ⟦0⟧"]


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("plain", "text", ("plain", "text")),
        ("{a} and {b}", "{b} und {a}", ("⟦0⟧ and ⟦1⟧", "⟦1⟧ und ⟦0⟧")),
        ("%s of %s", "%s von %s", ("⟦0⟧ of ⟦1⟧", "⟦0⟧ von ⟦1⟧")),
        ("%s of %s {a}", "%s {a}", ("%s of %s ⟦0⟧", "%s ⟦0⟧")),
        ("see http://a.b.", "siehe http://a.c.", ("see http://a.b.", "siehe http://a.c.")),
        ("<b>x</b>", "<b>y</b>", ("⟦0⟧ x ⟦1⟧", "⟦0⟧ y ⟦1⟧")),
        ("⟦7⟧ a", "a ⟦7⟧", ("⟦0⟧ a", "a ⟦0⟧")),
        ("⟦7⟧ a {b}", "{b} a", ("\ufffd a ⟦0⟧", "⟦0⟧ a")),
    ],
)
def test_literal_pairs(source: str, target: str, expected: tuple[str, str]) -> None:
    found = mask_pair(written(source), written(target))
    assert (shown(found[0]), shown(found[1])) == expected


@given(MIXED, MIXED)
def test_both_sides_of_a_pair_have_the_same_placeholders(source: list[str], target: list[str]) -> None:
    one, other, strings = mask_pair("".join(source), "".join(target))
    found = [[char for char in side if char in PLACEHOLDERS] for side in (one, other)]
    assert found[0] == [*PLACEHOLDERS[: len(found[0])]] == sorted(found[1])
    assert len(strings) == len(found[0])
    restored = [restore(side, strings) for side in (one, other)]
    assert all(string.text in text for string in strings for text, _ in restored)
    assert {appended for _, appended in restored} == {0}


def test_parts_of_a_translation() -> None:
    strings = mask("see {a}, {b} and {a}").strings
    assert shown(*mask_texts(["Siehe {a} und {c}"], strings)) == "Siehe ⟦0⟧ und {c}"
    assert shown(*mask_texts(["{b}{a}{a}{a}"], strings)) == "⟦1⟧ ⟦0⟧ ⟦2⟧{a}"
    assert mask_texts([f"x{PLACEHOLDERS[1]}"], strings) == ["x\ufffd"]
    assert [*map(shown, mask_texts(["{a}", "{a}", "{a}"], strings))] == ["⟦0⟧", "⟦2⟧", "{a}"]


def test_lines_without_words() -> None:
    assert not any(map(has_words, ["", " ", "...", "(⟦⟧)\t-", PLACEHOLDERS[0]]))
    assert all(map(has_words, ["a", "1", "猫", "\u0301", "\x00", "\x85", "\u2028"]))


HOSTILE = [
    "<", "<a ", "<a b=", "<a b='", '<a b="c" ', "<!--", "<!-", "{", "{{", "${", "{a", "%", "%(", "%(a", "%-",
    "http://", "http://a(", "http://a[b(", "a.", "a@", "a@b.", "@", "www.", "://", "\u202e",
    "\u202e<b>\u202c",
    "\x00", "\x1b[", " ", ".", "-", "a", "é", "0", "\ud7ff", "{{a}", "<a\t", "</", PLACEHOLDERS[0],
]  # fmt: skip


def unlimited(tree: Any) -> list[int]:
    """The kinds of all repetitions without a limit in a parsed pattern."""
    found = []
    for operation, argument in tree:
        if operation in (constants.MAX_REPEAT, constants.MIN_REPEAT, constants.POSSESSIVE_REPEAT):
            if argument[1] > 100:
                found.append(operation)
        for part in argument if isinstance(argument, list | tuple) else [argument]:
            for inner in part if isinstance(part, list) else [part]:
                if isinstance(inner, parser.SubPattern):
                    found += unlimited(inner)
    return found


def test_no_repetition_backtracks() -> None:
    kinds = unlimited(parser.parse(STRING.pattern))
    assert len(kinds) > 10
    assert set(kinds) == {constants.POSSESSIVE_REPEAT}
    assert unlimited(parser.parse("(?:a|(b*))+")) == [constants.MAX_REPEAT] * 2


@pytest.mark.parametrize("part", HOSTILE)
def test_the_work_grows_with_the_length_alone(part: str) -> None:
    """Sixteen times the text takes far less than 16 * 16 times the processor time, for each kind of text."""

    def work(count: int) -> float:
        texts = [part * count, "<a" + part * count + ">", "{" + part * count, "http://a" + part * count]
        spent = []
        for _ in range(3):
            start = time.process_time()
            for text in texts:
                mask(text)
                mask_pair(text, text)
            spent.append(time.process_time() - start)
        return min(spent)

    size = 1200 // len(part)
    assert work(16 * size) < 100 * max(work(size), 1e-4)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("a <b>dog</b> runs", "a dog runs"),
        ("<b>un</b>able", "unable"),
        ("un</b><i>able", "unable"),
        ("Hello<br>World<br/>!", "Hello World!"),
        ("a <!-- note --> b", "a  b"),
        ("words of {x}", None),
        ("words", None),
    ],
)
def test_lines_without_tags(line: str, expected: str | None) -> None:
    found = without_tags(mask(line))
    assert (None if found is None else found.text) == expected


def test_other_strings_are_numbered_as_without_tags() -> None:
    line = mask("<b>a</b> {x} <i>, <br/> {y}")
    assert without_tags(line) == (f"a {PLACEHOLDERS[0]} ,  {PLACEHOLDERS[1]}", (2, 5))


def test_pairs_of_tags() -> None:
    assert tag_pairs(mask("<b>a <i>b</i></b> <br/> <u></u> <s>x</B> </q>")) == [
        TagPair(1, 2, True),
        TagPair(0, 3, True),
        TagPair(5, 6, False),
    ]
    assert tag_pairs(mask("<a><b>x</a></b>")) == [TagPair(0, 2, True)]
    assert tag_pairs(mask("<a> {x} </a>")) == [TagPair(0, 2, False)]
