"""Files that are translated in their own format. The translation of a line is the line in capitals."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import polib
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.config import TranslateConfig
from nmt.decoding.translation import ScoredText, Translation
from nmt.documents.files import OpenFile, format_of_file, head_text, open_file
from nmt.documents.pair import Pair, TooManyLines
from nmt.errors import UserError

EN_DE = Pair("en", "de")


def shouted(line: str) -> str:
    """A line in capitals, with its tags as they are."""
    return re.sub(
        r"<[^<>]*>|[^<]+|<", lambda found: found[0] if found[0].endswith(">") else found[0].upper(), line
    )


def opened(name: str, content: str | bytes, languages: Pair = EN_DE, **options: object) -> OpenFile:
    raw = content.encode() if isinstance(content, str) else content
    form = format_of_file(name, lambda: head_text(raw))
    assert form is not None
    return open_file(raw, name, TranslateConfig("", format=form, **options), languages)  # type: ignore[arg-type]


def written(file: OpenFile, lines: list[str] | None = None) -> bytes:
    lines = [*map(shouted, file.lines)] if lines is None else lines
    return file.written([Translation((ScoredText(line, -0.5),)) for line in lines])


XLIFF = """<?xml version="1.0" encoding="UTF-8"?>
<!-- by hand -->
<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">
 <file original='a.txt' source-language="en" target-language="de-DE" datatype="plaintext"><body>
  <trans-unit id="1">
    <source>A <g id="1">red   <x id="2"/>dog</g> &amp; a cat</source>
    <note>A note</note>
  </trans-unit>
  <trans-unit id="2"><source>Done</source><target state="final">Fertig</target></trans-unit>
  <trans-unit id="3"><source>Empty</source><target   xml:lang="de"/></trans-unit>
  <trans-unit id="4"><source>Same</source><target state='new'>Same</target></trans-unit>
  <trans-unit id="5"><source>Same</source><target>Same</target></trans-unit>
  <trans-unit id="6" translate="no"><source>Never</source></trans-unit>
  <trans-unit id="7"><source>42</source></trans-unit>
  <trans-unit id="8"><source>One. Two.</source><seg-source><mrk mtype="seg" mid="a">One.</mrk> <mrk mtype="seg" mid="b">Two.</mrk></seg-source></trans-unit>
  <trans-unit id="9"><source>A. B.</source><seg-source><g id="1"><mrk mtype="seg" mid="1">A.</mrk> <mrk mtype="seg" mid="2">B.</mrk></g></seg-source><target><g id="1"><mrk mtype="seg" mid="1">X.</mrk> <mrk mtype="seg" mid="2"/></g></target></trans-unit>
  <trans-unit id="10" xml:space="preserve"><source>One
 two <bpt id="1">{b}</bpt>three<ept id="1">{/b}</ept> <![CDATA[<4>]]></source></trans-unit>
 </body></file>
