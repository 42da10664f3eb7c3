"""Model folders to a translator on the device and in the precision that the options ask for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from nmt.config import DecodingConfig, EvalConfig, Precision, TranslateConfig, folders
from nmt.errors import UserError
from nmt.runtime import choose_device, choose_precision, set_threads

if TYPE_CHECKING:
    import torch

    from nmt.bundle import Bundle
    from nmt.decoding.translator import Translator


def load_translator(config: TranslateConfig) -> Translator:
    """The models of `config.model_dir`, as `load_models` gives them."""
    return load_models(config)[1]


def load_models(config: TranslateConfig) -> tuple[list[Bundle], Translator]:
    """Loads the models of `config.model_dir`.

    Returns:
        The models as they are stored, and all of them as one translator.

    Raises:
        UserError: the device or the precision is not available, a folder is not a model folder or damaged,
            or the vocabularies differ.
    """
    from nmt.bundle import load_bundles

    device, precision = set_up(config)
    bundles = load_bundles(folders("model_dir", config.model_dir))
    return bundles, translator_of(bundles, config.decoding, device, precision)


def set_up(config: TranslateConfig | EvalConfig) -> tuple[torch.device, Precision]:
    """Sets the threads of this process; returns the device and the precision to compute with.

    Raises:
        UserError: the device or the precision is unknown or not available.
    """
    if config.precision not in Precision.__members__:
        raise UserError(f"precision={config.precision}: must be one of {', '.join(Precision.__members__)}")
    set_threads(config.threads)
    device = choose_device(config.device)
    return device, choose_precision(Precision[config.precision], device)


def translator_of(
    bundles: Sequence[Bundle], decoding: DecodingConfig, device: torch.device, precision: Precision
) -> Translator:
    """A translator of models that are loaded.

    Args:
        bundles: one model, or several that translate together.
        decoding: beam search and batches.
        device: where to compute; the models are moved there.
        precision: of the matrix products.
    """
    from nmt.decoding.translator import Translator

    models = [bundle.model for bundle in bundles]
    return Translator(models, bundles[0].tokenizer, decoding, device=device, precision=precision)
