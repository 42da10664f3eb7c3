"""The formats of files with both sides: TMX, XLIFF, PO, CSV, lists of JSON, archives, and malformed rows."""

from __future__ import annotations

import csv
import gzip
import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nmt.config import DataConfig, Markup, SplitConfig
from nmt.data.corpora.corpus import open_corpus
from nmt.data.corpora.file_formats import reader_of
from nmt.data.corpora.malformed import Malformed
from nmt.errors import UserError

PAIRS = [("A house", "Ein Haus"), ("Two dogs & a cat", "Zwei Hunde & eine Katze"), ("5 < 6", "5 < 6 „ja“")]


def data_options(**options: Any) -> DataConfig:
    return DataConfig(**{"name": "t", "source_lang": "en", "target_lang": "de", **options})


def read(path: Path, malformed: Malformed | None = None, **options: Any) -> list[tuple[str, str]]:
    data = data_options(**options)
    blocks = reader_of(path, data)(path, data, malformed or Malformed())
    return [pair for block in blocks for pair in zip(*block, strict=True)]


def tmx(*units: str, version: str = "1.4", head: str = "") -> str:
    return (
        f'<?xml version="1.0" encoding="UTF-8"?>\n{head}<tmx version="{version}"><header srclang="en"/>\n<body>\n'
        + "\n".join(units)
        + "\n</body></tmx>\n"
    )


def unit(source: str, target: str, lang: str = "xml:lang", langs: tuple[str, str] = ("en", "de")) -> str:
    sides = zip(langs, (source, target), strict=True)
    tuvs = "".join(f'<tuv {lang}="{code}"><seg>{text}</seg></tuv>' for code, text in sides)
    return f"<tu>{tuvs}</tu>"


def escaped(pairs: list[tuple[str, str]]) -> list[str]:
    return [unit(*(side.replace("&", "&amp;").replace("<", "&lt;") for side in pair)) for pair in pairs]


DOCTYPE = '<!DOCTYPE tmx SYSTEM "tmx14.dtd">\n'


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (tmx(*escaped(PAIRS), head=DOCTYPE), PAIRS),
        (tmx(unit("a", "b", lang="lang"), version="1.1"), [("a", "b")]),
        (tmx(unit("a", "b", langs=("EN-US", "de_AT"))), [("a", "b")]),
        (tmx(unit("b", "a", langs=("de", "en"))), [("a", "b")]),
        (tmx("<!-- </tu> <tu> -->", unit("a", "b"), "<!-- " + unit("no", "nein") + " -->"), [("a", "b")]),
        (tmx(unit("<![CDATA[</tu>]]>", "b")), [("</tu>", "b")]),
        (tmx(unit("\n  a\n  b \n", "c")), [("a b", "c")]),
        (tmx(unit("a  b", " c ")), [("a  b", " c ")]),
        (tmx(unit("a", ""), unit("b", "c")), [("b", "c")]),  # not translated
        (tmx(unit("a", "b", langs=("en", "fr")), unit("c", "d")), [("c", "d")]),
        (
            tmx(
                '<tu><note>n</note><tuv xml:lang="fr"><seg>f</seg></tuv><tuv xml:lang="en-GB"><seg>g</seg></tuv>'
                '<tuv xml:lang="de"><prop type="x">p</prop><seg>d</seg></tuv><tuv xml:lang="en"><seg>e</seg></tuv></tu>'
            ),
            [("e", "d")],
        ),
    ],
    ids=range(11),
)
def test_tmx(tmp_path: Path, content: str, expected: list[tuple[str, str]]) -> None:
    path = tmp_path / "a.tmx"
    for encoding in ("utf-8", "utf-8-sig", "utf-16"):
        declared = content.replace('"UTF-8"', f'"{encoding.upper().removesuffix("-SIG")}"')
        path.write_bytes(declared.encode(encoding))
        assert read(path) == expected
    (tmp_path / "memory").write_bytes(gzip.compress(content.encode()))  # by its content
    assert read(tmp_path / "memory") == expected


