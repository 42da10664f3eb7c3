"""A thousand lines, most of them odd, through the real command: one output line each, for any batch size."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
import torch
from commands import Toy
from toy import WORDS

from nmt.bundle import save_bundle
from nmt.config import DataConfig, ModelConfig, Norm, Tie, TokenizerConfig, TrainConfig
from nmt.data.subwords.learning import train_tokenizer
from nmt.data.subwords.tokenizer import Tokenizer
from nmt.model import Transformer

MAX_SOURCE_TOKENS = 16
BLANK = ["", " ", "\t\t", "\r", "\x0c", "\x0b \x1c\x1d\x1e\x85", "\u2028", "\u2029\xa0", "\u3000"]
ODD = [
    "the cat\r",
    "the\rcat",
    "the cat\x0csees",
    "the\u2028old\u2029dog\x85",
    "\x00",
    "a\x00cat",
    "\x01\x02\x7f",
    "</s>",
    "<unk> <s> <pad> the </s> cat",
    "\u2581the\u2581cat",
    "🙂👩‍👩‍👧",
    "猫は木を見る",
    "кот и собака",
    "القط يرى الكلب",
    "e\u0301 \u200b\u202e\ufeff",
    "\ufffd\ufffe\U0010ffff",
    "\"quoted, \\n\" 'and' %s {} $x",
]


def sentences(generator: random.Random, count: int) -> list[str]:
    return [" ".join(generator.choices(WORDS, k=generator.randint(1, 7))) for _ in range(count)]


def thousand_lines() -> list[str]:
    generator = random.Random(3)
    normal = sentences(generator, 40)
    long = [" ".join(generator.choices(WORDS, k=size)) for size in (40, 3000)]
    lines = generator.choices(BLANK, k=500) + generator.choices(ODD, k=250) + generator.choices(normal, k=240)
    lines += generator.choices(long, k=8) + long
    generator.shuffle(lines)
    return lines


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    pairs = [(line, line) for line in sentences(random.Random(1), 200)]
    folder = tmp_path_factory.mktemp("tokenizer")
    return train_tokenizer(lambda: iter(pairs), TokenizerConfig(vocab_size=300), folder)


@pytest.fixture(scope="module")
def model_dir(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untrained model: its translations are meaningless, which does not affect the number of lines."""
    torch.manual_seed(2)
    config = TrainConfig(data=DataConfig("toy", "xx", "yy"))
    # One layer, and untied softmax weights: tied weights, untrained, would repeat one piece for ever.
    config.model = ModelConfig(
        encoder_layers=1, decoder_layers=1, d_model=32, d_ff=64, heads=2, norm=Norm.pre, tie=Tie.none
    )
    model = Transformer(config.model, tokenizer.source_vocab_size, tokenizer.target_vocab_size)
    folder = tmp_path_factory.mktemp("model") / "model"
    save_bundle(folder, config, model.state_dict(), tokenizer, {})
    return folder


@pytest.mark.slow
def test_a_thousand_odd_lines(model_dir: Path, tokenizer: Tokenizer, toy: Toy) -> None:
    lines = thousand_lines()
    assert len(lines) == 1000
    options = [
        f"model_dir={model_dir}",
        "device=cpu",
        "threads=1",
        "decoding.beam_size=2",
        "decoding.max_length_offset=2",
        f"decoding.max_source_tokens={MAX_SOURCE_TOKENS}",
    ]
    results = [
        toy.run("nmt-translate", *options, f"decoding.max_sentences={size}", text="\n".join(lines) + "\n")
        for size in (2, 7, 64)
    ]
    for result in results:
        assert result.returncode == 0, result.stderr.decode()
    texts = [result.stdout.decode().split("\n") for result in results]
    assert [len(text) for text in texts] == [1001] * 3
    assert texts[0][-1] == ""
    assert texts[0] == texts[1] == texts[2]

    translations = texts[0][:-1]
    for line, translation in zip(lines, translations, strict=True):
        if line in BLANK:
            assert translation == ""
    # Equal lines have equal translations, so the order is right. Different lines mostly differ.
    by_line = dict(zip(lines, translations, strict=True))
    assert translations == [by_line[line] for line in lines]
    assert len(set(by_line.values())) > 40

    num_tokens = [len(ids) + 1 for ids in tokenizer.encode_source(lines)]
    expected = [(n, size) for n, size in enumerate(num_tokens, start=1) if size > MAX_SOURCE_TOKENS]
    assert len(expected) >= 10
    for result in results:
        reported = re.findall(
            rf"line (\d+): cut to {MAX_SOURCE_TOKENS} of ([\d,]+) tokens", result.stderr.decode()
        )
        assert [(int(number), int(size.replace(",", ""))) for number, size in reported] == expected
        assert "1,000 lines, " in result.stderr.decode()
