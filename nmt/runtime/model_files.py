"""The files of a model folder and of a checkpoint, and their names.

A checkpoint holds only weights. Its configuration and vocabulary are those of its run.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

CONFIG, WEIGHTS, STATE, RESULTS = "config.yaml", "model.safetensors", "state.json", "results.json"
EXPORT_REPORT = "export.json"
"""The file of an export with its format, and with the result of its comparison with the model."""
PIECES = ("joint.spm", "source.spm")
"""A model has `joint.spm`, or both `source.spm` and the file of the target side."""
PIECE_LIST = "pieces.json"
"""The ids of the pieces of an imported model, next to its SentencePiece models."""
BUNDLE_FILES = (
    *(CONFIG, WEIGHTS, RESULTS, "SHA256SUMS"),
    *("joint.spm", "source.spm", "target.spm", PIECE_LIST),
)
"""All files of a model folder that nmt reads."""

_CHECKPOINT = re.compile(r"update-([0-9]{1,18})")


def is_of_model(path: Path) -> bool:
    """Returns whether `path` is one of the files of a model folder or of a checkpoint."""
    path = Path(os.path.realpath(path))
    names = path.name in BUNDLE_FILES or path.name == STATE
    return names and path.is_file() and (path.parent / WEIGHTS).is_file()


def checkpoint_name(update: int) -> str:
    """Returns the name of a checkpoint's folder."""
    return f"update-{update:08d}"


def update_of(name: str) -> int | None:
    """Returns 300 for `update-300` and `update-00000300`; None if the name is not of a checkpoint."""
    match = _CHECKPOINT.fullmatch(name)
    return int(match[1]) if match else None


def checkpoint_names(folder: Path) -> list[str]:
    """Returns the names of the checkpoints in a folder, the oldest first."""
    if not folder.is_dir():
        return []
    names = {update_of(path.name): path.name for path in folder.iterdir()}
    return [names[update] for update in sorted(update for update in names if update is not None)]


def abbreviated(names: Sequence[str]) -> str:
    """Joins names with commas; of more than eight, only the first three and the last three."""
    return ", ".join(names if len(names) <= 8 else [*names[:3], "...", *names[-3:]])


def enclosing_run(folder: Path) -> Path | None:
    """Returns the run folder of a checkpoint; None if the folder is not a checkpoint."""
    if (folder / CONFIG).is_file() or not (folder / STATE).is_file():
        return None
    return folder.resolve().parent.parent


def config_file(folder: Path) -> Path:
    """Returns the path of the configuration of the model in a folder."""
    return (enclosing_run(folder) or folder) / CONFIG


def pieces_folder(folder: Path) -> Path:
    """Returns the folder that holds the vocabulary of the model in a folder."""
    run = enclosing_run(folder)
    if run is None:
        return folder
    # Runs of earlier versions have the vocabulary only in their final model.
    return next((place for place in (run, run / "model") if holds_pieces(place)), run)


def holds_pieces(folder: Path) -> bool:
    """Returns whether a folder holds a vocabulary."""
    return any((folder / name).is_file() for name in PIECES)
