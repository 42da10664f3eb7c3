"""The models of the server: each translates in threads or, on the CPU, in worker processes.

A worker process translates one batch at a time, with one CPU thread. The matrix products of a search are
small, so one thread each in two processes is faster than two threads. The processes are forked: they share
the weights of the model. The server's event loop has the first process to itself, so that answers do not wait
for a search.
"""

from __future__ import annotations

import os
import queue
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch

from nmt.config import DecodingConfig, ServeConfig, folders
from nmt.copying.strings import TAG
from nmt.decoding.attention_page import MOST_BYTES, attention_page
from nmt.decoding.pairs import PairAttention, PairReader
from nmt.decoding.searcher import SearchRequest
from nmt.decoding.terminology import Terminology, load_terminology
from nmt.decoding.torch_searcher import TorchSearcher
from nmt.errors import UserError
from nmt.interop import ENGINES
from nmt.runtime.workers import WorkerPool

if TYPE_CHECKING:
    from nmt.decoding.parts import Parts
    from nmt.decoding.translation import Translation
    from nmt.decoding.translator import Translator

_PLAIN: dict[str, Any] = {"samples": 0, "mbr": None, "nbest": 1}  # a request chooses how many
_BATCH_CHARACTERS = 400  # of each line of a full batch: the largest work of a batch, about a second on a CPU
_OVERHEAD = 60  # characters that a line counts more: the steps of its search are never few
_TAGS = 8  # of a line, which double the work of their search
_MOST_TERMS = 12  # required terms of a line from which on more of them have the same work
_ATTENTION_LINES = 8  # of a batch with attention, whose results need much memory


@dataclass(frozen=True)
class SearchOptions:
    """The options of a search that a request may choose; a batch has one set of them.

    With None, an option is as the server has it. The beam has at least the size `nbest`.
    """

    beam_size: int | None = None
    length_penalty: float | None = None
    nbest: int = 1
    attention: bool = False
    markup: bool = False
    """Whether the tags of lines must be tags in their translations."""
    terms: tuple[tuple[str, str], ...] = ()
    """Source terms and their required translations."""


Pairs = tuple[tuple[str, str | None], ...]
"""Lines and their translations; None: the model's."""


@dataclass(frozen=True)
class ReadingOptions:
    """The options of a batch whose lines are `Pairs`: each has a page of the attention of all heads."""


Options = SearchOptions | ReadingOptions
_Job = tuple[Sequence[Any], Options]
_Pool = WorkerPool[_Job, Sequence[Any]]