INLINE = [
    (
        'a <bpt i="1" x="1">&lt;b&gt;</bpt>bold<ept i="1">&lt;/b&gt;</ept> word',
        "a bold word",
        "a <1>bold</1> word",
    ),
    ('a<ph x="1" type="br"/>b <ph x="2">{0}</ph>', "a b ", "a<1/>b <2/>"),
    ("<hi x='1'>a</hi> b", "a b", "<1>a</1> b"),
    ('x <ut>code<sub>text</sub></ut>y <it pos="begin">c</it>', "x y ", "x <1/>y <2/>"),
]


@pytest.mark.parametrize(("seg", "dropped", "tags"), INLINE)
def test_inline_elements_of_tmx(tmp_path: Path, seg: str, dropped: str, tags: str) -> None:
    path = tmp_path / "a.tmx"
    path.write_text(tmx(unit(seg, seg)))
    assert read(path) == [(dropped, dropped)]
    assert read(path, markup=Markup.tags) == [(tags, tags)]


def test_tags_have_the_numbers_of_the_source(tmp_path: Path) -> None:
    path = tmp_path / "a.tmx"
    first, second = '<ph x="1"/>', '<bpt i="1" x="2"/>y<ept i="1"/>'
    path.write_text(tmx(unit(f"{first} {second}", second.replace('i="1"', 'i="9"') + first)))
    assert read(path, markup=Markup.tags) == [("<1/> <2>y</2>", "<2>y</2><1/>")]


def xliff1(*units: str, langs: str = 'source-language="en" target-language="de-DE"') -> str:
    body = "".join(f'<trans-unit id="{number}">{one}</trans-unit>' for number, one in enumerate(units))
    return (
        '<?xml version="1.0"?><xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">'
        f'<file {langs} original="f" datatype="x"><body><group id="g">{body}</group></body></file></xliff>'
    )


def xliff2(*units: str, langs: str = 'srcLang="en" trgLang="de"') -> str:
    body = "".join(
        f'<unit id="u{number}"><segment>{one}</segment></unit>' for number, one in enumerate(units)
    )
    return (
        f'<xliff version="2.0" {langs} xmlns="urn:oasis:names:tc:xliff:document:2.0">'
        f'<file id="f"><skeleton/>{body}</file></xliff>'
    )


def sides(source: str, target: str, of_target: str = "") -> str:
    return f"<source>{source}</source><target{of_target}>{target}</target>"


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.xlf", xliff1(sides("a &amp; b", "c"), "<source>no</source>", sides("d", "")), [("a & b", "c")]),
        ("a.xliff", xliff1(sides("a", "a", ' state="new"'), sides("b", "c")), [("b", "c")]),
        ("a.xlf", xliff1(sides("b", "a"), langs='source-language="de" target-language="en"'), [("a", "b")]),
        ("a.xlf", xliff1(sides("a", "b"), langs='source-language="en-US"'), [("a", "b")]),
        (
            "a.sdlxliff",
            xliff1(
                "<source>A. B.</source><seg-source><mrk mtype='seg' mid='1'>A.</mrk> <mrk mtype='seg' mid='2'>B."
                "</mrk></seg-source><target><mrk mtype='seg' mid='2'>F.</mrk><mrk mtype='seg' mid='1'>E.</mrk></target>"
                "<alt-trans><source>x</source><target>y</target></alt-trans>"
            ),
            [("A.", "E."), ("B.", "F.")],
        ),
        ("a.xlf", xliff2(sides("a", "b"), "<source>no</source>", sides("c", "d")), [("a", "b"), ("c", "d")]),
        ("a", xliff2(sides("b", "a"), langs='srcLang="de" trgLang="en"'), [("a", "b")]),
        ("a.txt", xliff1(sides("a", "b")), [("a", "b")]),
    ],
)
def test_xliff(tmp_path: Path, name: str, content: str, expected: list[tuple[str, str]]) -> None:
    path = tmp_path / name
    path.write_text(content)
    assert read(path) == expected


