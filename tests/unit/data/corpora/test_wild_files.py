"""Files as other programs write them: each has the expected pairs, whatever else is in it."""

from __future__ import annotations

import csv
import gzip
import io
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from nmt.config import DataConfig, Markup, SplitConfig
from nmt.data.corpora.corpus import open_corpus
from nmt.errors import UserError

PAIRS = [("A house", "Ein Haus"), ("Dogs & cats", "Hunde & Katzen"), ("5 < 6", "5 < 6 „ja“")]
NUMBERS = {"source_key": "1", "target_key": "2"}


def read(path: Path, **options: Any) -> list[tuple[str, str]]:
    data = DataConfig(**{"name": "t", "source_lang": "en", "target_lang": "de", **options})
    return list(open_corpus(SplitConfig(path=str(path)), data, "data.train").pairs())


def written(folder: Path, name: str, content: bytes | str) -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def zipped(**files: str) -> bytes:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in files.items():
            file.writestr(name, content)
    return archive.getvalue()


def encrypted(archive: bytes) -> bytes:
    """Returns an archive whose first file has the flag of encryption in the list at the end."""
    at = archive.index(b"PK\1\2") + 8
    return archive[:at] + bytes([archive[at] | 1]) + archive[at + 1 :]


def strange(archive: bytes) -> bytes:
    """Returns an archive whose first file has an unknown compression."""
    at = archive.index(b"PK\1\2") + 10
    return archive[:at] + b"\x63" + archive[at + 1 :]


def sheet(rows: list[tuple[str, ...]], begin: str = "", **options: Any) -> str:
    file = io.StringIO()
    csv.writer(file, **options).writerows(rows)
    return begin + file.getvalue()


