"""The watchdog of a run: if one rank ends early, all others end, with one error message."""

from __future__ import annotations

import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import BufferedRWPair
from typing import Any, TypeAlias

from nmt.errors import UserError
from nmt.runtime.signals import Terminated
from nmt.runtime.streams import log
from nmt.training.processes.ranks import Ranks
from nmt.training.processes.stopping import Stopped

_GRACE = 3.0  # seconds in which the launcher and the watchdog find the first failure before its consequences
_CONNECT = 60.0  # seconds
_KEEP_ALIVE = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 2}  # detects a dead machine in 20 s

Stream: TypeAlias = BufferedRWPair
Message: TypeAlias = dict[str, Any]

_KILLED: Message = {
    "status": 1,
    "text": "ended without a message: it was killed (out of memory?), or its machine is gone. The other "
    "processes were ended. Run the same command again to resume from the last checkpoint.",
}


@contextmanager
def watched(ranks: Ranks, *, logs: bool) -> Iterator[None]:
    """Ends this process when another process of the run ends early, even in the middle of a call.

    A launcher watches the processes of one machine only, and gives them half a minute to end. A process that
    waits for a dead one on another machine would wait until the timeout of the process group. A process whose
    work is done waits for rank 0, so that the launchers of all machines end together.

    The first failure is logged once with `logs`. Otherwise the parent of all ranks does it, and they stay a
    moment longer than the one that failed, so that the parent finds that one.

    Raises:
        UserError: rank 0 can't be reached from this machine.
    """
    if ranks.world == 1:
        yield
        return
    watch = connect(ranks, logs=logs)
    try:
        yield
    except UserError as error:
        watch.fail(2, f"reported: {error}")
        raise
    except Exception as error:
        watch.fail(
            1, f"failed with an unexpected error ({type(error).__name__}: {error}). Its traceback is above."
        )
        raise
    except Stopped:
        watch.finish()  # all ranks stop together
        raise
    except BaseException as error:
        if logs:  # otherwise the parent stops all ranks, and need not find the first
            status = error.signum + 128 if isinstance(error, Terminated) else 130
            watch.fail(status, "was stopped by a signal")
        raise
    watch.finish()


class Watchdog:
    """A connection between rank 0 and each other rank; both send one message on it before they end.

    The message has `status` and `text` of a failure, or a `status` of 0. If a connection closes without a
    message, the process was killed or its machine died.

    Rank 0 has `streams` to all other ranks, and they to rank 0. `hosts` has the machine of each rank.
    Failures of others are logged (`logs`) by rank 0, and the end of rank 0 by one process on each other
    machine. `end` ends this process.
    """

    def __init__(
        self,
        rank: int,
        streams: dict[int, Stream],
        hosts: list[str],
        *,
        logs: bool,
        end: Callable[[int], object] = os._exit,
    ) -> None:
        self._rank, self._streams, self._hosts = rank, streams, hosts
        self._logs, self._end = logs, end
        self._first = threading.Lock()  # never released: later failures are consequences of the first
        self._waiting = False  # whether this process is done and waits for rank 0
        self._threads = [
            threading.Thread(target=self._watch, args=(rank,), name=f"watch-{rank}", daemon=True)
            for rank in streams
        ]
        for thread in self._threads:
            thread.start()

    def fail(self, status: int, text: str) -> None:
        """Sends the reason why this process ends; rank 0 logs it.

        Does not return if the end of another process caused the failure: the watchdog ends this one first.
        """
        if self._rank != 0 or status == 1:
            time.sleep(_GRACE)
        self._first.acquire()
        self._send_to_all(status, text)

    def finish(self) -> None:
        """Sends that the work of this process is done, and waits until that of rank 0 is done."""
        self._waiting = self._rank != 0
        self._first.acquire()
        self._send_to_all(0)
        if self._waiting:
            for thread in self._threads:
                thread.join()

    def _send_to_all(self, status: int, text: str = "") -> None:
        for stream in self._streams.values():
            _send(stream, {"status": status, "text": text})

    def _watch(self, rank: int) -> None:
        """Waits for the message of another process."""
        message = _receive(self._streams[rank])
        if message is not None and message["status"] == 0:
            return
        if not self._first.acquire(blocking=False) and not self._waiting:
            return
        if self._logs and (self._rank == 0 or message is None):  # rank 0 has logged what it sends
            log.setLevel("ERROR")
            text = (message or _KILLED)["text"]
            log.error("process %d of the run, on %s, %s", rank, self._hosts[rank], text)
        status = (message or _KILLED)["status"]
        self._send_to_all(status)
        self._end(status)


