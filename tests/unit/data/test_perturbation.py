"""Text as people type it: capitals, titles, missing punctuation and typos."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.copying.strings import PLACEHOLDERS, find
from nmt.data.perturbation import TYPOS, capitals, titled, unpunctuated, with_typos

EN_DE = ("en", "de")


@pytest.mark.parametrize(
    ("kind", "word", "forms"),
    [
        ("swap", "tool", ["otol", "tolo"]),
        ("swap", "책상들", ["상책들", "책들상"]),
        ("deletion", "dog", ["og", "dg", "do"]),
        ("insertion", "my", ["mny", "mjy", "mky", "myt", "myu", "myg", "myh"]),
        ("insertion", "语法", ["语法法", "语法语"]),  # without a known keyboard: another letter of the word
        ("double", "dog", ["ddog", "doog", "dogg"]),
        ("key", "语", []),
        ("key", "Й", ["Ц", "Ф"]),
        ("key", "é", []),
        ("key", "가", ["다", "사", "아", "라", "거", "기", "갸", "개", "그"]),
        ("joined", "dog", ["dog"]),
        ("split", "dog", ["d og", "do g"]),
        ("accent", "Öl", ["Ol", "Oel"]),
        ("accent", "groß", ["gross"]),
        ("accent", "été", ["ete"]),
        ("accent", "ひがた", []),
        ("accent", "책상", []),
        ("case", "iOs", ["IOs", "ios", "iOS"]),
        ("case", "語法", []),
        ("case", "हिन्दी", []),
    ],
)
def test_each_kind_of_typo(kind: str, word: str, forms: list[str]) -> None:
    letters = re.findall(r".[\u0900-\u0903\u093a-\u094f]*", word)
    assert TYPOS[kind](letters) == forms


@pytest.mark.parametrize(
    ("text", "langs", "expected"),
    [
        (("a small house.", "ein großes Haus."), EN_DE, ("A SMALL HOUSE.", "EIN GROẞES HAUS.")),
        (("ein großes Haus", "a house"), ("de", "en"), ("EIN GROSSES HAUS", "A HOUSE")),
        (("see <b>it</b> at www.a.de {x}", "sieh"), EN_DE, ("SEE <b>IT</b> AT www.a.de {x}", "SIEH")),
        (("파이썬 Python", "Python"), ("ko", "en"), None),  # only the name has case
        (("用户", "The user"), ("zh", "en"), None),
        (("istanbul", "istanbul"), ("tr", "en"), ("İSTANBUL", "ISTANBUL")),
        (("42 {a} https://x.de", "zweiundvierzig"), EN_DE, None),
    ],
)
def test_capitals(text: tuple[str, str], langs: tuple[str, str], expected: tuple[str, str] | None) -> None:
    assert capitals(text, langs) == (expected or text)


@pytest.mark.parametrize(
    ("text", "langs", "expected"),
    [
        (("a man in the park", "ein Mann im Park"), EN_DE, ("A Man In The Park", "Ein Mann im Park")),
        (("ein Mann im iPod", "a man in the iPod"), ("de", "en"), ("Ein Mann Im iPod", "A Man in the iPod")),
        (("hay <b>un</b> {hombre}", "a man"), ("es", "en"), ("Hay <b>Un</b> {hombre}", "A Man")),
        (("사람 in a park", "a man"), ("ko", "en"), None),
    ],
)
def test_titles(text: tuple[str, str], langs: tuple[str, str], expected: tuple[str, str] | None) -> None:
    assert titled(text, langs) == (expected or text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A dog runs.", "A dog runs"),
        ("Quoi ?!", "Quoi"),
        ("这是。", "这是"),
        ("Wait ... ", "Wait"),
        ('He said "no."', 'He said "no."'),
        ("No end ", "No end "),
        ("...", "..."),
        ("see www.a.de/?", "see www.a.de/"),
        (f"{PLACEHOLDERS[0]}.", f"{PLACEHOLDERS[0]}."),
    ],
)
def test_final_punctuation(text: str, expected: str) -> None:
    assert unpunctuated(text) == expected


def test_literal_typos() -> None:
    line = "Two young guys with shaggy hair look at os.path and my_file in B2B4 on www.a.de."
    assert [with_typos(line, 2, seed) for seed in range(4)] == [
        "Two yoiung guys wiTh shaggy hair look at os.path and my_file in B2B4 on www.a.de.",
        "Two young guiys with shaggy hair loook at os.path and my_file in B2B4 on www.a.de.",
        "Two young guys wi th shaggy hairr look at os.path and my_file in B2B4 on www.a.de.",
        "Two young guys wit shaggy Hair look at os.path and my_file in B2B4 on www.a.de.",
    ]
    assert with_typos("on in at 2nd", 3, 1) == "on in at 2nd"


WORDS = st.sampled_from(
    [*"a I 是".split(), "house", "Straße", "été", "책상을", "语法描述", "हिन्दी", "b4b4b4", "self.value",
     "<b>", "</b>", "{name}", "%(count)s", "https://example.org/path?x=y", "me@example.org", "snake_case",
     *PLACEHOLDERS[:3]]
)  # fmt: skip


@given(st.lists(WORDS, min_size=1, max_size=12).map(" ".join), st.integers(0, 5), st.integers(0, 2**62))
def test_strings_are_intact(text: str, most: int, seed: int) -> None:
    """Whatever is changed, the strings that are copied are the same, in the same order."""
    strings = [text[start:end] for start, end in find(text)]
    changed = [
        with_typos(text, most, seed), unpunctuated(text), capitals((text, text), EN_DE)[0],
        titled((text, text), EN_DE)[1],
    ]  # fmt: skip
    for new in changed:
        assert [new[start:end] for start, end in find(new)] == strings
        assert new.strip() and "\n" not in new
    assert with_typos(text, most, seed) == changed[0]
    assert with_typos(text, 0, seed) == text
    for kept in ("b4b4b4", "self.value", "snake_case"):
        assert changed[0].count(kept) == text.count(kept)
    assert len(changed[0].split()) >= len(text.split()) - most