def xml(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;")


def variants(texts: dict[str, str], inside: str = "") -> str:
    tuvs = (f'<tuv xml:lang="{lang}">{inside}\n<seg>{xml(text)}</seg></tuv>' for lang, text in texts.items())
    return "\n    ".join(tuvs)


OMEGAT = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE tmx SYSTEM "tmx11.dtd">
<tmx version="1.1">
  <header creationtool="OmegaT" o-tmf="OmegaT TMX" adminlang="EN-US" datatype="plaintext" segtype="sentence" srclang="EN-US"/>
  <body>
<!-- Default translations -->
    <tu>
      <tuv lang="EN-US">
        <seg>Press &lt;f0&gt;OK&lt;/f0&gt;.</seg>
      </tuv>
      <tuv lang="DE-DE" changeid="me" changedate="20240101T000000Z">
        <seg>Drücken Sie &lt;f0&gt;OK&lt;/f0&gt;.</seg>
      </tuv>
    </tu>
<!-- Alternative translations -->
    <tu>
      <note>a note</note>
      <prop type="file">a.odt</prop>
      <tuv lang="EN-US"><seg>Yes</seg></tuv>
      <tuv lang="DE-DE"><seg>Ja</seg></tuv>
    </tu>
  </body>
</tmx>
"""
OMEGAT_LEVEL2 = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE tmx SYSTEM "tmx14.dtd">
<tmx version="1.4"><header creationtool="OmegaT" datatype="plaintext" srclang="EN-US"/><body>
<tu><tuv xml:lang="EN-US"><seg>Press <bpt i="0" x="0">&lt;f0&gt;</bpt>OK<ept i="0">&lt;/f0&gt;</ept>.</seg></tuv>
<tuv xml:lang="DE-DE"><seg><bpt i="0" x="0">&lt;f0&gt;</bpt>OK<ept i="0">&lt;/f0&gt;</ept> drücken.</seg></tuv></tu>
</body></tmx>
"""
TRADOS = """<?xml version="1.0" encoding="utf-8"?><xliff xmlns:sdl="http://sdl.com/FileTypes/SdlXliff/1.0" \
xmlns="urn:oasis:names:tc:xliff:document:1.2" version="1.2" sdl:version="1.0"><file original="a.docx" \
datatype="x-sdlfilterframework2" source-language="en-US" target-language="de-DE"><header><reference>\
<internal-file form="base64">ORIGINAL</internal-file></reference><tag-defs \
xmlns="http://sdl.com/FileTypes/SdlXliff/1.0"><tag id="0"><bpt name="cf">&lt;cf&gt;</bpt></tag></tag-defs></header><body>
<trans-unit id="u0" translate="no"><source><x id="1"/></source></trans-unit>
<group><sdl:cxts><sdl:cxt id="1"/></sdl:cxts><trans-unit id="u1"><source><g id="3">First. Second. Third.</g></source>
<seg-source><g id="3"><mrk mtype="seg" mid="1">First.</mrk> <mrk mtype="seg" mid="2">Second.</mrk> \
<mrk mtype="seg" mid="3">Third.</mrk></g></seg-source><target><g id="3"><mrk mtype="seg" mid="1">Eins.</mrk> \
<mrk mtype="seg" mid="2"/> <mrk mtype="seg" mid="3">Drei.</mrk></g></target>
<sdl:seg-defs><sdl:seg id="1" conf="Translated" origin="interactive"/></sdl:seg-defs></trans-unit></group>
</body></file></xliff>"""
MEMOQ = """<?xml version="1.0" encoding="UTF-8"?>
<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2" xmlns:mq="MQXliff"><file original="a.docx" \
source-language="en-gb" target-language="de" datatype="x-memoq"><header/><body>
<trans-unit id="1" mq:segmentguid="g" mq:status="ManuallyConfirmed"><source xml:space="preserve">See \
<bpt id="1" ctype="bold">{}</bpt>this<ept id="1">{}</ept>.<ph id="2">&lt;br/&gt;</ph></source>\
<target xml:space="preserve">Siehe <bpt id="1" ctype="bold">{}</bpt>das<ept id="1">{}</ept>.</target>\
<mq:minorversions><mq:historical-unit><source>See</source><target>Alt</target></mq:historical-unit></mq:minorversions>\
</trans-unit>
<trans-unit id="2" mq:status="NotStarted"><source xml:space="preserve">Later</source><target xml:space="preserve"/>\
</trans-unit></body></file></xliff>"""
PHRASE = """<?xml version='1.0' encoding='UTF-8'?>
<xliff xmlns:m="http://www.memsource.com/mxlf/2.0" xmlns="urn:oasis:names:tc:xliff:document:1.2" version="1.2">
<file original="a" source-language="en" target-language="de_de" datatype="x-docx"><body><group id="0"><trans-unit \
id="x:0" m:confirmed="1"><source>Hello</source><target>Hallo</target><alt-trans origin="machine-trans">\
<target>Guten Tag</target></alt-trans></trans-unit></group></body></file></xliff>"""
ANGULAR = """<?xml version="1.0" encoding="UTF-8" ?>
<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">
  <file source-language="en-US" datatype="plaintext" original="ng2.template"><body>
    <trans-unit id="a" datatype="html"><source>Updated <x id="INTERPOLATION" equiv-text="{{n}}"/> ago</source>
      <target state="final">Vor <x id="INTERPOLATION" equiv-text="{{n}}"/> geändert</target>
      <context-group purpose="location"><context context-type="sourcefile">a.html</context></context-group>
    </trans-unit>
    <trans-unit id="b"><source>New</source><target state="new">New</target></trans-unit>
  </body></file>
</xliff>"""
OKAPI2 = """<?xml version="1.0"?>
<xliff xmlns="urn:oasis:names:tc:xliff:document:2.0" version="2.0" srcLang="en" trgLang="de-CH">
<file id="f1"><skeleton>&lt;tu&gt;</skeleton><group id="g1"><unit id="u1"><notes><note>n</note></notes>
<originalData><data id="d1">&lt;b&gt;</data></originalData>
<segment id="s1" state="final"><source>One <pc id="1" dataRefStart="d1">two</pc>.</source>\
<target>Eins <pc id="1" dataRefStart="d1">zwei</pc>.</target></segment><ignorable><source> </source></ignorable>
<segment id="s2"><source>Three.</source></segment></unit></group></file></xliff>"""
POEDIT = r"""# Translators:
msgid ""
msgstr ""
"Project-Id-Version: a 1\n"
"Language: de\n"
"Content-Type: text/plain; charset=CHARSET\n"
"Plural-Forms: nplurals=2; plural=(n != 1);\n"
"X-Generator: Poedit 3.4\n"

#: a.c:1 b.c:2
#, c-format
msgid "%d file"
msgid_plural "%d files"
msgstr[0] "%d Datei"
msgstr[1] "%d Dateien"

#, fuzzy
#| msgid "old"
msgid "new"
msgstr "alt"

msgctxt "menu"
msgid ""
"Say \"hi\" "
"now"
msgstr "Grüße „jetzt“"

#~ msgid "gone"
#~ msgstr "weg"
"""
PO_PAIRS = [("%d file", "%d Datei"), ("%d files", "%d Dateien"), ('Say "hi" now', "Grüße „jetzt“")]
DGT = (
    '<?xml version="1.0" encoding="UTF-16"?><tmx version="1.1"><header creationtool="VU" srclang="EN-GB" '
    'segtype="sentence"/><body>'
    + "".join(
        f"<tu>{variants({'BG-01': 'бг', 'DE-DE': target, 'EN-GB': source, 'FR-FR': 'fr', 'EL-GR': 'ελ'})}</tu>\n"
        for source, target in PAIRS
    )
    + "</body></tmx>"
)
PARACRAWL = (
    '<?xml version="1.0"?>\n<tmx version="1.4">\n <header adminlang="en" srclang="en" o-tmf="PlainText"/>\n <body>\n'
    + "\n".join(
        f'  <tu tuid="{number}" datatype="Text">\n   <prop type="score-bicleaner">0.7</prop>\n   '
        + variants(dict(zip(("en", "de"), pair, strict=True)), '<prop type="source-document">a.org</prop>')
        + "</tu>"
        for number, pair in enumerate(PAIRS)
    )
    + "\n </body>\n</tmx>\n"
)
ROWS = [("en", "de"), *PAIRS]
QUOTED = [('He said "no", twice', "Er sagte „nein“; zweimal"), ("two\nlines", "zwei\nZeilen")]
MOSES = {side: "".join(f"{pair[side == 'de']}\n" for pair in PAIRS) for side in ("en", "de")}
RECORDS = [{"id": str(number), "translation": {"en": en, "de": de}} for number, (en, de) in enumerate(PAIRS)]


@pytest.mark.parametrize(
    ("name", "content", "expected", "options"),
    [
        ("project_save.tmx", OMEGAT, [("Press <f0>OK</f0>.", "Drücken Sie <f0>OK</f0>."), ("Yes", "Ja")], {}),
        ("level2.tmx", OMEGAT_LEVEL2, [("Press OK.", "OK drücken.")], {}),
        (
            "level2.tmx",
            OMEGAT_LEVEL2,
            [("Press <1>OK</1>.", "<1>OK</1> drücken.")],
            {"markup": Markup.tags},
        ),
        ("dgt.tmx", DGT.encode("utf-16"), PAIRS, {}),
        (
            "dgt.zip",
            zipped(**{"Vol_2024.tmx": DGT.replace("UTF-16", "UTF-8"), "readme.txt": "DGT"}),
            PAIRS,
            {},
        ),
        ("saved by an editor.tmx", DGT, PAIRS, {}),  # declared as UTF-16, but converted to UTF-8
        ("declared as ASCII.tmx", DGT.replace("UTF-16", "US-ASCII"), PAIRS, {}),
        ("de-en.tmx.gz", gzip.compress(PARACRAWL.encode()), PAIRS, {}),
        ("a.sdlxliff", TRADOS, [("First.", "Eins."), ("Third.", "Drei.")], {}),
        (
            "a.sdlxliff",
            TRADOS.replace("ORIGINAL", "UEsDBBQA" * 1_500_000),
            [("First.", "Eins."), ("Third.", "Drei.")],
            {},
        ),
        ("a.mqxliff", MEMOQ, [("See this.", "Siehe das.")], {}),
        ("a.mxliff", PHRASE, [("Hello", "Hallo")], {}),
        ("messages.xlf", ANGULAR, [("Updated  ago", "Vor  geändert")], {}),
        ("okapi.xlf", OKAPI2, [("One two.", "Eins zwei.")], {}),
        ("de.po", "\ufeff" + POEDIT.replace("CHARSET", "UTF-8").replace("\n", "\r\n"), PO_PAIRS, {}),
        ("de.po", POEDIT.replace("CHARSET", "windows-1252").encode("cp1252"), PO_PAIRS, {}),
        ("a.po", 'msgid "a\u2028b"\nmsgstr "c\x85d\ve"\n', [("a\u2028b", "c\x85d\ve")], {}),
        (
            "crowdin.csv",
            sheet(
                [
                    ("identifier", "source_phrase", "context", "translation"),
                    *(("k", en, "c, d", de) for en, de in PAIRS),
                ]
            ),
            PAIRS,
            {"source_key": "source_phrase", "target_key": "translation"},
        ),
        ("excel.csv", sheet(ROWS, "\ufeff", delimiter=";"), PAIRS, {}),
        ("excel with sep.csv", sheet(ROWS, "\ufeffsep=;\r\n", delimiter=";"), PAIRS, {}),
        (
            "google sheets.csv",
            sheet([*ROWS, *QUOTED]),
            [*PAIRS, (QUOTED[0]), ("two lines", "zwei Zeilen")],
            {},
        ),
        ("calc.csv", sheet(ROWS, delimiter="\t", lineterminator="\n", quoting=csv.QUOTE_ALL), PAIRS, {}),
        (
            "pandas.csv",
            sheet([("", *ROWS[0]), *(("0", *pair) for pair in PAIRS)], lineterminator="\n"),
            PAIRS,
            {},
        ),
        (
            "column names.csv",
            sheet([("my.en", "my de 😀"), *PAIRS]),
            PAIRS,
            {"source_key": "my.en", "target_key": "my de 😀"},
        ),
        ("no header.csv", sheet(PAIRS), PAIRS, NUMBERS),
        (
            "no header.csv",
            "Oh, my, house;Haus\r\nA;B\r\n" + "C;D\n" * 17 + 'C;"D\nE"\n',
            [("Oh, my, house", "Haus"), ("A", "B"), *[("C", "D")] * 17, ("C", "D E")],
            NUMBERS,
        ),
        ("no header.csv", sheet(PAIRS), PAIRS, {"source_key": "0", "target_key": "1"}),
        (
            "mysql.txt",
            "id\ten\tde\n1\tA \\n\tEin \\n\n2\tNULL\tx\n",
            [("A \\n", "Ein \\n"), ("NULL", "x")],
            {},
        ),
        (
            "wikimatrix.tsv",
            '1.2\tA\tB\n1.1\tC "\tD\n',
            [("A", "B"), ('C "', "D")],
            {"source_key": "2", "target_key": "3"},
        ),
        (
            "tatoeba links.tsv",
            "\ufeff1\tHi.\t77\tHallo.\r\n2\tGo!\t78\tGeh!\r\n",
            [("Hi.", "Hallo."), ("Go!", "Geh!")],
            {"source_key": "2", "target_key": "4"},
        ),
        (
            "deu-eng.zip",
            zipped(**{"_about.txt": "About\n\nthis\n", "deu.txt": "Go.\tGeh.\tCC-BY\nHi.\tHallo!\tCC-BY\n"}),
            [("Go.", "Geh."), ("Hi.", "Hallo!")],
            NUMBERS,
        ),
        (
            "opus.zip",
            zipped(
                **{
                    "README": "",
                    "LICENSE": "",
                    "X.de-en.de": MOSES["de"],
                    "X.de-en.en": MOSES["en"],
                    "X.de-en.ids": "1\t2\n",
                    "sub/Y.de-en.en": "y\n",
                    "sub/Y.de-en.de": "z\n",
                    "__MACOSX/._X.de-en.en": "?",
                }
            ),
            [*PAIRS, ("y", "z")],
            {},
        ),
        ("huggingface.json", json.dumps(RECORDS), PAIRS, {}),
        ("huggingface.jsonl", "".join(f"{json.dumps(record)}\n" for record in RECORDS), PAIRS, {}),
        ("rows.json", json.dumps(PAIRS, indent=1), PAIRS, NUMBERS),
        (
            "zh.tmx",
            PARACRAWL.replace('"en"', '"zh_TW"').replace('"de"', '"pt-BR"'),
            PAIRS,
            {"source_lang": "zh-Hant", "target_lang": "pt"},
        ),
        ("sr.xlf", PHRASE.replace('"en"', '"sr-Latn"'), [("Hello", "Hallo")], {"source_lang": "sr-Latn"}),
        ("paraphrases.tmx", PARACRAWL.replace('"de"', '"en"'), PAIRS, {"target_lang": "en"}),
    ],
)
def test_files_of_other_programs(
    tmp_path: Path, name: str, content: bytes | str, expected: list[tuple[str, str]], options: dict[str, Any]
) -> None:
    assert read(written(tmp_path, name, content), **options) == expected


TWO_FILES = PHRASE.replace(
    "</file>",
    '</file><file source-language="en" target-language="fr"><header><note>a < b</note></header><body>'
    "<trans-unit><source>One</source><target>Un</target></trans-unit>"
    "<trans-unit><source>Two</source><target>Deux</target></trans-unit></body></file>",
)
BOMB = '<!DOCTYPE tmx [<!ENTITY a "aaaaaaaaaa">' + "".join(
    f'<!ENTITY {name} "{f"&{before};" * 10}">' for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.tmx", DGT.replace("UTF-16", "hex"), "a.tmx: its encoding, hex, is not known. Convert"),
        ("a.tmx", DGT.replace("UTF-16", "idna"), "a.tmx: its encoding, idna, is not known. Convert"),
        ("a.tmx", DGT.replace("UTF-16", "x-none"), "a.tmx: its encoding, x-none, is not known. Convert"),
        ("a.po", POEDIT.replace("CHARSET", "zlib"), "a.po: its encoding, zlib, is not known. Convert"),
        (
            "a.tmx",
            PARACRAWL.replace("<seg>", "<seg>\0"),
            r"a.tmx:5: not valid XML \(Invalid char.*range *\)",
        ),
        ("a.tmx", f"{BOMB}]><tmx><body><tu><tuv>&i;</tuv></tu>", r"a.tmx:1: not valid XML \(Maximum entity"),
        (
            "a.tmx",
            "<html><body>Log in</body></html>",
            "a.tmx: has no pair of en and de. It has no unit: is it",
        ),
        (
            "a.po",
            POEDIT.replace("CHARSET", "UTF-8").replace("Language: de", "Language: f\x1b"),
            r"are in f\\x1b, which",
        ),
        ("a.tmx", DGT.replace("DE-DE", "x&#10;y&#27;"), r"a.tmx:1: not valid XML"),
        (
            "a.tmx",
            DGT.replace("DE-DE", "x&#10;y"),
            r"a.tmx: has no pair of en and de. Its languages are BG-01",
        ),
        ("a.zip", zipped(**{"\n.tmx": "<html/>"}), r"a.zip/\\n.tmx: has no pair"),
        ("a.tmx", "<html><meta charset=utf-8></tu>", r"a.tmx:1: not valid XML \(AttValue"),
        ("a.zip", encrypted(zipped(**{"a.csv": "en,de\n"})), "a.zip/a.csv: is encrypted. Unpack"),
        (
            "a.zip",
            strange(zipped(**{"a.csv": "en,de\n"})),
            r"a.zip/a.csv: can't be unpacked \(That compr.*\)\. Unp",
        ),
        (
            "a.xlf",
            TWO_FILES,
            r"a.xlf:3: not valid XML \(.*\), in the element that names the languages. Correct",
        ),
        (
            "a.csv",
            "en,de\ra,b\rc,d\r",
            "a.csv:1: has a carriage return outside of quotation marks. Lines end",
        ),
        ("a.json", json.dumps(RECORDS) * 2, r"a.json:1: not valid JSON \(text follows the list\)"),
        ("a.json", "[] []", r"a.json:1: not valid JSON \(text follows the list\)"),
        ("a.json", "[{}", r"a.json:1: .*|not valid JSON \(the list has no end\)"),
        (
            "a.xlsx",
            zipped(**{"[Content_Types].xml": "", "xl/workbook.xml": ""}),
            "a.xlsx: is a document of an office program. Save a",
        ),
        (
            "a.ods",
            zipped(mimetype="", **{"content.xml": ""}),
            "a.ods: is a document of an office program. Save a",
        ),
    ],
)
def test_hostile_files(tmp_path: Path, name: str, content: bytes | str, message: str) -> None:
    path = written(tmp_path, name, content)
    for limit in (0.0,) if name == "a.csv" else (0.0, 1.0):
        with pytest.raises(UserError, match=message) as raised:
            read(path, max_malformed=limit)
        assert "\n" not in str(raised.value)


