"""The connections of clients: limits of their number, of headers, and of the time that a client takes.

uvicorn limits none of them itself: a client that sends nothing, half a header or a header without end, or
that reads no answer, would hold its connection for ever.
"""

from __future__ import annotations

import asyncio
import json
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from nmt.config.serving import LimitsConfig

_PIPELINED = 16  # requests that a client may send before it has read the answer to the first
_FAREWELL_SECONDS = 5.0  # for a client to read the rest of an answer before its connection is reset


class LimitedProtocol(HttpToolsProtocol):
    """One connection. `limited` creates the subclass with the limits of a server."""

    limits: LimitsConfig

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._deadline: asyncio.TimerHandle | None = None  # while a header is expected
        self._header_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Answers 503 if there are too many connections."""
        super().connection_made(transport)
        if len(self.connections) > self.limits.connections:
            self._refuse(503, "Too many connections. Try again later.")
        else:
            self._expect_header()

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends the timer."""
        self._header_arrived()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Counts the bytes of headers."""
        if self.transport.is_closing():
            return
        if self._deadline is None and (self.cycle is None or self.cycle.response_complete):
            self._expect_header()
        expected = self._deadline is not None
        if expected:
            self._header_bytes += len(data)
        super().data_received(data)
        if expected and self._deadline is not None and self._header_bytes > self.limits.header_bytes:
            self._refuse(431, "The header of the request is too large.")
        if len(self.pipeline) > _PIPELINED:
            self.transport.abort()

    def on_message_begin(self) -> None:
        """Expects a header, also that of a pipelined request."""
        super().on_message_begin()
        self._expect_header()

    def on_headers_complete(self) -> None:
        """Ends the timer and starts the request."""
        self._header_arrived()
        super().on_headers_complete()

    def timeout_keep_alive_handler(self) -> None:
        """Closes an idle connection, even if its client does not read the last answer."""
        super().timeout_keep_alive_handler()
        self.loop.call_later(_FAREWELL_SECONDS, self.transport.abort)

    def pause_writing(self) -> None:
        """Resets the connection if the client reads nothing of an answer."""
        super().pause_writing()
        self._writing = self.loop.call_later(self.limits.body_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """Ends the timer of `pause_writing`."""
        self._writing.cancel()
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        """Answers bytes that are not HTTP."""
        self._refuse(400, "The request is not valid HTTP.")

    def _expect_header(self) -> None:
        if self._deadline is None:
            self._header_bytes = 0
            self._deadline = self.loop.call_later(self.limits.header_seconds, self._too_slow)

    def _header_arrived(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_slow(self) -> None:
        self._deadline = None
        if self.cycle is not None and not self.cycle.response_complete:
            return  # the header of a pipelined request; the answer to the first one comes first
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
        self.transport.write(head.encode() + body)
        self.transport.close()
        self.loop.call_later(_FAREWELL_SECONDS, self.transport.abort)


def limited(limits: LimitsConfig) -> type[LimitedProtocol]:
    """Returns the class of connections with these limits."""
    return type("LimitedProtocol", (LimitedProtocol,), {"limits": limits})
