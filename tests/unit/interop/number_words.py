"""A model that translates English number words into German ones, trained in seconds."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch.nn.functional import cross_entropy

from nmt.bundle import save_bundle
from nmt.config import DataConfig, DecodingConfig, ModelConfig, Tie, TokenizerConfig, TrainConfig
from nmt.copying.strings import PLACEHOLDERS
from nmt.data.batches.batching import Batch
from nmt.data.subwords.learning import train_tokenizer
from nmt.model import build_model
from nmt.runtime.fp32_products import plain_fp32_products

ENGLISH = "one two three four five six seven eight nine ten".split()
GERMAN = "eins zwei drei vier fünf sechs sieben acht neun zehn".split()
CONFIG = ModelConfig(
    encoder_layers=1, decoder_layers=1, d_model=32, d_ff=64, heads=2, dropout=0.0, tie=Tie.all
)


def pairs(count: int, seed: int) -> list[tuple[str, str]]:
    """Lines of one to six number words, and their translations."""
    chance = random.Random(seed)
    places = [chance.choices(range(10), k=chance.randint(1, 6)) for _ in range(count)]
    return [
        (" ".join(ENGLISH[one] for one in line), " ".join(GERMAN[one] for one in line)) for line in places
    ]


@contextmanager
def same_arithmetic() -> Iterator[None]:
    """Computes with two threads and torch's products, whatever the tests before have left behind.

    Their number changes rounding, and so the weights of a training: another model may have other near ties.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with plain_fp32_products():
            yield
    finally:
        torch.set_num_threads(threads)


@same_arithmetic()
def trained_model(folder: Path, seed: int = 1, updates: int = 120) -> Path:
    """Trains a model and saves it as `folder`/m; returns that folder. It is the same in every process."""
    train = pairs(400, 1)
    tokenizer = train_tokenizer(
        lambda: iter(train),
        TokenizerConfig(vocab_size=380, user_symbols=list(PLACEHOLDERS)),
        folder / "pieces",
    )
    torch.manual_seed(seed)
    model = build_model(CONFIG, tokenizer.source.size, tokenizer.target.size)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    chance = random.Random(2)
    for _ in range(updates):
        sources, targets = zip(*chance.sample(train, 64), strict=True)
        batch = Batch.of(tokenizer.encode_source(sources), tokenizer.encode_target(targets))
        loss = cross_entropy(model.logits(model(batch)), batch.target_out.long(), label_smoothing=0.1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    decoding = DecodingConfig(beam_size=3, max_length_offset=20)
    data = DataConfig(name="numbers", source_lang="en", target_lang="de")
    config = TrainConfig(name="numbers", data=data, model=CONFIG, decoding=decoding)
    save_bundle(folder / "m", config, model.state_dict(), tokenizer, {})
    return folder / "m"
