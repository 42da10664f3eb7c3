"""Measures nmt-serve against nmt-translate, with the clients on the same cores.

    pip install -e .[serve]
    python scripts/benchmark_serving.py runs/quickstart --text test.en
    python scripts/benchmark_serving.py DIR --text test.en --clients 200 --seconds 60 --rates 1 10 50 \
        decoding.beam_size=4

nmt-translate translates the lines of the text first. The table of its translations is what the server must
answer. Then the script starts a server on a free port of the loopback address, and

- `--clients` clients send one line after the other for `--seconds` seconds, each on its own connection, and
  every answer is compared with the table;
- at each of the `--rates`, in requests per second at random times, single lines are sent for `--seconds`
  seconds. Latency is the time from the planned time of a request to its answer.

The speed of nmt-translate is the one that its log reports, without the time to load the model. It translates
the text as often as needed for `--seconds` seconds, more or less.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit


@dataclass
class Load:
    """What clients have seen.

    Attributes:
        seconds: the latency of each correct answer.
        wrong: answers that differ from the translation of nmt-translate.
        statuses: number of answers by HTTP status.
        lost: requests whose connection was closed without an answer.
    """

    seconds: list[float] = field(default_factory=list)
    wrong: int = 0
    statuses: Counter[int] = field(default_factory=Counter)
    lost: int = 0

    def percentile(self, percent: float) -> float:
        """Returns a percentile of the latency in milliseconds."""
        ordered = sorted(self.seconds)
        return 1000 * ordered[min(int(len(ordered) * percent / 100), len(ordered) - 1)] if ordered else 0.0

    def failures(self) -> int:
        """Returns the number of requests without the correct answer."""
        return self.wrong + self.lost + sum(n for status, n in self.statuses.items() if status != 200)


class Connection(asyncio.Protocol):
    """A connection that sends one request at a time; it understands the answers of nmt-serve alone."""

    def __init__(self) -> None:
        self._received = bytearray()
        self._answer: asyncio.Future[tuple[int, bytes]] | None = None
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Stores the transport."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        """Fails the request that waits."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionError("closed by the server"))

    def data_received(self, data: bytes) -> None:
        """Completes the request when the answer has arrived."""
        self._received += data
        end = self._received.find(b"\r\n\r\n")
        if end < 0:
            return
        head = bytes(self._received[:end]).lower()
        length = int(re.search(rb"content-length: (\d+)", head)[1])  # type: ignore[index]
        if len(self._received) >= end + 4 + length and self._answer is not None:
            body = bytes(self._received[end + 4 : end + 4 + length])
            del self._received[: end + 4 + length]
            if not self._answer.done():
                self._answer.set_result((int(head[9:12]), body))

    async def ask(self, request: bytes) -> tuple[int, bytes]:
        """Sends a request; returns the status and the body of the answer."""
        assert self._transport is not None
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._answer

    def is_open(self) -> bool:
        """Returns whether the server has not closed the connection, as it does after some seconds."""
        return self._transport is not None and not self._transport.is_closing()

    def close(self) -> None:
        """Closes the connection."""
        if self._transport is not None:
            self._transport.close()


@dataclass(frozen=True)
class Target:
    """A server, and requests with the answers that it must give."""

    host: str
    port: int
    requests: Sequence[bytes]
    answers: Sequence[str]

    async def connect(self) -> Connection:
        """Opens a connection."""
        _, protocol = await asyncio.get_running_loop().create_connection(Connection, self.host, self.port)
        return protocol

    async def ask(self, connection: Connection, number: int, load: Load, since: float) -> bool:
        """Sends a request and records the answer; returns whether the connection is still open."""
        try:
            status, body = await connection.ask(self.requests[number])
        except OSError:
            load.lost += 1
            return False
        load.statuses[status] += 1
        if status == 200:
            if json.loads(body)["translatedText"] == self.answers[number]:
                load.seconds.append(time.perf_counter() - since)
            else:
                load.wrong += 1
        return True


async def closed_loop(target: Target, clients: int, seconds: float) -> Load:
    """Lets each client send one request after the other."""
    load, end = Load(), time.perf_counter() + seconds

    async def client(seed: int) -> None:
        chance, connection = random.Random(seed), await target.connect()
        while time.perf_counter() < end:
            number = chance.randrange(len(target.requests))
            if not await target.ask(connection, number, load, time.perf_counter()):
                connection = await target.connect()
        connection.close()

    await asyncio.gather(*map(client, range(clients)))
    return load


