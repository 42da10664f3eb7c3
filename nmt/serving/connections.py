"""The connections of clients: limits of their number, of headers, and of the time that a client takes.

uvicorn limits none of them itself: a client that sends nothing, half a header or a header without end, or
that reads no answer, would hold its connection for ever. Its options count requests, not connections, and
it answers bytes that are not HTTP as plain text. So a `Connection` stands between the network and the
protocol of uvicorn. It follows the requests with a parser of its own.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from http import HTTPStatus
from typing import Any

import httptools
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from nmt.config.serving import LimitsConfig

_PIPELINED = 16  # requests that a client may send before it has read the answer to the first
_FAREWELL_SECONDS = 5.0  # for a client to read the rest of an answer before its connection is reset


class Connections:
    """The open connections of a server, and the application behind them, within limits."""

    def __init__(self, app: ASGIApp, limits: LimitsConfig) -> None:
        self._app, self.limits = app, limits
        self.open: set[Connection] = set()

    def protocol(self, *, app_state: dict[str, Any], **options: Any) -> Connection:
        """Returns a new connection. uvicorn calls it with the arguments of its protocol."""
        connection = Connection(self)
        # What is in this state is in the state of each request of the connection.
        state = {**app_state, "connection": connection}
        connection.http = HttpToolsProtocol(app_state=state, **options)
        return connection

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Runs the application, and tells the connection of each answer."""
        try:
            await self._app(scope, receive, send)
        finally:
            if scope["type"] == "http":
                scope["state"]["connection"].answered()


class Connection(asyncio.Protocol):
    """One connection of a server. It passes everything on to `http`, the protocol of uvicorn."""

    http: asyncio.Protocol

    def __init__(self, connections: Connections) -> None:
        self._connections, self._limits = connections, connections.limits
        self._parser = httptools.HttpRequestParser(self)
        with suppress(AttributeError):  # httptools < 0.6.3
            self._parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does
        self._deadline: asyncio.TimerHandle | None = None  # while a header is expected
        self._reset: asyncio.TimerHandle | None = None  # while an answer is not read
        self._idle: asyncio.TimerHandle | None = None  # after an answer
        self._url = b""
        self._header_bytes = 0
        self._unanswered = 0  # requests

    # The interface of asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Answers 503 if there are too many connections."""
        assert isinstance(transport, asyncio.Transport)
        self._transport, self._loop = transport, asyncio.get_running_loop()
        self._connections.open.add(self)
        self.http.connection_made(transport)
        if len(self._connections.open) > self._limits.connections:
            self._refuse(503, "Too many connections. Try again later.")
        else:
            self._expect_header()

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends the timers."""
        self._connections.open.discard(self)
        self._header_arrived()
        self._reset_after(None)
        if self._idle is not None:
            self._idle.cancel()
        self.http.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Counts the bytes of headers."""
        if self._transport.is_closing():
            return
        if self._deadline is None and not self._unanswered:
            self._expect_header()
        expected = self._deadline is not None
        if expected:
            self._header_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            pass  # uvicorn ignores the wish for another protocol
        except httptools.HttpParserError:
            self._refuse(400, "The request is not valid HTTP.")
            return
        if expected and self._deadline is not None and self._header_bytes > self._limits.header_bytes:
            self._refuse(431, "The header of the request is too large.")
        elif self._unanswered > _PIPELINED + 1:
            self._transport.abort()
        else:
            self.http.data_received(data)

    def eof_received(self) -> bool | None:
        """See `asyncio.Protocol`."""
        return self.http.eof_received()

    def pause_writing(self) -> None:
        """Resets the connection if the client reads nothing of an answer."""
        self.http.pause_writing()
        self._reset_after(self._limits.body_seconds)

    def resume_writing(self) -> None:
        """Ends the timer of `pause_writing`."""
        self._reset_after(None)
        self.http.resume_writing()

    # The interface of the parser

    def on_message_begin(self) -> None:
        """Expects a header, also that of a pipelined request."""
        self._url = b""
        self._expect_header()

    def on_url(self, url: bytes) -> None:
        """Receives a part of the URL."""
        self._url += url

    def on_headers_complete(self) -> None:
        """Checks the URL as uvicorn does, and ends the timer."""
        httptools.parse_url(self._url).path.decode("ascii")
        self._header_arrived()
        self._unanswered += 1

    def answered(self) -> None:
        """Counts an answer. uvicorn closes an idle connection, but waits until its client has read all."""
        self._unanswered -= 1
        if self._idle is not None:
            self._idle.cancel()
        if self in self._connections.open:
            seconds = self._limits.idle_seconds + _FAREWELL_SECONDS
            self._idle = self._loop.call_later(seconds, self._reset_if_closing)

    def _reset_if_closing(self) -> None:
        if self._transport.is_closing():
            self._transport.abort()

    def _reset_after(self, seconds: float | None) -> None:
        """Resets the connection after a time; None: not any more."""
        if self._reset is not None:
            self._reset.cancel()
        self._reset = None if seconds is None else self._loop.call_later(seconds, self._transport.abort)

    def _expect_header(self) -> None:
        if self._deadline is None:
            self._header_bytes = 0
            self._deadline = self._loop.call_later(self._limits.header_seconds, self._too_slow)

    def _header_arrived(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_slow(self) -> None:
        self._deadline = None
        if (
            not self._unanswered
        ):  # otherwise it is a pipelined request; the answer to the first one comes first
            self._refuse(408, "The header of the request did not arrive in time.")

    def _refuse(self, status: int, message: str) -> None:
        """Answers without the application, and closes the connection."""
        self._header_arrived()
        body = json.dumps({"error": message}).encode()
        head = (
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n"
            f"{'retry-after: 1' + chr(13) + chr(10) if status == 503 else ''}\r\n"
        )
        self._transport.write(head.encode() + body)
        self._transport.close()
        self._loop.call_later(_FAREWELL_SECONDS, self._transport.abort)