def connect(ranks: Ranks, *, logs: bool) -> Watchdog:
    """Connects rank 0 with all others; every process calls it. See `watched`.

    Raises:
        UserError: rank 0 can't be reached, or a rank is missing.
    """
    try:
        return _connect(ranks, logs=logs)
    except TimeoutError as error:
        raise UserError(
            f"process {error} of the run (of {ranks.world}, numbered from 0) ended while it joined. See the "
            "logs of the other machines."
        ) from error


def _connect(ranks: Ranks, *, logs: bool) -> Watchdog:
    hosts = ranks.exchange(socket.gethostname(), _CONNECT)
    if ranks.is_main:
        with _server(ranks.world) as server:
            server.settimeout(_CONNECT)
            key = secrets.token_hex(16)  # rejects other programs that connect to the port
            ranks.share([server.getsockname()[1], key])
            streams = _accept(server, key, ranks.world - 1)
    else:
        port, key = ranks.share(None, _CONNECT)
        streams = {0: _stream_to(os.environ["MASTER_ADDR"], port)}
        _send(streams[0], {"key": key, "rank": ranks.rank})
    # One process on each machine logs: the first one by the numbering of torchrun.
    first = ranks.is_main or os.environ.get("LOCAL_RANK") == "0" or ranks.rank == 1
    return Watchdog(ranks.rank, streams, hosts, logs=logs and first, end=os._exit if logs else _end_later)


def _end_later(status: int) -> None:
    log.setLevel("CRITICAL")  # the launcher now sends SIGTERM; it does not ask for a stop
    time.sleep(_GRACE)
    os._exit(status)


def _server(backlog: int) -> socket.socket:
    """Listens on a free port, with IPv6 too where it is available."""
    if socket.has_dualstack_ipv6():
        with suppress(OSError):
            return socket.create_server(("", 0), family=socket.AF_INET6, backlog=backlog, dualstack_ipv6=True)
    return socket.create_server(("", 0), backlog=backlog)


def _accept(server: socket.socket, key: str, count: int) -> dict[int, Stream]:
    streams: dict[int, Stream] = {}
    while len(streams) < count:
        try:
            connection = server.accept()[0]
        except TimeoutError as error:
            raise UserError(
                f"only {len(streams)} of {count} other processes of the run connected to port "
                f"{server.getsockname()[1]} of this machine. Open the ports between the machines of the run."
            ) from error
        connection.settimeout(_CONNECT)
        stream = _stream_of(connection)
        message = _receive(stream)
        connection.settimeout(None)
        if message is not None and message.get("key") == key:
            streams[message["rank"]] = stream
    return streams


def _stream_to(host: str, port: int) -> Stream:
    try:
        connection = socket.create_connection((host, port), timeout=_CONNECT)
    except OSError as error:
        raise UserError(
            f"can't reach the first process of the run at port {port} of {host} ({error}). "
            f"Open the ports between the machines of the run."
        ) from error
    connection.settimeout(None)
    return _stream_of(connection)


def _stream_of(connection: socket.socket) -> Stream:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEP_ALIVE.items():
        if hasattr(socket, name):  # not on every system
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return connection.makefile("rwb")


def _send(stream: Stream, message: Message) -> None:
    with suppress(OSError):  # the other process is gone
        stream.write(json.dumps(message).encode() + b"\n")
        stream.flush()


def _receive(stream: Stream) -> Message | None:
    """Returns the next line of JSON; None if the connection ends before it."""
    try:
        message: Message = json.loads(stream.readline())
        return message
    except (OSError, ValueError):
        return None