</xliff>
"""
MACHINE = 'state="needs-review-translation" state-qualifier="mt-suggestion"'
XLIFF_OUT = (
    XLIFF.replace(
        "a cat</source>\n",
        f'a cat</source>\n    <target {MACHINE}>A <g id="1">RED <x id="2"/>DOG</g> &amp; A CAT</target>\n',
    )
    .replace('<target   xml:lang="de"/>', f'<target   xml:lang="de" {MACHINE}>EMPTY</target>')
    .replace("<target state='new'>Same", f"<target {MACHINE}>SAME")
    .replace("42</source>", f"42</source><target {MACHINE}>42</target>")
    .replace(
        "Two.</mrk></seg-source>",
        f'Two.</mrk></seg-source><target {MACHINE}><mrk mtype="seg" mid="a">ONE.</mrk> '
        '<mrk mtype="seg" mid="b">TWO.</mrk></target>',
    )
    .replace("<target><g", f"<target {MACHINE}><g")
    .replace('mid="2"/>', 'mid="2">B.</mrk>')
    .replace(
        "<4>]]></source>",
        f"<4>]]></source><target {MACHINE}>ONE\n TWO "
        '<bpt id="1">{b}</bpt>THREE<ept id="1">{/b}</ept> &lt;4&gt;</target>',
    )
)
XLIFF_2 = """<xliff xmlns="urn:oasis:names:tc:xliff:document:2.0" version="2.0" srcLang="en-US">
<file id="f"><unit id="1"><segment state="initial" subState="a:b"><source>A <pc id="1">dog</pc><ph id="2"/></source></segment>
<ignorable><source> </source></ignorable><segment><source>Cat</source><target>Katze</target></segment></unit></file></xliff>"""
XLIFF_2_OUT = """<xliff xmlns="urn:oasis:names:tc:xliff:document:2.0" version="2.0" srcLang="en-US" trgLang="de">
<file id="f"><unit id="1"><segment state="translated"><source>A <pc id="1">dog</pc><ph id="2"/></source><target>A <pc id="1">DOG</pc><ph id="2"/></target></segment>
<ignorable><source> </source></ignorable><segment><source>Cat</source><target>Katze</target></segment></unit></file></xliff>"""
TMX = """<?xml version="1.0"?>
<!DOCTYPE tmx SYSTEM "tmx14.dtd">
<tmx version="1.4"><header srclang="en" segtype="sentence"/><body>
  <tu tuid="1">
    <tuv xml:lang="EN-US"><seg>A <bpt i="1">&lt;b></bpt>dog<ept i="1">&lt;/b></ept></seg></tuv>
  </tu>
  <tu><tuv xml:lang="en"><seg>Cat</seg></tuv><tuv xml:lang="de-AT"><seg>Katze</seg></tuv></tu>
  <tu><tuv xml:lang="fr"><seg>Chien</seg></tuv></tu>
  <tu><tuv lang="en"><seg>Cow</seg></tuv><tuv lang="de"><seg/></tuv></tu>
</body></tmx>
"""
TMX_OUT = TMX.replace(
    "</ept></seg></tuv>\n",
    '</ept></seg></tuv>\n    <tuv xml:lang="de"><seg>A <bpt i="1">&lt;b></bpt>DOG<ept i="1">&lt;/b></ept></seg></tuv>\n',
).replace("<seg/>", "<seg>COW</seg>")
PO = r"""# A translation
msgid ""
msgstr ""
"Language: de\n"
"Plural-Forms: nplurals=3; plural=n;\n"

#. extracted
#: a.c:1
#, c-format
#| msgid "old"
msgctxt "menu"
msgid "Open \"%s\"\n"
"  two\n"
msgstr ""

msgid "Done"
msgstr "Fertig"

#, fuzzy
msgid "Guess"
msgstr "Vermutung"

msgid "%d dog"
msgid_plural "%d dogs"
msgstr[0] ""
msgstr[1] ""

#~ msgid "Old"
#~ msgstr ""
"""
PO_OUT = (
    PO.replace("#, c-format", "#, fuzzy, c-format")
    .replace('two\\n"\nmsgstr ""', 'two\\n"\nmsgstr ""\n"OPEN \\"%S\\"\\n"\n"  TWO\\n"')
    .replace('msgid "%d dog"', '#, fuzzy\nmsgid "%d dog"')
    .replace('msgstr[0] ""\nmsgstr[1] ""', 'msgstr[0] "%D DOG"\nmsgstr[1] "%D DOGS"\nmsgstr[2] "%D DOGS"')
)
SRT = """1
00:00:01,000 --> 00:00:02,500
{\\an8}<i>A long row of words here and
four</i>

2
00:00:03,000 --> 00:00:04,000 X1:1
- Yes?
- R&D!

3
00:00:05,000 --> 00:00:06,000
♪ 12
"""
SRT_OUT = SRT.replace(
    "<i>A long row of words here and\nfour", "<i>A LONG ROW OF WORDS\nHERE AND FOUR"
).replace("Yes", "YES")
VTT = """WEBVTT - a title

