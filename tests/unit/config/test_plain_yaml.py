"""YAML as plain data: a round trip is exact, and untrusted input is refused in one line."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.config.plain_yaml import MOST_CHARACTERS, parse_yaml, write_yaml

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(10**18), 10**18)
    | st.floats(allow_nan=False)
    | st.text(max_size=9)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=9), VALUES, max_size=4))
def test_what_is_written_is_read_back(values: dict[str, Any]) -> None:
    assert parse_yaml(write_yaml(values)) == values


TEXTS = [
    *r"""
    1e3 1.10 007 08 2026_11_23 2026-11-23 12:30 0x1f 0b1 1_000 +5 -.5 true No ON off y ~ null ??? = <<
    #a ${name} ${oc.env:HOME} \${a} *a &a !a | > %a @a `a ' 日本 😀 .inf -.INF .nan
    aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa
    a,b ...
    """.split(),
    *(
        "",
        " ",
        "- a",
        "a: b",
        "a #b",
        '"',
        "\\",
        "\t",
        "two\nlines",
        "\n",
        "a\r\nb",
        "\x07\x1b[2J",
        "\x85",
        "\u2028",
        "\ufeff",
        "a\x00b",
        "a b " * 60,
        "[a, b]",
        "{a: b}",
        "? a",
        "--- a",
    ),
]


@pytest.mark.parametrize("text", TEXTS)
def test_text_stays_text(text: str) -> None:
    values = {"a": text, text: ["b", text]} if text != "a" else {}
    assert parse_yaml(write_yaml(values)) == values


BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{b}: &{b} [{','.join(f'*{a}' for _ in range(9))}]\n"
    for a, b in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (BOMB, "line 1: anchors and aliases (& and *) are not allowed"),
        ("a: *b", "line 1: anchors and aliases"),
        ("a: &b", "line 1: anchors and aliases"),
        ("a:\n  <<: *b", "line 2: anchors and aliases"),
        ("&a k: 1", "line 1: anchors and aliases"),
        ("a: !!python/object/apply:os.system [id]", "line 1: tags (!) are not allowed"),
        ("a: !!str b", "line 1: tags"),
        ("a: !b c", "line 1: tags"),
        ("!!set {a, b}", "line 1: tags"),
        ("a: 1\nb: 2\na: 3", "line 3: the key a occurs twice"),
        ("'1': a\n1: b", "line 2: the key 1 occurs twice"),
        ("[a, b]: c", "line 1: a key is a list or a mapping"),
        ("[" * 30, "line 1: nested more than 20 levels deep"),
        ("{a: " * 30, "line 1: nested more than 20 levels deep"),
        ("[" * 100_000, "line 1: nested more than 20 levels deep"),
        ("a: " + "9" * 5000, "line 1: a number of 5,000 characters"),
        ("a: -" + "9" * 5000 + ".5", "line 1: a number of 5,003 characters"),
        ("a: 1\n---\nb: 2", "line 2: a second document"),
        ("a: 1\n\tb: 2", "line 2: "),
        ("a: [", "line 2: "),
        ("a: 'b", "line 1: "),
        ("a: b: c", "line 1: "),
        ("a: \x00", ""),
        ("a: \x1b[2J", ""),
        ("a: b\n" * (MOST_CHARACTERS // 4), "has 1,310,720 characters, more than 1,048,576"),
    ],
    ids=range(25),
)
def test_what_is_refused(text: str, words: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_yaml(text)
    assert str(caught.value).startswith(words) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: 1e-4", 1e-4),
        ("a: 1.0e-09", 1e-9),
        ("a: .5", 0.5),
        ("a: 1_000", 1000),
        ("a: yes", True),
        ("a:", None),
        ("a: .inf", float("inf")),
        ("a: 2026-11-23", "2026-11-23"),
        ("a: 12:30", "12:30"),
        ("a: ${b}", "${b}"),
    ],
)
def test_what_people_write(text: str, value: Any) -> None:
    assert parse_yaml(text) == {"a": value}


def test_what_cannot_be_written() -> None:
    with pytest.raises(ValueError, match="not Unicode"):
        write_yaml({"a": "b\udcff"})
    with pytest.raises(ValueError, match="more than 1,048,576"):
        write_yaml({"a": ["b" * 99] * 20_000})
