"""The translations of one server: chooses the model of a request, and waits for its batches.

Its methods run in the event loop; only translating threads translate.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from nmt.config.serving import LimitsConfig
from nmt.errors import UserError
from nmt.languages import LIBRETRANSLATE, distance, language_name, language_of
from nmt.serving.batcher import Batcher, Closed, QueueFull, Ticket
from nmt.serving.detection import detected
from nmt.serving.refusals import Refusal, missing
from nmt.serving.requests import TranslateRequest, is_auto
from nmt.serving.served_models import Pairs, ReadingOptions, ServedModel

if TYPE_CHECKING:
    from nmt.decoding.parts import Parts
    from nmt.decoding.translation import Translation

_LONG = 5_000  # characters that take some milliseconds to divide into sentences
_CERTAIN = 90.0  # percent from which a text is taken to be in its target language


class Service:
    """Translates requests with the model of their languages.

    Each of the models, one or more, has other languages. A request waits `wait` seconds for others.
    `observe` gets the number of lines and the seconds of each batch.
    """

    def __init__(
        self,
        models: Sequence[ServedModel],
        limits: LimitsConfig,
        *,
        wait: float,
        observe: Callable[[int, float], None],
    ) -> None:
        self._limits = limits
        self._batchers = {
            model: Batcher(
                model,
                max_waiting=limits.waiting_sentences,
                max_work=limits.waiting_work,
                wait=wait,
                observe=observe,
            )
            for model in models
        }

    @property
    def waiting(self) -> int:
        """The number of lines that wait."""
        return sum(batcher.waiting for batcher in self._batchers.values())

    @property
    def has_attention(self) -> bool:
        """Whether translations of all models can have attention."""
        return all(model.has_attention for model in self._batchers)

    @property
    def has_pages(self) -> bool:
        """Whether all models can show the attention of all heads."""
        return all(model.has_pages for model in self._batchers)

    def languages(self) -> list[dict[str, Any]]:
        """Returns the languages in the form of LibreTranslate, and the tag of each in BCP 47."""
        targets: dict[str, list[str]] = {}
        for model in self._batchers:
            targets.setdefault(model.source_lang, []).append(model.target_lang)
            targets.setdefault(model.target_lang, [])
        return [
            {
                "code": code,
                "name": language_name(code),
                "targets": sorted(codes),
                "tag": language_of(code).tag,
            }
            for code, codes in sorted(targets.items())
        ]

    def first_languages(self) -> dict[str, Any]:
        """Returns the languages of the first model in the form of LibreTranslate's settings."""
        first = next(iter(self._batchers))
        codes = {"source": first.source_lang, "target": first.target_lang}
        return {side: {"code": code, "name": language_name(code)} for side, code in codes.items()}

    async def detect(self, text: str) -> list[Mapping[str, Any]]:
        """Returns the languages that a text may be in, of those of the models; see `detected`."""
        codes = [model.source_lang for model in self._batchers]
        codes += [model.target_lang for model in self._batchers]
        return await detected(text, [*dict.fromkeys(codes)])

    async def with_source(
        self, request: TranslateRequest
    ) -> tuple[TranslateRequest, Mapping[str, Any] | None]:
        """Returns a request with its detected language if its source is `auto`, and the detection.

        Texts that are in the target language remain `auto`: see `is_in_target`. If no model translates from
        the detected language, or the detector is missing, the only model that translates into the target
        language is chosen.

        Raises:
            HTTPException: no model can be chosen (400).
        """
        if not is_auto(request.source):
            return request, None
        try:
            detection = (await self.detect(request.sample))[0]
        except HTTPException:
            detection = None
        if detection is not None and detection["confidence"] and not self.is_in_target(request, detection):
            known = replace(request, source=detection["language"])
            try:
                self._model_of(known)
            except HTTPException:
                self._model_of(request)
            else:
                return known, detection
        return request, detection

    async def translate(
        self, request: TranslateRequest, vanished: Callable[[], Awaitable[object]]
    ) -> Sequence[Translation]:
        """Returns the translation of each line of a request, in order.

        `vanished` returns when the client has closed the connection.

        Raises:
            HTTPException: the languages are unknown, or there is no attention (400), the queue is full (503),
                there are too many sentences (413), the time is over (504), or the translation failed (500).
            ClientDisconnect: the client has closed the connection.
        """
        model = self._model_of(request)
        if request.options.attention and not model.has_attention:
            raise HTTPException(400, "attention: the engine of this server has none.")
        if request.options.terms and not model.has_terms:
            raise HTTPException(400, "terminology: the engine of this server can't require terms.")
        if not request.lines:
            return []
        if request.num_characters < _LONG and not model.is_slow_to_estimate(request.options):
            divided, parts, work = _divided(model, request)
        else:  # others do not wait for it
            divided, parts, work = await asyncio.to_thread(_divided, model, request)
        if len(parts) > (most := self._limits.sentences):
            raise HTTPException(413, f"q: has {len(parts):,} sentences, and at most {most:,} are allowed.")
        return model.join(divided, await self._results(model, Ticket(parts, request.options, work), vanished))

    async def attention_page(
        self, request: TranslateRequest, vanished: Callable[[], Awaitable[object]]
    ) -> str:
        """Returns a page of the attention of all heads in the pairs of a request, as HTML.

        Raises:
            HTTPException: as for `translate`; or all pairs are blank (400) or too long (413).
            ClientDisconnect: the client has closed the connection.
        """
        model = self._model_of(request)
        if not model.has_pages:
            raise HTTPException(400, "attention: the engine of this server has no weights of all heads.")
        pairs: Pairs = tuple(pair for pair in request.pairs if pair[0].strip())
        if not pairs:
            raise HTTPException(400, "q: has no sentence. Give one.")
        ticket = Ticket([pairs], ReadingOptions(), [await asyncio.to_thread(model.work_of_pairs, pairs)])
        [page] = await self._results(model, ticket, vanished)
        if page is None:
            raise HTTPException(413, "q: the sentence has too many tokens to show. Give a shorter one.")
        return str(page)

    async def _results(
        self, model: ServedModel, ticket: Ticket, vanished: Callable[[], Awaitable[object]]
    ) -> list[Any]:
        """Returns the results of a ticket when its batches are finished. Raises as `translate` does."""
        if (total := sum(ticket.work)) > (most := self._limits.work):
            raise HTTPException(
                413,
                f"The request has {total:,} characters times hypotheses, and at most {most:,} are allowed. "
                "Give fewer texts, tags or alternatives, or a smaller beam_size.",
            )
        batcher = self._batchers[model]
        try:
            batcher.submit(ticket)
        except QueueFull:
            raise HTTPException(503, "Too many texts are waiting. Try again later.") from None
        except Closed:
            raise HTTPException(503, "The server is stopping.") from None
        results, gone = asyncio.wrap_future(ticket.future), asyncio.ensure_future(vanished())
        seconds = self._limits.request_seconds
        try:
            await asyncio.wait((results, gone), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if not results.done():
                if gone.done():
                    raise ClientDisconnect
                raise HTTPException(504, f"The translation took longer than {seconds:g} seconds.")
        finally:
            gone.cancel()
            batcher.cancel(ticket)
        if (error := results.exception()) is not None:
            raise HTTPException(
                500, str(error) if isinstance(error, UserError) else "The translation failed."
            )
        return results.result()

    def close(self) -> None:
        """Translates what waits, then ends the threads and the models."""
        for batcher in self._batchers.values():
            batcher.close()

    def is_in_target(self, request: TranslateRequest, detection: Mapping[str, Any] | None) -> bool:
        """Returns whether the texts of a request are in its target language already.

        Their language is detected, or given and one of a model, and no model is for such texts.
        """
        if request.target is None or request.source is None:
            return False
        if is_auto(request.source):
            return (
                detection is not None
                and detection["confidence"] >= _CERTAIN
                and _distance(request.target, detection["language"]) is not None
            )
        same = _distance(request.source, request.target) is not None and not self._nearest(request)
        return same and any(self._known(request.target))

    def _nearest(self, request: TranslateRequest) -> list[ServedModel]:
        """Returns the models whose languages are the nearest to those of a request, none or more."""
        source = None if is_auto(request.source) else request.source
        distances = {
            model: from_source + to_target
            for model in self._batchers
            if (from_source := _distance(source, model.source_lang)) is not None
            and (to_target := _distance(request.target, model.target_lang)) is not None
        }
        return [model for model in distances if distances[model] == min(distances.values())]

    def _known(self, code: str | None) -> tuple[str | None, str | None]:
        """Returns the language of a code as models have it as their source, and as their target."""
        sources = (one.source_lang for one in self._batchers if _distance(code, one.source_lang) is not None)
        targets = (one.target_lang for one in self._batchers if _distance(code, one.target_lang) is not None)
        return next(sources, None), next(targets, None)

    def _model_of(self, request: TranslateRequest) -> ServedModel:
        """Returns the model whose languages are the nearest to those of a request.

        Raises:
            HTTPException: no model has these languages, or the request lacks one that decides (400).
        """
        source = None if is_auto(request.source) else request.source
        target, matching = request.target, self._nearest(request)
        if len(matching) == 1 or (matching and source and target):
            return matching[0]
        pairs = ", ".join(f"{model.source_lang} to {model.target_lang}" for model in self._batchers)
        hint = f"The server translates {pairs}."
        if matching:
            raise missing("target" if target is None and source is not None else "source", hint)
        sides = [(code, self._known(code)) for code in (source, target) if code is not None]
        for code, known in sides:
            if not any(known):
                raise Refusal(400, f"{code[:40]} is not supported", hint)
        names = [f"{language_name(known[0] or known[1] or '')} ({code[:40]})" for code, known in sides]
        message = f"{names[-1]} is not available as a {'source' if target is None else 'target'} language"
        raise Refusal(400, f"{message} from {names[0]}" if len(names) > 1 else message, hint)


def _divided(
    model: ServedModel, request: TranslateRequest
) -> tuple[Sequence[Parts], Sequence[str], Sequence[int]]:
    """Returns the divided lines of a request, their sentences, and the work of each sentence."""
    divided = model.divide(request.lines)
    parts = [text for parts in divided for text in parts.texts]
    return divided, parts, model.work(parts, request.options)


def _distance(wanted: str | None, offered: str) -> int | None:
    if wanted is None:
        return 0
    found = distance(wanted, offered)
    other = LIBRETRANSLATE.get(wanted.lower()) if found is None else None
    return found if other is None else distance(other, offered)
