"""The common starting point of all cases, created once: a toy corpus, a finished run on it, and its cache."""

from __future__ import annotations

from pathlib import Path

from commands import SMALL
from toy import write_toy

_DATA = tuple(
    f"data.{split}.{side}={split}.{ending}"
    for split in ("train", "valid", "test")
    for side, ending in (("source", "src"), ("target", "tgt"))
)
TRAINING = (
    "data=local",
    "data.source_lang=xx",
    "data.target_lang=yy",
    *_DATA,
    *SMALL,
    "training.max_updates=4",
    "training.validate_every=2",
    "training.checkpoint_every=2",
    "training.devices=1",
    "data.workers=1",
    "decoding.max_length_offset=5",
    "run_dir=run",
)
"""The options of a training that takes a second."""


def write_corpus(folder: Path) -> None:
    """Writes the toy corpus, and translations of its test set to score."""
    write_toy(folder, train=120, held_out=6)
    reference = (folder / "test.tgt").read_text(encoding="utf-8")
    (folder / "ref.txt").write_text(reference, encoding="utf-8")
    (folder / "hyp.txt").write_text(reference.replace("a", "e", 3), encoding="utf-8")
