"""Trainings of a tiny model on sixty pairs in memory, for tests of the loop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from nmt.config import (
    DataConfig,
    DecodingConfig,
    ModelConfig,
    Precision,
    ScheduleConfig,
    TokenizerConfig,
    TrainConfig,
    TrainingConfig,
)
from nmt.data.corpora.held_out import HeldOut
from nmt.data.preparation.prepare import Prepared
from nmt.data.store import Store
from nmt.data.subwords.learning import train_tokenizer
from nmt.data.subwords.tokenizer import Tokenizer
from nmt.training.processes.ranks import Ranks
from nmt.training.state.run_folder import RunFolder
from nmt.training.trainer import Trainer

PAIRS = [(" ".join("ab" * (n % 5 + 1)), " ".join("ba" * (n % 7 + 1))) for n in range(60)]


def prepared_pairs(folder: Path, *, joint: bool = True) -> Prepared:
    """Returns the prepared data, with a vocabulary that is learned in the folder.

    If it is not joint, that of the target is larger.
    """
    tokenizer = _vocabulary(folder, PAIRS)
    if not joint:
        models = tokenizer, _vocabulary(folder, [*PAIRS, ("c d e", "c d e")])
        tokenizer = Tokenizer(*(one.target.processor.serialized_model_proto() for one in models))
    sources, targets = [list(side) for side in zip(*PAIRS, strict=True)]
    store = Store.of(tokenizer.encode_source(sources), tokenizer.encode_target(targets))
    valid = HeldOut("valid", sources[:4], targets[:4], None, {})
    return Prepared(tokenizer, store, {"": valid}, {}, {"": Store.of([[5]], [[5]])}, {}, "print")


def _vocabulary(folder: Path, pairs: list[tuple[str, str]]) -> Tokenizer:
    return train_tokenizer(lambda: iter(pairs), TokenizerConfig(vocab_size=300), folder)


def toy_trainer(prepared: Prepared, folder: Path, *, dropout: float = 0.0, **training: Any) -> Trainer:
    """Returns a trainer; further options are those of `training`."""
    options: dict[str, Any] = {
        "precision": Precision.fp32,
        "devices": "1",
        "validate_every": 1000,
        "schedule": ScheduleConfig(name="constant", peak=0.01, warmup_updates=0),
        **training,
    }
    config = TrainConfig(
        run_dir=str(folder),
        data=DataConfig(name="ab", source_lang="xx", target_lang="yy", max_tokens=40),
        model=ModelConfig(encoder_layers=1, decoder_layers=1, d_model=16, d_ff=32, heads=2, dropout=dropout),
        training=TrainingConfig(**options),
        decoding=DecodingConfig(beam_size=1),
    )
    folder.mkdir(exist_ok=True)
    return Trainer(config, prepared, RunFolder(folder), Ranks.join(0, 1, 0, torch.device("cpu")), bool)
