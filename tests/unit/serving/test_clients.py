"""Fields of LibreTranslate's requests, and the answers to them, without a model.

The engine writes the target language before each line. The requests of real clients are in
tests/integration/libretranslate_clients.yaml.
"""

from __future__ import annotations

import asyncio
import json
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

import pytest
from test_service import Engine

from nmt.config import LimitsConfig, ServeConfig
from nmt.decoding.translation import Translation
from nmt.documents.files import SUFFIXES
from nmt.serving import detection
from nmt.serving.app import App
from nmt.serving.documents import TranslatedFiles
from nmt.serving.metrics import Metrics
from nmt.serving.served_models import SearchOptions
from nmt.serving.service import Service

FORM = "application/x-www-form-urlencoded"
JSON = "application/json"
BOUNDARY = "----WebKitFormBoundary7MA4YWxkTrZu0gW"
MULTIPART = f"multipart/form-data; boundary={BOUNDARY}"

Answer = tuple[int, dict[str, str], bytes]


@pytest.fixture(scope="module", autouse=True)
def _detector() -> Iterator[None]:
    def values(text: str) -> list[tuple[str, float]]:
        language = next((code for word, code in (("Hund", "de"), ("perro", "es")) if word in text), "en")
        return [(language, 0.93), ("nl", 0.04), ("fr", 0.02)]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(detection, "_values", values)
        yield


def app(key: str | None = None, url: str | None = None) -> App:
    """A server from English to German and French, and from German to English."""
    engines = [Engine("en", "de"), Engine("en", "fr"), Engine("de", "en")]
    service = Service(engines, LimitsConfig(), wait=0, observe=lambda lines, seconds: None)
    return App(service, ServeConfig("m", public_url=url), key, Metrics(lambda: 0, lambda: 0))


@pytest.fixture(scope="module")
def server() -> App:
    return app()


def send(
    server: App, method: str, target: str, kind: str | None = None, body: bytes = b"", host: str = "nmt:5000"
) -> Answer:
    """The answer of the application to one request."""
    path, _, query = target.partition("?")
    headers = [(b"host", host.encode())] + ([] if kind is None else [(b"content-type", kind.encode())])
    scope = {"type": "http", "method": method, "path": path, "raw_path": path.encode(), "root_path": ""}
    scope |= {"query_string": query.encode(), "headers": headers, "scheme": "http", "http_version": "1.1"}
    scope |= {"server": ("127.0.0.1", 5000), "client": ("127.0.0.1", 1), "state": {}}
    sent: list[Any] = []
    received = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Any:
        if received:
            return received.pop()
        return await asyncio.Event().wait()

    async def note(message: Any) -> None:
        sent.append(message)

    asyncio.run(server.asgi(scope, receive, note))
    found = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], found, b"".join(message.get("body", b"") for message in sent[1:])


