"""Fixtures: a model of number words with both engines, tokenizers, and random models in model folders."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from exported_models import sentences
from number_words import trained_model

from nmt.bundle import Bundle, load_bundle, save_bundle
from nmt.config import (
    DataConfig,
    DecodingConfig,
    ModelConfig,
    Tie,
    TokenizerConfig,
    TrainConfig,
    TranslateConfig,
)
from nmt.data.subwords.learning import train_tokenizer
from nmt.data.subwords.tokenizer import Tokenizer
from nmt.decoding.translator import Translator
from nmt.interop import ENGINES, argos_export, ctranslate2_export
from nmt.model import build_model


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """Compares exports with one thread: with more, the threads of these small models mostly wait."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (argos_export, ctranslate2_export):
            patch.setattr(module, "THREADS", 1)
        yield


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder; its exports are made once."""
    return trained_model(tmp_path_factory.mktemp("numbers"))


TranslatorOf = Callable[..., Translator]


@pytest.fixture(scope="session")
def translator_of() -> TranslatorOf:
    """Loads a model with an engine and options of decoding."""

    def load(folder: Path, backend: str, quantization: str | None = None, **decoding: Any) -> Translator:
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


@pytest.fixture(scope="session")
def tokenizers(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Tokenizer]:
    pairs = [*zip(sentences(300, 3), sentences(300, 4), strict=True)]
    return {
        joint: train_tokenizer(
            lambda: iter(pairs),
            TokenizerConfig(vocab_size=320, joint=joint),
            tmp_path_factory.mktemp("pieces"),
        )
        for joint in (True, False)
    }


@pytest.fixture(scope="session")
def bundle_of(
    tokenizers: dict[bool, Tokenizer], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[ModelConfig], Bundle]:
    """Saves a random model; its weights are larger than initial ones, so that its choices are clear."""

    def build(config: ModelConfig) -> Bundle:
        tokenizer = tokenizers[config.tie is Tie.all]
        torch.manual_seed(1)
        model = build_model(config, tokenizer.source.size, tokenizer.target.size)
        with torch.no_grad():
            for name, weight in model.named_parameters():
                weight.mul_(1.5)
                if "norm" in name or name.endswith("bias"):
                    weight.add_(torch.randn_like(weight) * 0.1)
        folder = tmp_path_factory.mktemp("model") / "m"
        data = DataConfig(name="toy", source_lang="en", target_lang="de")
        whole = TrainConfig(name="toy", data=data, model=config)
        save_bundle(folder, whole, model.state_dict(), tokenizer, {})
        return load_bundle(folder)

    return build
