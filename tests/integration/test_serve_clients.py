"""nmt-serve with the client library of LibreTranslate, with HTML and required terms."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError

import pytest
from commands import Toy
from serving import Server, serving


@pytest.fixture(scope="module")
def server(toy: Toy, trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose model has no placeholders, with required terms."""
    folder = tmp_path_factory.mktemp("clients")
    (folder / "terms").write_text("ba\tog ub\n")
    options = (f"model_dir={trained}", "threads=1", "decoding.workers=1", f"terminology={folder / 'terms'}")
    with serving(toy, folder, *options) as found:
        yield found


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
