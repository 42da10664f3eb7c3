"""The service with another engine than nmt's: the choice of the model, errors, time, and vanished clients."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import replace

import pytest
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from nmt.config import LimitsConfig
from nmt.decoding.facts import TextFacts
from nmt.decoding.joining import joined_lines
from nmt.decoding.parts import Parts, Splitter
from nmt.decoding.translation import ScoredText, Translation
from nmt.errors import UserError
from nmt.serving.refusals import Refusal
from nmt.serving.requests import read_pairs, read_request
from nmt.serving.served_models import SearchOptions
from nmt.serving.service import Service

SPLITTER = Splitter(TextFacts("en", "de"), True, (), lambda texts: [1] * len(texts), 1024)


class Engine:
    """An engine that writes the target language before each line; it needs nothing of nmt's models."""

    threads = 2
    has_attention = False
    has_pages = False
    has_terms = False
    batch_work = 1 << 40

    def __init__(self, source_lang: str, target_lang: str) -> None:
        self.source_lang, self.target_lang = source_lang, target_lang
        self.go, self.closed = threading.Event(), False
        self.go.set()

    def batch_size(self, options: SearchOptions) -> int:
        return 4

    def work(self, lines: Sequence[str], options: SearchOptions) -> list[int]:
        return [len(line) for line in lines]

    def is_slow_to_estimate(self, options: SearchOptions) -> bool:
        return bool(options.terms)

    def stop(self, thread: int) -> None:
        pass

    def divide(self, lines: Sequence[str]) -> Sequence[Parts]:
        return SPLITTER.divide(lines)

    def join(self, divided: Sequence[Parts], translations: Sequence[Translation]) -> Sequence[Translation]:
        return joined_lines(divided, translations)

    def translate(self, lines: Sequence[str], options: SearchOptions) -> Sequence[Translation]:
        assert self.go.wait(20)
        if "bad" in lines:
            raise UserError("the engine is out of memory")
        if "bug" in lines:
            raise KeyError("internal")
        return [Translation((ScoredText(f"{self.target_lang}:{line}", -1.0),)) for line in lines]

    def close(self) -> None:
        self.closed = True


ENGINES = (("en", "de"), ("en", "fr"), ("fi", "fr"))


def service(*engines: Engine, **limits: float) -> Service:
    """A service with these engines."""
    return Service(engines, replace(LimitsConfig(), **limits), wait=0, observe=lambda lines, seconds: None)


async def forever() -> None:
    """The client does not vanish."""
    await asyncio.Event().wait()


def translated(served: Service, **fields: object) -> str:
    """The translation of a request of one line."""
    request = read_request({"q": "a", **fields}, LimitsConfig())
    [found] = asyncio.run(served.translate(request, forever))
    return found.hypotheses[0].text


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({"source": "en", "target": "de"}, "de:a"),
        ({"source": "fi", "target": "fr"}, "fr:a"),
        ({"source": "fi"}, "fr:a"),
        ({"source": "auto", "target": "de"}, "de:a"),
        ({"target": "de"}, "de:a"),
        ({}, "Invalid request: missing source parameter"),
        ({"source": "auto"}, "Invalid request: missing source parameter"),
        ({"target": "fr"}, "Invalid request: missing source parameter"),
        ({"source": "en"}, "Invalid request: missing target parameter"),
        ({"source": "xx", "target": "de"}, "xx is not supported"),
        (
            {"source": "fi", "target": "de"},
            "German (de) is not available as a target language from Finnish (fi)",
        ),
        ({"source": "fi", "target": "xx"}, "xx is not supported"),
        (
            {"source": "DE", "target": "en"},
            "English (en) is not available as a target language from German (DE)",
        ),
        ({"source": "xx"}, "xx is not supported"),
        ({"source": "de"}, "German (de) is not available as a source language"),
        ({"target": "en"}, "English (en) is not available as a target language"),
        ({"source": "e" * 99}, "e" * 40 + " is not supported"),
    ],
)
def test_the_model_of_the_languages(fields: dict[str, str], found: str) -> None:
    served = service(*(Engine(*pair) for pair in ENGINES))
    if found.endswith(":a"):
        assert translated(served, **fields) == found
    else:
        with pytest.raises(Refusal) as raised:
            translated(served, **fields)
        assert raised.value.status_code == 400
        assert raised.value.detail == found
        assert raised.value.hint == "The server translates en to de, en to fr, fi to fr."
    served.close()