def test_inline_elements_of_xliff(tmp_path: Path) -> None:
    path = tmp_path / "a.xlf"
    first = 'Click <g id="1">here</g><x id="2"/>, <bpt id="3">&lt;i&gt;</bpt>now<ept id="3">&lt;/i&gt;</ept>'
    mark = '<mrk mtype="protected">API</mrk> a<x id="5" ctype="lb"/>b'
    path.write_text(xliff1(sides(first, first), sides(mark, mark)))
    assert [pair[0] for pair in read(path)] == ["Click here, now", "API a b"]
    assert [pair[0] for pair in read(path, markup=Markup.tags)] == [
        "Click <1>here</1><2/>, <3>now</3>",
        "API a<1/>b",
    ]
    second = (
        '<pc id="1">a</pc> <ph id="2"/><sc id="3"/>b<ec startRef="3"/><cp hex="0001"/><mrk id="m">c</mrk>'
    )
    path.write_text(xliff2(sides(second, second)))
    assert read(path) == [("a bc", "a bc")]
    assert read(path, markup=Markup.tags)[0][0] == "<1>a</1> <2/><3>b</3>c"


def test_xml_without_a_pair_of_the_languages(tmp_path: Path) -> None:
    path = tmp_path / "a.tmx"
    path.write_text(tmx(unit("a", "b", langs=("fr", "uk"))))
    with pytest.raises(UserError, match="a.tmx: has no pair of en and de. Its languages are fr, uk."):
        read(path)


def test_entities_are_not_loaded(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    doctype = f'<!DOCTYPE tmx [<!ENTITY s SYSTEM "file://{tmp_path}/secret"><!ENTITY t "text">]>\n'
    path = tmp_path / "a.tmx"
    for entity in ("&s;", "&t;"):
        path.write_text(tmx(unit(f"a {entity}", "b"), unit("c", "d"), head=doctype))
        with pytest.raises(UserError, match=r"a.tmx:5: has an entity, &.;, which is not loaded"):
            read(path)
        malformed = Malformed(0.5)
        assert read(path, malformed) == [("c", "d")]
        assert malformed.count == 1


CSV_ROWS = [("id", "en", "de"), ("1", 'say "x", y', "a\nb"), ("2", "", "c;d")]
CSV_PAIRS = [('say "x", y', "a b"), ("", "c;d")]


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
def test_csv(tmp_path: Path, delimiter: str, end: str, quoting: Any) -> None:
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter, lineterminator=end, quoting=quoting).writerows(CSV_ROWS)
    content = text.getvalue()
    path = tmp_path / "a.csv"
    for head in ("", "\ufeff", f"sep={delimiter}{end}"):
        path.write_bytes((head + content).encode())
        assert read(path) == CSV_PAIRS
    without = content.split(end, 1)[1]
    path.write_bytes(without.encode())
    assert read(path, source_key="2", target_key="3") == CSV_PAIRS
    with pytest.raises(
        UserError, match=r"a.csv:1: no column source .*give numbers, such as data.source_key=1"
    ):
        read(path)


@pytest.mark.parametrize(
    ("content", "options"),
    [
        ("en\tde\nA house\tEin Haus\n", {}),
        ("A house\tEin Haus\nb\tc\n", {"source_key": "1", "target_key": "2"}),
        ('en,de\n"A house",Ein Haus\n', {}),
        ('{"en": "A house", "de": "Ein Haus"}\n', {}),
        ('[{"en": "A house", "de": "Ein Haus"}]', {}),
    ],
)
def test_a_table_named_txt(tmp_path: Path, content: str, options: dict[str, str]) -> None:
    path = tmp_path / "a.txt"
    path.write_text(content)
    assert read(path, **options)[0] == ("A house", "Ein Haus")


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("name", ["a.json", "a.jsonl", "a.json.gz"])
def test_a_list_of_json(tmp_path: Path, name: str, indent: int | None) -> None:
    records = [{"translation": {"en": source, "de": target}, "n": [1]} for source, target in PAIRS * 700]
    content = ("\ufeff \n" + json.dumps(records, indent=indent, ensure_ascii=False)).encode()
    path = tmp_path / name
    path.write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    assert read(path) == PAIRS * 700


