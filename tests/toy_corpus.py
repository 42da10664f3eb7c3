"""A toy corpus to prepare, views of the cache that it leaves, and tokenizers learnt from toy text."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

from nmt.config import CleaningConfig, DataConfig, SplitConfig, TokenizerConfig, TrainSplitConfig
from nmt.data.preparation.prepare import Prepared
from nmt.data.subwords.learning import train_tokenizer
from nmt.data.subwords.tokenizer import Tokenizer

SHARD = 64
"""Pairs of a shard."""


def toy_pairs(count: int) -> list[tuple[str, str]]:
    """Returns pairs of six words over five letters."""
    random = Random(4)
    words = ["".join(random.choices("abcde", k=random.randint(1, 7))) for _ in range(200)]
    return [
        (" ".join(random.choices(words, k=6)), " ".join(random.choices(words, k=6))) for _ in range(count)
    ]


def learnt(pairs: Sequence[tuple[str, str]], **options: Any) -> Tokenizer:
    """Returns a tokenizer learnt from pairs, with these options of `data.tokenizer`."""
    with tempfile.TemporaryDirectory() as folder:
        return train_tokenizer(lambda: iter(pairs), TokenizerConfig(**options), Path(folder))


def write_pairs(folder: Path, name: str, pairs: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Writes two text files; returns the options that name them."""
    paths = [folder / f"{name}.{suffix}" for suffix in ("xx", "yy")]
    for side, path in enumerate(paths):
        path.write_text("".join(f"{pair[side]}\n" for pair in pairs), encoding="utf-8")
    return {"source": str(paths[0]), "target": str(paths[1])}


def write_corpus(folder: Path, num_pairs: int = 300) -> DataConfig:
    """Writes pairs of words over few letters; cleaning drops some of them."""
    random = Random(8)
    words = ["".join(random.choices("abcdefgh", k=random.randint(1, 6))) for _ in range(300)]
    sources = [" ".join(random.choices(words, k=random.randint(2, 9))) for _ in range(num_pairs + 5)]
    pairs = [(source, source.upper()[::-1] + " X") for source in sources]
    valid, train = pairs[:5], pairs[5:]
    train[10] = ("", "empty")
    train[20] = train[200]
    train[201] = train[200]
    train[30] = (valid[3][0], "leaked")
    train[40] = (" ".join(words[:80]), " ".join(words[80:160]))  # over 60 pieces
    return DataConfig(
        name="toy",
        source_lang="xx",
        target_lang="yy",
        train=TrainSplitConfig(**write_pairs(folder, "train", train)),
        valid=SplitConfig(**write_pairs(folder, "valid", valid)),
        tokenizer=TokenizerConfig(vocab_size=340),
        cleaning=CleaningConfig(max_pieces=60),
        cache_dir=str(folder / "cache"),
        workers=1,
    )


def files(config: DataConfig) -> dict[str, bytes]:
    root = Path(str(config.cache_dir))
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def stamps(config: DataConfig) -> dict[str, tuple[int, int]]:
    """Returns inode and modification time of every file except the locks, to detect writes."""
    root = Path(str(config.cache_dir))
    return {
        str(path.relative_to(root)): (path.stat().st_ino, path.stat().st_mtime_ns)
        for path in root.rglob("*")
        if path.is_file() and path.suffix != ".lock"
    }


def folder(config: DataConfig, stage: str) -> Path:
    (found,) = Path(str(config.cache_dir)).glob(f"prepared/{stage}-*[0-9a-f]")
    return next(path for path in [found] if path.is_dir())


def pairs(prepared: Prepared) -> list[tuple[list[int], list[int]]]:
    return [
        (prepared.train.pair(row)[0].tolist(), prepared.train.pair(row)[1].tolist())
        for row in range(prepared.train.num_pairs)
    ]
