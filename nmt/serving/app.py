"""The application: the paths of the server, and their answers."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Message, Receive

from nmt.config import ServeConfig
from nmt.serving.access import allowed
from nmt.serving.answers import answer
from nmt.serving.metrics import VANISHED, Metrics
from nmt.serving.openapi import description
from nmt.serving.pages import PAGE_HEADERS, documentation, translation_page
from nmt.serving.requests import Refused, read_body, read_request
from nmt.serving.service import Service, Vanished

_DRAINED = 64  # largest bodies: bytes of a refused body that are read, so that its client reads the answer
_SAFE = {"x-content-type-options": "nosniff", "cache-control": "no-store", "referrer-policy": "no-referrer"}


class App:
    """The paths of a server.

    Args:
        service: translates.
        config: options of the server.
        key: the key of translation requests; None: they need none.
        metrics: the figures of the server.

    Attributes:
        draining: whether the server stops; set by its owner.
        asgi: the application.
    """

    def __init__(self, service: Service, config: ServeConfig, key: str | None, metrics: Metrics) -> None:
        self._service, self._limits, self._key, self._metrics = service, config.limits, key, metrics
        self._held = 0  # bytes of bodies
        self.draining = False
        self._openapi = description(service.languages(), config.limits, needs_key=key is not None)
        self._documentation = documentation(self._openapi)
        self._page = translation_page()
        middleware = []
        if config.cors_origins:
            middleware.append(
                Middleware(
                    CORSMiddleware,
                    allow_origins=config.cors_origins,
                    allow_methods=["GET", "POST"],
                    allow_headers=["content-type"],
                )
            )
        self.asgi = Starlette(
            routes=[
                Route("/", self._counted(self._front)),
                Route("/translate", self._translate, methods=["POST"]),
                Route("/languages", self._counted(self._languages)),
                Route("/frontend/settings", self._counted(self._settings)),
                Route("/health", self._counted(self._health)),
                Route("/metrics", self._counted(self._figures)),
                Route("/docs", self._counted(self._docs)),
                Route("/openapi.json", self._counted(self._schema)),
            ],
            middleware=middleware,
            exception_handlers={HTTPException: self._http_error, Exception: self._bug},
        )

    async def _translate(self, request: Request) -> Response:
        """Answers POST /translate."""
        start, status, held = time.monotonic(), 500, _Held(self)
        try:
            body = await self._body(request, held)
            fields = read_body(body, request.headers.get("content-type", ""))
            if not allowed(fields.get("api_key"), self._key):
                raise Refused(403, "api_key: is missing or wrong. Ask the operator of the server for one.")
            wanted = read_request(fields, self._limits)
            results = await self._service.translate(wanted, lambda: _vanished(request.receive))
            found = answer(wanted, results)
            self._metrics.translated(
                len(results),
                sum(one.num_tokens for one in results),
                sum(map(len, wanted.lines)),
            )
            status = 200
            return _json(found)
        except Refused as refused:
            status = refused.status
            return _error(status, refused.message)
        except Vanished:
            status = VANISHED
            return Response(status_code=400)  # nobody reads it
        finally:
            held.release()
            self._metrics.request("/translate", status, time.monotonic() - start)

    async def _body(self, request: Request, held: _Held) -> bytes:
        """Reads the body of a request.

        Raises:
            Refused: it is too large (413), too slow (408), or all bodies are too large together (503).
            Vanished: the client has closed the connection.
        """
        limit = self._limits.body_bytes
        too_large = Refused(413, f"The body has more than {limit:,} bytes.")
        declared = request.headers.get("content-length", "")
        parts: list[bytes] = []
        try:
            async with asyncio.timeout(self._limits.body_seconds):
                if declared.isdecimal() and int(declared[:20]) > limit:
                    if "expect" not in request.headers:  # with it, the client waits before it sends the body
                        await _drain(request.receive, limit * _DRAINED)
                    raise too_large
                size = 0
                async for part in _parts(request.receive):
                    size += len(part)
                    if size > limit:
                        parts.clear()
                        await _drain(request.receive, limit * _DRAINED)
                        raise too_large
                    if not held.add(len(part), self._limits.held_bytes):
                        parts.clear()
                        raise Refused(503, "The server holds too many texts. Try again later.")
                    parts.append(part)
        except TimeoutError:
            raise Refused(408, "The body of the request did not arrive in time.") from None
        return b"".join(parts)

    async def _front(self, request: Request) -> Response:
        return Response(self._page, media_type="text/html", headers=dict(PAGE_HEADERS))

    async def _docs(self, request: Request) -> Response:
        return Response(self._documentation, media_type="text/html", headers=dict(PAGE_HEADERS))

    async def _schema(self, request: Request) -> Response:
        return _json(self._openapi)

    async def _languages(self, request: Request) -> Response:
        return _json(self._service.languages())

    async def _settings(self, request: Request) -> Response:
        limits = self._limits
        return _json(
            {
                "apiKeys": self._key is not None,
                "keyRequired": self._key is not None,
                "charLimit": limits.characters,
                "alternatives": limits.alternatives,
                "attentionCharLimit": limits.attention_characters if self._service.has_attention else 0,
                "supportedFilesFormat": [],
            }
        )

    async def _health(self, request: Request) -> Response:
        if self.draining:
            return _json({"status": "draining"}, 503)
        return _json({"status": "ready"})

    async def _figures(self, request: Request) -> Response:
        return Response(
            self._metrics.text(),
            headers={**_SAFE, "content-type": "text/plain; version=0.0.4; charset=utf-8"},
        )

    def _counted(
        self, endpoint: Callable[[Request], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        """Returns an endpoint that also counts its requests."""

        async def counted(request: Request) -> Response:
            response = await endpoint(request)
            self._metrics.request(request.url.path, response.status_code)
            return response

        return counted

    async def _http_error(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        self._metrics.request("other", error.status_code)
        message = {
            404: "There is no such page. /docs lists all pages.",
            405: "This method is not allowed here. /docs lists the methods.",
        }.get(error.status_code, error.detail)
        return _error(error.status_code, message, error.headers)

    async def _bug(self, request: Request, error: Exception) -> Response:
        return _error(500, "The server has failed.")


class _Held:
    """The bytes of the body of one request, counted with those of all others."""

    def __init__(self, app: App) -> None:
        self._app, self._bytes = app, 0

    def add(self, size: int, limit: int) -> bool:
        """Counts bytes; returns whether all bodies together are within the limit."""
        self._bytes += size
        self._app._held += size
        return self._app._held <= limit

    def release(self) -> None:
        self._app._held -= self._bytes
        self._bytes = 0


async def _parts(receive: Receive) -> Any:
    """Yields the parts of a body."""
    more = True
    while more:
        message: Message = await receive()
        if message["type"] == "http.disconnect":
            raise Vanished
        more = message.get("more_body", False)
        yield message.get("body", b"")


async def _drain(receive: Receive, limit: int) -> None:
    """Reads the rest of a body and drops it; most clients read no answer before they have sent it."""
    size = 0
    async for part in _parts(receive):
        size += len(part)
        if size > limit:
            return


async def _vanished(receive: Receive) -> None:
    """Returns when the client has closed the connection."""
    with suppress(Vanished):
        while True:
            async for _ in _parts(receive):
                pass


def _json(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return Response(text.encode(), status, {**_SAFE, **(headers or {})}, media_type="application/json")


def _error(status: int, message: str, headers: Mapping[str, str] | None = None) -> Response:
    """Returns an error as LibreTranslate has it. After 408 and 413, parts of the body may still arrive."""
    more = {"retry-after": "1"} if status == 503 else {}
    if status in (408, 413, 503):
        more["connection"] = "close"
    return _json({"error": message}, status, {**more, **(headers or {})})
