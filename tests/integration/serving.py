"""A server of nmt-serve in a process of its own, and requests to it."""

from __future__ import annotations

import http.client
import json
import re
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from commands import Toy, command_line, environment
from forking import forked_command

JSON = {"content-type": "application/json"}


@dataclass(frozen=True)
class Answer:
    """The answer to a request."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


@dataclass(frozen=True)
class Server:
    """A server that listens.

    Attributes:
        url: its address.
        process: its process.
        log: the file of its standard error.
    """

    url: str
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        parts = urlsplit(self.url)
        assert parts.hostname is not None and parts.port is not None
        return parts.hostname, parts.port

    def request(
        self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> Answer:
        """Sends a request on a new connection."""
        connection = http.client.HTTPConnection(*self.address, timeout=60)
        try:
            connection.request(method, path, body, headers or {})
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, found, response.read())
        finally:
            connection.close()

    def translate(self, **fields: Any) -> Answer:
        """Asks for a translation."""
        return self.request("POST", "/translate", json.dumps(fields).encode(), JSON)

    def attention(self, **fields: Any) -> Answer:
        """Asks for a page of attention."""
        return self.request("POST", "/attention", json.dumps(fields).encode(), JSON)

    def figure(self, name: str) -> float:
        """A figure of /metrics; 0 if it is not there."""
        text = self.request("GET", "/metrics").body.decode()
        found = re.search(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE)
        return float(found[1]) if found else 0.0

    def connect(self) -> socket.socket:
        """Opens a connection that is used without an HTTP client."""
        return socket.create_connection(self.address, timeout=60)


@contextmanager
def serving(toy: Toy, folder: Path, *options: str, fresh: bool = False) -> Iterator[Server]:
    """Runs a server on a free port, as `Toy.run` does; ends it after the body."""
    log = folder / "serve.log"
    command = command_line if fresh else forked_command
    with log.open("wb") as errors:
        process = subprocess.Popen(
            command("nmt-serve", "port=0", *options),
            cwd=toy.folder,
            env=environment(toy.cache),
            stdout=subprocess.PIPE,
            stderr=errors,
        )
    try:
        yield Server(_url(process, log), process, log)
    finally:
        process.kill()
        process.communicate()


def _url(process: subprocess.Popen[bytes], log: Path) -> str:
    from waiting import wait_until

    def listening() -> list[str]:
        assert process.poll() is None, log.read_text()
        return re.findall(r"Listening on (\S+)\n", log.read_text())

    wait_until(lambda: bool(listening()))
    return listening()[0]


def rest(connection: socket.socket) -> bytes:
    """What the server sends until it closes the connection."""
    found = bytearray()
    try:
        while part := connection.recv(65536):
            found += part
    except ConnectionResetError:
        pass
    return bytes(found)
