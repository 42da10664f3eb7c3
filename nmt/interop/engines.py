"""The engines that translate: `nmt`, and `ctranslate2`, which searches with an export."""

from __future__ import annotations

import re
from pathlib import Path

from nmt.config import DecodingConfig, ServeConfig, TranslateConfig
from nmt.data.subwords.tokenizer import Tokenizer
from nmt.decoding.loading import LoadedModels
from nmt.decoding.translator import Translator
from nmt.errors import UserError
from nmt.evaluation.task import configured_utility
from nmt.interop.ctranslate2_export import compute_type
from nmt.interop.ctranslate2_search import BACKEND, CTranslate2Searcher, check_decoding
from nmt.interop.interfaces import Engine, LoadedModel
from nmt.interop.record import Record
from nmt.interop.stored_exports import is_export, read_export, stored_export
from nmt.runtime.machine import available_cores

NAME = "ctranslate2"


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
                    raise UserError(f"{key}={value}: {BACKEND} has none. Remove it, or use backend=nmt.")

    def load(self, config: TranslateConfig | ServeConfig, model_dir: list[str]) -> LoadedModel:
        """See `Engine.load`."""
        if len(model_dir) > 1:
            raise UserError(f"model_dir=[{','.join(model_dir)}]: {BACKEND} has no ensembles. Give one model.")
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
        return _loaded_export(folder, record, config)


def _loaded_export(folder: Path, record: Record, config: TranslateConfig | ServeConfig) -> LoadedModel:
    """Loads an export; `device`, `threads` and `decoding.workers` of the options are used.

    Raises:
        UserError: the device is not available, or the export is damaged.
    """
    import ctranslate2

    device, index = _device(config.device)
    if device == "auto":
        device = "cuda" if ctranslate2.get_cuda_device_count() else "cpu"
    elif device == "cuda" and index >= (count := ctranslate2.get_cuda_device_count()):
        raise UserError(
            f"device={config.device}: CTranslate2 finds {count} GPUs on this machine. Use device=cpu."
        )
    cores, workers = config.threads or available_cores(), config.decoding.workers
    # As in nmt, two batches with one thread each take less time than one batch with two threads twice.
    threads = 1 if device == "cuda" else cores if workers == "auto" else int(workers)
    try:
        engine = ctranslate2.Translator(
            str(folder),
            device=device,
            device_index=index,
            compute_type=compute_type(record.quantization, device, index),
            inter_threads=threads,
            intra_threads=max(1, cores // threads),
            max_queued_batches=-1,
        )
    except (RuntimeError, ValueError) as error:
        raise UserError(f"{folder}: CTranslate2 can't load this export: {error}") from error
    tokenizer = Tokenizer.load(folder)

    def translator(decoding: DecodingConfig) -> Translator:
        searcher = CTranslate2Searcher(engine, tokenizer, decoding, record, threads)
        return Translator(searcher, tokenizer, facts=record)

    return LoadedModel(record.source_lang, record.target_lang, record.decoding, threads, translator)


def _device(name: str) -> tuple[str, int]:
    """Returns the device `auto`, `cpu` or `cuda`, and its number; another one raises `UserError`."""
    match = re.fullmatch(r"(auto|cpu|cuda)(?::(\d{1,4}))?", name)
    if match is None or match[1] != "cuda" and match[2]:
        raise UserError(f"device={name}: {BACKEND} has auto, cpu, cuda, and numbered GPUs such as cuda:1.")
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

    def load(self, config: TranslateConfig | ServeConfig, model_dir: list[str]) -> LoadedModel:
        """See `Engine.load`."""
        options = TranslateConfig(
            model_dir, device=config.device, precision=config.precision, threads=config.threads
        )
        models = LoadedModels.load(options)
        trained = models.bundles[0].config
        source_lang, target_lang = trained.data.source_lang, trained.data.target_lang

        def translator(decoding: DecodingConfig) -> Translator:
            return models.readers(decoding, configured_utility(decoding, target_lang))[0]

        return LoadedModel(source_lang, target_lang, trained.decoding, 1, translator)
