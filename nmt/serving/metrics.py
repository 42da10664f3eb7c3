"""Figures of the server in the format of Prometheus."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_LINES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)

VANISHED = 499
"""The status that a request has in the figures if its client closed the connection before the answer."""


class Metrics:
    """The figures of one server, which ask functions for the lines that wait and the open connections."""

    def __init__(self, waiting: Callable[[], int], connections: Callable[[], int]) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # times of creation: half of all lines, and of no use here
        self._registry = registry = CollectorRegistry()
        self._requests = Counter(
            "nmt_requests", "Requests by path and status.", ("path", "status"), registry=registry
        )
        self._seconds = Histogram(
            "nmt_request_seconds",
            "Seconds from the header of a translation request to its answer.",
            buckets=_SECONDS,
            registry=registry,
        )
        self._batch_lines = Histogram(
            "nmt_batch_lines", "Sentences of a batch.", buckets=_LINES, registry=registry
        )
        self._batch_seconds = Histogram(
            "nmt_batch_seconds", "Seconds of the translation of a batch.", buckets=_SECONDS, registry=registry
        )
        self._lines = Counter("nmt_lines", "Translated lines.", registry=registry)
        self._tokens = Counter("nmt_tokens", "Target tokens of the best translations.", registry=registry)
        self._characters = Counter("nmt_characters", "Characters of translated texts.", registry=registry)
        Gauge("nmt_waiting_lines", "Sentences that wait.", registry=registry).set_function(waiting)
        Gauge("nmt_connections", "Open connections.", registry=registry).set_function(connections)

    def request(self, path: str, status: int, seconds: float | None = None) -> None:
        """Counts a request of one of the server's paths or `other`, with an HTTP status or `VANISHED`.

        `seconds` is given for a request of translations.
        """
        self._requests.labels(path, str(status)).inc()
        if seconds is not None:
            self._seconds.observe(seconds)

    def batch(self, lines: int, seconds: float) -> None:
        """Counts a batch."""
        self._batch_lines.observe(lines)
        self._batch_seconds.observe(seconds)

    def translated(self, lines: int, tokens: int, characters: int) -> None:
        """Counts the translated lines of a request."""
        self._lines.inc(lines)
        self._tokens.inc(tokens)
        self._characters.inc(characters)

    def text(self) -> bytes:
        """Returns all figures in the text format of Prometheus."""
        return generate_latest(self._registry)