class ServedModel:
    """A model that translates from one language into another.

    Args:
        translator: the translator. Its options apply if a request has none.
        source_lang: code of the source language.
        target_lang: code of the target language.
        threads: the number of threads whose calls the translator computes side by side, if it does not need
            worker processes for this.
        terminology: required translations of terms; None: none.

    Attributes:
        threads: the number of threads that may call `translate` at the same time.
        has_attention: whether translations can have attention.
        has_pages: whether it can show the attention of all heads in pairs.
        has_terms: whether translations can have required terms.
    """

    def __init__(
        self,
        translator: Translator,
        source_lang: str,
        target_lang: str,
        threads: int,
        terminology: Terminology | None = None,
    ) -> None:
        self.source_lang, self.target_lang = source_lang, target_lang
        self.has_attention = translator.searcher.has_attention
        self.has_pages = isinstance(translator.searcher, TorchSearcher) and self.has_attention
        self._default, self._terminology = translator, terminology
        self.has_terms = _can_have_terms(translator)
        self._translator = lru_cache(maxsize=32)(
            lambda options: translator.with_options(decoding_of(translator.config, options))
        )
        processes = translator.searcher.num_processes
        self.threads = max(threads, processes)
        # Each process has a separate pool, so that one can be replaced.
        self._idle: queue.SimpleQueue[_Pool] | None = None
        self._busy: dict[int, _Pool | None] = {}  # by the thread that waits; None: its process is killed
        self._changing = threading.Lock()
        if processes == 1:
            self._work(_FIRST)
            return
        self._idle = queue.SimpleQueue()
        killed = "A worker process of the server was killed, probably because memory ran out"
        remedy = "Translate fewer or shorter lines at once."
        try:
            for _ in range(processes):
                pool = WorkerPool(self._set_up, 1, killed, remedy, forked=True)
                self._idle.put(pool)
                pool.__enter__()
                [*pool.run([_FIRST])]
        except BaseException:  # also a signal: at its exit, Python would wait for the processes
            self.close()
            raise

    def batch_size(self, options: Options) -> int:
        """Returns the largest number of lines of a call with these options."""
        if isinstance(options, ReadingOptions):
            return 1
        size = decoding_of(self._default.config, options).sentences_per_batch
        return min(size, _ATTENTION_LINES) if options.attention else size

    @property
    def batch_work(self) -> int:
        """The work after which a batch is complete; a single line may exceed it."""
        config = self._default.config
        return config.sentences_per_batch * _BATCH_CHARACTERS * config.beam_size

    def work(self, lines: Sequence[str], options: SearchOptions) -> list[int]:
        """Returns an estimate of the work of each line: the number of characters times that of hypotheses.

        A line with tags is searched again for each of its translations, to place them, which has more work
        the more tags it has. Each required term of a line adds its work again, up to a limit.
        """
        beam_size = decoding_of(self._default.config, options).beam_size
        terminology = self._required(options)
        work = []
        for line in lines:
            tags = sum(1 for _ in TAG.finditer(line))
            searches = 1 + (options.nbest * (1 + tags / _TAGS) if tags else 0)
            if terminology is not None:
                searches += min(len(terminology.targets(line)), _MOST_TERMS)
            work.append(int((len(line) + _OVERHEAD) * beam_size * searches))
        return work

    def work_of_pairs(self, pairs: Pairs) -> int:
        """Returns an estimate of the work of the page of some pairs, in the unit of `work`."""
        return sum(self.work([f"{source}{target or source}" for source, target in pairs], SearchOptions()))

    def is_slow_to_estimate(self, options: SearchOptions) -> bool:
        """Returns whether `work` takes much longer than a count of characters."""
        return bool(options.terms or self._terminology)

    def _required(self, options: SearchOptions) -> Terminology | None:
        """Returns the required terms of a request with these options."""
        return Terminology.of(options.terms, self._terminology) if options.terms else self._terminology

    def divide(self, lines: Sequence[str]) -> Sequence[Parts]:
        """Divides lines into the parts that `translate` translates one by one."""
        return self._default.divide(lines)

    def join(self, divided: Sequence[Parts], translations: Sequence[Translation]) -> Sequence[Translation]:
        """Returns the translations of lines from those of all their parts, in order."""
        return self._default.join(divided, translations)

    def translate(self, lines: Sequence[Any], options: Options) -> Sequence[Any]:
        """Returns the `Translation` of each line, or part of a line, in order; or the page of each `Pairs`.

        A page is HTML, of the first pairs that fit. It is None if no pair is short enough.

        Raises:
            UserError: a batch does not fit into memory, or the model is damaged.
        """
        if self._idle is None:
            return self._work((lines, options))
        pool, thread, failed = self._idle.get(), threading.get_ident(), True
        with self._changing:
            self._busy[thread] = pool
        try:
            [(_, results)] = pool.run([(lines, options)])
            failed = False
            return results
        finally:
            with self._changing:
                was_stopped = self._busy.pop(thread) is None
            if failed or was_stopped:
                pool.__exit__()
                with suppress(OSError):  # of a fork without memory; then the next call starts the process
                    pool.__enter__()
            self._idle.put(pool)

    def stop(self, thread: int) -> None:
        """Ends the call of `translate` in a thread, with an error, if a worker process translates for it."""
        with self._changing:
            pool = self._busy.get(thread)
            if pool is not None:
                self._busy[thread] = None
                pool.kill()

    def close(self) -> None:
        """Ends the worker processes. No call of `translate` may be running."""
        while self._idle is not None and not self._idle.empty():
            self._idle.get().__exit__()

    def _work(self, job: _Job) -> Sequence[Any]:
        lines, options = job
        if isinstance(options, ReadingOptions):
            return [attention_page(self._read(pairs)) for pairs in lines]
        return self._translated(lines, options)

    def _read(self, pairs: Pairs) -> Iterator[PairAttention]:
        """Yields the attention of each pair that is short enough for a page."""
        assert isinstance(self._default.searcher, TorchSearcher)
        reader = PairReader(self._default.searcher, self._default.tokenizer)
        sources = [source for source, target in pairs if target is None]
        found = iter(self._translated(sources, SearchOptions()) if sources else ())
        texts = (next(found).hypotheses[0].text if target is None else target for _, target in pairs)
        return reader.attentions(zip((source for source, _ in pairs), texts, strict=True), MOST_BYTES)

    def _translated(self, lines: Sequence[str], options: SearchOptions) -> Sequence[Translation]:
        translator = self._translator(replace(options, markup=False, terms=()))
        terminology = self._required(options)
        terms = None if terminology is None else terminology.targets
        return translator.translate_parts(
            lines, attention=options.attention, terminology=terms, markup=options.markup
        )

    def _set_up(self) -> Callable[[_Job], Sequence[Any]]:
        """Runs in a worker process."""
        close_connections()
        torch.set_num_threads(1)
        return self._work


