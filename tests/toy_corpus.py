"""A toy corpus to prepare, and views of the cache that it leaves."""

from __future__ import annotations

from pathlib import Path
from random import Random

from nmt.config import CleaningConfig, DataConfig, SplitConfig, TokenizerConfig, TrainSplitConfig
from nmt.data.preparation.prepare import Prepared

SHARD = 64
"""Pairs of a shard."""


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
    for name, rows in (("train", train), ("valid", valid)):
        for side, suffix in enumerate(("xx", "yy")):
            text = "".join(row[side] + "\n" for row in rows)
            (folder / f"{name}.{suffix}").write_text(text, encoding="utf-8")
    return DataConfig(
        name="toy",
        source_lang="xx",
        target_lang="yy",
        train=TrainSplitConfig(source=str(folder / "train.xx"), target=str(folder / "train.yy")),
        valid=SplitConfig(source=str(folder / "valid.xx"), target=str(folder / "valid.yy")),
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