async def open_loop(target: Target, rate: float, seconds: float) -> Load:
    """Sends requests at random times, whether or not earlier ones have answers."""
    load, chance, idle = Load(), random.Random(1), list[Connection]()
    tasks: set[asyncio.Task[None]] = set()

    async def one(number: int, planned: float) -> None:
        while idle and not idle[-1].is_open():
            idle.pop()
        connection = idle.pop() if idle else await target.connect()
        if await target.ask(connection, number, load, planned):
            idle.append(connection)

    start = planned = time.perf_counter()
    while (planned := planned + chance.expovariate(rate)) < start + seconds:
        await asyncio.sleep(max(planned - time.perf_counter(), 0))
        task = asyncio.ensure_future(one(chance.randrange(len(target.requests)), planned))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    await asyncio.gather(*tasks)
    for connection in idle:
        connection.close()
    return load


def translated(model: str, lines: Sequence[str], options: Sequence[str]) -> tuple[list[str], float]:
    """Returns the translations of nmt-translate, and its lines per second."""
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "source", Path(folder) / "target"
        source.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        command = [sys.executable, "-m", "nmt.cli.translate", f"model_dir={model}", *options]
        done = subprocess.run(
            [*command, f"input={source}", f"output={target}"], check=True, capture_output=True, text=True
        )
        found = re.search(r"([\d,]+) lines, [\d,]+ tokens, ([\d,.]+) s, ([\d,]+) lines/s", done.stderr)
        assert found is not None, done.stderr
        return target.read_text(encoding="utf-8").split("\n")[:-1], float(found[3].replace(",", ""))


@contextmanager
def serving(model: str, options: Sequence[str]) -> Iterator[tuple[str, int, subprocess.Popen[str]]]:
    """Runs a server; yields its address, port and process."""
    command = [sys.executable, "-m", "nmt.cli.serve", f"model_dir={model}", "port=0", *options]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        for line in process.stderr:
            if found := re.search(r"Listening on (\S+)", line):
                address = urlsplit(found[1])
                assert address.hostname is not None and address.port is not None
                yield address.hostname, address.port, process
                break
        else:
            raise SystemExit("the server did not start")
    finally:
        process.terminate()
        process.wait()


def request(line: str) -> bytes:
    """Returns the bytes of a request to translate a line."""
    body = json.dumps({"q": line}).encode()
    head = (
        "POST /translate HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def resident_megabytes(process: int) -> float:
    """Returns the memory of a process and its children in MB, memory that they share counted in part."""
    children = subprocess.run(["pgrep", "-P", str(process)], capture_output=True, text=True).stdout.split()
    total = 0
    for one in (str(process), *children):
        text = Path(f"/proc/{one}/smaps_rollup").read_text()
        total += int(re.search(r"^Pss:\s+(\d+)", text, re.MULTILINE)[1])  # type: ignore[index]
    return total / 1024


def main() -> None:
    """Runs the measurements and prints them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", help="model folder or run folder")
    parser.add_argument("--text", required=True, type=Path, help="text file, one sentence per line")
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--rates", type=float, nargs="*", default=[1, 10, 50], help="requests per second")
    parser.add_argument("options", nargs="*", help="options of both commands, such as decoding.beam_size=1")
    arguments = parser.parse_intermixed_args()
    model, options = arguments.model, arguments.options

    lines = arguments.text.read_text(encoding="utf-8").split("\n")[:-1]
    answers, speed = translated(model, lines, options)
    print(f"nmt-translate, {len(lines):,} lines once: {speed:,.0f} lines/s", flush=True)
    times = max(1, round(arguments.seconds * speed / len(lines)))
    _, speed = translated(model, list(lines) * times, options)
    print(f"nmt-translate, {len(lines) * times:,} lines: {speed:,.0f} lines/s", flush=True)
    with serving(model, options) as (host, port, process):
        target = Target(host, port, [*map(request, lines)], answers)
        load = asyncio.run(closed_loop(target, arguments.clients, arguments.seconds))
        rate = len(load.seconds) / arguments.seconds
        print(
            f"nmt-serve, {arguments.clients} clients, {arguments.seconds:g} s: {rate:,.0f} lines/s "
            f"({rate / speed:.2f} of nmt-translate), p50 {load.percentile(50):,.0f} ms, "
            f"p99 {load.percentile(99):,.0f} ms; {len(load.seconds):,} answers correct, {load.wrong} wrong, "
            f"{load.lost} lost, statuses {dict(load.statuses)}; "
            f"{resident_megabytes(process.pid):,.0f} MB",
            flush=True,
        )
        for rate in arguments.rates:
            load = asyncio.run(open_loop(target, rate, arguments.seconds))
            print(
                f"nmt-serve, {rate:g} requests/s: p50 {load.percentile(50):,.0f} ms, "
                f"p99 {load.percentile(99):,.0f} ms; {len(load.seconds):,} correct, {load.failures()} not",
                flush=True,
            )


if __name__ == "__main__":
    main()
