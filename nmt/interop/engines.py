"""The engines that translate: `nmt`, and `ctranslate2`, which searches with an export."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from nmt.config import DecodingConfig, ServeConfig, TranslateConfig
from nmt.decoding.batch_sizes import batches_by_length
from nmt.decoding.loading import LoadedModels
from nmt.decoding.search import Hypothesis
from nmt.decoding.searcher import Searcher, SearchRequest, Sentence
from nmt.decoding.translator import Translator
from nmt.errors import UserError
from nmt.evaluation.task import configured_utility
from nmt.interop.ctranslate2_search import EngineSearch, Settings
from nmt.interop.interfaces import Engine
from nmt.interop.stored_exports import is_export, read_export, stored_export
from nmt.runtime import available_cores

if TYPE_CHECKING:
    from pathlib import Path

    from nmt.interop.record import Record

NAME = "ctranslate2"
_KEY = f"backend={NAME}"
# The fastest number on a CPU. Ctrl-C waits for the end of a batch.
_BATCH_TOKENS = 2048
_REFUSED = ("samples", "mbr", "diversity", "coverage_penalty", "processors")
"""Options of decoding that the engine does not have, or computes differently."""


class CTranslate2Engine(Engine):
    """Reads an export of `nmt-export format=ctranslate2`; writes it first if the folder is a model folder."""

    def check(self, config: TranslateConfig | ServeConfig) -> None:
        """See `Engine.check`."""
        check_decoding(config.decoding)
        if config.precision != "fp32":
            raise UserError(
                f"precision={config.precision}: is for backend=nmt. Remove it. quantization=int8 or another "
                "number format has this effect here."
            )
        _device(config.device)
        if isinstance(config, TranslateConfig):
            for key in ("alignments", "terminology"):
                if (value := getattr(config, key)) is not None:
                    raise UserError(f"{key}={value}: {_KEY} has none. Remove it, or use backend=nmt.")

    def load(self, config: TranslateConfig | ServeConfig, model_dir: list[str]) -> LoadedExport:
        """See `Engine.load`."""
        if len(model_dir) > 1:
            raise UserError(f"model_dir=[{','.join(model_dir)}]: {_KEY} has no ensembles. Give one model.")
        [path] = model_dir
        if is_export(path):
            folder, record = read_export(path, NAME, config.quantization)
        else:
            folder, record = stored_export(
                path,
                NAME,
                config.quantization or "float32",
                config.decoding,
                key="backend",
                threads=config.threads,
            )
        return LoadedExport(folder, record, config)


class LoadedExport:
    """A loaded export; see `LoadedModel`.

    Args:
        folder: the folder of the export.
        record: its record.
        config: `device`, `threads` and `decoding.workers` are used.
    """

    def __init__(self, folder: Path, record: Record, config: TranslateConfig | ServeConfig) -> None:
        import ctranslate2

        from nmt.data.subwords.tokenizer import Tokenizer
        from nmt.interop.ctranslate2_export import compute_type

        self.source_lang, self.target_lang = record.source_lang, record.target_lang
        self.decoding, self._record = record.decoding, record
        device, index = _device(config.device)
        if device == "auto":
            device = "cuda" if ctranslate2.get_cuda_device_count() else "cpu"
        elif device == "cuda" and index >= (count := ctranslate2.get_cuda_device_count()):
            raise UserError(
                f"device={config.device}: CTranslate2 finds {count} GPUs on this machine. Use device=cpu."
            )
        cores = config.threads or available_cores()
        wanted = config.decoding.workers
        # As in nmt, two batches with one thread each take less time than one batch with two threads twice.
        self.threads = 1 if device == "cuda" else cores if wanted == "auto" else int(wanted)
        try:
            self._engine = ctranslate2.Translator(
                str(folder),
                device=device,
                device_index=index,
                compute_type=compute_type(record.quantization, device, index),
                inter_threads=self.threads,
                intra_threads=max(1, cores // self.threads),
                max_queued_batches=-1,
            )
        except (RuntimeError, ValueError) as error:
            raise UserError(f"{folder}: CTranslate2 can't load this export: {error}") from error
        self._tokenizer = Tokenizer.load(folder)

    def translator(self, decoding: DecodingConfig) -> Translator:
        """See `LoadedModel.translator`."""
        search = EngineSearch(self._engine, self._tokenizer, self.threads)
        searcher = ExportSearcher(search, decoding, self._record, self._tokenizer.placeholders)
        return Translator(searcher, self._tokenizer)


class ExportSearcher(Searcher):
    """Searches with an export.

    Args:
        search: searches batches with the export.
        config: the options of decoding.
        record: of the export.
        placeholders: the ids of the placeholders of its tokenizer.
    """

    def __init__(
        self, search: EngineSearch, config: DecodingConfig, record: Record, placeholders: range
    ) -> None:
        check_decoding(config)
        self.config, self.max_source_tokens = config, min(config.max_source_tokens, record.max_source_tokens)
        self._search, self._record, self._placeholders = search, record, placeholders

    def with_options(self, config: DecodingConfig) -> ExportSearcher:
        """See `Searcher.with_options`."""
        return ExportSearcher(self._search, config, self._record, self._placeholders)

    def prepare(self, request: SearchRequest, *, constraints: bool) -> None:
        """See `Searcher.prepare`."""
        for is_wanted, name in (
            (request.attention, "attention"),
            (request.alignments, "alignments"),
            (constraints, "constraints"),
        ):
            if is_wanted:
                raise UserError(f"{name}: {_KEY} has none. Use backend=nmt.")

    def search(
        self,
        sentences: Sequence[Sentence],
        request: SearchRequest,
        advance: Callable[[int], object] = lambda num_sentences: None,
    ) -> Iterator[tuple[int, list[Hypothesis]]]:
        """See `Searcher.search`."""
        config, most = self.config, self._record.max_target_tokens
        sources = [sentence.source for sentence in sentences]
        prefixes = [sentence.prefix for sentence in sentences]
        # A prefix may be longer than the options allow, but not than the model does.
        limits = [
            min(max(config.max_target_tokens(len(source) + 1), len(prefix) + 1), most)
            for source, prefix in zip(sources, prefixes, strict=True)
        ]
        batches = _batches([len(ids) + 1 for ids in sources], config, self._search.workers)
        settings = Settings(
            config.beam_size,
            config.nbest,
            config.length_penalty,
            _STRICT if request.stricter else config.no_repeat_ngram,
            self._placeholders if config.placeholders else range(0),
            request.scores,
        )
        for rows, hypotheses in self._search.run(batches, sources, prefixes, limits, settings):
            yield from zip(rows, hypotheses, strict=True)
            advance(len(rows))


_STRICT = 3  # tokens of `NoRepeatNgram` where a translation was a loop


def _batches(lengths: Sequence[int], config: DecodingConfig, workers: int) -> list[list[int]]:
    """Groups sentences into batches of about equal work, the same number for each worker."""
    size = 1_000_000 if config.max_sentences == "auto" else int(config.max_sentences)
    most = _BATCH_TOKENS if config.max_tokens == "auto" else min(int(config.max_tokens), _BATCH_TOKENS)
    batches = batches_by_length(lengths, most, size)
    count = workers * math.ceil(len(batches) / workers)
    tokens = sum(lengths) / count if count else most
    while (tokens := tokens * _GROWTH) < most:
        if len(equal := batches_by_length(lengths, math.ceil(tokens), size)) <= count:
            return equal
    return batches


_GROWTH = 1.03  # a step of the size of a batch, until there are few enough


def check_decoding(decoding: DecodingConfig) -> None:
    """Refuses options of decoding that the engine does not have.

    Raises:
        UserError: the message names the option.
    """
    for key in _REFUSED:
        if value := getattr(decoding, key):
            shown = ",".join(value) if isinstance(value, dict) else value
            none = {"mbr": "null", "processors": "{}"}.get(key, "0")
            raise UserError(
                f"decoding.{key}={shown}: {_KEY} does not have it. Set decoding.{key}={none}, or use "
                "backend=nmt."
            )


def _device(name: str) -> tuple[str, int]:
    """Returns the device `auto`, `cpu` or `cuda`, and its number.

    Raises:
        UserError: the engine has no such device.
    """
    match = re.fullmatch(r"(auto|cpu|cuda)(?::(\d{1,4}))?", name)
    if match is None or match[1] != "cuda" and match[2]:
        raise UserError(f"device={name}: {_KEY} has auto, cpu, cuda, and numbered GPUs such as cuda:1.")
    return match[1], int(match[2] or 0)


class PyTorchEngine(Engine):
    """Searches with PyTorch, by `nmt.decoding`; has all options."""

    def check(self, config: TranslateConfig | ServeConfig) -> None:
        """See `Engine.check`."""
        if config.quantization is not None:
            raise UserError(
                f"quantization={config.quantization}: backend={config.backend} has no quantized weights. "
                "Add backend=ctranslate2, or remove it."
            )

    def load(self, config: TranslateConfig | ServeConfig, model_dir: list[str]) -> PyTorchModel:
        """See `Engine.load`."""
        options = TranslateConfig(
            model_dir, device=config.device, precision=config.precision, threads=config.threads
        )
        return PyTorchModel(LoadedModels.load(options))


class PyTorchModel:
    """One model or an ensemble; see `LoadedModel`."""

    threads = 1  # a call uses worker processes

    def __init__(self, loaded: LoadedModels) -> None:
        trained = loaded.bundles[0].config
        self.source_lang, self.target_lang = trained.data.source_lang, trained.data.target_lang
        self.decoding = trained.decoding
        self._loaded = loaded

    def translator(self, decoding: DecodingConfig) -> Translator:
        """See `LoadedModel.translator`; the metric of `decoding.mbr` may not be available."""
        return self._loaded.translator(decoding, configured_utility(decoding, self.target_lang))
