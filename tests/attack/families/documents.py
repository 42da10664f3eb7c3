"""Files in their own format: malformed, hostile, in other encodings, and those with nothing to translate."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from xml.etree import ElementTree

from attack.case import Case, refused, translate, works
from attack.room import Room

_XLIFF = '<xliff version="1.2"><file source-language="xx"><body>{}</body></file></xliff>'
_UNIT = "<trans-unit><source>{}</source></trans-unit>"
_TMX = '<tmx version="1.4"><body><tu><tuv xml:lang="xx"><seg>{}</seg></tuv></tu></body></tmx>'
_NESTED = "ba " + "<g>be <g>bi</g> " * 40 + "<x/>" + "</g> bo" * 40
_ENTITY = '<!DOCTYPE tmx [<!ENTITY a SYSTEM "file:///etc/passwd">]>' + _TMX.format("&a;")
_WORKING: dict[str, str | bytes] = {
    "a.xlf": _XLIFF.format(_UNIT.format("ba be") + _UNIT.format(_NESTED) + _UNIT.format("") + _UNIT.format("1")),
    "none.xlf": _XLIFF.format(""),
    "translated.xlf": _XLIFF.format("<trans-unit><source>ba</source><target>ab</target></trans-unit>"),
    "utf16.tmx": ('<?xml version="1.0" encoding="UTF-16"?>' + _TMX.format("ba <bpt i='1'/>be<ept i='1'/>")).encode("utf-16"),
    "dtd.tmx": '<!DOCTYPE tmx SYSTEM "http://localhost:9/tmx14.dtd">' + _TMX.format("ba &#x1F600; &amp;"),
    "a.po": 'msgid ""\nmsgstr "Plural-Forms: nplurals=3; plural=n;\\n"\n\nmsgid "ba %d"\nmsgid_plural "be"\nmsgstr[0] ""\nmsgstr[1] ""\n',
    "empty.po": "",
    "a.srt": "1\r\n00:00:01,000 --> 00:00:02,000\r\n<i>ba be\r\nbi</i>\r\n",
    "a.vtt": "WEBVTT\n\n00:01.000 --> 00:02.000\n<v ba>be &amp; bi",
    "a.html": "<p>ba <b>be <i>bi</b></i></p>" + "<div>" * 20_000,
    "list.json": '[{"text": "ba"}, {"text": "be"}]',
}  # fmt: skip
_REFUSED: dict[str, tuple[str | bytes, str]] = {
    "open.xlf": (_XLIFF.format("<trans-unit>"), "open.xlf:1: not valid XML"),
    "deep.xlf": (_XLIFF.format(_UNIT.format("<g>" * 5000 + "</g>" * 5000)), "nested too deeply"),
    "other.xlf": (_XLIFF.format("").replace('"xx"', '"fr"'), "its source language is fr"),
    "entity.tmx": (_ENTITY, "entity.tmx:1: has an entity, a, which is not loaded"),
    "undefined.tmx": (_TMX.format("&nbsp;"), "undefined.tmx:1: not valid XML"),
    "byte.tmx": (_TMX.format("ba").encode() + b"\xff", "byte.tmx:1: not valid UTF-8"),
    "latin.po": (b'msgid "\xe4"\nmsgstr ""\n', "latin.po:1: not valid UTF-8"),
    "quote.po": ('\nmsgid "ba\nmsgstr ""\n', "quote.po:2: is not a string of PO"),
    "times.srt": ("ba be\n", "times.srt:1: has no times"),
    "comma.json": ('[{"text": "ba"}\n{}]', "format=json: line 2: not valid JSON"),
    "deep.json": ("[" * 100_000, "nested too deeply"),
}


def _putting(name: str, content: str | bytes) -> Callable[[Room], None]:
    def put(room: Room) -> None:
        room.put_model()
        (room.work / name).write_bytes(content.encode() if isinstance(content, str) else content)

    return put


def _well_formed(name: str) -> Callable[[Room], str | None]:
    def check(room: Room) -> str | None:
        content = (room.work / "out").read_bytes()
        if name.endswith((".xlf", ".tmx")):
            ElementTree.fromstring(content)
        if "translated" in name or "none" in name or "empty" in name:
            before = (room.work / name).read_bytes()
            return None if before.split(b">")[-1] == content.split(b">")[-1] else "the file is changed"
        return None if content != (room.work / name).read_bytes() else "nothing is translated"

    return check


def cases() -> Iterator[Case]:
    """All cases of this family."""
    for name, content in _WORKING.items():
        put, check = _putting(name, content), _well_formed(name)
        expected = works(None, "out", check=check)
        yield translate(f"documents/{name}", expected, f"input={name}", "output=out", setup=put)
    for name, (content, words) in _REFUSED.items():
        put = _putting(name, content)
        yield translate(f"documents/{name}", refused(words), f"input={name}", "output=out", setup=put)
    for options, words in (
        (("column=1",), "format=po has no columns"),
        (("scores=true",), "format=po has no lines for it"),
        (("decoding.nbest=2",), "takes one translation per line"),
        (("delimiter=,",), "only format=csv has delimiters"),
        (("format=docx",), "format=docx: must be"),
    ):
        put = _putting("a.po", _WORKING["a.po"])
        yield translate(
            f"documents/{options[0]}", refused(words), "input=a.po", "output=out", *options, setup=put
        )
