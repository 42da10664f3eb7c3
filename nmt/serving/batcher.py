"""Batches over requests: translating threads take the lines that wait and translate them together.

A request is a *ticket* with one or more lines, each a sentence of it. Tickets wait in the order of their
arrival. A batch has one set of options: a free thread takes the lines of the oldest ticket and of others with
the same options, until the batch has its largest number of lines or its largest work. The largest work is
about that of a second, from the times of earlier batches: so long do others wait for a batch. A line with
more work is a batch of its own, and one thread never takes such lines. If a ticket has more lines than a
batch takes, it returns to the end of the queue, so that a long text does not block the short ones behind it.
A batch whose tickets are all cancelled is stopped, if the model can do so.
"""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from nmt.runtime.plugins import no_silent_exit
from nmt.runtime.streams import log
from nmt.serving.served_models import Options, ServedModel

_FEWEST = 16  # lines of a batch from which on it gains time to share them with another free thread
_BATCH_SECONDS = 1.0  # of a batch with the largest work
_FIRST = 1 / 8  # of the model's largest work: that of the first batches, before its speed is known
_LEAST = 1 / 50  # of the model's largest work: smaller batches say little about its speed
_FASTER = 0.3  # weight of a faster batch in the mean speed; a slower one is believed at once


class QueueFull(Exception):
    """The lines of a request do not fit into the queue."""


class Closed(Exception):
    """The batcher accepts no requests any more."""


@dataclass(eq=False)
class Ticket:
    """The lines of a request, the work of each (see `ServedModel.work`), and their results.

    Lines and results are those of `ServedModel.translate`.
    `future` has the result of each line, in order, or the exception of a batch that had lines of this ticket.
    `Batcher.cancel` cancels it.
    """

    lines: Sequence[Any]
    options: Options
    work: Sequence[int] = ()
    future: Future[list[Any]] = field(default_factory=Future, init=False)
    _results: dict[int, Any] = field(default_factory=dict, init=False)
    _taken: int = field(default=0, init=False)  # lines that batches have taken
    _since: float = field(default=0.0, init=False)  # time of arrival in seconds

    def __post_init__(self) -> None:
        assert self.lines, "a ticket has one or more lines"
        self.work = self.work or [1] * len(self.lines)


