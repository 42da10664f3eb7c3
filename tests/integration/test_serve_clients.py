"""nmt-serve with the requests and the library of LibreTranslate's clients, with HTML and required terms."""

from __future__ import annotations

import http.client
import re
import shutil
from collections.abc import Callable, Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest
import yaml
from commands import Toy
from serving import Answer, Server, serving

CLIENTS = yaml.safe_load((Path(__file__).parent / "libretranslate_clients.yaml").read_text(encoding="utf-8"))
SHAPES = [(client, request) for client in CLIENTS for request in client["requests"]]


@pytest.fixture(scope="module")
def server(toy: Toy, trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose model has no placeholders, with required terms."""
    folder = tmp_path_factory.mktemp("clients")
    (folder / "terms").write_text("ba\tog ub\n")
    options = (f"model_dir={trained}", "threads=1", "decoding.workers=1", f"terminology={folder / 'terms'}")
    with serving(toy, folder, *options) as found:
        yield found


@pytest.fixture(scope="module")
def multilingual(toy: Toy, trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server from English to German and French, and from German to English; its models are the same."""
    folder = tmp_path_factory.mktemp("multilingual")
    pairs = ("en-de", "en-fr", "de-en")
    for pair in pairs:
        model = shutil.copytree(trained / "model", folder / pair)
        source, target = pair.split("-")
        config = (model / "config.yaml").read_text()
        assert "source_lang: xx" in config and "target_lang: yy" in config
        config = config.replace("source_lang: xx", f"source_lang: {source}")
        (model / "config.yaml").write_text(config.replace("target_lang: yy", f"target_lang: {target}"))
        (model / "SHA256SUMS").unlink(missing_ok=True)
    models = ",".join(str(folder / pair) for pair in pairs)
    options = (f"model_dir=[{models}]", "threads=1", "decoding.workers=1", "decoding.beam_size=4")
    with serving(toy, folder, *options, 'cors_origins=["*"]') as found:
        yield found


@pytest.fixture(scope="module")
def translated(multilingual: Server) -> Callable[[str], str]:
    """Returns the translation of a line."""
    return cache(lambda text: multilingual.translate(q=text, source="en", target="de").json["translatedText"])


def sent(server: Server, client: dict[str, Any], request: dict[str, Any]) -> Answer:
    """The answer to a request, which is written to a socket as its client does."""
    method_and_path = next(key for key in request if "/" in key)
    headers = {"Host": f"{server.address[0]}:{server.address[1]}", **client["headers"]}
    headers |= request.get("headers", {})
    kind = {name.lower(): value for name, value in headers.items()}.get("content-type", "")
    text = request[method_and_path]
    body = (text.replace("\n", "\r\n") if kind.startswith("multipart/") else text).encode()
    if headers.get("Transfer-Encoding") == "chunked":
        body = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    elif body or method_and_path.startswith("POST"):
        headers["Content-Length"] = str(len(body))
    head = [f"{method_and_path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    with server.connect() as connection:
        connection.sendall("\r\n".join([*head, "", ""]).encode() + body)
        response = http.client.HTTPResponse(connection, method=method_and_path.partition(" ")[0])
        response.begin()
        found = {name.lower(): value for name, value in response.getheaders()}
        return Answer(response.status, found, response.read())


def check(found: Any, expected: Any, translated: Callable[[str], str]) -> None:
    """Checks a part of an answer against what libretranslate_clients.yaml has."""
    if isinstance(expected, dict):
        assert isinstance(found, dict) and found.keys() == expected.keys(), found
        for name, value in expected.items():
            check(found[name], value, translated)
    elif isinstance(expected, list):
        more = expected[-1:] == ["..."]
        assert isinstance(found, list), found
        assert len(found) >= len(expected) - 1 if more else len(found) == len(expected), found
        for one, value in zip(found, expected, strict=False):
            if value != "...":
                check(one, value, translated)
    elif expected == "(text)":
        assert isinstance(found, str) and found
    elif expected == "(number)":
        assert isinstance(found, int | float) and not isinstance(found, bool)
    elif isinstance(expected, str) and expected.startswith("«html "):
        html = expected[6:-1]
        assert sorted(re.findall("<[^>]*>", found)) == sorted(re.findall("<[^>]*>", html))
        assert without_tags(found) == translated(without_tags(html))
    elif isinstance(expected, str):
        assert found == re.sub("«(.*?)»", lambda match: translated(match[1]), expected)
    else:
        assert found == expected and type(found) is type(expected)


def without_tags(html: str) -> str:
    return re.sub("<[^>]*>", "", html).replace("&amp;", "&")


def test_enough_clients_and_requests() -> None:
    assert len(SHAPES) >= 60 and len({client["client"] for client in CLIENTS}) >= 15


@pytest.mark.parametrize(
    ("client", "request_"),
    SHAPES,
    ids=[f"{client['client'].split(',')[0]}-{number}" for number, (client, _) in enumerate(SHAPES)],
)
def test_requests_of_clients(
    multilingual: Server,
    translated: Callable[[str], str],
    client: dict[str, Any],
    request_: dict[str, Any],
) -> None:
    if request_.get("langid") and find_spec("lingua") is None:
        pytest.skip("detection needs the extra langid")
    answer = sent(multilingual, client, request_)
    assert answer.status == request_.get("status", 200), answer.body
    if "answer" in request_:
        assert answer.headers["content-type"] == "application/json"
        check(answer.json, request_["answer"], translated)
    for name, value in request_.get("answer_headers", {}).items():
        assert answer.headers[name] == value
    if "file" in request_:
        url = answer.json["translatedFileUrl"]
        file = multilingual.request("GET", url.removeprefix(multilingual.url))
        assert url.startswith(multilingual.url) and "attachment" in file.headers["content-disposition"]
        check(file.body.decode(), request_["file"], translated)


def test_the_client_library(server: Server) -> None:
    library = pytest.importorskip("libretranslatepy", reason="the client library is in the extra dev")
    client = library.LibreTranslateAPI(server.url, api_key="not needed")
    expected = server.translate(q="fu na", source="xx", target="yy").json["translatedText"]
    assert client.translate("fu na", "xx", "yy") == expected
    assert client.translate("fu na", "XX", "YY") == expected
    assert client.translate("fu na", "auto", "yy") == expected
    assert [one["code"] for one in client.languages()] == ["xx", "yy"]
    pytest.importorskip("lingua", reason="detection needs the extra langid")
    assert client.detect("fu na") == [{"confidence": 0.0, "language": "xx"}]
    with pytest.raises(HTTPError, match="400"):
        client.translate("fu na", "xx", "es")


def test_html_of_a_model_without_placeholders(server: Server) -> None:
    html = '<p class="a">fu <b>na</b> mo &amp; <a href="/x?a=1">fe ku</a></p><hr><code>x</code>'
    answer = server.translate(q=[html, "no tags"], format="html", alternatives=2)
    assert answer.status == 200
    [found, _] = answer.json["translatedText"]
    tags = re.findall("<[^>]*>", html)
    assert sorted(re.findall("<[^>]*>", found)) == sorted(tags)
    assert found.startswith('<p class="a">') and found.endswith("</p><hr><code>x</code>")
    assert re.search("<b>.*</b>", found) and re.search('<a href="/x\\?a=1">.*</a>', found)
    bare = server.translate(q="fu na mo & fe ku", alternatives=2).json["translatedText"]
    assert re.sub("<[^>]*>", "", found.replace("&amp;", "&").replace("<code>x</code>", "")) == bare
    assert all(re.findall("<b>.*</b>", text) for text in answer.json["alternatives"][0])


def test_required_terms(server: Server) -> None:
    assert "og ub" in server.translate(q="fu ba na").json["translatedText"]
    found = server.translate(q="fu ba na", terminology={"ba": "ug eb", "na": "ip"}).json["translatedText"]
    assert "ug eb" in found and "ip" in found and "og ub" not in found
