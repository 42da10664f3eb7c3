"""Requests of translations: fields, lines, and answers to wrong ones."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.exceptions import HTTPException

from nmt.config import DecodingConfig, LimitsConfig, ServeConfig
from nmt.decoding.translation import ScoredText, TranslatedPart, Translation
from nmt.documents.text import Text
from nmt.errors import UserError
from nmt.languages import _english_names, language_name, language_of
from nmt.serving.app import allowed
from nmt.serving.bodies import read_body
from nmt.serving.requests import answer, read_pairs, read_request
from nmt.serving.served_models import SearchOptions, decoding_of
from nmt.serving.server import read_api_key

ALTERNATIVES = "Invalid request: alternatives parameter"
JSON, FORM = "application/json; charset=utf-8", "application/x-www-form-urlencoded"


@given(st.text(alphabet="ab \r\n\u2028\x0b\x85"))
def test_lines_and_their_ends_are_the_text(text: str) -> None:
    split = Text.of(text)
    assert split.joined(split.lines) == text
    assert len(split.lines) == text.count("\n") + 1
    assert not any("\n" in line for line in split.lines)


@pytest.mark.parametrize(
    ("text", "joined"),
    [
        ("a", "A"),
        ("", ""),
        ("a\r\n\nb\n", "A\r\n\nB\n"),
        ("a\r", "A\r"),
        ("\n", "\n"),
        ("a\rb", "A\rB"),
        ("a<br />b<br>\n", "A<br />B<BR>\n"),
    ],
)
def test_line_ends_stay(text: str, joined: str) -> None:
    split = Text.of(text)
    assert split.joined([line.upper() for line in split.lines]) == joined


@pytest.mark.parametrize(
    ("body", "kind", "fields"),
    [
        (b'{"q": "a", "x": [1]}', JSON, {"q": "a", "x": [1]}),
        (b'{"q": "a"}', "", {"q": "a"}),
        (b"q=a+b%0A%C3%BC&target=de&q2=", FORM, {"q": "a b\nü", "target": "de", "q2": ""}),
        (b"q=a&q=b&q=", FORM, {"q": ["a", "b", ""]}),
    ],
)
def test_bodies(body: bytes, kind: str, fields: dict[str, Any]) -> None:
    assert read_body(body, kind) == fields


@pytest.mark.parametrize(
    ("body", "kind", "status", "words"),
    [
        (b"{", JSON, 400, "not valid JSON"),
        (b"", JSON, 400, "not valid JSON"),
        (b'{"q": NaN}', JSON, 400, "NaN is not a JSON value"),
        (b"[1]", JSON, 400, "must be a JSON object"),
        (b'"text"', JSON, 400, "must be a JSON object"),
        (b'{"q": "\xff"}', JSON, 400, "not valid UTF-8"),
        (b"[" * 100_000, JSON, 400, "nested too deeply"),
        (b'{"q": ' + b"1" * 5000 + b"}", JSON, 400, "not valid JSON"),
        (b"q=%FF", FORM, 400, "not valid UTF-8"),
        (b"q=%s" % b"\xff", FORM, 400, "not valid UTF-8"),
        (b"a=1&" * 20_000, FORM, 400, "more than 10,000 fields"),
        (b"q", "multipart/form-data; boundary=x", 400, "not a valid multipart form"),
        (b"q", "text/csv", 415, "text/csv"),
    ],
)
def test_wrong_bodies(body: bytes, kind: str, status: int, words: str) -> None:
    with pytest.raises(HTTPException, match=words) as raised:
        read_body(body, kind)
    assert raised.value.status_code == status


def test_a_complete_request() -> None:
    fields = {"q": ["a\nb", ""], "source": "en", "target": "de", "format": "text", "unknown": 1}
    fields |= {
        "alternatives": "2",
        "scores": "true",
        "attention": True,
        "beam_size": 6,
        "length_penalty": "1.5",
    }
    request = read_request(fields, LimitsConfig())
    assert request.lines == ["a", "b", ""]
    assert (request.is_list, request.source, request.target, request.scores) == (True, "en", "de", True)
    assert request.options == SearchOptions(beam_size=6, length_penalty=1.5, nbest=3, attention=True)


def test_the_fields_of_a_form_may_be_empty() -> None:
    fields = dict.fromkeys(["source", "target", "format", "alternatives", "scores", "beam_size"], "")
    request = read_request({"q": "a"} | fields, LimitsConfig())
    assert request.options == SearchOptions()
    assert (request.source, request.scores) == (None, False)


@pytest.mark.parametrize(
    ("fields", "status", "message"),
    [
        ({}, 400, "Invalid request: missing q parameter"),
        ({"q": 1}, 400, "q: must be text or a list of texts, not a number."),
        ({"q": ["a", None]}, 400, "q: must be text or a list of texts, not null."),
        ({"q": "\ud800"}, 400, "q: is not valid Unicode: it contains half of a surrogate pair."),
        ({"q": "a", "source": 3}, 400, "source: must be text, not a number."),
        ({"q": "a", "target": ["de"]}, 400, "target: must be text, not a list."),
        ({"q": "a", "format": "xml"}, 400, "xml format is not supported"),
        ({"q": "a", "alternatives": 10}, 400, f"{ALTERNATIVES} must be <= 9"),
        ({"q": "a", "alternatives": "inf"}, 400, f"{ALTERNATIVES} is not a number"),
        ({"q": "a", "alternatives": 1.5}, 400, f"{ALTERNATIVES} is not a number"),
        ({"q": "a", "alternatives": True}, 400, f"{ALTERNATIVES} is not a number"),
        ({"q": "a", "alternatives": {}}, 400, f"{ALTERNATIVES} is not a number"),
        ({"q": "a", "beam_size": 17}, 400, "beam_size: must be between 1 and 16."),
        ({"q": "a", "beam_size": "x"}, 400, "beam_size: must be a number."),
        ({"q": "a", "length_penalty": "nan"}, 400, "length_penalty: must be between 0 and 10."),
        ({"q": "a", "length_penalty": 10**400}, 400, "length_penalty: must be a number."),
        ({"q": "a", "scores": "perhaps"}, 400, "scores: must be true or false."),
        ({"q": "a", "attention": 1}, 400, "attention: must be true or false."),
        ({"q": "a" * 100_001}, 413, "Invalid request: request (100001) exceeds text limit (100000)"),
        ({"q": [""] * 2001}, 413, "q: has 2,001 texts, and at most 2,000 lines are allowed."),
        ({"q": [["a"]]}, 400, "q: must be text or a list of texts, not a list."),
        ({"q": "\n" * 2000}, 413, "q: has 2,001 lines, and at most 2,000 are allowed."),
        (
            {"q": "a" * 1001, "attention": True},
            413,
            "attention: q has 1,001 characters, and at most 1,000 are allowed with attention.",
        ),
    ],
)
def test_wrong_fields(fields: dict[str, Any], status: int, message: str) -> None:
    with pytest.raises(HTTPException) as raised:
        read_request(fields, LimitsConfig())
    assert (raised.value.status_code, raised.value.detail) == (status, message)


def test_pairs_of_a_request_of_attention() -> None:
    def pairs(**fields: Any) -> Any:
        return read_pairs(fields, LimitsConfig()).pairs

    assert pairs(q="a\r\nb") == (("a", None), ("b", None))
    assert pairs(q="a\nb", translation="c\n d") == (("a", "c"), ("b", " d"))
    assert pairs(q=["a", "b\n"], translation=["c", "d", ""]) == (("a", "c"), ("b", "d"), ("", ""))
    assert pairs(q="<b>a</b>", format="html", attention=False) == (("<b>a</b>", None),)


@pytest.mark.parametrize(
    ("fields", "status", "message"),
    [
        ({}, 400, "Invalid request: missing q parameter"),
        (
            {"q": "a\nb", "translation": "c"},
            400,
            "translation: the number of lines is 1, and that of q 2. Give one for each.",
        ),
        (
            {"q": "a", "translation": [1] * 2001},
            413,
            "translation: has 2,001 texts, and at most 2,000 lines are allowed.",
        ),
        (
            {"q": "a", "translation": 1},
            400,
            "translation: must be text or a list of texts, not a number.",
        ),
        (
            {"q": "a" * 1001},
            413,
            "attention: q has 1,001 characters, and at most 1,000 are allowed with attention.",
        ),
        (
            {"q": "a" * 500, "translation": "b" * 501},
            413,
            "attention: q and translation have 1,001 characters, and at most 1,000 are allowed with "
            "attention.",
        ),
    ],
)
def test_wrong_fields_of_a_request_of_attention(fields: dict[str, Any], status: int, message: str) -> None:
    with pytest.raises(HTTPException) as raised:
        read_pairs(fields, LimitsConfig())
    assert (raised.value.status_code, raised.value.detail) == (status, message)


def translation(*texts: str) -> Translation:
    """A translation with these hypotheses, with the scores -1, -2 and so on."""
    return Translation(tuple(ScoredText(text, -float(rank)) for rank, text in enumerate(texts, 1)))


def test_the_answer_to_a_text() -> None:
    request = read_request({"q": "a\r\n\nb"}, LimitsConfig())
    results = [translation("A"), translation(""), translation("B")]
    assert answer(request, results) == {"translatedText": "A\r\n\nB"}


def test_the_answer_to_a_list_with_alternatives_and_scores() -> None:
    request = read_request({"q": ["a\n", "b"], "alternatives": 2, "scores": True}, LimitsConfig())
    results = [translation("A", "AA"), translation(""), translation("B", "BB", "BBB")]
    assert answer(request, results) == {
        "translatedText": ["A\n", "B"],
        "alternatives": [["AA\n"], ["BB", "BBB"]],
        "lines": [
            [
                {"translations": [{"text": "A", "score": -1.0}, {"text": "AA", "score": -2.0}]},
                {"translations": [{"text": "", "score": -1.0}]},
            ],
            [{"translations": [{"text": "B" * n, "score": -float(n)} for n in (1, 2, 3)]}],
        ],
    }


def test_the_parts_of_a_line_have_their_scores() -> None:
    parts = TranslatedPart("a.", "A.", -1.0), TranslatedPart("b.", "B.", -1 / 3)
    found = Translation((ScoredText("A. B.", -2 / 3),), parts=parts, lost=(3, 2))
    request = read_request({"q": "a. b.", "scores": True}, LimitsConfig())
    assert answer(request, [found]) == {
        "translatedText": "A. B.",
        "lines": [
            {
                "translations": [{"text": "A. B.", "score": -0.66667}],
                "parts": [
                    {"source": "a.", "text": "A.", "score": -1.0},
                    {"source": "b.", "text": "B.", "score": -0.33333},
                ],
            }
        ],
        "warnings": ["line 1: has 3 sentences, but its translation 2 (decoding.split_sentences)"],
    }


def test_an_empty_list_has_an_empty_answer() -> None:
    assert answer(read_request({"q": []}, LimitsConfig()), []) == {"translatedText": []}


def test_a_cut_line_is_a_warning() -> None:
    cut = Translation(
        (ScoredText("A", -1.0),), truncated=2000, cut_to=1024, cut_by="decoding.max_source_tokens"
    )
    assert answer(read_request({"q": "a"}, LimitsConfig()), [cut])["warnings"] == [
        "line 1: cut to 1,024 of 2,000 tokens (decoding.max_source_tokens)"
    ]


def test_the_beam_has_room_for_all_translations() -> None:
    config = DecodingConfig(beam_size=4, length_penalty=0.6)
    assert decoding_of(config, SearchOptions()).beam_size == 4
    assert decoding_of(config, SearchOptions(nbest=6)).beam_size == 6
    changed = decoding_of(config, SearchOptions(beam_size=2, length_penalty=0.0, nbest=2))
    assert (changed.beam_size, changed.length_penalty, changed.nbest) == (2, 0.0, 2)


def test_keys(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert allowed(None, None) and allowed("x", None) and allowed("ü", "ü")
    assert not any(allowed(given, "key") for given in (None, "", "ke", "key ", 3, ["key"], "\ud800"))
    (tmp_path / "key").write_text("secret\n")
    assert read_api_key(ServeConfig("m", api_key_file=str(tmp_path / "key"))) == "secret"
    monkeypatch.setenv("MY_KEY", "other")
    assert read_api_key(ServeConfig("m", api_key_variable="MY_KEY")) == "other"
    assert read_api_key(ServeConfig("m")) is None
    (tmp_path / "empty").write_text("\n")
    for options in (
        {"api_key_file": str(tmp_path / "none")},
        {"api_key_file": str(tmp_path / "empty")},
        {"api_key_variable": "NO_SUCH_VARIABLE"},
    ):
        with pytest.raises(UserError):
            read_api_key(ServeConfig("m", **options))


@pytest.mark.parametrize("key", ["a\nb", "a\rb", "\udcff", "a\x00", "\ufeffa"])
def test_keys_that_no_client_can_send(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.environ", {"MY_KEY": key})
    with pytest.raises(UserError, match="^api_key_variable=MY_KEY: the key must be one line of visible"):
        read_api_key(ServeConfig("m", api_key_variable="MY_KEY"))


@pytest.mark.parametrize(
    "origin",
    ["*", "https://example.org", "http://localhost:3000", "http://[::1]:8000", "moz-extension://a-1", "null"],
)
def test_origins(origin: str) -> None:
    assert ServeConfig("m", cors_origins=[origin]).cors_origins == [origin]


@pytest.mark.parametrize(
    "origin",
    [
        "",
        "example.org",
        "https://example.org/",
        "https://example.org/page",
        "https://Example.org",
        "HTTPS://example.org",
        "https://",
        "https://a@example.org",
        "https://*.example.org",
        "https://exämple.org",
        "https://example.org:443",
        "http://example.org:80",
        "https://example.org:0",
        "https://example.org:70000",
        "https://example.org:",
        " https://example.org",
        "https://example.org\n",
        "https://a,https://b",
    ],
)
def test_origins_that_no_browser_sends(origin: str) -> None:
    with pytest.raises(UserError, match="^cors_origins="):
        ServeConfig("m", cors_origins=["*", origin])


@pytest.mark.parametrize(
    "url", ["https://a.org", "http://localhost:8080/", "https://A.org/a/b-c", "http://[::1]:1"]
)
def test_public_addresses(url: str) -> None:
    assert ServeConfig("m", public_url=url).public_url == url


@pytest.mark.parametrize(
    "url",
    [
        "",
        "a.org",
        "ftp://a.org",
        "https://",
        "https://a.org?x",
        "https://a.org/#x",
        "https://u@a.org",
        "https://a.org:0",
        "https://a.org:65536",
        "https://a.org//b",
        "https://a.org/ b",
        "https://a.org\n",
    ],
)
def test_what_is_no_public_address(url: str) -> None:
    with pytest.raises(UserError, match="^public_url="):
        ServeConfig("m", public_url=url)


def test_names_of_languages() -> None:
    assert language_name("de") == "German"
    assert language_name("pt_BR") == "Portuguese (BR)"
    assert language_name("xx") == "xx"
    assert language_name("zho_Hans") == language_name("zh-Hans") == "Chinese (Simplified)"
    assert language_name("uz_Cyrl") == "Uzbek (Cyrillic)"
    assert language_name("iw") == "Hebrew"
    assert language_name("tl") == "Filipino"
    assert language_name("zh-Hant-HK") == "Chinese (Traditional, HK)"
    assert all(language_of(code).language == code for code in _english_names())