_FIRST: _Job = (["a"], SearchOptions())  # the first call takes longer than later ones


def _can_have_terms(translator: Translator) -> bool:
    try:
        translator.searcher.prepare(SearchRequest(), constraints=True)
    except UserError:
        return False
    return True


def decoding_of(config: DecodingConfig, options: SearchOptions) -> DecodingConfig:
    """Returns the options of decoding with those that a request chooses."""
    beam_size = max(options.beam_size or config.beam_size, options.nbest)
    penalty = config.length_penalty if options.length_penalty is None else options.length_penalty
    return replace(config, beam_size=beam_size, nbest=options.nbest, length_penalty=penalty)


def load_served_models(config: ServeConfig) -> list[ServedModel]:
    """Loads the models of `config.model_dir`.

    Raises:
        UserError: the engine does not have an option, a folder is not a model folder, or two models have the
            same languages.
    """
    engine = ENGINES.find(config.backend, f"backend={config.backend}")()
    engine.check(config)
    terminology = None
    if config.terminology is not None:
        if len(folders("model_dir", config.model_dir)) > 1:
            raise UserError(
                f"terminology={config.terminology}: has the terms of one pair of languages. Give one model."
            )
        terminology = load_terminology(config.terminology)
    models: list[ServedModel] = []
    owners: dict[tuple[str, str], str] = {}
    try:
        first: DecodingConfig | None = None
        for name in folders("model_dir", config.model_dir):
            loaded = engine.load(config, [name])
            first = first or loaded.decoding
            pair = loaded.source_lang, loaded.target_lang
            if pair in owners:
                raise UserError(
                    f"model_dir={name}: translates from {pair[0]} into {pair[1]}, as {owners[pair]} does. "
                    "Give one model for each pair of languages."
                )
            owners[pair] = name
            decoding = replace(loaded.decoding, **(_changed(first, config) | _PLAIN))
            if decoding.split_sentences == "auto":  # a client sends any text, not the lines of a file
                decoding = replace(decoding, split_sentences=True)
            model = ServedModel(loaded.translator(decoding), *pair, loaded.threads, terminology)
            models.append(model)
            if terminology is not None and not model.has_terms:
                raise UserError(f"terminology={config.terminology}: needs backend=nmt.")
    except BaseException:
        for model in models:
            model.close()
        raise
    return models


def _changed(first: DecodingConfig, config: ServeConfig) -> dict[str, Any]:
    """Returns the options of `config.decoding` that differ from those of the first model.

    `config.decoding` has the options of the first model and those of the command line.
    """
    return {
        option.name: value
        for option in fields(DecodingConfig)
        if (value := getattr(config.decoding, option.name)) != getattr(first, option.name)
    }


def close_connections() -> None:
    """Closes the network connections that this process has inherited.

    Otherwise a connection that the server closes would stay open until this process ends.
    """
    with suppress(OSError):
        for name in os.listdir("/proc/self/fd"):
            with suppress(OSError):
                inherited = socket.socket(fileno=int(name))
                if inherited.family in (socket.AF_INET, socket.AF_INET6):
                    inherited.close()
                else:
                    inherited.detach()
