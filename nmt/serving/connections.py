"""The connections of clients: limits of their number, of headers, and of the time that a client takes.

uvicorn limits none of them itself: a client that sends nothing, half a header or a header without end, or
that reads no answer, would hold its connection for ever. Its options count requests, not connections, and
it answers bytes that are not HTTP as plain text. So a `Connection` stands between the network and the
protocol of uvicorn. It follows the requests with a parser of its own.
"""

from __future__ import annotations

import asyncio
import json
import socket
from contextlib import suppress
from http import HTTPStatus
from typing import Any

import httptools
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from nmt.config.serving import LimitsConfig

_PIPELINED = 16  # requests that a client may send before it has read the answer to the first
_SEPARATORS = 4  # bytes of a line of a header: the colon, a space and the end
_FIRST_CHECK_SECONDS, _CHECK_SECONDS = 0.1, 1.0  # until a half-closed connection is checked
_FAREWELL_SECONDS = 5.0  # for a client to read the rest of an answer before its connection is reset


class _Protocol(HttpToolsProtocol):
    """The protocol of uvicorn, which ends at the same bytes as `Connection`, and leaves the answer to it."""

    limits: LimitsConfig

    def on_message_begin(self) -> None:
        """Begins to count."""
        self._size = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """Counts a part of the URL."""
        self._size += len(url)
        check_size(self._size, self.limits)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Counts a line of the header."""
        self._size += len(name) + len(value) + _SEPARATORS
        check_size(self._size, self.limits)
        super().on_header(name, value)

    def send_400_response(self, msg: str) -> None:
        """Does nothing."""


def check_size(size: int, limits: LimitsConfig) -> None:
    """Raises `ValueError`, which ends a parser, if a header has more bytes than allowed."""
    if size > limits.header_bytes:
        raise ValueError("the header is too large")


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
        connection.http = http = _Protocol(app_state=state, **options)
        http.limits = self.limits
        return connection

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Runs the application, and tells the connection of each answer."""

        async def noted(message: Message) -> None:
            if message["type"] == "http.response.start":
                scope["state"]["connection"].is_answering = True
            await send(message)

        try:
            await self._app(scope, receive, noted)
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
        self._size = 0  # bytes of the header, and of the lines behind a body in chunks
        self._unanswered = 0  # requests
        self._in_body = False  # from the end of a header to the end of its request
        self._is_trailing = False  # whether lines behind a body in chunks may follow
        self._refusal = b""  # the last answer, which waits for those to the requests before
        self._is_half_closed = False  # whether the client sends nothing more
        self._rest: asyncio.TimerHandle | None = None  # while the rest of an answered request is dropped
        self.is_answering = False

    @property
    def _before(self) -> int:
        """The number of complete requests that are not answered."""
        return max(self._unanswered - self._in_body, 0)

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
        self._rest_arrived()
        if self._idle is not None:
            self._idle.cancel()
        self.http.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Counts the bytes of headers."""
        if self._transport.is_closing() or self._refusal:
            return
        if self._deadline is None and not self._unanswered and not self._in_body:
            self._expect_header()
        expected, was_trailing = self._deadline is not None, self._is_trailing
        if expected:
            self._header_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            pass  # uvicorn ignores the wish for another protocol
        except httptools.HttpParserError:
            if self._before:  # requests that are complete, perhaps in these bytes
                self.http.data_received(data)
            if self._size > self._limits.header_bytes:
                self._refuse_header()
            else:
                self._refuse(400, "The request is not valid HTTP.")
            return
        if was_trailing and self._is_trailing:
            self._size += len(data)
        if expected and self._deadline is not None and self._header_bytes > self._limits.header_bytes:
            self._refuse_header()
        elif self._size > self._limits.header_bytes:
            self._refuse_header()
        elif self._unanswered > _PIPELINED + 1:
            self._transport.abort()
        else:
            self.http.data_received(data)

    def eof_received(self) -> bool | None:
        """Keeps the connection open until the requests are answered, unless the client has gone.

        A client that has gone and one that sends nothing more look the same. A client that has gone resets
        the connection if it receives something, such as this answer, which HTTP/1.1 allows at any time.
        """
        if not self._before:
            return None
        self._is_half_closed = True
        if self._parser.get_http_version() == "1.1" and not self.is_answering:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        self._check_client(_FIRST_CHECK_SECONDS)
        return True

    def _check_client(self, seconds: float) -> None:
        """Checks after some time, and then again and again, whether the client has reset the connection."""

        def check() -> None:
            if self._transport.is_closing():
                return
            network: socket.socket = self._transport.get_extra_info("socket")
            if network.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                self._transport.abort()
            else:
                self._check_client(_CHECK_SECONDS)

        self._loop.call_later(seconds, check)

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
        self._url, self._size = b"", 0
        self._expect_header()

    def on_url(self, url: bytes) -> None:
        """Receives a part of the URL."""
        self._url += url
        self._size += len(url)
        check_size(self._size, self._limits)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Counts a line of the header, or behind a body in chunks."""
        self._size += len(name) + len(value) + _SEPARATORS
        check_size(self._size, self._limits)

    def on_chunk_header(self) -> None:
        """After the header of the last chunk, which has no body, lines as in a header may follow."""
        self._is_trailing = True

    def on_body(self, body: bytes) -> None:
        """Receives a part of the body."""
        self._is_trailing = False

    def on_message_complete(self) -> None:
        """The next bytes are those of another request."""
        self._in_body = self._is_trailing = False
        self._size = 0
        self._rest_arrived()

    def on_headers_complete(self) -> None:
        """Checks the URL as uvicorn does, and ends the timer."""
        httptools.parse_url(self._url).path.decode("ascii")
        self._header_arrived()
        self._unanswered += 1
        self._in_body = True

    def answered(self) -> None:
        """Counts an answer. uvicorn closes an idle connection, but waits until its client has read all."""
        self._unanswered -= 1
        self.is_answering = False
        if self._refusal and not self._before:
            self._close_with(self._refusal)
        elif self._is_half_closed and not self._before:
            self._transport.close()
        elif self._in_body and not self._unanswered:  # the rest of the body is dropped
            self._rest = self._loop.call_later(self._limits.body_seconds, self._transport.close)
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

    def _rest_arrived(self) -> None:
        if self._rest is not None:
            self._rest.cancel()
            self._rest = None

    def _too_slow(self) -> None:
        self._deadline = None
        if (
            not self._unanswered
        ):  # otherwise it is a pipelined request; the answer to the first one comes first
            self._refuse(408, "The header of the request did not arrive in time.")

    def _refuse(self, status: int, message: str) -> None:
        """Answers without the application, after the requests before, and closes the connection."""
        self._header_arrived()
        if self._in_body and not self._unanswered:
            self._transport.close()  # the request has its answer
            return
        body = json.dumps({"error": message}).encode()
        head = (
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n"
            f"{'retry-after: 1' + chr(13) + chr(10) if status == 503 else ''}\r\n"
        )
        self._refusal = head.encode() + body
        if not self._before:
            self._close_with(self._refusal)

    def _refuse_header(self) -> None:
        self._refuse(431, "The header of the request is too large.")

    def _close_with(self, answer: bytes) -> None:
        self._transport.write(answer)
        self._transport.close()
        self._loop.call_later(_FAREWELL_SECONDS, self._transport.abort)