def test_other_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nmt.data.corpora.json_tables.CHUNK", 5)  # members across many reads
    path = tmp_path / "a.json"
    by_number = {"source_key": "2", "target_key": "1"}
    for content, options, expected in (
        ("[]", {}, []),
        (" [ ] ", {}, []),
        ('[["b","a"],["d","c"]]', by_number, [("a", "b"), ("c", "d")]),
        ('["b","a"]\n["d","c"]\n', by_number, [("a", "b"), ("c", "d")]),
        ('{"source":"ä","target":"b"}\n', {}, [("ä", "b")]),
        ('[{"source":"ä\\u00e4","target":"b"} , {"source":null,"target":"d"}]', {}, [("ää", "b"), ("", "d")]),
    ):
        path.write_text(content)
        assert read(path, **options) == expected
    for content, message in (
        (
            '[{"source":"a","target":"b"},\n{"source":"a","target":2}]',
            "a.json:2: 'target' must be text, not 2",
        ),
        ('[{"source":"a","target":"b"},\n\n{"source":"c"\n', "a.json:3: not valid JSON"),
        (
            '[{"source":"a","target":"b"} {',
            r"a.json:1: not valid JSON \(a comma is missing\)\. Nothing shows where the next record begins",
        ),
        ('[{"source":"a","target":"b"}\n', "a.json:2: not valid JSON .the list has no end"),
        ('[{"source":"a","target":"b"},1]', "a.json:1: must be a JSON object"),
    ):
        path.write_text(content)
        with pytest.raises(UserError, match=message):
            read(path)


PO = r"""# Comment
msgid ""
msgstr ""
"Language: de\n"
"Content-Type: text/plain; charset=UTF-8\n"

#: a.c:1
msgid "one \"x\"\\"
msgstr "eins „x“"

#, fuzzy
msgid "no"
msgstr "nein"

msgctxt "menu"
msgid ""
"two\n"
"lines"
msgstr ""
"zwei\n"
"Zeilen"
msgid "close"
msgstr ""

msgid "%d file"
msgid_plural "%d files"
msgstr[0] "%d Datei"
msgstr[1] "%d Dateien"

#~ msgid "old"
#~ msgstr "alt"
"""
PO_PAIRS = [
    ('one "x"\\', "eins „x“"),
    ("two lines", "zwei Zeilen"),
    ("%d file", "%d Datei"),
    ("%d files", "%d Dateien"),
]


def test_po(tmp_path: Path) -> None:
    path = tmp_path / "de.po"
    path.write_text(PO)
    assert read(path) == PO_PAIRS
    assert read(path, source_lang="de-AT", target_lang="en") == [
        (target, source) for source, target in PO_PAIRS
    ]
    with pytest.raises(
        UserError, match="de.po: its translations are in de, which is neither data.source_lang=en"
    ):
        read(path, target_lang="fr")
    (tmp_path / "messages").write_bytes(PO.replace("UTF-8", "cp1252").encode("cp1252"))
    assert read(tmp_path / "messages") == PO_PAIRS
    one_form = PO.replace('msgstr[1] "%d Dateien"\n', "")
    path.write_text(one_form)
    assert read(path)[2:] == [("%d files", "%d Datei")]


