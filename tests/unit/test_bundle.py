"""A model folder: written completely, read back equal, with a clear message for each error."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest
import torch

from nmt.bundle import (
    load_bundle,
    load_weights,
    read_weights,
    save_bundle,
)
from nmt.config import ModelConfig, Norm, TokenizerConfig, TrainConfig
from nmt.config.storage import from_yaml, to_yaml
from nmt.data.subwords.learning import train_tokenizer
from nmt.data.subwords.tokenizer import Tokenizer
from nmt.errors import UserError
from nmt.model.transformer import Transformer
from nmt.runtime import tensors

WORDS = "the cat sat on a mat and saw one old dog run home again".split()
PAIRS = [(" ".join(WORDS[i:] + WORDS[:i]), " ".join(reversed(WORDS[i:] + WORDS[:i]))) for i in range(14)]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return train_tokenizer(
        lambda: iter(PAIRS), TokenizerConfig(vocab_size=320), tmp_path_factory.mktemp("tokenizer")
    )


@pytest.fixture
def config() -> TrainConfig:
    config = TrainConfig(name="small", run_dir="runs/small")
    config.data.name, config.data.source_lang, config.data.target_lang = "toy", "en", "de"
    config.model = ModelConfig(
        encoder_layers=1, decoder_layers=1, d_model=16, d_ff=32, heads=2, norm=Norm.pre
    )
    return config


def model_for(config: TrainConfig, tokenizer: Tokenizer) -> Transformer:
    torch.manual_seed(1)
    return Transformer(config.model, tokenizer.source_vocab_size, tokenizer.target_vocab_size)


def test_round_trip(tmp_path: Path, config: TrainConfig, tokenizer: Tokenizer) -> None:
    weights = model_for(config, tokenizer).state_dict()
    folder = tmp_path / "run" / "model"
    save_bundle(folder, config, weights, tokenizer, {"test": {"bleu": 1.5}})
    bundle = load_bundle(tmp_path / "run")
    assert bundle.folder == folder and load_bundle(folder).folder == folder
    assert bundle.config == config
    assert bundle.results == {"test": {"bleu": 1.5}}
    assert bundle.tokenizer.fingerprint == tokenizer.fingerprint
    assert not bundle.model.training
    assert all(torch.equal(tensor, weights[name]) for name, tensor in bundle.model.state_dict().items())


def test_saving_again_replaces_and_leaves_nothing_else(
    tmp_path: Path, config: TrainConfig, tokenizer: Tokenizer
) -> None:
    weights = model_for(config, tokenizer).state_dict()
    for score in (1, 2):
        save_bundle(tmp_path / "model", config, weights, tokenizer, {"score": score})
    assert json.loads((tmp_path / "model" / "results.json").read_text()) == {"score": 2}
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_configuration_as_yaml_keeps_every_option(config: TrainConfig) -> None:
    config.training.max_minutes = 1.5
    config.data.tokenizer.user_symbols = ["<a>"]
    assert from_yaml(TrainConfig, to_yaml(config), "x") == config


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("model: {d_modl: 3}", "x: model.d_modl: this version of nmt has no such option"),
        ("model: [", "x: is damaged: line 3: "),
        ("decoding: {beam_size: 0}", "x: decoding.beam_size=0: must be between 1 and 1,000"),
        ("- a list", "x: is damaged: line 2: "),
    ],
)
def test_configurations_that_are_wrong(text: str, words: str) -> None:
    with pytest.raises(UserError) as caught:
        from_yaml(TrainConfig, f"data: {{name: a, source_lang: b, target_lang: c}}\n{text}", "x")
    assert str(caught.value).startswith(words)


def test_weights_of_another_vocabulary_or_shape(
    tmp_path: Path, config: TrainConfig, tokenizer: Tokenizer
) -> None:
    model = model_for(config, tokenizer)
    other = Transformer(config.model, tokenizer.source_vocab_size + 1, tokenizer.target_vocab_size + 1)
    with pytest.raises(UserError, match="w: belongs to another vocabulary"):
        load_weights(model, other.state_dict(), Path("w"))
    config.model.decoder_layers = 2
    deeper = model_for(config, tokenizer)
    with pytest.raises(UserError, match="w: belongs to another model: it has an unknown"):
        load_weights(model, deeper.state_dict(), Path("w"))
    with pytest.raises(UserError, match="w: belongs to another model: it lacks"):
        load_weights(deeper, model.state_dict(), Path("w"))


def test_damaged_weights_are_named(tmp_path: Path, config: TrainConfig, tokenizer: Tokenizer) -> None:
    save_bundle(tmp_path / "model", config, model_for(config, tokenizer).state_dict(), tokenizer, {})
    path = tmp_path / "model" / "model.safetensors"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(UserError, match=r"model.safetensors: is damaged"):
        load_bundle(tmp_path)
    with pytest.raises(UserError, match="can't read .*: it does not exist"):
        read_weights(tmp_path / "none")


def test_results_that_are_damaged_are_done_without(
    tmp_path: Path, config: TrainConfig, tokenizer: Tokenizer, caplog: pytest.LogCaptureFixture
) -> None:
    model = Transformer(config.model, tokenizer.source_vocab_size, tokenizer.target_vocab_size)
    save_bundle(tmp_path / "model", config, model.state_dict(), tokenizer, {"a": 1})
    (tmp_path / "model" / "SHA256SUMS").unlink()
    deep = "[" * 100_000
    for text in (
        '{"a": ',
        "[]",
        "7",
        '{"data": []}',
        '{"data": {"test": 1}}',
        '{"training": "x"}',
        deep,
        "9" * 5000,
    ):
        (tmp_path / "model" / "results.json").write_text(text)
        caplog.clear()
        assert load_bundle(tmp_path).results == {}
        assert "results.json is damaged and will be ignored" in caplog.text


def test_a_full_disk_is_told_and_leaves_the_model_there_was(
    tmp_path: Path, config: TrainConfig, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = model_for(config, tokenizer).state_dict()
    save_bundle(tmp_path / "model", config, weights, tokenizer, {"score": 1})

    def full(*args: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tensors, "file_parts", full)
    with pytest.raises(UserError, match=r"can't write .*model: no space is left"):
        save_bundle(tmp_path / "model", config, weights, tokenizer, {"score": 2})
    assert load_bundle(tmp_path).results == {"score": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_what_a_killed_process_left_is_cleared_away(
    tmp_path: Path, config: TrainConfig, tokenizer: Tokenizer
) -> None:
    weights = model_for(config, tokenizer).state_dict()
    for score in (1, 2):
        for name in (".model.tmp", ".model.old"):
            (tmp_path / name).mkdir()
            (tmp_path / name / "model.safetensors").write_text("left")
        save_bundle(tmp_path / "model", config, weights, tokenizer, {"score": score})
        assert load_bundle(tmp_path).results == {"score": score}
        assert [path.name for path in tmp_path.iterdir()] == ["model"]
