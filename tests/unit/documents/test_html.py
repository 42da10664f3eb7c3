"""HTML as lines, and back."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.documents.html import read_html


@pytest.mark.parametrize(
    ("html", "lines"),
    [
        ("A dog.", ["A dog."]),
        ("", []),
        ("<p>A</p>\n<p>B<br>C</p>", ["A", "B", "C"]),
        ("<p><a href='/x'>Home</a></p>", ["Home"]),
        ("A <b class='x'>dog</b> runs.", ["A <b i=0>dog</b i=1> runs."]),
        ("<b>A</b> <i>dog</i>", ["<b i=0>A</b i=1> <i i=2>dog</i i=3>"]),
        ("<b>A<br>B</b>", ["A", "B"]),
        ("Tom &amp; 1 &lt; x&nbsp;y &#10; z", ["Tom & 1 < x\xa0y z"]),
        ("A <!-- <b> --> b", ["A <x i=0/> b"]),
        ("Use <code>a <b>b</b></code> now", ["Use <code i=0/> now"]),
        ("A <span translate=no>b <span>c</span></span> d", ["A <span i=0/> d"]),
        ("A <span class='x notranslate'>b</span> d", ["A <span i=0/> d"]),
        ("<script>if (a < b) '<p>c</p>'</script>d", ["d"]),
        ("<script>never closed <p>a</p>", []),
        ("<img src='x'> A <img> b", ["A <img i=0/> b"]),
        ("a &lt;b i=0&gt; <i>c</i>", ["a <b i=0> <i ii=0>c</i ii=1>"]),
        ("<!DOCTYPE html><title>A</title>", ["A"]),
        ("<P>A\n  <EM>b</EM>\n  c</P>", ["A <em i=0>b</em i=1> c"]),
        ("12 <b>34</b>", []),
        ("<!-- never closed a", []),
        ("<![CDATA[A <b>]]> b", ["b"]),
        ("<![CDATA[never closed a", []),
        ("a < b > c", ["a < b > c"]),
    ],
)
def test_the_lines_of_html(html: str, lines: list[str]) -> None:
    assert read_html(html).lines == lines


@pytest.mark.parametrize(
    ("html", "translations", "joined"),
    [
        ("<p>A  dog</p>\n", ["Ein Hund"], "<p>Ein Hund</p>\n"),
        ("A & <b>c</b>", ["1 < 2 & <b i=0>C</b i=1>"], "1 &lt; 2 &amp; <b>C</b>"),
        (
            "A <b id='1'>c</b>",
            ["<b i=0>C</b i=1> A <b i=0>D"],
            "<b id='1'>C</b> A D",
        ),
        ("A <b>c</b>", ["C <x i=9/>"], "C <b></b>"),
        ("a &lt;b i=0&gt; <i>c</i>", ["A <b i=0> <i ii=0>C</i ii=1>"], "A &lt;b i=0&gt; <i>C</i>"),
    ],
)
def test_translated_html(html: str, translations: list[str], joined: str) -> None:
    assert read_html(html).joined(translations) == joined


PARTS = ["<b>", "</b>", "<p>", "<br/>", "a", " ", "<i x='1'>", "</i>", "<code>", "1"]


@given(st.lists(st.sampled_from(PARTS)))
def test_untranslated_html_is_unchanged(parts: list[str]) -> None:
    html = "".join(parts)
    text = read_html(html)
    assert " ".join(text.joined(text.lines).split()) == " ".join(html.split())


def test_a_line_has_a_limited_number_of_tags() -> None:
    text = read_html("<b>a</b> " * 100)
    assert len(text.lines) > 3 and max(line.count("<") for line in text.lines) <= 26


@pytest.mark.parametrize(
    "unit",
    [
        "<code ",
        "<",
        "<!--",
        "<a '",
        '<a "',
        "<b>",
        "</b>",
        "<b>a",
        "<code>",
        "&amp",
        "<a b='c",
        "<!",
        "<![CDATA[",
    ],
)
def test_hostile_html_takes_linear_time(unit: str) -> None:
    start = time.monotonic()
    read_html("<code>" + unit * (60_000 // len(unit)))
    read_html(unit * (60_000 // len(unit)))
    assert time.monotonic() - start < 3
