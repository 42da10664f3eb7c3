"""Requests that no client should send: each has an answer in JSON, and none a failure of the server."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from test_clients import BOUNDARY, FORM, JSON, MULTIPART, PAIR, PAIR_FIELDS, app, js, parts, send

from nmt.serving import app as application
from nmt.serving.app import App

LINE = f"--{BOUNDARY}\r\n".encode()
END = f"--{BOUNDARY}--\r\n".encode()
Q = LINE + b'Content-Disposition: form-data; name="q"\r\n\r\nA\r\n'
TARGET = LINE + b'Content-Disposition: form-data; name="target"\r\n\r\nde\r\n'


@pytest.fixture(scope="module")
def server() -> App:
    return app()


@pytest.mark.parametrize(
    ("html", "translated"),
    [
        ("<div>" * 19_000 + "A", "<div>" * 19_000 + "de:A"),
        ("<b>" * 12_000 + "A" + "</b>" * 12_000, "<b>" * 12_000 + "de:A" + "</b>" * 12_000),
        ("<" * 99_000, "<" * 99_000),
        ("<b " * 3000 + "A", "de:" + "&lt;b " * 3000 + "A"),
        ("<b>A", "<b>de:A"),
        ("A</b>", "de:A</b>"),
        ("<p>A<p>B", "<p>de:A<p>de:B"),
        ("&#x110000; A &bogus; &#0; &amp;lt;", "de:\ufffd A &amp;bogus; \ufffd &amp;lt;"),
        ("&" * 50_000 + "A", "de:" + "&amp;" * 50_000 + "A"),
        ("<![CDATA[A <b>]]> B", "<![CDATA[A <b>]]> de:B"),
        ("<script>A</script><style>B</style>C", "<script>A</script><style>B</style>de:C"),
        ("<textarea>A", "<textarea>A"),
        ('<img title="A" alt="B">C <a title="x">d</a> e', '<img title="A" alt="B">de:C <a title="x">d</a> e'),
        ('<p title="a>b">C</p>', '<p title="a>b">de:C</p>'),
        ("<input value='A'>", "<input value='A'>"),
        ("<?php A ?> B <!doctype x>", "<?php A ?> de:B <!doctype x>"),
        ("A\x00B", "de:A\x00B"),
        ("<a href='" + "x" * 50_000 + "'>A</a>", "<a href='" + "x" * 50_000 + "'>de:A</a>"),
    ],
    ids=lambda value: repr(value[:24]),
)
def test_html(server: App, html: str, translated: str) -> None:
    status, _, body = send(server, "POST", "/translate", JSON, js(q=html, format="html", **PAIR))
    assert (status, json.loads(body)) == (200, {"translatedText": translated})


INVALID = "The body is not a valid multipart form."
NO_Q = "Invalid request: missing q parameter"


@pytest.mark.parametrize(
    ("body", "kind", "found"),
    [
        (b"before\r\n" + Q + TARGET + END + b"after", MULTIPART, "de:A"),
        (Q + TARGET + END, f'Multipart/Form-Data; Boundary="{BOUNDARY}"', "de:A"),
        (Q.replace(b'"q"', b"q") + TARGET + END, MULTIPART, "de:A"),
        (Q.replace(b"; name", b";\r\n name") + TARGET + END, MULTIPART, "de:A"),
        (Q + Q + TARGET + END, MULTIPART, ["de:A", "de:A"]),
        (Q.replace(b"\r\nA", b"\r\nA --" + LINE[2:-3]) + TARGET + END, MULTIPART, f"de:A --{BOUNDARY[:-1]}"),
        (Q + TARGET, MULTIPART, INVALID),
        ((Q + TARGET + END).replace(b"\r\n", b"\n"), MULTIPART, INVALID),
        (Q + TARGET + END, "multipart/form-data", INVALID),
        (Q + TARGET + END, f"multipart/form-data; boundary={'x' * 71}", INVALID),
        (Q + TARGET + END, "multipart/form-data; boundary*=utf-16''%00", INVALID),
        (b"", MULTIPART, INVALID),
        (LINE + b"x: " + b"a" * 5000 + b"\r\n\r\n\r\n" + Q + END, MULTIPART, INVALID),
        (END, MULTIPART, NO_Q),
        (Q.replace(b'; name="q"', b"") + TARGET + END, MULTIPART, NO_Q),
        (Q.replace(b"Content-Disposition", b"x") + TARGET + END, MULTIPART, NO_Q),
        (Q.replace(b'"q"', b'"q\x00"') + TARGET + END, MULTIPART, NO_Q),
        (Q.replace(b'"q"', b'"\xff"') + TARGET + END, MULTIPART, "The form is not valid UTF-8."),
        (Q.replace(b"A\r\n", b"\xe4\r\n") + TARGET + END, MULTIPART, "The form is not valid UTF-8."),
        (
            Q.replace(b'"q"', b'"q"; filename="a"') + TARGET + END,
            MULTIPART,
            "q: must be text or a list of texts, not a file.",
        ),
        (
            Q + TARGET.replace(b'get"', b'get"; filename="a"') + END,
            MULTIPART,
            "target: must be text, not a file.",
        ),
        (b"q=%FF", FORM, "The form is not valid UTF-8."),
        (b"&".join([b"a=1"] * 10_001), FORM, "The form has more than 10,000 fields."),
    ],
)
def test_forms(server: App, body: bytes, kind: str, found: Any) -> None:
    status, _, answer = send(server, "POST", "/translate", kind, body)
    expected = (
        {"error": found} if isinstance(found, str) and found[:3] != "de:" else {"translatedText": found}
    )
    assert (status, json.loads(answer)) == (400 if "error" in expected else 200, expected)


@pytest.mark.parametrize(
    ("q", "status"),
    [
        ("a", 200),
        (" ", 200),
        ("\u3002", 200),
        ("\U0001f600", 200),
        ("\x00", 200),
        ([""], 200),
        (["", "a"], 200),
        ("a" * 90_000, 200),
        ("", 400),
        ([], 400),
        (None, 400),
        ([["a"]], 400),
        (["a", 5], 400),
        (5, 400),
        (True, 400),
        ({"a": 1}, 400),
        ("\ud800", 400),
    ],
    ids=lambda value: repr(value)[:12],
)
def test_detection(server: App, q: Any, status: int) -> None:
    pytest.importorskip("lingua", reason="detection needs the extra langid")
    found, _, body = send(server, "POST", "/detect", JSON, js(q=q))
    answer = json.loads(body)
    assert found == status
    if status == 200:
        assert answer and all(isinstance(one["confidence"], float) and one["language"] for one in answer)
    else:
        assert [*answer] == ["error"]


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.html", b"", ("a.html", b"")),
        ("a.txt", b"\xef\xbb\xbfA\r\n", ("a.txt", b"\xef\xbb\xbfde:A\r\nde:")),
        ("../../etc/a.txt", b"A", ("a.txt", b"de:A")),
        ("C:\\x\\a.txt", b"A", ("a.txt", b"de:A")),
        ("a\x00.txt", b"A", ("a%00.txt", b"de:A")),
        ("x" * 300 + ".txt", b"A", ("x" * 300 + ".txt", b"de:A")),
        ("\xe4;.txt", b"A", ("%C3%A4%3B.txt", b"de:A")),
        (".txt", b"A", "Invalid request: file format not supported"),
        ("a", b"A", "Invalid request: file format not supported"),
        ("a.txt.exe", b"A", "Invalid request: file format not supported"),
        ("a.docx", b"PK\3\4", "Invalid request: file format not supported"),
        (
            "a.html",
            b"PK\3\4\xff",
            "a.html:1: not valid UTF-8 (byte 0xff). Convert the file to UTF-8, for example with iconv.",
        ),
        ("a.txt", b"\xff\xfeA\x00", ("a.txt", "\ufeffde:A".encode("utf-16-le"))),
    ],
    ids=lambda value: repr(value)[:12],
)
def test_files(server: App, name: str, content: bytes, expected: Any) -> None:
    body = parts(*PAIR_FIELDS, file=(name, content))
    status, _, answer = send(server, "POST", "/translate_file", MULTIPART, body)
    found = json.loads(answer)
    if isinstance(expected, str):
        assert (status, found["error"]) == (400, expected)
        return
    path = found["translatedFileUrl"].removeprefix("http://nmt:5000")
    _, headers, file = send(server, "GET", path)
    assert headers["content-disposition"] == f"attachment; filename*=UTF-8''{expected[0]}"
    assert file == expected[1]


def test_large_bodies_are_read_in_another_thread(server: App, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[threading.Thread] = []
    read: Callable[..., Mapping[str, Any]] = application.read_fields

    def noted(*given: Any) -> Mapping[str, Any]:
        threads.append(threading.current_thread())
        return read(*given)

    monkeypatch.setattr("nmt.serving.app.read_fields", noted)
    more = "A" * 30_000
    assert (
        send(server, "POST", "/translate", JSON, js(q="A", x=more, **PAIR))[2] == b'{"translatedText":"de:A"}'
    )
    status, _, body = send(server, "POST", "/translate", JSON, js(q=[""] * 9000, **PAIR))
    message = "q: has 9,000 texts, and at most 2,000 lines are allowed."
    assert (status, json.loads(body)) == (413, {"error": message})
    assert send(server, "POST", "/translate", JSON, js(q="A", **PAIR))[0] == 200
    assert [thread is threading.main_thread() for thread in threads] == [False, False, True]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.xlf", "<xliff>" + "<trans-unit><source>a</source></trans-unit>" * 5_000 + "</xliff>"),
        ("a.srt", "00:00:01,000 --> 00:00:02,000\n" + "a\n" * 20_000),
        ("a.csv", "a,b\n" * 20_000),
        ("a.html", "<p>a" * 20_000),
    ],
)
def test_files_of_many_lines(server: App, name: str, content: str) -> None:
    body = parts(*PAIR_FIELDS, ("column", "1"), file=(name, content.encode()))
    status, _, answer = send(server, "POST", "/translate_file", MULTIPART, body)
    assert (status, json.loads(answer)["error"]) == (413, "file: has more than 2,000 lines.")