def archive(path: Path, files: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in files.items():
            file.writestr(name, content)
    return path


def test_archives(tmp_path: Path) -> None:
    moses = {
        "README": b"OPUS",
        "LICENSE": b"",
        "News.de-en.de": "Ein Haus\nß\n".encode(),
        "News.de-en.en": b"A house\ns\n",
        "News.de-en.ids": b"1\t1\n2\t2\n",
        "__MACOSX/._News.de-en.de": b"\0",
    }
    expected = [("A house", "Ein Haus"), ("s", "ß")]
    assert read(archive(tmp_path / "de-en.txt.zip", moses)) == expected
    assert read(archive(tmp_path / "unnamed", moses)) == expected
    packed = {"a/x.en.gz": gzip.compress(b"a\n"), "a/x.de": b"b\n", "b/x.en_GB": b"c\n", "b/x.de_DE": b"d\n"}
    assert read(archive(tmp_path / "two.zip", packed)) == [("a", "b"), ("c", "d")]
    table = {"data/a.tsv": b"en\tde\na\tb\n", "data/b.tmx": tmx(unit("c", "d")).encode(), "notes.txt": b"n"}
    assert read(archive(tmp_path / "table.zip", table)) == [("a", "b"), ("c", "d")]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"a.txt": b"a"}, r"a.zip: has no two files whose names end in .en and .de, .* but a.txt"),
        ({"x.en": b"a\n", "x.de": b"b\nc\n"}, r"a.zip: .*a.zip/x.en has 1 lines but .*a.zip/x.de has 2"),
        ({"x.en": b"\xff\n", "x.de": b"b\n"}, r"a.zip/x.en:1: not valid UTF-8 .byte 0xff"),
        ({"x.zip": b""}, "a.zip/x.zip: an archive in an archive"),
        ({"x.parquet": b""}, "a.zip/x.parquet: a Parquet file must be given as it is"),
    ],
)
def test_archives_without_pairs(tmp_path: Path, files: dict[str, bytes], message: str) -> None:
    with pytest.raises(UserError, match=message):
        read(archive(tmp_path / "a.zip", files))


def test_damaged_archives(tmp_path: Path) -> None:
    path = archive(tmp_path / "a.zip", {"x.en": b"abc\n" * 99, "x.de": b"abd\n" * 99})
    content = bytearray(path.read_bytes())
    content[40] ^= 255
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"a.zip/x.(en|de): damaged after line \d+ "):
        read(path)
    path.write_bytes(b"PK\3\4 no")
    with pytest.raises(UserError, match="a.zip: not a zip archive"):
        read(path)


