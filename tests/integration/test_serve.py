"""nmt-serve: a real server answers as nmt-translate does, and survives clients of every kind."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from commands import Toy, environment
from forking import forked_command
from serving import JSON, Answer, Server, rest, serving
from waiting import wait_until

import nmt
from nmt.config import LimitsConfig
from nmt.serving.documentation import description

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
def server(toy: Toy, trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with the default limits, two threads that translate, and no key."""
    options = (f"model_dir={trained}", "threads=2")
    with serving(toy, tmp_path_factory.mktemp("server"), *options, fresh=True) as found:
        yield found


@pytest.fixture(scope="module")
def strict(toy: Toy, trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with small limits and a key."""
    folder = tmp_path_factory.mktemp("strict")
    (folder / "key").write_text("open sesame\n")
    options = (f"model_dir={trained}", f"api_key_file={folder / 'key'}", *SMALL_LIMITS)
    with serving(toy, folder, *options, "cors_origins=[https://example.org]") as found:
        yield found


@pytest.fixture(scope="module")
def expected(toy: Toy, trained: Path) -> dict[str, str]:
    """The translations of nmt-translate."""
    lines = [*(toy.folder / "train.src").read_text().split("\n")[:200], "Hello, wörld! 你好", ""]
    text = "".join(f"{line}\n" for line in lines)
    found = toy.run("nmt-translate", f"model_dir={trained}", text=text).stdout.decode().split("\n")[:-1]
    return dict(zip(lines, found, strict=True))


def test_the_answers_are_those_of_the_command(server: Server, expected: dict[str, str]) -> None:
    lines = [*expected]
    answer = server.translate(q=lines, source="xx", target="yy", format="text", api_key="not needed")
    assert (answer.status, answer.json) == (200, {"translatedText": [expected[line] for line in lines]})
    first, second, last = lines[0], lines[1], lines[-2]
    text = f"{first}\r\n\n{second}\n{last}"
    joined = f"{expected[first]}\r\n\n{expected[second]}\n{expected[last]}"
    assert server.translate(q=text).json == {"translatedText": joined}
    form = server.request(
        "POST",
        "/translate",
        urlencode({"q": text, "source": "auto"}).encode(),
        {"content-type": "application/x-www-form-urlencoded"},
    )
    assert form.json["translatedText"] == joined
    assert server.translate(q="").json == {"translatedText": ""}
    assert server.translate(q=[]).json == {"translatedText": []}


def test_options_of_a_request_are_those_of_the_command(
    server: Server, toy: Toy, trained: Path, expected: dict[str, str]
) -> None:
    lines = [*expected][:5]
    options = ("decoding.beam_size=5", "decoding.nbest=3", "decoding.length_penalty=1.2")
    written = toy.run(
        "nmt-translate", f"model_dir={trained}", *options, text="".join(f"{x}\n" for x in lines)
    )
    rows = [row.split("\t") for row in written.stdout.decode().splitlines()]
    answer = server.translate(q=lines, beam_size=5, alternatives=2, length_penalty=1.2, scores=True).json
    flat = [one for text in answer["lines"] for line in text for one in line["translations"]]
    assert [one["text"] for one in flat] == [row[2] for row in rows]
    assert [one["score"] for one in flat] == pytest.approx([float(row[1]) for row in rows], abs=2e-4)
    assert answer["alternatives"][0] == [rows[1][2], rows[2][2]]


def test_sentences_of_a_line_are_translated_as_by_the_command_and_python(
    server: Server, toy: Toy, trained: Path
) -> None:
    words = [line.capitalize() for line in (toy.folder / "train.src").read_text().split("\n")[:4]]
    line = f"{words[0]}.  {words[1]}!\u2029{words[2]}?\t{words[3]}."
    written = toy.run("nmt-translate", f"model_dir={trained}", text=f"{line}\n").stdout.decode()
    [text] = nmt.load(trained).translate([line])
    answer = server.translate(q=f"{line}\n", scores=True).json
    assert written == answer["translatedText"] == f"{text}\n"
    parts = answer["lines"][0]["parts"]
    assert [part["source"] for part in parts] == [
        f"{words[0]}.", f"{words[1]}!", f"{words[2]}?", f"{words[3]}."
    ]  # fmt: skip
    first, second, third, last = (part["text"] for part in parts)
    assert text == f"{first}  {second}\u2029{third}\t{last}"
    alone = server.translate(q=[part["source"] for part in parts], scores=True).json
    assert alone["translatedText"] == [part["text"] for part in parts]


def test_attention_has_a_row_for_each_piece(server: Server, expected: dict[str, str]) -> None:
    line = [*expected][0]
    answer = server.translate(q=f"{line}\n", attention=True).json
    found, blank = answer["lines"]
    [best] = found["translations"]
    assert best["text"] == expected[line]
    assert found["pieces"][-1] == best["pieces"][-1] == "</s>"
    assert len(best["attention"]) == len(best["pieces"])
    for row in best["attention"]:
        assert len(row) == len(found["pieces"])
        assert sum(row) == pytest.approx(1, abs=0.02)
    assert blank == {
        "translations": [{"text": "", "score": 0.0, "pieces": [], "attention": []}],
        "pieces": [],
    }


def test_fifty_clients_get_their_own_answers(server: Server, expected: dict[str, str]) -> None:
    lines = [*expected]

    def client(number: int) -> list[tuple[str, str]]:
        own = [lines[(7 * number + step) % len(lines)] for step in range(6)]
        options = [{}, {"alternatives": 1}, {"beam_size": 2}][number % 3]
        return [(line, server.translate(q=line, **options).json["translatedText"]) for line in own]

    with ThreadPoolExecutor(50) as pool:
        for found in pool.map(client, range(50)):
            for line, answer in found:
                assert answer == expected[line]
    assert server.figure("nmt_waiting_lines") == 0
    assert server.figure("nmt_batch_lines_count") < server.figure("nmt_lines_total")  # lines shared batches


def test_the_other_paths(server: Server) -> None:
    assert server.request("GET", "/languages").json == [
        {"code": "xx", "name": "xx", "targets": ["yy"], "tag": "xx"},
        {"code": "yy", "name": "yy", "targets": [], "tag": "yy"},
    ]
    assert server.request("GET", "/health").json == {"status": "ok"}
    assert server.request("GET", "/frontend/settings").json["keyRequired"] is False
    openapi = server.request("GET", "/openapi.json").json
    assert openapi == description(server.request("GET", "/languages").json, LimitsConfig(), needs_key=False)
    for path in ("/", "/docs"):
        page = server.request("GET", path)
        assert (page.status, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
        assert "default-src 'none'" in page.headers["content-security-policy"]
        assert not re.findall(rb"(?:src|href|url)\s*[=(]\s*[\"']?(?:https?:)?//", page.body)
    missing = server.request("GET", "/nothing")
    assert (missing.status, list(missing.json)) == (404, ["error"])
    elsewhere = server.request("GET", "/docs/", headers={"host": "evil.example"})
    assert (elsewhere.status, elsewhere.headers.get("location")) == (404, None)
    wrong = server.request("GET", "/translate")
    assert (wrong.status, wrong.headers["allow"], list(wrong.json)) == (405, "POST", ["error"])
    assert (
        "access-control-allow-origin"
        not in server.request("GET", "/health", headers={"origin": "http://a"}).headers
    )


def test_a_large_body(server: Server) -> None:
    body = b'{"q": "' + b"a" * 10_000_000 + b'"}'
    answer = server.request("POST", "/translate", body, JSON)
    assert (answer.status, answer.json) == (413, {"error": "The body has more than 1,048,576 bytes."})

    def parts() -> Iterator[bytes]:
        for _ in range(100):
            yield b"a" * 100_000

    answer = server.request("POST", "/translate", parts(), JSON)  # type: ignore[arg-type]
    assert answer.status == 413  # chunked: no Content-Length


def test_keys(strict: Server) -> None:
    assert strict.translate(q="ba").status == 403
    answer = strict.translate(q="ba", api_key="wrong")
    assert (answer.status, answer.json["error"]) == (403, "Invalid API key")
    assert strict.translate(q="ba", api_key="open sesame").status == 200
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


def test_several_models(server: Server, toy: Toy, trained: Path, tmp_path: Path) -> None:
    other = shutil.copytree(trained / "model", tmp_path / "other")
    text = (other / "config.yaml").read_text()
    assert "target_lang: yy" in text
    (other / "config.yaml").write_text(text.replace("target_lang: yy", "target_lang: zz"))
    (other / "SHA256SUMS").unlink(missing_ok=True)
    with serving(toy, tmp_path, f"model_dir=[{trained},{other}]", *ONE_THREAD) as both:
        [language, *_] = both.request("GET", "/languages").json
        assert language == {"code": "xx", "name": "xx", "targets": ["yy", "zz"], "tag": "xx"}
        one = both.translate(q="ba", target="yy").json["translatedText"]
        assert one == both.translate(q="ba", source="auto", target="zz").json["translatedText"]
        answer = both.translate(q="ba", source="xx")
        assert (answer.status, answer.json) == (
            400,
            {
                "error": "Invalid request: missing target parameter",
                "hint": "The server translates xx to yy, xx to zz.",
            },
        )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("model_dir=nowhere",), "model_dir=nowhere: "),
        (
            ("model_dir=[trained,trained]",),
            "model_dir=trained: translates from xx into yy, as trained does. ",
        ),
        (
            ("model_dir=trained", "host=no.such.host.invalid"),
            "host=no.such.host.invalid: is not a known address",
        ),
        (("model_dir=trained", "host=203.0.113.1"), "host=203.0.113.1: can't listen there: "),
        (("model_dir=trained", "api_key_file=none"), "api_key_file=none: there is no such file."),
        (("model_dir=trained", "api_key_file=two-lines"), "api_key_file=two-lines: the key must be one line"),
        (
            ("model_dir=trained", "cors_origins=[https://example.org/]"),
            "cors_origins=https://example.org/: must be as browsers send it",
        ),
        (("model_dir=trained", "public_url=x.org"), "public_url=x.org: must be the address of the server"),
        (("model_dir=trained", "terminology=none"), "terminology=none: there is no such file"),
        (("model_dir=[trained,other]", "terminology=t"), "terminology=t: has the terms of one pair"),
        (("model_dir=trained", "decoding.samples=3"), "decoding.samples=3: is not available in nmt-serve."),
        (("model_dir=trained", "decoding.nbest=2"), "decoding.nbest=2: a request chooses its number"),
    ],
)
def test_wrong_options(toy: Toy, trained: Path, options: tuple[str, ...], message: str) -> None:
    (toy.folder / "two-lines").write_text("open\nsesame\n")
    assert toy.refused("nmt-serve", "port=0", *options).startswith(message)


def test_a_port_in_use(toy: Toy, trained: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        refused = toy.refused("nmt-serve", f"model_dir={trained}", f"port={port}")
    assert refused == f"port={port}: this port is in use. Give another one, or port=0 for a free one."


def test_without_the_extra(toy: Toy, trained: Path, tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['uvicorn'] = None; sys.argv = ['nmt-serve', 'model_dir=trained'];"
        "from nmt.cli.serve import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=toy.folder, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == ('nmt-serve: the package uvicorn is not installed. Run pip install "nmt[serve]".\n')