def test_sentences_are_translated_one_by_one_and_counted() -> None:
    served = service(Engine("en", "de"), sentences=3)
    request = read_request({"q": "One day. Two days.\n\nThree days."}, replace(LimitsConfig(), sentences=3))
    with pytest.raises(HTTPException, match="q: has 4 sentences, and at most 3 are allowed.$") as raised:
        asyncio.run(served.translate(request, forever))
    assert raised.value.status_code == 413
    request = read_request({"q": "One day. Two days.\n"}, LimitsConfig())
    found = asyncio.run(served.translate(request, forever))
    assert [line.hypotheses[0].text for line in found] == ["de:One day. de:Two days.", "de:"]
    assert [part.source for part in found[0].parts] == ["One day.", "Two days."]
    served.close()


def test_an_engine_without_attention() -> None:
    served = service(Engine("en", "de"))
    with pytest.raises(HTTPException, match="attention: the engine of this server has none.$") as raised:
        translated(served, attention=True)
    assert raised.value.status_code == 400
    request = read_pairs({"q": "a", "source": "en", "target": "de"}, LimitsConfig())
    with pytest.raises(HTTPException, match="of this server has no weights of all heads.$") as raised:
        asyncio.run(served.attention_page(request, forever))
    assert raised.value.status_code == 400
    assert not served.has_attention
    served.close()


def test_languages_have_their_targets() -> None:
    served = service(*(Engine(*pair) for pair in ENGINES))
    assert served.languages() == [
        {"code": "de", "name": "German", "targets": [], "tag": "de"},
        {"code": "en", "name": "English", "targets": ["de", "fr"], "tag": "en"},
        {"code": "fi", "name": "Finnish", "targets": ["fr"], "tag": "fi"},
        {"code": "fr", "name": "French", "targets": [], "tag": "fr"},
    ]
    served.close()


@pytest.mark.parametrize(
    ("source", "target", "found"),
    [
        ("EN", "de-DE", "de:a"),
        ("eng", "deu", "de:a"),
        ("en_US", "de-AT", "de:a"),
        ("en", "zh", "zho_Hans:a"),
        ("en", "zh-CN", "zho_Hans:a"),
        ("en", "zh-TW", "zh_Hant:a"),
        ("en", "cmn-Hant", "zh_Hant:a"),
        ("en", "pt", "pt-BR:a"),
        ("en", "pt-AO", "pt-PT:a"),
        ("en", "iw", "he:a"),
        ("en", "no", "nb:a"),
        ("en", "zt", "zh_Hant:a"),
        ("en", "PB", "pt-BR:a"),
        (None, "he-IL", "he:a"),
        ("en", "XX", "xx:a"),
        ("en", "da", None),  # near to `nb`, but another language
        ("en", "yue", None),
        ("en", "xx-1", None),
        ("en-Cyrl", "de", None),
        ("e" * 10_000, "de", None),
    ],
)
def test_the_nearest_language_is_found(source: str | None, target: str, found: str | None) -> None:
    targets = ("de", "de-CH", "zho_Hans", "zh_Hant", "pt-BR", "pt-PT", "he", "nb", "xx")
    served = service(*(Engine("en", code) for code in targets))
    if found is None:
        with pytest.raises(HTTPException, match="is not supported"):
            translated(served, source=source, target=target)
    else:
        assert translated(served, source=source, target=target) == found
    served.close()


def test_an_exact_code_comes_first() -> None:
    served = service(Engine("en", "de-DE"), Engine("en", "de"), Engine("en", "DE"))
    for target in ("de", "DE", "de-DE"):
        assert translated(served, source="en", target=target) == f"{target}:a"
    assert translated(served, source="en", target="de-AT") == "de:a"  # nearer than another region
    assert translated(served, source="en", target="deu") == "de:a"  # the first of two of the same meaning
    served.close()


def test_errors_of_an_engine() -> None:
    engine = Engine("en", "de")
    served = service(engine)
    for line, message in (("bad", "the engine is out of memory"), ("bug", "The translation failed.")):
        with pytest.raises(HTTPException, match=message) as raised:
            translated(served, q=line)
        assert raised.value.status_code == 500
    assert translated(served) == "de:a"
    served.close()
    assert engine.closed
    with pytest.raises(HTTPException, match="The server is stopping") as raised:
        translated(served)
    assert raised.value.status_code == 503


def test_time_and_clients_that_vanish() -> None:
    engine = Engine("en", "de")
    engine.go.clear()
    served = service(engine, request_seconds=0.05)
    with pytest.raises(HTTPException, match=r"took longer than 0\.05 seconds") as raised:
        translated(served)
    assert raised.value.status_code == 504

    async def vanish() -> None:
        return None

    with pytest.raises(ClientDisconnect):
        asyncio.run(served.translate(read_request({"q": "a"}, LimitsConfig()), vanish))
    engine.go.set()
    served.close()
    assert served.waiting == 0
