"""Fixtures: a model of number words, and translators with both engines."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from number_words import trained_model

from nmt.config import DecodingConfig, TranslateConfig
from nmt.decoding.lines import LineTranslator
from nmt.engines import ENGINES


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder; its exports are made once."""
    return trained_model(tmp_path_factory.mktemp("numbers"))


TranslatorOf = Callable[..., LineTranslator]


@pytest.fixture(scope="session")
def translator_of() -> TranslatorOf:
    """Loads a model with an engine and options of decoding."""

    def load(folder: Path, backend: str, quantization: str | None = None, **decoding: Any) -> LineTranslator:
        options = DecodingConfig(**{"beam_size": 3, "max_length_offset": 20, **decoding})
        config = TranslateConfig(
            [str(folder)],
            backend=backend,
            quantization=quantization,
            device="cpu",
            threads=1,
            decoding=options,
        )
        engine = ENGINES.find(backend, f"backend={backend}")()
        engine.check(config)
        return engine.load(config, [str(folder)]).translator(options)

    return load
