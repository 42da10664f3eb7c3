"""The engine `nmt`: models and search of nmt in PyTorch, with all options."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nmt.config import DecodingConfig, ServeConfig, TranslateConfig
from nmt.decoding.loading import Loaded, load_models
from nmt.engines.engine import Engine
from nmt.errors import UserError
from nmt.evaluation.utility import configured_utility

if TYPE_CHECKING:
    from nmt.decoding.translator import Translator


class PyTorch(Engine):
    """Searches with `nmt.decoding`."""

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
        return PyTorchModel(load_models(options))


class PyTorchModel:
    """One model or an ensemble; see `LoadedModel`."""

    threads = 1  # a call uses worker processes

    def __init__(self, loaded: Loaded) -> None:
        trained = loaded.bundles[0].config
        self.source_lang, self.target_lang = trained.data.source_lang, trained.data.target_lang
        self.decoding = trained.decoding
        self._loaded = loaded

    def translator(self, decoding: DecodingConfig) -> Translator:
        """See `LoadedModel.translator`; the metric of `decoding.mbr` may not be available."""
        return self._loaded.translator(decoding, configured_utility(decoding, self.target_lang))
