"""The interface of translation for the server, and its implementations.

One is for the models of nmt, the other for engines that start threads themselves. Another implementation
needs only the attributes and the methods of `Backend`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol

from nmt.config import DecodingConfig, ServeConfig, folders
from nmt.errors import UserError
from nmt.serving.processes import Workers

if TYPE_CHECKING:
    from nmt.decoding.translation import Translation
    from nmt.decoding.translator import Translator
    from nmt.interop import LoadedModel

_PLAIN: dict[str, Any] = {
    "samples": 0,
    "mbr": None,
    "nbest": 1,
}  # a request chooses the number of translations
_ATTENTION_LINES = 8  # of a batch with attention, whose results need much memory


@dataclass(frozen=True)
class SearchOptions:
    """The options of a search that a request may choose; a batch has one set of them.

    Attributes:
        beam_size: hypotheses per line in the beam; None: as the server has it.
        length_penalty: GNMT's alpha; None: as the server has it.
        nbest: translations of each line. The beam has at least this size.
        attention: whether to return the attention of each translation.
    """

    beam_size: int | None = None
    length_penalty: float | None = None
    nbest: int = 1
    attention: bool = False


class Backend(Protocol):
    """Translates from one language into another.

    Attributes:
        source_lang: code of the source language.
        target_lang: code of the target language.
        threads: the number of threads that may call `translate` at the same time.
        has_attention: whether translations can have attention.
    """

    source_lang: str
    target_lang: str
    threads: int
    has_attention: bool

    def batch_size(self, options: SearchOptions) -> int:
        """Returns the largest number of lines of a call with these options."""

    def translate(self, lines: Sequence[str], options: SearchOptions) -> Sequence[Translation]:
        """Returns the translation of each line, in order.

        Raises:
            UserError: a batch does not fit into memory, or the model is damaged.
        """

    def close(self) -> None:
        """Ends processes and threads of the backend. No call of `translate` may be running."""


class ModelBackend:
    """A model of nmt. On the CPU it translates in worker processes, elsewhere in the calling thread.

    Args:
        translator: the translator. Its options apply if a request has none.
        source_lang: see `Backend`.
        target_lang: see `Backend`.
    """

    has_attention = True

    def __init__(self, translator: Translator, source_lang: str, target_lang: str) -> None:
        self.source_lang, self.target_lang = source_lang, target_lang
        self._given = translator
        self._translator = lru_cache(maxsize=32)(self._with_options)
        count = translator.searcher.num_processes
        self.threads = count
        self._workers = None if count == 1 else Workers(self._work, self._prepare, count)

    def batch_size(self, options: SearchOptions) -> int:
        """Returns `decoding.max_sentences`, or its choice for `auto` and the size of the beam."""
        size = decoding_of(self._given.config, options).sentences_per_batch
        return min(size, _ATTENTION_LINES) if options.attention else size

    def translate(self, lines: Sequence[str], options: SearchOptions) -> Sequence[Translation]:
        """Returns the translation of each line, in order; see `Backend`."""
        job = lines, options
        return self._work(job) if self._workers is None else self._workers(job)

    def close(self) -> None:
        """Ends the worker processes."""
        if self._workers is not None:
            self._workers.close()

    def _work(self, job: tuple[Sequence[str], SearchOptions]) -> Sequence[Translation]:
        lines, options = job
        return self._translator(options).translate(lines, attention=options.attention)

    def _prepare(self) -> None:
        """Translates one line, because the first call takes longer than later ones."""
        self._work((["."], SearchOptions()))

    def _with_options(self, options: SearchOptions) -> Translator:
        return self._given.with_options(decoding_of(self._given.config, options))


class EngineBackend:
    """A translator whose engine computes the calls of several threads side by side.

    Args:
        translator: the translator. Its options apply if a request has none.
        source_lang: see `Backend`.
        target_lang: see `Backend`.
        threads: see `Backend`.
    """

    has_attention = False

    def __init__(self, translator: Translator, source_lang: str, target_lang: str, threads: int) -> None:
        self.source_lang, self.target_lang, self.threads = source_lang, target_lang, threads
        self._given = translator
        self._translator = lru_cache(maxsize=32)(self._with_options)
        self.translate(["."], SearchOptions())  # the first call takes longer than later ones

    def batch_size(self, options: SearchOptions) -> int:
        """Returns `decoding.max_sentences`, or its choice for `auto` and the size of the beam."""
        return decoding_of(self._given.config, options).sentences_per_batch

    def translate(self, lines: Sequence[str], options: SearchOptions) -> Sequence[Translation]:
        """Returns the translation of each line, in order; see `Backend`."""
        return self._translator(options).translate(lines, attention=options.attention)

    def close(self) -> None:
        """Does nothing: the threads of the engine end with it."""

    def _with_options(self, options: SearchOptions) -> Translator:
        return self._given.with_options(decoding_of(self._given.config, options))


def decoding_of(config: DecodingConfig, options: SearchOptions) -> DecodingConfig:
    """Returns the options of decoding with those that a request chooses."""
    beam_size = max(options.beam_size or config.beam_size, options.nbest)
    penalty = config.length_penalty if options.length_penalty is None else options.length_penalty
    return replace(config, beam_size=beam_size, nbest=options.nbest, length_penalty=penalty)


def load_backends(config: ServeConfig) -> list[Backend]:
    """Loads the models of `config.model_dir`.

    Raises:
        UserError: the backend does not have an option, a folder is not a model folder, or two models have the
            same languages.
    """
    from nmt.interop import ENGINES

    engine = ENGINES.find(config.backend, f"backend={config.backend}")()
    engine.check(config)
    backends: list[Backend] = []
    owners: dict[tuple[str, str], str] = {}
    names = folders("model_dir", config.model_dir)
    try:
        first: DecodingConfig | None = None
        for name in names:
            loaded = engine.load(config, [name])
            first = first or loaded.decoding
            pair = loaded.source_lang, loaded.target_lang
            if pair in owners:
                raise UserError(
                    f"model_dir={name}: translates from {pair[0]} into {pair[1]}, as {owners[pair]} does. "
                    "Give one model for each pair of languages."
                )
            owners[pair] = name
            backends.append(_backend(loaded, replace(loaded.decoding, **(_changed(first, config) | _PLAIN))))
    except BaseException:
        for backend in backends:
            backend.close()
        raise
    return backends


def _backend(loaded: LoadedModel, decoding: DecodingConfig) -> Backend:
    from nmt.decoding.torch_searcher import TorchSearcher

    translator, pair = loaded.translator(decoding), (loaded.source_lang, loaded.target_lang)
    if isinstance(translator.searcher, TorchSearcher):
        return ModelBackend(translator, *pair)
    return EngineBackend(translator, *pair, loaded.threads)


def _changed(first: DecodingConfig, config: ServeConfig) -> dict[str, Any]:
    """Returns the options of `config.decoding` that differ from those of the first model.

    `config.decoding` has the options of the first model and those of the command line.
    """
    return {
        one.name: value
        for one in fields(DecodingConfig)
        if (value := getattr(config.decoding, one.name)) != getattr(first, one.name)
    }