class Batcher:
    """Translates the lines of many requests with a model, in batches, in as many threads as the model allows.

    Args:
        model: closed by `close`.
        max_waiting: the largest number of lines that wait.
        max_work: the largest work of the lines that wait.
        wait: seconds that the oldest ticket waits for others before a free thread takes it.
        observe: called with the number of lines and the seconds of every translated batch.
    """

    def __init__(
        self,
        model: ServedModel,
        *,
        max_waiting: int,
        max_work: float = math.inf,
        wait: float = 0.0,
        observe: Callable[[int, float], None] = lambda lines, seconds: None,
    ) -> None:
        self._model, self._observe = model, observe
        self._max_waiting, self._max_work, self._wait = max_waiting, max_work, wait
        self._queue: dict[Ticket, None] = {}  # the oldest first
        self._waiting = 0  # lines
        self._work = 0  # of these lines
        self._free = 0  # threads that wait for lines
        self._closed = False
        self._speed = model.batch_work * _FIRST / _BATCH_SECONDS  # work per second
        self._running: dict[int, Sequence[tuple[Ticket, int]]] = {}  # the batch of each translating thread
        self._num_large = 0  # of these batches, those of a line with too much work
        self._changed = threading.Condition()
        self._threads = [
            threading.Thread(target=self._run, name=f"translate-{number}", daemon=True)
            for number in range(model.threads)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def waiting(self) -> int:
        """The number of lines that wait and are in no batch yet."""
        return self._waiting

    def submit(self, ticket: Ticket) -> None:
        """Adds a ticket to the queue.

        Raises:
            QueueFull: its lines do not fit into the queue.
            Closed: `close` has been called.
        """
        with self._changed:
            if self._closed:
                raise Closed
            work = sum(ticket.work)
            if (
                self._waiting + len(ticket.lines) > self._max_waiting
                or self._queue
                and self._work + work > self._max_work
            ):
                raise QueueFull
            self._work += work
            ticket._since = time.monotonic()
            self._waiting += len(ticket.lines)
            self._queue[ticket] = None
            self._changed.notify()

    def cancel(self, ticket: Ticket) -> None:
        """Cancels the future of a ticket, and drops its lines that still wait.

        The results of lines that a batch has taken are dropped. The batch is stopped if it has no others. A
        ticket that is finished or cancelled stays unchanged.
        """
        with self._changed:
            ticket.future.cancel()
            self._drop(ticket)
            for thread, batch in self._running.items():
                if _is_abandoned(batch):
                    self._model.stop(thread)

    def close(self) -> None:
        """Accepts no more tickets, translates those that wait, and ends the threads and the model."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()
        self._model.close()

    def _drop(self, ticket: Ticket) -> None:
        """Removes a ticket from the queue if it is there."""
        if ticket in self._queue:
            del self._queue[ticket]
            self._waiting -= len(ticket.lines) - ticket._taken
            self._work -= sum(ticket.work[ticket._taken :])

    def _run(self) -> None:
        """Translates batch after batch until the batcher is closed and nothing waits."""
        while True:
            with self._changed:
                self._free += 1
                while not self._ready():
                    if self._closed and not self._queue:
                        return
                    self._changed.wait(self._pause())
                batch = self._take()
                work = sum(ticket.work[line] for ticket, line in batch)
                self._free -= 1
                is_large = work > self._most_work
                self._num_large += is_large
                self._running[threading.get_ident()] = batch
                if self._queue:
                    self._changed.notify()
            seconds = self._translate_batch(batch)
            with self._changed:
                del self._running[threading.get_ident()]
                self._num_large -= is_large
                if is_large:  # its work is a bound: the end of a long line may not be translated
                    self._changed.notify()
                elif seconds and work >= self._model.batch_work * _LEAST:
                    speed = work / seconds
                    self._speed = min(speed, self._speed + _FASTER * (speed - self._speed))

    @property
    def _most_work(self) -> float:
        """The largest work of a batch of several lines."""
        most = self._model.batch_work
        return max(min(most, self._speed * _BATCH_SECONDS), most * _LEAST)

    def _oldest(self) -> Ticket | None:
        """Returns the oldest ticket that this thread may take lines of: a thread remains for small ones."""
        allowed = self._num_large < max(len(self._threads) - 1, 1)
        most = math.inf if allowed else self._most_work
        return next((ticket for ticket in self._queue if ticket.work[ticket._taken] <= most), None)

    def _ready(self) -> bool:
        """Returns whether to take a batch now: there is a ticket, and it has waited for others."""
        oldest = self._oldest()
        return oldest is not None and (
            self._closed
            or self._waiting >= self._model.batch_size(oldest.options)
            or time.monotonic() >= oldest._since + self._wait
        )

    def _pause(self) -> float | None:
        """Returns the seconds until `_ready` may hold; None: until something changes."""
        oldest = self._oldest()
        return None if oldest is None else max(oldest._since + self._wait - time.monotonic(), 0)

    def _take(self) -> list[tuple[Ticket, int]]:
        """Takes the tickets and the numbers of the lines of the next batch."""
        oldest = self._oldest()
        assert oldest is not None, "`_ready` holds"
        options = oldest.options
        share = math.ceil(self._waiting / max(self._free, 1))
        room = min(self._model.batch_size(options), max(share, _FEWEST))
        batch: list[tuple[Ticket, int]] = []
        work, most = 0, self._most_work
        group = (ticket for ticket in self._queue if ticket.options == options and ticket is not oldest)
        for ticket in [oldest, *itertools.islice(group, room - 1)]:
            while ticket._taken < len(ticket.lines) and len(batch) < room:
                more = ticket.work[ticket._taken]
                if batch and work + more > most:
                    break
                work += more
                batch.append((ticket, ticket._taken))
                ticket._taken += 1
            is_rest = ticket._taken < len(ticket.lines)
            if not is_rest or batch[-1][0] is ticket:
                del self._queue[ticket]
                if is_rest:
                    self._queue[ticket] = None
            if is_rest or len(batch) == room:
                break
        self._work -= work
        self._waiting -= len(batch)
        return batch

    def _translate_batch(self, batch: Sequence[tuple[Ticket, int]]) -> float:
        """Translates a batch, and gives the results to its tickets; returns the seconds, 0 if it failed."""
        lines, options = [ticket.lines[line] for ticket, line in batch], batch[0][0].options
        start, error = time.monotonic(), None
        results: Sequence[Any] = ()
        try:
            with no_silent_exit(any_status=True):
                results = self._model.translate(lines, options)
            assert len(results) == len(lines), "there must be a result for each line"
        except Exception as raised:  # the thread must continue: other requests wait for it
            if _is_abandoned(batch):
                return 0.0
            log.error("a batch failed: %s", raised, exc_info=not isinstance(raised, ValueError))
            error = raised
        seconds = time.monotonic() - start
        with self._changed:
            for place, (ticket, line) in enumerate(batch):
                if ticket.future.done():
                    continue
                if error is not None:
                    self._drop(ticket)
                    ticket.future.set_exception(error)
                    continue
                ticket._results[line] = results[place]
                if len(ticket._results) == len(ticket.lines):
                    ticket.future.set_result([ticket._results[i] for i in range(len(ticket.lines))])
        self._observe(len(lines), seconds)
        return 0.0 if error is not None else seconds


def _is_abandoned(batch: Sequence[tuple[Ticket, int]]) -> bool:
    """Returns whether nobody waits for the results of a batch."""
    return all(ticket.future.done() for ticket, _ in batch)
