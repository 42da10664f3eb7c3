"""Every positional encoding, attention score and architecture: training, resuming and translation."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from toy import LATER, toy_config

from nmt.bundle import load_bundles, read_weights
from nmt.config import DecodingConfig, ModelConfig, PositionsConfig
from nmt.decoding.torch_searcher import TorchSearcher
from nmt.decoding.translator import Translator
from nmt.errors import UserError
from nmt.model import POSITIONS
from nmt.runtime.machine import choose_device
from nmt.training.run import train

SCORES = {
    "additive": ModelConfig(attention="additive"),
    "unscaled, in windows": ModelConfig(attention="dot", attention_window=2),
    "gru": ModelConfig(architecture="rnn_attention"),
    "lstm": ModelConfig(architecture="rnn_attention", options={"cell": "lstm", "attention": "luong"}),
    "rotary and alibi": ModelConfig(positions=PositionsConfig("rotary", decoder="alibi")),
    "later papers": ModelConfig(**LATER),
    "two widths": ModelConfig(key_width=4, value_width=20),
}
QUICK = {"gru", "later papers"}
VARIANTS = {**{name: ModelConfig(positions=PositionsConfig(name)) for name in POSITIONS}, **SCORES}


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in VARIANTS]
)
def test_a_resumed_run_ends_in_the_same_weights_and_translates(name: str, data: Path, tmp_path: Path) -> None:
    def trained(run: str, max_updates: int) -> None:
        config = toy_config(data, tmp_path / run, max_updates=max_updates)
        wanted = VARIANTS[name]
        config.model.positions = wanted.positions
        config.model.architecture, config.model.options = wanted.architecture, wanted.options
        config.model.attention, config.model.attention_window = wanted.attention, wanted.attention_window
        config.model.key_width, config.model.value_width = wanted.key_width, wanted.value_width
        config.model = replace(config.model, **{key: getattr(wanted, key) for key in LATER})
        train(config)

    trained("straight", 6)
    trained("stopped", 4)
    trained("stopped", 6)
    straight, resumed = (
        read_weights(tmp_path / run / "checkpoints/update-00000006/model.safetensors")
        for run in ("straight", "stopped")
    )
    assert straight.keys() == resumed.keys()
    for weight, value in straight.items():
        assert value.equal(resumed[weight]), weight

    bundle = load_bundles([str(tmp_path / "straight")])[0]
    lines = (data / "test.src").read_text().splitlines()

    def translated(max_sentences: int, lines: list[str]) -> list[str]:
        config = DecodingConfig(max_sentences=max_sentences, max_length_offset=5)
        searcher = TorchSearcher([bundle.model], bundle.tokenizer, config, device=choose_device("cpu"))
        translator = Translator(searcher, bundle.tokenizer)
        return [translation.hypotheses[0].text for translation in translator.translate(lines)]

    together = translated(64, lines)
    assert together == translated(1, lines) == translated(3, lines[::-1])[::-1]


def test_a_sentence_beyond_the_last_position(data: Path, tmp_path: Path) -> None:
    """Training refuses it before the first update; a translator cuts it and reports this.

    The padding of a batch, of up to 64 tokens, is not such a sentence.
    """
    config = toy_config(data, tmp_path / "run", max_updates=2)
    config.model.positions = PositionsConfig("learned", {"max_positions": 4})
    with pytest.raises(UserError, match=r"but the learned encoding has 4 positions\. Set max_positions"):
        train(config)
    assert not list((tmp_path / "run").glob("checkpoints/*"))
    config = toy_config(data, tmp_path / "run", max_updates=2)
    config.model.positions = PositionsConfig("learned", {"max_positions": 30})
    train(config)
    bundle = load_bundles([str(tmp_path / "run")])[0]
    decoding = DecodingConfig(max_length_offset=5)
    searcher = TorchSearcher([bundle.model], bundle.tokenizer, decoding, device=choose_device("cpu"))
    (cut,) = Translator(searcher, bundle.tokenizer).translate(["bada " * 100])
    assert cut.truncated > 30 and cut.cut_to == 30 and cut.num_tokens <= 30