NOTE
not a text

STYLE
::cue { color: red }

first
00:01.000 --> 00:02.000 align:start
<v Fred>Tom &amp; <c.big>Jerry</c>

00:03.000 --> 00:04.000
Bye"""
VTT_OUT = VTT.replace("Tom &amp; <c.big>Jerry", "TOM &amp; <c.big>JERRY").replace("Bye", "BYE")
HTML_OUT = '<!DOCTYPE html><p title="x">A <b>DOG</b></p>'
HTML = '<!DOCTYPE html><p title="x">A <b>dog</b></p>'


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.xlf", XLIFF, XLIFF_OUT),
        ("a.xliff", XLIFF_2, XLIFF_2_OUT),
        ("export", XLIFF_2, XLIFF_2_OUT),
        ("a.xlf", '<xliff version="1.2"><file source-language="en"/></xliff>', '<xliff version="1.2"><file source-language="en"/></xliff>'),
        ("a.tmx", TMX, TMX_OUT),
        ("a.po", PO, PO_OUT),
        ("a.pot", PO.replace("\n", "\r\n"), PO_OUT.replace("\n", "\r\n")),
        ("a.srt", SRT, SRT_OUT),
        ("a.vtt", VTT, VTT_OUT),
        ("page", HTML, HTML_OUT),
        ("a.txt", "A\r\n\r\nb", "A\r\n\r\nB"),
        ("a.json", ' [{"text": "a", "n": 1},\n{"text": "b"}]', '[\n{"n": 1, "translation": "A", "score": -0.5},\n{"translation": "B", "score": -0.5}\n]\n'),
        ("a.json", '{"text": "a"}\n', '{"translation": "A", "score": -0.5}\n'),
        ("a.json", "[]", "[]\n"),
    ],
)  # fmt: skip
def test_translated_files(name: str, content: str, expected: str) -> None:
    assert written(opened(name, content)).decode() == expected
    if Path(name).suffix in (".xlf", ".xliff", ".tmx", ".po", ".pot"):
        again = opened(name, expected)
        assert again.lines == []  # all is translated
        assert written(again).decode() == expected


def test_tags_of_angular_are_pairs() -> None:
    source = 'A <x id="START_LINK_1"/>red <x id="INTERPOLATION"/><x id="CLOSE_LINK"/> dog'
    file = opened("a.xlf", f'<xliff version="1.2"><trans-unit><source>{source}</source></trans-unit></xliff>')
    assert file.lines == ["A <aLINK i=0>red <x i=1/></aLINK i=2> dog"]
    target = written(file, ["</aLINK i=2><aLINK i=0>Ein Hund"]).decode().partition("<target")[2]
    assert 0 < target.index("START_LINK") < target.index("CLOSE_LINK")


def test_results_are_valid() -> None:
    for text in (XLIFF_OUT, XLIFF_2_OUT, TMX_OUT):
        ElementTree.fromstring(text.encode())
    messages = {one.msgid: one for one in polib.pofile(PO_OUT)}
    assert messages['Open "%s"\n  two\n'].fuzzy and messages["%d dog"].msgstr_plural[2] == "%D DOGS"


def test_rows_in_utf16() -> None:
    assert written(opened("a.tsv", "a\tb\r\n".encode("utf-16"), column=1)) == "a\tb\tA\r\n".encode("utf-16")


def test_columns() -> None:
    content = 'id;en\r\n1;A, b, c\r\n2;"D;"\r\n'
    assert (
        written(opened("a.csv", content, column="en"))
        == b'id;en;translation\r\n1;A, b, c;A, B, C\r\n2;"D;";"D;"\r\n'
    )
    assert written(opened("a.tsv", "a\tb\n", column=1)) == b"a\tb\tA\n"


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig", "utf-16-le"])
def test_encodings_are_kept(encoding: str) -> None:
    content = XLIFF_2.replace("<xliff", '<?xml version="1.0" encoding="UTF-16"?><xliff', 1)
    result = written(opened("a.xlf", content.encode(encoding)))
    assert result.decode(encoding) == XLIFF_2_OUT.replace(
        "<xliff", '<?xml version="1.0" encoding="UTF-16"?><xliff', 1
    )


def test_characters_that_an_encoding_lacks() -> None:
    latin = '<?xml version="1.0" encoding="ISO-8859-1"?>' + XLIFF_2
    assert "Ü &#8364; \x0bx" not in latin
    found = written(opened("a.xlf", latin.encode("latin-1")), ["Ü €\x0b<b><pc i=0>x</pc i=1>"])
    assert '<target>Ü &#8364;&lt;b&gt;<pc id="1">x</pc><ph id="2"/></target>' in found.decode("latin-1")
    po = 'msgid ""\nmsgstr "Content-Type: text/plain; charset=ISO-8859-1\\n"\n\nmsgid "a"\nmsgstr ""\n'
    assert written(opened("a.po", po.encode()), ["ü"]).endswith(b'msgstr "\xfc"\n')
    with pytest.raises(UserError, match=r"^a\.po: its encoding, iso8859-1, lacks '€'"):
        written(opened("a.po", po.encode()), ["€"])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.xlf", XLIFF_2.replace("</pc>", ""), r"a\.xlf:2: not valid XML \(mismatched tag\)\."),
        ("a.xlf", XLIFF_2.replace("Cat", "&nbsp;"), r"a\.xlf:3: not valid XML \(undefined entity\)"),
        ("a.tmx", TMX.replace("Cat", "&nbsp;"), r"a\.tmx:7: has an entity, nbsp, which is not loaded"),
        ("a.tmx", '<!DOCTYPE tmx [<!ENTITY a "b">]><tmx/>', r"a\.tmx:1: has an entity, a, which is not"),
        ("a.tmx", "<html/>", r"a\.tmx:1: begins with html, not with tmx"),
        ("a.tmx", TMX.replace('"en"', '"it"').replace("EN-US", "it"), r"a\.tmx: has no text in en\. Its languages are de, de-AT, fr, it"),
        ("a.xlf", XLIFF_2.replace("en-US", "fr"), r"a\.xlf:1: its source language is fr, but the translation's is en"),
        ("a.xlf", XLIFF.replace("de-DE", "it"), r"a\.xlf:4: its target language is it"),
        ("a.xlf", XLIFF.replace("<source>Same</source>", "", 1), r"a\.xlf:11: trans-unit has no source"),
        ("a.xlf", XLIFF_2.replace("dog", "<pc>" * 200 + "</pc>" * 200), r"a\.xlf:2: its elements are nested too"),
        ("a.xlf", "", r"a\.xlf:1: not valid XML \(no element found\)"),
        ("a.xlf", XLIFF_2.encode() + b"\xff", r"a\.xlf:3: not valid UTF-8 \(byte 0xff\)"),
        ("a.po", 'msgid "a\nmsgstr ""\n', r"a\.po:1: is not a string of PO"),
        ("a.po", 'msgid "a"\n', r"a\.po:1: has no msgid or no msgstr"),
        ("a.po", 'msgid "a"\nmsgstr ""\nmsgstr ""\n', r"a\.po:1: has a keyword twice"),
        ("a.po", 'msgid "a"\nmsgid_plural "b"\nmsgstr ""\n', r"a\.po:1: needs a number for each msgstr"),
        ("a.po", 'msgid "a"\nmsgid_plural "b"\n' + "".join(f'msgstr[{i}] ""\n' for i in range(50)), r"a\.po:1: has too many forms"),
        ("a.po", PO.replace("Language: de", "Language: fr"), r"a\.po:1: its target language is fr"),
        ("a.srt", "A text.", r"a\.srt:1: has no times"),
        ("a.vtt", SRT, r"a\.vtt:1: does not begin with WEBVTT"),
        ("a.json", '[{"text": "a"}\n{}]', r"a\.json: format=json: line 2: not valid JSON \(a comma is missing\)"),
        ("a.jsonl", '{"text": "a"}\n{}\n', r"a\.jsonl: line 2: has no member text"),
    ],
)  # fmt: skip
def test_malformed_files(name: str, content: str | bytes, message: str) -> None:
    with pytest.raises(UserError, match=f"^{message}"):
        opened(name, content)


def test_marks_at_wrong_places_never_break_xml() -> None:
    text = XLIFF_2.replace("dog", 'd<pc id="5">o</pc>g')
    file = opened("a.xlf", text)
    assert file.lines == ["A <pc i=0>d<pc i=1>o</pc i=2>g</pc i=3><ph i=4/>"]
    for line in (
        "</pc i=3>A<pc i=0> <pc i=1>B</pc i=2>",
        "<pc i=1><pc i=0>A</pc i=2></pc i=3>",
        "<pc i=0>A<pc i=1></pc i=3>B</pc i=2>",
        "A",
        "<pc i=9><pc i=0><pc i=0>",
    ):
        tree = ElementTree.fromstring(written(file, [line]))
        target = next(one for one in tree.iter() if one.tag.endswith("}target"))
        assert sorted(one.get("id") or "" for one in target.iter())[1:] == ["1", "2", "5"]


WORDS = st.text(alphabet="ab <>&\"'\n\\%é{}-", max_size=12)


@given(st.lists(WORDS, max_size=5))
def test_segments_keep_their_number_and_order(texts: list[str]) -> None:
    def result(name: str, content: str) -> bytes:
        file = opened(name, content)
        return written(file, [line.upper() for line in file.lines])

    def escaped(text: str) -> str:
        return text.replace("&", "&amp;").replace("<", "&lt;")

    def quoted(text: str) -> str:
        return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

    units = "".join(f"<trans-unit><source>{escaped(text)}</source></trans-unit>" for text in texts)
    tus = "".join(f'<tu><tuv xml:lang="en"><seg>{escaped(text)}</seg></tuv></tu>' for text in texts)
    xliff = result(
        "a.xlf", f'<xliff version="1.2"><file source-language="en"><body>{units}</body></file></xliff>'
    )
    tmx = result("a.tmx", f"<tmx>{tus}</tmx>")
    po = result("a.po", "".join(f'msgid "x{quoted(text)}"\nmsgstr ""\n\n' for text in texts))
    wanted = [" ".join(text.upper().split()) for text in texts]
    targets = ["".join(one.itertext()) for one in ElementTree.fromstring(xliff).iter("target")]
    assert [" ".join(text.split()) for text in targets] == [text for text in wanted if text]
    variants = [
        one
        for one in ElementTree.fromstring(tmx).iter("tuv")
        if one.get("{http://www.w3.org/XML/1998/namespace}lang") == "de"
    ]
    assert [" ".join("".join(one.itertext()).split()) for one in variants] == [
        text for text in wanted if text
    ]
    assert [one.msgstr for one in polib.pofile(po.decode())] == [f"x{text}".upper() for text in texts]


def test_the_number_of_lines_is_limited_while_a_file_is_read() -> None:
    for name, content in (
        ("a.xlf", XLIFF.replace("</body>", "<trans-unit><source>a</source></trans-unit>" * 200 + "</body>")),
        ("a.po", 'msgid "a"\nmsgstr ""\n\n' * 200),
        ("a.srt", SRT * 100),
        ("a.html", "<p>a</p>" * 200),
        ("a.jsonl", '{"text": "a"}\n' * 200),
    ):
        with pytest.raises(TooManyLines, match=r"^has more than 100 lines\.$"):
            opened(name, content, EN_DE._replace(most_lines=100))
