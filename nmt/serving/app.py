"""The application: the paths of the server, and their answers."""

from __future__ import annotations

import asyncio
import hmac
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any, TypeVar
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from nmt.config import ServeConfig
from nmt.decoding.translation import ScoredText, Translation
from nmt.documents.files import SUFFIXES
from nmt.errors import UserError
from nmt.serving.bodies import read_fields
from nmt.serving.documentation import PAGE_HEADERS, description, documentation, read_template
from nmt.serving.documents import FileRequest, TranslatedFiles, read_file
from nmt.serving.metrics import VANISHED, Metrics
from nmt.serving.refusals import Refusal
from nmt.serving.requests import TranslateRequest, answer, read_pairs, read_request, read_text
from nmt.serving.service import Service

T = TypeVar("T")

_DRAINED = 64  # largest bodies: bytes of a refused body that are read, so that its client reads the answer
_LARGE = 20_000  # bytes of a body that takes some milliseconds to read
_FRONTEND_MS = 500  # LibreTranslate's milliseconds before its page translates
_HOST = re.compile(r"[A-Za-z0-9.-]+(?::\d{1,5})?|\[[0-9A-Fa-f:.]+\](?::\d{1,5})?")
_SAFE = {"x-content-type-options": "nosniff", "cache-control": "no-store", "referrer-policy": "no-referrer"}
_NO_KEY = "Please contact the server operator to get an API key"
_NO_ROUTE = {
    404: "There is no such page. /docs lists all pages.",
    405: "This method is not allowed here. /docs lists the methods.",
}
"""The messages of the errors that starlette raises."""