def js(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


def form(**fields: str) -> bytes:
    return urlencode(fields).encode()


def parts(*fields: tuple[str, str], file: tuple[str, bytes] | None = None) -> bytes:
    """A multipart form as browsers write it."""
    body = b"".join(
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()
        for name, value in fields
    )
    if file is not None:
        head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="{file[0]}"\r\n'
        body += head.encode() + b"Content-Type: text/plain\r\n\r\n" + file[1] + b"\r\n"
    return body + f"--{BOUNDARY}--\r\n".encode()


def text(value: Any, **more: Any) -> dict[str, Any]:
    return {"translatedText": value, **more}


PAIR = {"source": "en", "target": "de"}
PAIR_FIELDS = (("source", "en"), ("target", "de"))
ENGLISH = {"confidence": 93.0, "language": "en"}
GERMAN = {"confidence": 93.0, "language": "de"}
FRENCH = {"confidence": 2.0, "language": "fr"}
UNKNOWN = {"confidence": 0.0, "language": "en"}
MISSING_Q = {"error": "Invalid request: missing q parameter"}
HTML = '<p>A <a href="/x">dog</a> &amp; a cat.</p>'
HTML_IN_GERMAN = '<p>de:A <a href="/x">dog</a> &amp; a cat.</p>'

XLIFF = """<xliff version="2.0" srcLang="en" trgLang="de"><file id="f"><unit id="u"><segment><source>A <pc
id="1">dog</pc> runs</source></segment></unit></file></xliff>"""
XLIFF_IN_GERMAN = XLIFF.replace("<segment>", '<segment state="translated">').replace(
    "</source>", '</source><target>de:A <pc\nid="1">dog</pc> runs</target>'
)
TMX = b'<tmx><body><tu><tuv xml:lang="en"><seg>A</seg></tuv></tu></body></tmx>'
TMX_IN_GERMAN = TMX.replace(b"</tuv>", b'</tuv><tuv xml:lang="de"><seg>de:A</seg></tuv>')
PO = b'msgid "A"\nmsgstr ""\n'
PO_IN_GERMAN = b'#, fuzzy\nmsgid "A"\nmsgstr "de:A"\n'

SHAPES: list[tuple[str, str, str | None, bytes, int, Any]] = [
    # Files
    ("POST", "/translate_file", MULTIPART, parts(*PAIR_FIELDS), 400, "missing file parameter"),
    ("POST", "/translate_file", MULTIPART, parts(*PAIR_FIELDS, file=("", b"A")), 400, "request: empty file"),
    ("POST", "/translate_file", MULTIPART, parts(*PAIR_FIELDS, file=("a.exe", b"A")), 400, "file format not"),
    ("POST", "/translate_file", MULTIPART, parts(*PAIR_FIELDS, file=("a.txt", b"\xff")), 400, "UTF-8"),
    ("POST", "/translate_file", MULTIPART, parts(*PAIR_FIELDS, file=("a.txt", b"")), 200, b"de:"),
    ("POST", "/translate_file", FORM, form(file="A", **PAIR), 400, "missing file parameter"),
    (
        "POST",
        "/translate_file",
        MULTIPART,
        parts(*PAIR_FIELDS, file=("A.HTML", HTML.encode())),
        200,
        HTML_IN_GERMAN.encode(),
    ),
    (
        "POST",
        "/translate_file",
        MULTIPART,
        parts(*PAIR_FIELDS, file=("a.xlf", XLIFF.encode("utf-16"))),
        200,
        XLIFF_IN_GERMAN.encode("utf-16"),
    ),
    ("POST", "/translate_file", MULTIPART, parts(*PAIR_FIELDS, file=("a.tmx", TMX)), 200, TMX_IN_GERMAN),
    ("POST", "/translate_file", MULTIPART, parts(*PAIR_FIELDS, file=("a", PO)), 200, PO_IN_GERMAN),
    (
        "POST",
        "/translate_file",
        MULTIPART,
        parts(*PAIR_FIELDS, ("column", "b"), file=("a.csv", b"a;b\n1;c\n")),
        200,
        b"a;b;translation\n1;c;de:c\n",
    ),
    ("POST", "/translate_file", MULTIPART, parts(file=("a.csv", b"a")), 400, "missing column parameter"),
    ("POST", "/translate_file", MULTIPART, parts(file=("a.xlf", b"<xliff>")), 400, "a.xlf:1: not valid XML"),
    ("POST", "/translate_file", MULTIPART, parts(file=("a.po", b'msgid "a')), 400, "a.po:1: is not a string"),
    # HTML, and detection
    (
        "POST",
        "/translate",
        JSON,
        js(q=[HTML, "Hello"], source="en", target="de", format="html", api_key=None),
        200,
        text([HTML_IN_GERMAN, "de:Hello"]),
    ),
    (
        "POST",
        "/translate",
        JSON,
        js(q=[HTML], source="auto", target="de", format="html", api_key=""),
        200,
        text([HTML_IN_GERMAN], detectedLanguage=[ENGLISH]),
    ),
    (
        "POST",
        "/translate",
        JSON,
        js(q=["<p>Ein Hund</p>", "<p>A</p>"], source="auto", target="en", format="html"),
        200,
        text(["<p>en:Ein Hund</p>", "<p>en:A</p>"], detectedLanguage=[GERMAN, GERMAN]),
    ),
    (
        "POST",
        "/translate",
        JSON,
        js(q=['<p>a<br />b <span translate="no">:cat:</span></p>'], format="html", **PAIR),
        200,
        text(['<p>de:a<br />de:b <span translate="no">:cat:</span></p>']),
    ),
    (
        "POST",
        "/translate",
        JSON,
        js(q=["A"], source="pt", target="de", format="html"),
        400,
        "pt is not supported",
    ),
    ("POST", "/translate", JSON, js(q=[], format="html", **PAIR), 200, text([])),
    ("POST", "/translate", JSON, js(q=["", "<p></p>"], format="html", **PAIR), 200, text(["", "<p></p>"])),
    (
        "POST",
        "/translate",
        JSON,
        js(q=["<p>Ein <b>Hund</b></p>"], source="auto", target="de-DE", format="html"),
        200,
        text(["<p>Ein <b>Hund</b></p>"], detectedLanguage=[GERMAN]),
    ),
    # Browser extensions: regions, capitals, addresses with fields
    ("POST", "/translate", JSON, js(q="A", source="en-US", target="de-DE"), 200, text("de:A")),
    ("POST", "/translate", JSON, js(q="A", source="EN", target="DE"), 200, text("de:A")),
    ("POST", "/translate", JSON, js(q="A", source="en_GB", target="deu", format="HTML"), 200, text("de:A")),
    (
        "POST",
        "/translate",
        JSON,
        js(q="perro", source="AUTO", target="fr"),
        200,
        text("fr:perro", detectedLanguage=FRENCH),
    ),
    (
        "POST",
        "/translate",
        JSON,
        js(q="12", source="auto", target="fr"),
        200,
        text("fr:12", detectedLanguage=UNKNOWN),
    ),
    ("POST", "/translate?q=A+dog&source=en&target=de", None, b"", 200, text("de:A dog")),
    ("POST", "/translate?source=en&target=de", FORM, form(q="A dog"), 200, text("de:A dog")),
    ("POST", "/translate?api_key=x", JSON, js(q="A", **PAIR), 200, text("de:A")),
    ("POST", "/translate?q=%FF", None, b"", 400, "not valid UTF-8"),
    ("POST", "/detect?q=Ein+Hund", None, b"", 200, [GERMAN, {"confidence": 2.0, "language": "fr"}]),
    (
        "POST",
        "/translate",
        "application/json; charset=utf-8",
        js(q="<b>A</b> c", format="html", **PAIR),
        200,
        text("de:<b>A</b> c"),
    ),
    ("POST", "/translate", FORM, b"q=a&q=b&source=en&target=de", 200, text(["de:a", "de:b"])),
    (
        "POST",
        "/translate",
        JSON,
        js(q="A", format="markdown", **PAIR),
        400,
        "markdown format is not supported",
    ),
    ("POST", "/translate", JSON, js(q="A", source="de", target="fr"), 400, "French (fr) is not available as"),
    ("POST", "/translate", JSON, js(q="<b>A", source="de-AT", target="de"), 200, text("<b>A")),
    ("POST", "/translate", JSON, js(q="A", source="es", target="es"), 400, "es is not supported"),
    ("GET", "/translate?q=A&source=en&target=de", None, b"", 405, "not allowed"),
    ("POST", "/translate/", JSON, js(q="A", **PAIR), 404, "no such page"),
    ("OPTIONS", "/translate", None, b"", 405, "not allowed"),
    # Required terms
    ("POST", "/translate", JSON, js(q="A", terminology={"a": "b"}, **PAIR), 400, "terminology: the engine"),
    ("POST", "/translate", FORM, form(q="A", terminology='{"a": 1}', **PAIR), 400, "terminology: must be"),
    ("POST", "/translate", JSON, js(q="A", terminology=["a"], **PAIR), 400, "terminology: must be an object"),
    ("POST", "/translate", JSON, js(q="A", terminology={"a": "b" * 201}, **PAIR), 400, "at most 200"),
    ("POST", "/translate", JSON, js(q="A", terminology={"a": "b\nc"}, **PAIR), 400, "one line"),
    ("POST", "/translate", JSON, js(q="A", terminology={" ": "b"}, **PAIR), 400, "must not be blank"),
]


@pytest.mark.parametrize(("method", "target", "kind", "body", "status", "expected"), SHAPES)
def test_shapes(
    server: App, method: str, target: str, kind: str | None, body: bytes, status: int, expected: Any
) -> None:
    found, headers, content = send(server, method, target, kind, body)
    assert found == status, content
    answer = json.loads(content)
    if isinstance(expected, bytes):
        url = answer["translatedFileUrl"]
        assert url.startswith("http://nmt:5000/download_file/")
        assert send(server, "GET", url.removeprefix("http://nmt:5000"))[2] == expected
    elif isinstance(expected, str):
        assert answer.keys() <= {"error", "hint"} and expected in answer["error"]
    elif expected is not None:
        assert answer == expected


def test_languages_and_settings(server: App) -> None:
    languages = json.loads(send(server, "GET", "/languages")[2])
    assert [(one["code"], one["name"], one["targets"]) for one in languages] == [
        ("de", "German", ["en"]),
        ("en", "English", ["de", "fr"]),
        ("fr", "French", []),
    ]
    settings = json.loads(send(server, "GET", "/frontend/settings")[2])
    assert settings["supportedFilesFormat"] == [*SUFFIXES] and {".txt", ".xlf", ".po"} <= {*SUFFIXES}
    assert (settings["suggestions"], settings["filesTranslation"], settings["charLimit"]) == (
        False,
        True,
        100_000,
    )
    assert settings["language"]["source"] == {"code": "en", "name": "English"}


def test_a_key_is_needed_in_every_form() -> None:
    server = app(key="secret")
    fields = {"q": "A", **PAIR}
    hint = "api_key: ask the operator of the server for one."
    for key, message in (
        (None, "Please contact the server operator to get an API key"),
        ("", "Please contact the server operator to get an API key"),
        ("wrong", "Invalid API key"),
        (5, "Invalid API key"),
    ):
        status, _, body = send(server, "POST", "/translate", JSON, js(api_key=key, **fields))
        assert (status, json.loads(body)) == (403, {"error": message, "hint": hint})
    assert send(server, "POST", "/translate", JSON, js(**fields))[0] == 403
    assert send(server, "POST", "/detect", FORM, form(q="A"))[0] == 403
    assert send(server, "POST", "/translate_file", MULTIPART, parts(file=("a.txt", b"A")))[0] == 403
    assert send(server, "POST", "/translate", JSON, js(api_key="secret", **fields))[0] == 200
    assert send(server, "POST", "/translate?api_key=secret", FORM, form(**fields))[0] == 200
    assert (
        send(server, "POST", "/translate", MULTIPART, parts(("api_key", "secret"), ("q", "A"), *PAIR_FIELDS))[
            0
        ]
        == 200
    )


def test_without_the_detector(server: App, monkeypatch: pytest.MonkeyPatch) -> None:
    def values(text: str) -> None:
        raise ImportError

    monkeypatch.setattr(detection, "_values", values)
    status, _, body = send(server, "POST", "/detect", FORM, form(q="A"))
    assert (status, json.loads(body)) == (
        501,
        {"error": 'The server can\'t detect languages. Its operator can install "nmt[langid]".'},
    )
    assert send(server, "POST", "/translate", JSON, js(q="A", source="auto", target="de"))[2] == (
        b'{"translatedText":"de:A"}'
    )


def test_the_address_of_a_file_names_no_wrong_host(server: App) -> None:
    body = parts(*PAIR_FIELDS, file=("a.txt", b"A"))
    for host, start in (("evil.org/x?", "/download_file/"), ("[::1]:80", "http://[::1]:80/download_file/")):
        answer = json.loads(send(server, "POST", "/translate_file", MULTIPART, body, host)[2])
        assert answer["translatedFileUrl"].startswith(start)
    public = app(url="https://example.org/nmt/")
    answer = json.loads(send(public, "POST", "/translate_file", MULTIPART, body, "evil.org")[2])
    assert answer["translatedFileUrl"].startswith("https://example.org/nmt/download_file/")
    openapi = json.loads(send(public, "GET", "/openapi.json")[2])
    assert openapi["servers"] == [{"url": "https://example.org/nmt"}]
    assert send(server, "GET", "/download_file/unknown")[0] == 404


def test_files_are_dropped_when_there_are_too_many() -> None:
    files = TranslatedFiles(10)
    first, second = files.add("a.txt", b"12345678"), files.add("b.txt", b"123")
    assert files.get(first) is None and files.get(second) == ("b.txt", b"123")


def test_work_is_limited_before_it_begins() -> None:
    service = Service(
        [Engine("en", "de")],
        replace(LimitsConfig(), work=5),
        wait=0,
        observe=lambda lines, seconds: None,
    )
    server = App(service, ServeConfig("m"), None, Metrics(lambda: 0, lambda: 0))
    assert send(server, "POST", "/translate", JSON, js(q="12345"))[0] == 200
    status, _, body = send(server, "POST", "/translate", JSON, js(q="123456"))
    assert (status, json.loads(body)["error"][:46]) == (
        413,
        "The request has 6 characters times hypotheses,",
    )


def test_the_fields_of_a_request_are_not_held_while_it_is_translated(monkeypatch: pytest.MonkeyPatch) -> None:
    class Fields(dict[str, Any]):
        """Fields that can have weak references."""

    references: list[weakref.ref[Fields]] = []

    def read(*given: Any) -> Fields:
        fields = Fields(q="A", target="de", unknown=[{}] * 1000)
        references.append(weakref.ref(fields))
        return fields

    class Watched(Engine):
        def translate(self, lines: Sequence[str], options: SearchOptions) -> Sequence[Translation]:
            alive.append(references[0]() is not None)
            return super().translate(lines, options)

    alive: list[bool] = []
    monkeypatch.setattr("nmt.serving.app.read_fields", read)
    service = Service([Watched("en", "de")], LimitsConfig(), wait=0, observe=lambda lines, seconds: None)
    server = App(service, ServeConfig("m"), None, Metrics(lambda: 0, lambda: 0))
    assert send(server, "POST", "/translate")[0] == 200
    assert alive == [False]
