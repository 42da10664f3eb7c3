"""The interface of an engine that translates, and `ENGINES`, its registry."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Protocol

from nmt.config import DecodingConfig, ServeConfig, TranslateConfig
from nmt.runtime import Registry

if TYPE_CHECKING:
    from nmt.decoding.lines import LineTranslator


class LoadedModel(Protocol):
    """A model that an engine has loaded.

    Attributes:
        source_lang: code of the source language.
        target_lang: code of the target language.
        decoding: the options of decoding that the model was tested with.
        threads: the number of threads of one process whose calls the engine computes side by side.
    """

    source_lang: str
    target_lang: str
    decoding: DecodingConfig
    threads: int

    def translator(self, decoding: DecodingConfig) -> LineTranslator:
        """Returns a translator with these options.

        Raises:
            UserError: an option is wrong or not available.
        """
        ...


class Engine(ABC):
    """Translates with models.

    A subclass is registered in `ENGINES` under the name of the option `backend`.
    """

    @abstractmethod
    def check(self, config: TranslateConfig | ServeConfig) -> None:
        """Refuses options that the engine does not have, before a model is loaded.

        Raises:
            UserError: the message names the option.
        """

    @abstractmethod
    def load(self, config: TranslateConfig | ServeConfig, model_dir: list[str]) -> LoadedModel:
        """Loads a model, or several models that translate together.

        Args:
            config: options for which `check` has passed.
            model_dir: the folders, in place of `config.model_dir`.

        Raises:
            UserError: a folder is not a model folder or is damaged, or the device is not available.
        """


ENGINES: Registry[type[Engine]] = Registry("backend")
"""Name of the engine → engine."""