def test_the_memory_for_a_unit_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nmt.data.corpora.translation_memories._LONGEST_UNIT", 1000)
    path = written(tmp_path, "a.tmx", PARACRAWL.replace("cats", "x" * 1000))
    with pytest.raises(UserError, match="a.tmx:11: not valid XML .a unit of more than 1,000 characters"):
        read(path)
    assert read(path, max_malformed=0.5) == [PAIRS[0], PAIRS[2]]


def test_an_error_in_the_head_of_an_xliff_file_element(tmp_path: Path) -> None:
    damaged = TWO_FILES.replace("a < b", "a &lt; b").replace("<source>One", "<source>a < b")
    path = written(tmp_path, "a.xlf", damaged)
    assert read(path, max_malformed=0.5) == [("Hello", "Hallo")]
    assert read(path, max_malformed=0.5, target_lang="fr") == [("Two", "Deux")]


def test_files_without_the_languages_are_skipped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Weblate's archives have a file for each language, and documents of DGT lack some of them."""
    french = POEDIT.replace("Language: de", "Language: fr").replace("CHARSET", "UTF-8")
    files = {"a/fr.po": french, "b/de.po": POEDIT.replace("CHARSET", "UTF-8"), "c.tmx": PARACRAWL}
    files["d.tmx"] = PARACRAWL.replace('"de"', '"ga"')
    path = written(tmp_path, "a.zip", zipped(**files))
    assert read(path) == [*PO_PAIRS, *PAIRS]
    assert "Files without a pair are skipped: 2. The first: " in caplog.text
    for name, content in files.items():
        written(tmp_path, name.replace("/", "-"), content)
    assert read(tmp_path / "*-*.po") == PO_PAIRS
    assert read(tmp_path / "?.tmx") == PAIRS
    with pytest.raises(UserError, match="c.tmx: has no pair of en and nl. Its languages are de, en"):
        read(tmp_path / "?.tmx", target_lang="nl")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"source_key": "2", "target_key": "02"},
            "data.source_key=2 data.target_key=02: the same column. Give two",
        ),
        ({"source_key": "de"}, "a.csv:1: de would be the column of both sides. Set .* to two of en, de"),
        ({"target_lang": "en"}, "a.csv:1: en would be the column of both sides. Set .* to two of en, de"),
    ],
)
def test_both_sides_in_one_column(tmp_path: Path, options: dict[str, str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        read(written(tmp_path, "a.csv", sheet(ROWS)), **options)


@pytest.mark.parametrize(
    ("name", "content", "expected", "message"),
    [
        ("a.csv", 'en,de\n1,"2\n' + "3,4\n" * 1500, [("3", "4")] * 1500, ":2: has a quotation mark that is not closed"),
        ("a.tmx", PARACRAWL.replace("<tu tuid=\"1", "<tu><tu tuid=\"1", 1).replace("</body>", "</tu></body>"), PAIRS, ":23: has another unit inside"),
        ("a.tmx", PARACRAWL.replace("<seg>Dogs &amp; cats</seg>", ""), [PAIRS[0], PAIRS[2]], ":11: has a tuv without seg"),
        ("a.po", "".join(f'msgid "{number}"\n{"msgid" * (number == 7)}{"msgstr" * (number != 7)} "x"\n\n' for number in range(1, 502)), [(str(number), "x") for number in range(1, 502) if number != 7], ":19: has a keyword twice"),
    ],
)  # fmt: skip
def test_one_malformed_row(
    tmp_path: Path, name: str, content: str, expected: list[tuple[str, str]], message: str
) -> None:
    path = written(tmp_path, name, content)
    with pytest.raises(UserError, match=message):
        read(path)
    data = DataConfig(name="t", source_lang="en", target_lang="de", max_malformed=0.5)
    corpus = open_corpus(SplitConfig(path=str(path)), data, "data.train")
    malformed = corpus.malformed()
    assert (list(corpus.pairs(malformed)), malformed.count) == (expected, 1)


def test_files_of_the_same_name_in_an_archive(tmp_path: Path) -> None:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file, pytest.warns(UserWarning):
        file.writestr("a.csv", "en,de\nold,alt\n")
        file.writestr("a.csv", "en,de\nnew,neu\n")
    assert read(written(tmp_path, "a.zip", archive.getvalue())) == [("new", "neu")]


def test_the_list_of_an_archive_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(
        tmp_path, "a.zip", zipped(**{f"{number}.csv": f"en,de\n{number},x\n" for number in range(9)})
    )
    opened = []
    real = zipfile.ZipFile.__init__
    monkeypatch.setattr(
        zipfile.ZipFile, "__init__", lambda self, *args: opened.append(args) or real(self, *args)
    )
    assert read(path) == [(str(number), "x") for number in range(9)]
    assert len(opened) == 1


def test_the_limit_of_malformed_rows_is_exact(tmp_path: Path) -> None:
    path = written(tmp_path, "a.csv", sheet([("en", "de"), *[("a", "b")] * 71, *[("c",)] * 29]))
    assert len(read(path, max_malformed=0.29)) == 71
    with pytest.raises(UserError, match="29 of 100 rows of a.csv are malformed"):
        read(path, max_malformed=0.28)


def test_rows_that_are_all_malformed(tmp_path: Path) -> None:
    path = written(tmp_path, "a.csv", sheet([("en", "de"), ("c",)]))
    with pytest.raises(
        UserError, match=r"a\.csv has no sentence pairs\. The first: .*a\.csv:2: has 1 columns"
    ):
        read(path, max_malformed=1.0)
