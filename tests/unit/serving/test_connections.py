"""Connections: answers, pipelined requests, and clients that break a limit, over real sockets."""

from __future__ import annotations

import asyncio
import gc
import json
import socket
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Self

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send
from waiting import wait_until

from nmt.config import LimitsConfig
from nmt.serving.connections import Connections

LIMITS = replace(
    LimitsConfig(),
    **{"connections": 2, "header_seconds": 0.3, "body_seconds": 0.3, "header_bytes": 1024, "idle_seconds": 1},
)
GET = b"GET /%s HTTP/1.1\r\nhost: x\r\n\r\n"


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with the path; for /long with 64 MB, for /wait with the size of the body."""
    assert scope["type"] == "http"
    body = b"a" * (1 << 26) if scope["path"] == "/long" else scope["path"].encode()
    if scope["path"] == "/wait":  # for the body
        size, more = 0, True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            size, more = size + len(message["body"]), message["more_body"]
        body = b"%d" % size
    elif scope["path"] == "/slow":
        await asyncio.sleep(0.2)
    elif scope["path"] == "/forever":
        while (await receive())["type"] != "http.disconnect":
            pass
        return
    length = str(len(body)).encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", length)]})
    await send({"type": "http.response.body", "body": body})


class Running:
    """A server in a thread.

    Attributes:
        connections: its connections.
        address: host and port.
    """

    def __init__(self, limits: LimitsConfig = LIMITS) -> None:
        self.connections = Connections(application, limits)
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.address = self.listening.getsockname()
        http = self.connections.protocol
        options = {"lifespan": "off", "log_config": None, "timeout_keep_alive": limits.idle_seconds}
        options["loop"] = "asyncio"  # as in `nmt-serve`, also where uvloop is installed
        self.server = uvicorn.Server(uvicorn.Config(self.connections, http=http, **options))  # type: ignore[arg-type]
        self.thread = threading.Thread(target=self.server.run, args=([self.listening],))

    def __enter__(self) -> Self:
        self.thread.start()
        wait_until(lambda: self.server.started)
        return self

    def __exit__(self, *details: object) -> None:
        self.server.should_exit = True
        self.thread.join()

    def connect(self) -> socket.socket:
        return socket.create_connection(self.address, timeout=20)


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    with Running() as server:
        yield server


@pytest.fixture(autouse=True)
def none_is_left(running: Running) -> Iterator[None]:
    yield
    wait_until(lambda: not running.connections.open)


def rest(connection: socket.socket) -> bytes:
    """What arrives until the server closes the connection."""
    parts = bytearray()
    try:
        while part := connection.recv(65536):
            parts += part
    except ConnectionResetError:
        pass
    return bytes(parts)


def test_pipelined_requests_are_answered_in_order(running: Running) -> None:
    with running.connect() as connection:
        connection.sendall(b"".join(GET % str(number).encode() for number in range(10)))
        answers = rest(connection)  # until the connection was idle for a second
    assert [part[:2] for part in answers.split(b"\r\n\r\n")[1:]] == [b"/%d" % number for number in range(10)]


def test_too_many_pipelined_requests(running: Running) -> None:
    with running.connect() as connection:
        connection.sendall((GET % b"x") * 40)
        assert rest(connection) == b""


@pytest.mark.parametrize(
    ("sent", "status", "message"),
    [
        (b"", 408, "The header of the request did not arrive in time."),
        (GET % b"x" + b"GET", 408, "The header of the request did not arrive in time."),
        (b"GET / HTTP/1.1\r\nx: " + b"a" * 2000, 431, "The header of the request is too large."),
        (b"GET \xff HTTP/1.1\r\n\r\n", 400, "The request is not valid HTTP."),
        (b"nonsense\r\n\r\n", 400, "The request is not valid HTTP."),
    ],
)
def test_wrong_headers(running: Running, sent: bytes, status: int, message: str) -> None:
    with running.connect() as connection:
        if sent.endswith(b"GET"):  # the second header begins after the first answer
            connection.sendall(sent[:-3])
            first = b""
            while not first.endswith(b"/x"):
                first += connection.recv(65536)
            sent = sent[-3:]
        connection.sendall(sent)
        head, _, body = rest(connection).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status) and b"connection: close" in head
    assert json.loads(body) == {"error": message}


def test_a_large_header_in_one_packet(running: Running) -> None:
    with running.connect() as connection:
        connection.sendall(GET[:-2] % b"x" + b"x: " + b"a" * 2000 + b"\r\n\r\n")
        assert rest(connection).startswith(b"HTTP/1.1 431 ")


@pytest.mark.parametrize(
    ("wrong", "status"),
    [(b"nonsense\r\n\r\n", 400), (b"GET / HTTP/1.1\r\nx: " + b"a" * 2000 + b"\r\n\r\n", 431)],
)
def test_what_follows_a_good_request_does_not_replace_its_answer(
    running: Running, wrong: bytes, status: int
) -> None:
    with running.connect() as connection:
        connection.sendall(GET % b"good" + wrong + GET % b"bad")
        answers = rest(connection)
    assert [part[:3] for part in answers.split(b"HTTP/1.1 ")[1:]] == [b"200", b"%d" % status]
    assert b"/good" in answers and b"/bad" not in answers


def test_a_body_behind_an_early_answer_is_no_header(running: Running) -> None:
    with running.connect() as connection:
        connection.sendall(b"POST /early HTTP/1.1\r\nhost: x\r\ncontent-length: 5000\r\n\r\n")
        answer = b""
        while not answer.endswith(b"/early"):
            answer += connection.recv(65536)
        connection.sendall(b"a" * 3000)
        time.sleep(0.05)
        connection.sendall(b"a" * 2000 + GET % b"next")
        answers = rest(connection)
    assert answers.startswith(b"HTTP/1.1 200 ") and answers.endswith(b"/next")
    assert answers.count(b"HTTP/1.1") == 1


def test_a_body_that_never_comes_behind_an_early_answer(running: Running) -> None:
    with running.connect() as connection:
        connection.sendall(b"POST /early HTTP/1.1\r\nhost: x\r\ncontent-length: 5000\r\n\r\na")
        assert rest(connection).endswith(b"/early")


CHUNKED = b"POST /%s HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    "trailer",
    [b"a: b\r\n" * 20_000, b"a: " + b"b" * 200_000, b"a: " + b"b" * 2000 + b"\r\n\r\n"],
    ids=["lines", "line", "short"],
)
def test_what_follows_a_chunked_body_is_limited(running: Running, trailer: bytes) -> None:
    with running.connect() as connection:
        connection.sendall(CHUNKED % b"wait" + b"1\r\na\r\n0\r\n")
        with suppress(ConnectionError):
            for begin in range(0, len(trailer), 50_000):
                connection.sendall(trailer[begin : begin + 50_000])
        assert b"HTTP/1.1 200" not in rest(connection)


def test_small_chunks_and_a_short_trailer(running: Running) -> None:
    with running.connect() as connection:
        for part in (CHUNKED % b"wait", b"1\r\na\r\n" * 20_000, b"0\r\na: b\r\n\r\n"):
            connection.sendall(part)
        assert rest(connection).endswith(b"20000")


@pytest.mark.parametrize("paths", [[b"slow"], [b"slow", b"second"]])
def test_a_client_that_only_reads_has_its_answers(running: Running, paths: list[bytes]) -> None:
    with running.connect() as connection:
        connection.sendall(b"".join(GET % path for path in paths))
        connection.shutdown(socket.SHUT_WR)
        answers = rest(connection)
    if len(paths) == 1:  # otherwise the server reads nothing more until the first answer
        assert answers.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 ")
    assert [part.split(b"\r\n\r\n/")[1] for part in answers.split(b"HTTP/1.1 200 ")[1:]] == paths


def test_a_client_that_has_gone_is_noticed(running: Running) -> None:
    with running.connect() as connection:
        connection.sendall(GET % b"forever")
        wait_until(lambda: len(running.connections.open) == 1)
    wait_until(lambda: not running.connections.open)


def test_more_connections_than_allowed(running: Running) -> None:
    with running.connect(), running.connect():
        wait_until(lambda: len(running.connections.open) == 2)
        with running.connect() as third:
            answer = rest(third)
    assert answer.startswith(b"HTTP/1.1 503 ") and b"\r\nretry-after: 1\r\n" in answer


def test_a_client_that_reads_nothing_is_reset(running: Running) -> None:
    start = time.monotonic()
    with running.connect() as connection:
        connection.sendall(GET % b"long")
        wait_until(lambda: len(running.connections.open) == 1)
        wait_until(lambda: not running.connections.open)  # after body_seconds
        assert 0.3 <= time.monotonic() - start < 15
        assert len(rest(connection)) < 1 << 26


def test_nothing_of_a_closed_connection_is_left() -> None:
    with Running(replace(LIMITS, idle_seconds=60)) as server:
        with server.connect() as connection:
            connection.sendall(GET % b"x")
            answer = b""
            while not answer.endswith(b"/x"):  # a client that leaves a part unread resets the connection
                answer += connection.recv(65536)
            [reference] = map(weakref.ref, server.connections.open)
        wait_until(lambda: not server.connections.open)

        def is_collected() -> bool:
            gc.collect()
            return reference() is None

        wait_until(is_collected)
