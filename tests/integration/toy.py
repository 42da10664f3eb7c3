"""A toy language pair that a tiny model learns in seconds, and the options to train on it."""

from __future__ import annotations

import random
from pathlib import Path

from nmt.config import (
    Activation,
    AugmentationConfig,
    DataConfig,
    DecodingConfig,
    ModelConfig,
    NormKind,
    Precision,
    SamplingConfig,
    ScheduleConfig,
    SplitConfig,
    TokenizerConfig,
    TrainConfig,
    TrainingConfig,
    TrainSplitConfig,
)

LATER = {
    **{"norm_kind": NormKind.rms, "activation": Activation.silu, "gated": True, "query_key_norm": True},
    **{"zero_init": True, "value_skip": True, "embedding_skip": True, "bigram_rows": 50, "logit_cap": 20.0},
}
"""All options of later papers."""
WORDS = [a + b for a in "bdfgklmn" for b in "aeiou"]


def write_toy(folder: Path, train: int = 2000, held_out: int = 60, seed: int = 0) -> Path:
    """Writes train, valid and test files; a target is its source with words and letters in reverse order."""
    folder.mkdir(parents=True, exist_ok=True)
    chance = random.Random(seed)
    for split, count in (("train", train), ("valid", held_out), ("test", held_out)):
        sources, targets = [], []
        for _ in range(count):
            words = chance.choices(WORDS, k=chance.randint(2, 7))
            sources.append(" ".join(words))
            targets.append(" ".join(word[::-1] for word in reversed(words)))
        (folder / f"{split}.src").write_text("\n".join(sources) + "\n", encoding="utf-8")
        (folder / f"{split}.tgt").write_text("\n".join(targets) + "\n", encoding="utf-8")
    return folder


def toy_config(
    data: Path,
    run_dir: Path,
    *,
    dropout: float = 0.1,
    max_tokens: int = 512,
    sampling: float = 0.0,
    concatenate: float = 0.0,
    typos: float = 0.0,
    placeholders: bool = False,
    **training: object,
) -> TrainConfig:
    """Returns the options of a run of a few seconds; `training` overrides options of its section."""
    options = {
        "max_updates": 12,
        "precision": Precision.fp32,
        "schedule": ScheduleConfig(name="inverse_sqrt", peak=3e-3, warmup_updates=100),
        "validate_every": 4,
        "checkpoint_every": 4,
        "log_every": 2,
        "report": False,
        "threads": 1,
        "devices": "1",
        **training,
    }
    return TrainConfig(
        run_dir=str(run_dir),
        name="toy",
        data=DataConfig(
            name="toy",
            source_lang="xx",
            target_lang="yy",
            train=TrainSplitConfig(source=str(data / "train.src"), target=str(data / "train.tgt")),
            valid=SplitConfig(source=str(data / "valid.src"), target=str(data / "valid.tgt")),
            test=SplitConfig(source=str(data / "test.src"), target=str(data / "test.tgt")),
            tokenizer=TokenizerConfig(vocab_size=424 if placeholders else 360),
            sampling=SamplingConfig(alpha=sampling),
            concatenate=concatenate,
            augmentation=AugmentationConfig(capitals=typos / 2, typos=typos),
            placeholders=placeholders,
            max_tokens=max_tokens,
            block_pairs=300,
            workers=1,
        ),
        model=ModelConfig(encoder_layers=1, decoder_layers=1, d_model=64, d_ff=128, heads=4, dropout=dropout),
        training=TrainingConfig(**options),  # type: ignore[arg-type]
        decoding=DecodingConfig(beam_size=2, max_length_offset=20),
    )
