"""The translations of one server: chooses the model of a request, and waits for its batches.

Its methods run in the event loop; only translating threads translate.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nmt.config.serving import LimitsConfig
from nmt.errors import UserError
from nmt.serving.backend import Backend, SearchOptions
from nmt.serving.batcher import Batcher, Closed, QueueFull, Ticket
from nmt.serving.languages import language_name
from nmt.serving.requests import Refused, TranslateRequest

if TYPE_CHECKING:
    from nmt.decoding.translation import Translation

AUTO = "auto"
"""The source language of a request that leaves the choice to the server."""


class Vanished(Exception):
    """The client has closed the connection."""


@dataclass(frozen=True)
class _Model:
    backend: Backend
    batcher: Batcher[SearchOptions, Translation]


class Service:
    """Translates requests with the model of their languages.

    Args:
        backends: one or more, each for other languages.
        limits: of the server.
        wait: seconds that a request waits for others.
        observe: called with the number of lines and the seconds of each batch.
    """

    def __init__(
        self,
        backends: Sequence[Backend],
        limits: LimitsConfig,
        *,
        wait: float,
        observe: Callable[[int, float], None],
    ) -> None:
        self._limits = limits
        self._models = [
            _Model(
                backend,
                Batcher(
                    backend.translate,
                    backend.batch_size,
                    max_waiting=limits.waiting_sentences,
                    threads=backend.threads,
                    wait=wait,
                    observe=observe,
                ),
            )
            for backend in backends
        ]

    @property
    def waiting(self) -> int:
        """The number of lines that wait."""
        return sum(model.batcher.waiting for model in self._models)

    @property
    def has_attention(self) -> bool:
        """Whether translations of all models can have attention."""
        return all(model.backend.has_attention for model in self._models)

    def languages(self) -> list[dict[str, Any]]:
        """Returns the languages in the form of LibreTranslate: code, name, and codes of targets."""
        targets: dict[str, list[str]] = {}
        for model in self._models:
            targets.setdefault(model.backend.source_lang, []).append(model.backend.target_lang)
            targets.setdefault(model.backend.target_lang, [])
        return [
            {"code": code, "name": language_name(code), "targets": sorted(found)}
            for code, found in sorted(targets.items())
        ]

    async def translate(
        self, request: TranslateRequest, vanished: Callable[[], Awaitable[object]]
    ) -> Sequence[Translation]:
        """Returns the translation of each line of a request, in order.

        Args:
            request: the request.
            vanished: returns when the client has closed the connection.

        Raises:
            Refused: the languages are unknown, or there is no attention (400), the queue is full (503), the
                time is over (504), or the translation failed (500).
            Vanished: the client has closed the connection.
        """
        model, lines = self._model_of(request), request.lines
        if request.options.attention and not model.backend.has_attention:
            raise Refused(400, "attention: the engine of this server has none.")
        if not lines:
            return []
        loop = asyncio.get_running_loop()
        done = loop.create_future()

        def wake() -> None:
            if not done.done():
                done.set_result(None)

        def finished() -> None:
            loop.call_soon_threadsafe(wake)

        ticket: Ticket[SearchOptions, Translation] = Ticket(lines, request.options, finished)
        try:
            model.batcher.submit(ticket)
        except QueueFull:
            raise Refused(503, "Too many texts are waiting. Try again later.") from None
        except Closed:
            raise Refused(503, "The server is stopping.") from None
        gone = asyncio.ensure_future(vanished())
        try:
            await asyncio.wait(
                (done, gone), timeout=self._limits.request_seconds, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            if not done.done():
                model.batcher.cancel(ticket)
            was_gone = gone.done()
            gone.cancel()
        if not done.done():
            if was_gone:
                raise Vanished
            raise Refused(504, f"The translation took longer than {self._limits.request_seconds:g} seconds.")
        if ticket.error is not None:
            known = isinstance(ticket.error, UserError)
            raise Refused(500, str(ticket.error) if known else "The translation failed.")
        return [result for result in ticket.results if result is not None]

    def close(self) -> None:
        """Translates what waits, then ends the threads and the backends."""
        for model in self._models:
            model.batcher.close()
            model.backend.close()

    def _model_of(self, request: TranslateRequest) -> _Model:
        """Returns the model of the languages of a request.

        Raises:
            Refused: there is none, or there are several.
        """
        source = None if request.source == AUTO else request.source
        found = [
            model
            for model in self._models
            if source in (None, model.backend.source_lang)
            and request.target in (None, model.backend.target_lang)
        ]
        if len(found) == 1:
            return found[0]
        pairs = ", ".join(
            f"{model.backend.source_lang} to {model.backend.target_lang}" for model in self._models
        )
        if found:
            name = "source" if request.target is not None else "target" if source is not None else "source"
            raise Refused(400, f"{name}: must be given. The server translates {pairs}.")
        sources = {model.backend.source_lang for model in self._models}
        name, code = ("source", source) if source and source not in sources else ("target", request.target)
        if code is None:
            name, code = "source", source
        raise Refused(400, f"{name}: {(code or '')[:40]!a} is not supported. The server translates {pairs}.")
