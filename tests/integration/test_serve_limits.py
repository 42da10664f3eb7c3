"""nmt-serve survives clients of every kind, and stops in order: limits, keys, full queues and signals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from commands import Toy, environment
from forking import forked_command
from serving import Answer, Server, rest, serving
from waiting import wait_until

SMALL_LIMITS = (
    "limits.body_bytes=20000",
    "limits.held_bytes=30000",
    "limits.waiting_sentences=40",
    "limits.header_seconds=0.5",
    "limits.body_seconds=0.5",
    "limits.header_bytes=4096",
    "limits.connections=12",
)


@pytest.fixture(scope="module")
def strict(toy: Toy, trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with small limits and a key."""
    folder = tmp_path_factory.mktemp("strict")
    (folder / "key").write_text("open sesame\n")
    options = (f"model_dir={trained}", f"api_key_file={folder / 'key'}", *SMALL_LIMITS)
    with serving(toy, folder, *options, "cors_origins=[https://example.org]") as found:
        yield found


def test_keys(strict: Server) -> None:
    assert strict.translate(q="ba").status == 403
    answer = strict.translate(q="ba", api_key="wrong")
    assert (answer.status, answer.json["error"]) == (403, "Invalid API key")
    assert strict.translate(q="ba", api_key="open sesame").status == 200
    assert strict.attention(q="ba").status == 403
    assert strict.attention(q="ba", api_key="open sesame").status == 200
    assert strict.request("GET", "/frontend/settings").json["keyRequired"] is True


def test_cors(strict: Server) -> None:
    allowed = strict.request("GET", "/health", headers={"origin": "https://example.org"})
    assert allowed.headers["access-control-allow-origin"] == "https://example.org"
    asks = {
        "origin": "https://example.org",
        "access-control-request-method": "POST",
        "access-control-request-headers": "content-type",
    }
    assert strict.request("OPTIONS", "/translate", headers=asks).status == 200
    other = strict.request("GET", "/health", headers={"origin": "https://example.com"})
    assert "access-control-allow-origin" not in other.headers


HEAD = b"POST /translate HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 100\r\n"


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (HEAD, 408),
        (HEAD + b"\r\n", 408),
        (HEAD + b'\r\n{"q": "ba', 408),
        (b"GET / HTTP/1.1\r\nhost: " + b"x" * 70_000, 431),
        (b"\x16\x03\x01\x02\x00\x01", 400),
    ],
)
def test_slow_and_strange_clients_are_cut(strict: Server, sent: bytes, status: int) -> None:
    with strict.connect() as connection:
        connection.sendall(sent)
        answer = rest(connection)
    assert answer.startswith(f"HTTP/1.1 {status} ".encode())
    assert list(json.loads(answer.partition(b"\r\n\r\n")[2])) == ["error"]


def _status(server: Server) -> int:
    try:
        return server.request("GET", "/health").status
    except OSError:
        return 0


def test_a_full_queue_and_too_many_bytes(strict: Server) -> None:
    answer = strict.translate(q=["ba"] * 41, api_key="open sesame")
    assert (answer.status, answer.headers["retry-after"]) == (503, "1")
    assert answer.json == {"error": "Too many texts are waiting. Try again later."}
    assert strict.translate(q=["ba"] * 40, api_key="open sesame").status == 200
    with strict.connect() as one, strict.connect() as other:
        for connection in (one, other):
            connection.sendall(HEAD.replace(b"100", b"19000") + b"\r\n" + b"x" * 18_000)
        answers = [rest(connection)[9:12] for connection in (one, other)]
    assert sorted(answers) == [b"408", b"503"]


PLUGIN = '''
import os, signal, time
from nmt.decoding.processors import PROCESSORS, SearchProcessor

class Gate(SearchProcessor):
    """Stops every search while the file `closed` exists; the file `fatal` kills the process, `bug` raises."""
    def start(self, search):
        open("begun", "w").close()
        while os.path.exists("closed"):
            time.sleep(0.005)
        if os.path.exists("fatal"):
            os.remove("fatal")
            os.kill(os.getpid(), signal.SIGKILL)
        if os.path.exists("bug"):
            os.remove("bug")
            raise RuntimeError("a bug")
        return self
    def __call__(self, log_probs, ids):
        return log_probs

PROCESSORS["gate"] = Gate
'''
"""A search processor with which a test decides how long a translation takes."""


class Gated:
    """A server whose translations stop while the gate is closed."""

    def __init__(self, server: Server, folder: Path) -> None:
        self.server, self.folder = server, folder
        self._pool = ThreadPoolExecutor(64)

    def close(self) -> None:
        """Closes the gate, and sends a request that waits behind it."""
        (self.folder / "begun").unlink(missing_ok=True)
        (self.folder / "closed").touch()
        self.first = self.ask("ba")
        wait_until((self.folder / "begun").exists)

    def ask(self, *texts: str) -> Future[Answer]:
        """Asks for translations in another thread."""
        return self._pool.submit(lambda: self.server.translate(q=list(texts)))

    def open(self) -> None:
        """Opens the gate."""
        (self.folder / "closed").unlink()

    def waiting(self) -> float:
        """The number of lines that wait."""
        return self.server.figure("nmt_waiting_lines")