Z = "Straße\n".encode("latin-1")
MALFORMED: list[tuple[str, Callable[[], bytes], list[int], str]] = [
    # name, content, numbers of the good pairs, and the beginning of what is wrong after the path
    ("a.tsv", lambda: b"en\tde\n1\t1\n2\n3\t3\n4\t4\t4\n5\t5\n", [1, 3, 5], ":3: has 1 columns, but the first"),
    ("a.tsv", lambda: b"en\tde\n1\t1\n\n3\t3\n\n\n", [1, 3], ":3: is blank, but rows follow"),
    ("a.tsv", lambda: b"en\tde\n1\t1\n2\t" + Z + b"3\t3\n", [1, 3], ":3: is not valid UTF-8"),
    ("a.csv", lambda: b'en,de\n1,1\n2,"2\n3,3\n4,4\n', [1, 3, 4], ":3: unexpected end of data"),
    ("a.csv", lambda: b'en,de\n1,1\n2,"2\n3,"3"\n4,4\n', [1, 3, 4], ":3: ',' expected after '\"'"),
    ("a.csv", lambda: b'en,de\n1,1\n2,"2\n3,3\n",x,y\n5,5\n', [1, 3, 5], ":3: has 4 columns in 3 lines, but"),
    ("a.csv", lambda: b"en,de\n1,1\n2," + Z + b'"3\n",3\n', [1, 3], ":3: is not valid UTF-8"),
    ("a.jsonl", lambda: b'{"en":"1","de":"1"}\n{"en":"2"}\n{"en":3,"de":"3"}\n{"en":"4","de":"4"}\n', [1, 4],
     ":2: lacks the key 'de'"),
    ("a.jsonl", lambda: b'{"en":"1","de":"1"}\n{"en"\n\n[{}]\n{"en":"4","de":"4"}\n', [1, 4], ":2: not valid JSON"),
    ("a.jsonl", lambda: b'{"en":"1","de":"1"}\n{"en":"2","de":"' + Z + b'{"en":"3","de":"3"}\n', [1, 3],
     ":2: is not valid UTF-8"),
    ("a.json", lambda: b'[{"en":"1","de":"1"},\n3,{"en":"2","de":"\xe4"},{"en":"\\ud800","de":""},{"en":"3","de":"3"}]',
     [1, 3], ":2: must be a JSON object"),
    ("a.tmx", lambda: tmx(unit("1", "1"), unit("2", "a < b"), unit("3", "A & B"), unit("4", "4")).encode(), [1, 4],
     ":5: not valid XML"),
    ("a.tmx", lambda: tmx(unit("1", "1"), unit("2", "2")[:-5], unit("3", "3"), unit("4", "4")).encode(), [1, 3, 4],
     ":9: not valid XML"),
    ("a.tmx", lambda: tmx(unit("1", "1"), unit("2", "Stra§e"), unit("3", "3")).encode().replace("§".encode(), b"\xdf"),
     [1, 3], ":5: is not valid UTF-8"),
    ("a.tmx", lambda: tmx(unit("1", "1"), unit("2", "2").replace("</seg>", ""), unit("3", "3")).encode(), [1, 3],
     ":5: not valid XML"),
    ("a.tmx", lambda: tmx(unit("1", "1"), unit("2", "2"), unit("3", "3")).encode()[:-80], [1, 2], ":6: not valid XML"),
    ("a.xlf", lambda: xliff1(sides("1", "1"), "<target>2</target>", sides("3", "3")).encode(), [1, 3],
     ":1: has no source"),
    ("a.xlf", lambda: xliff2(sides("1", "1"), sides("2", "<b>2"), sides("3", "3")).encode(), [1, 3], ":1: not valid XML"),
    ("a.po", lambda: b'msgid "1"\nmsgstr "1"\n\nmsgid "2\nmsgstr "2"\n\nmsgid "3"\nmsgstr "3"\n', [1, 3],
     ":4: is not a string of PO"),
    ("a.po", lambda: b'msgid "1"\nmsgstr "1"\n\nmsgid "2"\n\nmsgid "3"\nmsgstr "3"\n', [1, 3],
     ":4: has no msgid or no msgstr"),
    ("a.po", lambda: b'msgid "1"\nmsgstr "1"\n\nmsgid "' + Z[:-1] + b'"\nmsgstr "2"\n\nmsgid "3"\nmsgstr "3"\n',
     [1, 3], ":4: is not valid UTF-8"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "content", "good", "problem"), MALFORMED)
def test_malformed_rows(
    tmp_path: Path, name: str, content: Callable[[], bytes], good: list[int], problem: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content())
    split, key = SplitConfig(path=str(path)), "data.train"
    corpus = open_corpus(split, data_options(max_malformed=0.8), key)
    for _ in range(2):
        malformed = corpus.malformed()
        assert list(corpus.pairs(malformed)) == [(str(number), str(number)) for number in good]
        assert malformed.examples[0].startswith(f"{path}{problem}")
    with pytest.raises(UserError, match=r"Or give data.max_malformed=0.001 to drop") as raised:
        list(open_corpus(split, data_options(), key).pairs())
    assert str(path) in str(raised.value)
    with pytest.raises(
        UserError, match=rf"data.max_malformed=0.01: {malformed.count} of .* are malformed, a share"
    ):
        list(open_corpus(split, data_options(max_malformed=0.01), key).pairs())
