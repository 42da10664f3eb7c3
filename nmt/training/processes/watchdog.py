"""Processes on several machines: when one is gone the others end at once, and its failure is told once."""

from __future__ import annotations

import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from nmt.errors import UserError
from nmt.runtime import log
from nmt.training.processes.ranks import Ranks

_GRACE = 3.0  # seconds in which a process that failed is ended if another one's end was the cause
_CONNECT = 60.0  # seconds
_KEEP_ALIVE = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 2}  # a dead machine is missed in 20 s

Word = dict[str, Any]


@contextmanager
def watched(ranks: Ranks) -> Iterator[None]:
    """Within, each process knows when another one is gone, and ends then, in whatever call it is.

    `torchrun` sees the processes of its own machine only, and a process that waits for a dead one of another
    machine may wait for as long as the group's patience lasts. What fails first is told by the main process,
    or if that is the one, by itself; the end of a process without a word is told too. A process whose work is
    done waits for the main one, so that the launchers of all machines end together.

    Raises:
        UserError: there is no way from this machine to the main process.
    """
    if ranks.world == 1:
        yield
        return
    watch = Watchdog.between(ranks)
    try:
        yield
    except UserError as error:
        watch.fail(2, str(error))
        raise
    except Exception as error:
        watch.fail(1, f"failed by a bug ({type(error).__name__}: {error}); its traceback is above")
        raise
    except BaseException:
        watch.finish()
        raise
    watch.finish()


class Watchdog:
    """A line between the main process and each other one, on which either says one word before it ends.

    The word is `status` and `text` of a failure, or a `status` of 0; a line that ends without one belonged to
    a process that was killed, or to a machine that died.

    Args:
        rank: of this process.
        lines: rank → connection: to all if this is the main process, else to the main one.
        hosts: rank → what to call its machine.
        speaks: whether to tell of the main process's end, which it can't do itself.
        end: ends this process.
    """

    def __init__(
        self,
        rank: int,
        lines: dict[int, socket.socket],
        hosts: dict[int, str],
        *,
        speaks: bool,
        end: Callable[[int], object] = os._exit,
    ) -> None:
        self._rank, self._lines, self._hosts, self._speaks, self._end = rank, lines, hosts, speaks, end
        self._first = threading.Lock()  # never given back: what comes second is a consequence
        self._waiting = False  # for the main process, which is at work yet when this one's is done
        self._threads = [
            threading.Thread(target=self._follow, args=(rank,), name=f"watch-{rank}", daemon=True)
            for rank in lines
        ]
        for thread in self._threads:
            thread.start()

    @classmethod
    def between(cls, ranks: Ranks) -> Watchdog:
        """Draws the lines; every process comes here.

        Raises:
            UserError: the main process can't be reached.
        """
        if ranks.is_main:
            with _server(ranks.world) as server:
                server.settimeout(_CONNECT)
                key = secrets.token_hex(16)  # for whoever else finds the port
                ranks.share([server.getsockname()[1], key])
                lines, hosts = _accepted(server, key, ranks.world - 1)
        else:
            port, key = ranks.share(None)
            lines, hosts = {0: _connected(os.environ["MASTER_ADDR"], port)}, {0: os.environ["MASTER_ADDR"]}
            _say(lines[0], {"key": key, "rank": ranks.rank, "host": socket.gethostname()})
        # One voice on each machine: that of several processes is the one torchrun counts first.
        speaks = ranks.is_main or os.environ.get("LOCAL_RANK") == "0" or ranks.rank == 1
        return cls(ranks.rank, lines, hosts, speaks=speaks)

    def fail(self, status: int, text: str) -> None:
        """Says why this process ends; it is the main process that tells of it.

        Whoever fails because another one is gone does not come back from here: the watch ends it.
        """
        if self._rank != 0 or status != 2:
            time.sleep(_GRACE)
        self._first.acquire()
        self._say_to_all({"status": status, "text": text})

    def finish(self) -> None:
        """Says that the work of this process is done, and waits until the main one's is."""
        self._waiting = self._rank != 0
        self._first.acquire()
        self._say_to_all({"status": 0, "text": ""})
        if self._waiting:
            for thread in self._threads:
                thread.join()

    def _say_to_all(self, word: Word) -> None:
        for line in self._lines.values():
            _say(line, word)

    def _follow(self, rank: int) -> None:
        """Waits for the word of another process."""
        word = _heard(self._lines[rank])
        if word is not None and word["status"] == 0:
            return
        if not self._first.acquire(blocking=False) and not self._waiting:
            return
        who = f"process {rank} of the run, on {self._hosts[rank]},"
        if word is None:
            log.setLevel("ERROR")
            self._tell(
                f"{who} ended without a word: it was killed (out of memory?), or its machine is gone. The "
                f"others were ended; the same command goes on from the last checkpoint"
            )
            status = 1
        else:
            if self._rank == 0:
                self._tell(f"{who} said: {word['text']}" if word["status"] == 2 else f"{who} {word['text']}")
            status = word["status"]
        self._say_to_all({"status": status, "text": ""})
        self._end(status)

    def _tell(self, text: str) -> None:
        if self._speaks:
            log.error("%s", text)


def _server(backlog: int) -> socket.socket:
    """Listens on a free port, to IPv6 too where there is any."""
    if socket.has_dualstack_ipv6():
        with suppress(OSError):
            return socket.create_server(("", 0), family=socket.AF_INET6, backlog=backlog, dualstack_ipv6=True)
    return socket.create_server(("", 0), backlog=backlog)


def _accepted(server: socket.socket, key: str, count: int) -> tuple[dict[int, socket.socket], dict[int, str]]:
    lines: dict[int, socket.socket] = {}
    hosts: dict[int, str] = {}
    while len(lines) < count:
        try:
            line = _kept_alive(server.accept()[0])
        except TimeoutError as error:
            raise UserError(
                f"only {len(lines)} of {count} other processes of the run came to port "
                f"{server.getsockname()[1]} of this machine: open its ports between the machines of the run"
            ) from error
        line.settimeout(_CONNECT)
        word = _heard(line)
        line.settimeout(None)
        if word is not None and word.get("key") == key:
            lines[word["rank"]], hosts[word["rank"]] = line, word["host"]
        else:
            line.close()
    return lines, hosts


def _connected(host: str, port: int) -> socket.socket:
    try:
        line = _kept_alive(socket.create_connection((host, port), timeout=_CONNECT))
    except OSError as error:
        raise UserError(
            f"can't reach the first process of the run at port {port} of {host} ({error}): "
            f"open its ports between the machines of the run"
        ) from error
    line.settimeout(None)
    return line


def _kept_alive(line: socket.socket) -> socket.socket:
    line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEP_ALIVE.items():
        if hasattr(socket, name):  # not on every system
            line.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return line


def _say(line: socket.socket, word: Word) -> None:
    with suppress(OSError):  # nobody is there to hear it
        line.sendall(json.dumps(word).encode() + b"\n")


def _heard(line: socket.socket) -> Word | None:
    """The next line of JSON; None if there is none."""
    said = bytearray()
    try:
        while not said.endswith(b"\n"):
            byte = line.recv(1)
            if not byte:
                return None
            said += byte
        word: Word = json.loads(said)
        return word
    except (OSError, ValueError):
        return None