class App:
    """The paths of a server.

    Args:
        service: translates.
        config: options of the server.
        key: the key of translation requests; None: they need none.
        metrics: the figures of the server.
        lifespan: entered in the event loop before the first request, and left after the last one.

    `draining` says whether the server stops, and is set by its owner; `asgi` is the application.
    """

    def __init__(
        self,
        service: Service,
        config: ServeConfig,
        key: str | None,
        metrics: Metrics,
        lifespan: Callable[[Starlette], AbstractAsyncContextManager[None]] | None = None,
    ) -> None:
        self._service, self._limits, self._key, self._metrics = service, config.limits, key, metrics
        self._files = TranslatedFiles(config.limits.held_bytes)
        self._body_bytes = 0  # of all requests that are read or translated
        self._reader = ThreadPoolExecutor(1, "read")  # one, which bounds the memory of fields
        self.draining = False
        limits = config.limits
        openapi = description(service.languages(), limits, needs_key=key is not None)
        self._url = (config.public_url or "").rstrip("/")
        if self._url:
            openapi["servers"] = [{"url": self._url}]
        languages = service.first_languages()
        target = languages["target"]["code"]
        settings = {
            "apiKeys": key is not None,
            "keyRequired": key is not None,
            "charLimit": limits.characters,
            "alternatives": limits.alternatives,
            "attentionCharLimit": limits.attention_characters if service.has_attention else 0,
            "attentionPages": service.has_pages,
            "frontendTimeout": _FRONTEND_MS,
            "suggestions": False,
            "filesTranslation": True,
            "supportedFilesFormat": [*SUFFIXES],
            "language": languages,
        }
        page, docs = read_template("page.html"), documentation(openapi)
        answers: dict[str, Callable[[], Response]] = {
            "/": lambda: HTMLResponse(page, headers=PAGE_HEADERS),
            "/languages": lambda: _json(service.languages()),
            "/frontend/settings": lambda: _json(settings),
            "/health": self._health,
            "/metrics": self._figures,
            "/docs": lambda: HTMLResponse(docs, headers=PAGE_HEADERS),
            "/openapi.json": lambda: _json(openapi),
            "/spec": lambda: _json(openapi),  # the path of LibreTranslate
        }
        cors: dict[str, Any] = {
            "allow_origins": config.cors_origins,
            "allow_methods": ["GET", "POST"],
            "allow_headers": ["authorization", "content-type"],
        }
        self.asgi = Starlette(
            routes=[
                self._posted("/translate", lambda fields: read_request(fields, limits), self._translate),
                self._posted(
                    "/translate_file", lambda fields: read_file(fields, limits, target), self._translate_file
                ),
                self._posted("/attention", lambda fields: read_pairs(fields, limits), self._attention),
                self._posted("/detect", read_text, self._detect),
                self._posted("/suggest", lambda fields: None, self._suggest),
                Route("/download_file/{key}", self._download),
                *(Route(path, self._counted(path, respond)) for path, respond in answers.items()),
            ],
            middleware=[Middleware(_MergedSlashes)]
            + ([Middleware(CORSMiddleware, **cors)] if config.cors_origins else []),
            exception_handlers={HTTPException: self._http_error, Exception: self._bug},
            lifespan=lifespan,
        )
        self.asgi.router.redirect_slashes = False  # it would redirect to the host that the client names

    async def _translate(self, request: Request, parsed: TranslateRequest) -> Response:
        results, detection = await self._translations(request, parsed)
        return _json(answer(parsed, results, detection))

    async def _translate_file(self, request: Request, parsed: FileRequest) -> Response:
        results, _ = await self._translations(request, parsed.request)
        try:
            content = await asyncio.to_thread(parsed.file.written, results)
        except UserError as error:
            raise HTTPException(400, str(error)) from None
        path = f"/download_file/{self._files.add(parsed.name, content)}"
        host = request.headers.get("host", "")
        url = self._url or (f"http://{host}" if _HOST.fullmatch(host) else "")
        return _json({"translatedFileUrl": url + path})

    async def _attention(self, request: Request, parsed: TranslateRequest) -> Response:
        known, _ = await self._service.with_source(parsed)
        page = await self._service.attention_page(known, lambda: _vanished(request))
        return HTMLResponse(page, headers={**PAGE_HEADERS, **_SAFE})

    async def _detect(self, request: Request, text: str) -> Response:
        return _json(await self._service.detect(text))

    async def _suggest(self, request: Request, parsed: None) -> Response:
        raise HTTPException(403, "Suggestions are disabled on this server.")  # the words of LibreTranslate

    async def _translations(
        self, request: Request, parsed: TranslateRequest
    ) -> tuple[Sequence[Translation], Mapping[str, Any] | None]:
        known, detection = await self._service.with_source(parsed)
        results: Sequence[Translation]
        if self._service.is_in_target(known, detection):
            results = [Translation((ScoredText(line, 0.0),)) for line in known.lines]
        else:
            results = await self._service.translate(known, lambda: _vanished(request))
        tokens = sum(result.num_tokens for result in results)
        self._metrics.translated(len(results), tokens, parsed.num_characters)
        return results, detection

    async def _download(self, request: Request) -> Response:
        file = self._files.get(request.path_params["key"])
        self._metrics.request("/download_file", 404 if file is None else 200)
        if file is None:
            return _error(404, "There is no such file, or it is not retained any more.")
        name, content = file
        disposition = f"attachment; filename*=UTF-8''{quote(name, safe='')}"
        headers = {**_SAFE, "content-disposition": disposition}
        return Response(content, headers=headers, media_type="application/octet-stream")

    def _posted(
        self,
        path: str,
        read: Callable[[Mapping[str, Any]], T],
        respond: Callable[[Request, T], Awaitable[Response]],
    ) -> Route:
        """Returns the route of a path with fields, which `read` checks, and to which `respond` answers."""

        async def endpoint(request: Request) -> Response:
            start, status = time.monotonic(), 500
            try:
                with self._counted_bytes() as count:
                    parsed = await self._parsed(request, read, count)  # other fields are not held any longer
                    response = await respond(request, parsed)
                status = 200
                return response
            except HTTPException as error:
                status = error.status_code
                return _error(status, error.detail, hint=getattr(error, "hint", ""))
            except ClientDisconnect:
                status = VANISHED
                return Response(status_code=400)  # nobody reads it
            finally:
                self._metrics.request(path, status, time.monotonic() - start)

        return Route(path, endpoint, methods=["POST"])

    async def _parsed(
        self, request: Request, read: Callable[[Mapping[str, Any]], T], count: Callable[[int], bool]
    ) -> T:
        """Returns the checked fields of a request. A thread reads large ones, so that others do not wait.

        Raises:
            HTTPException: as for `_body`, `_fields` and `read`.
            ClientDisconnect: the client has closed the connection.
        """
        body = await self._body(request, count)
        if len(body) < _LARGE:
            return read(self._fields(request, body))

        def parsed() -> T:
            try:
                return read(self._fields(request, body))
            except HTTPException as error:
                error.__context__ = error.__cause__ = None
                refusal = error.with_traceback(None)
            raise refusal  # without the frames that hold the fields

        return await asyncio.get_running_loop().run_in_executor(self._reader, parsed)

    def _fields(self, request: Request, body: bytes) -> dict[str, Any]:
        """Returns the fields of a request.

        Raises:
            HTTPException: the body is not valid (400, 415), or the key is missing or wrong (403).
        """
        fields = read_fields(body, request.headers.get("content-type", ""), request.scope["query_string"])
        if not allowed(fields.get("api_key"), self._key):
            message = "Invalid API key" if fields.get("api_key") else _NO_KEY
            raise Refusal(403, message, "api_key: ask the operator of the server for one.")
        return fields

    @contextmanager
    def _counted_bytes(self) -> Iterator[Callable[[int], bool]]:
        """Yields a function that counts bytes of a body, and returns whether those of all bodies are allowed.

        They are counted until the body of the `with` statement ends.
        """
        own_bytes = 0

        def count(size: int) -> bool:
            nonlocal own_bytes
            own_bytes += size
            self._body_bytes += size
            return self._body_bytes <= self._limits.held_bytes

        try:
            yield count
        finally:
            self._body_bytes -= own_bytes

    async def _body(self, request: Request, count: Callable[[int], bool]) -> bytes:
        """Reads the body of a request; `count` counts its bytes.

        Raises:
            HTTPException: it is too large (413), too slow (408), or all bodies are too large together (503).
            ClientDisconnect: the client has closed the connection.
        """
        limit = self._limits.body_bytes
        too_large = HTTPException(413, f"The body has more than {limit:,} bytes.")
        declared = request.headers.get("content-length", "")
        body, stream = bytearray(), request.stream()
        try:
            async with asyncio.timeout(self._limits.body_seconds):
                if declared.isdecimal() and int(declared[:20]) > limit:
                    if "expect" not in request.headers:  # with it, the client waits before it sends the body
                        await _drain(stream, limit * _DRAINED)
                    raise too_large
                async for part in stream:
                    body += part
                    if len(body) > limit:
                        body.clear()
                        await _drain(stream, limit * _DRAINED)
                        raise too_large
                    if not count(len(part)):
                        raise HTTPException(503, "The server holds too many texts. Try again later.")
        except TimeoutError:
            raise HTTPException(408, "The body of the request did not arrive in time.") from None
        return bytes(body)

    def _health(self) -> Response:
        return _json({"status": "draining"}, 503) if self.draining else _json({"status": "ok"})

    def _figures(self) -> Response:
        kind = "text/plain; version=0.0.4; charset=utf-8"
        return Response(self._metrics.text(), headers={**_SAFE, "content-type": kind})

    def _counted(
        self, path: str, respond: Callable[[], Response]
    ) -> Callable[[Request], Awaitable[Response]]:
        """Returns an endpoint that answers every request in the same way and counts them."""

        async def endpoint(request: Request) -> Response:
            response = respond()
            self._metrics.request(path, response.status_code)
            return response

        return endpoint

    async def _http_error(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        self._metrics.request("other", error.status_code)
        message = _NO_ROUTE.get(error.status_code, error.detail)
        return _error(error.status_code, message, error.headers)

    async def _bug(self, request: Request, error: Exception) -> Response:
        return _error(500, "The server has failed.")


class _MergedSlashes:
    """Merges slashes at the start of a path: clients add `/translate` to addresses that end in a slash."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on."""
        if scope.get("path", "").startswith("//"):
            scope = {**scope, "path": "/" + scope["path"].lstrip("/")}
        await self._app(scope, receive, send)


def allowed(api_key: object, key: str | None) -> bool:
    """Returns whether a request with this `api_key` is allowed; takes the same time for every wrong key."""
    if key is None:
        return True
    return isinstance(api_key, str) and hmac.compare_digest(api_key.encode("utf-8", "replace"), key.encode())


async def _drain(stream: AsyncIterator[bytes], limit: int) -> None:
    """Reads the rest of a body and drops it; most clients read no answer before they have sent it."""
    size = 0
    async for part in stream:
        size += len(part)
        if size > limit:
            return


async def _vanished(request: Request) -> None:
    """Returns when the client has closed the connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _json(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return JSONResponse(value, status, {**_SAFE, **(headers or {})})


def _error(status: int, message: str, headers: Mapping[str, str] | None = None, hint: str = "") -> Response:
    """Returns an error as LibreTranslate has it. After 408 and 413, parts of the body may still arrive."""
    more = {"retry-after": "1"} if status == 503 else {}
    if status in (408, 413, 503):
        more["connection"] = "close"
    fields = {"error": message, "hint": hint} if hint else {"error": message}
    return _json(fields, status, {**more, **(headers or {})})