@pytest.fixture
def gated(toy: Toy, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Returns a context manager of a server whose translations a test can stop; it has these options."""
    (tmp_path / "gate_plugin.py").write_text(PLUGIN)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)

    @contextmanager
    def started(*options: str) -> Iterator[Gated]:
        plugin = ("plugins=[gate_plugin]", "decoding.processors.gate={}")
        there = Toy(tmp_path, toy.cache)
        with serving(there, tmp_path, f"model_dir={trained}", *plugin, *options) as server:
            yield Gated(server, tmp_path)

    return started


ONE_THREAD = ("decoding.workers=1", "threads=1")


def test_sigterm_finishes_what_was_accepted(gated: Callable[..., Any], expected: dict[str, str]) -> None:
    lines = [*expected][:20]
    with gated() as gate:
        gate.close()
        waiting = [gate.ask(line) for line in lines]
        wait_until(lambda: gate.server.figure("nmt_connections") >= 22)  # this request, too
        gate.server.process.send_signal(signal.SIGTERM)
        wait_until(lambda: "Stopping (SIGTERM)" in gate.server.log.read_text())
        wait_until(lambda: _status(gate.server) == 0)  # new connections are refused
        gate.open()
        assert gate.first.result().status == 200
        answers = [one.result() for one in waiting]
        assert [one.json for one in answers] == [{"translatedText": [expected[line]]} for line in lines]
        assert gate.server.process.wait(30) == 0
        assert gate.server.process.stdout.read() == b""
    log = gate.server.log.read_text().splitlines()
    assert log[0].startswith("Listening on http://127.0.0.1:")
    assert log[1:] == ["Stopping (SIGTERM): answering the requests that have arrived.", "Stopped."]


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_in_the_moment_of_listening_stops_it_in_order(
    signum: signal.Signals, toy: Toy, trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(toy.folder)
    command = forked_command("nmt-serve", "port=0", f"model_dir={trained}", *ONE_THREAD)
    process = subprocess.Popen(command, env=environment(toy.cache), stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None and process.stderr.readline().startswith("Listening on http://")
    process.send_signal(signum)
    stopping = f"Stopping ({signum.name}): answering the requests that have arrived.\nStopped.\n"
    assert (process.communicate(timeout=30)[1], process.returncode) == (stopping, 0)


def test_a_second_signal_ends_it_at_once(gated: Callable[..., Any]) -> None:
    with gated() as gate:
        gate.close()
        gate.server.process.send_signal(signal.SIGINT)
        wait_until(lambda: "Stopping (SIGINT)" in gate.server.log.read_text())
        gate.server.process.send_signal(signal.SIGTERM)
        assert gate.server.process.wait(30) == 128 + signal.SIGTERM
    assert gate.server.log.read_text().splitlines()[-1] == "Stopped (SIGTERM)."


def test_a_full_queue_and_clients_that_vanish(gated: Callable[..., Any]) -> None:
    with gated(*ONE_THREAD, "limits.waiting_sentences=10", "decoding.max_sentences=5") as gate:
        gate.close()
        vanishing = [gate.server.connect() for _ in range(8)]
        for connection in vanishing:
            body = b'{"q": "ba"}'
            connection.sendall(HEAD.replace(b"100", str(len(body)).encode()) + b"\r\n" + body)
        wait_until(lambda: gate.waiting() == 8)
        refused = gate.server.translate(q=["ba", "be", "bi"])
        assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        for connection in vanishing:
            connection.close()
        wait_until(lambda: gate.waiting() == 0)
        assert gate.server.figure('nmt_requests_total{path="/translate",status="499"}') == 8
        served = gate.ask("ba", "be", "bi")
        wait_until(lambda: gate.waiting() == 3)
        gate.open()
        assert served.result().status == gate.first.result().status == 200
        assert gate.server.figure("nmt_batch_lines_sum") == 4  # those of the clients that stayed


def test_a_batch_that_fails_and_a_connection_that_a_new_worker_inherits(gated: Callable[..., Any]) -> None:
    with gated("threads=2") as gate, gate.server.connect() as connection:
        before = gate.server.translate(q="ba").json
        for cause, message in (
            ("bug", "The translation failed."),
            ("fatal", "A worker process of the server was killed"),  # a new one starts
        ):
            (gate.folder / cause).touch()
            failed = gate.server.translate(q="ba")
            assert failed.status == 500
            assert failed.json["error"].startswith(message)
            assert [gate.server.translate(q="ba").json for _ in range(4)] == [before] * 4
        connection.sendall(b"GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        assert rest(connection).endswith(b'{"status":"ok"}')  # returns when the connection is closed
