"""The locations of a model's files: a model folder, its run folder, a checkpoint of a run, or the hub.

A checkpoint holds only weights. Its configuration and vocabulary are those of its run.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from nmt.errors import UserError
from nmt.runtime.checksums import read_sections
from nmt.runtime.files import expanded
from nmt.runtime.os_errors import read_errors

CONFIG, WEIGHTS, STATE = "config.yaml", "model.safetensors", "state.json"
EXPORT_REPORT = "export.json"
"""The file of an export with its format, and with the result of its comparison with the model."""
PIECES = ("joint.spm", "source.spm")
"""A model has `joint.spm`, or both `source.spm` and the file of the target side."""
PIECE_LIST = "pieces.json"
"""The ids of the pieces of an imported model, next to its SentencePiece models."""
BUNDLE_FILES = (
    *(CONFIG, WEIGHTS, "results.json", "SHA256SUMS"),
    *("joint.spm", "source.spm", "target.spm", PIECE_LIST),
)
"""All files of a model folder that nmt reads."""

_CHECKPOINT = re.compile(r"update-([0-9]{1,18})")


def checkpoint_name(update: int) -> str:
    """Returns the name of a checkpoint's folder."""
    return f"update-{update:08d}"


def update_of(name: str) -> int | None:
    """Returns 300 for `update-300` and `update-00000300`; None if the name is not of a checkpoint."""
    match = _CHECKPOINT.fullmatch(name)
    return int(match[1]) if match else None


def find_model_folder(path: str | Path, key: str = "model_dir") -> Path:
    """Returns the folder that holds the weights of a model.

    `config_file` and `pieces_folder` return the paths of its other parts.

    Args:
        path: a model folder, a run folder that holds one, a checkpoint, or `hf://owner/name`.
        key: the option that gave the path, for the error message.

    Raises:
        UserError: the path is none of these.
    """
    given = expanded(path)
    with read_errors(given):
        folder = model_folder_or_none(path, key)
        if folder is None:
            raise UserError(f"{key}={path}: {_missing_model_reason(given, str(path), key)}")
        return folder


def model_folder_or_none(path: str | Path, key: str = "model_dir") -> Path | None:
    """Does the same as `find_model_folder`, but returns None if the path is none of these.

    Raises:
        OSError: the look-up fails.
        UserError: as for `model_folders`.
    """
    for folder in model_folders(path, key):
        if (folder / WEIGHTS).is_file() and config_file(folder).is_file():
            return folder
    return None


def _missing_model_reason(given: Path, path: str, key: str) -> str:
    inside = given if given.name == "checkpoints" else given.parent
    names = checkpoint_names(inside)
    if update_of(given.name) is not None and inside.is_dir() and not given.exists():
        return f"there is no such checkpoint. {inside} has {abbreviated(names) or 'none'}."
    if not given.exists():
        several = key == "model_dir" and "," in path
        hint = f'. Write several as a list: "{key}=[{path}]".' if several else ""
        return f"there is no such folder (looked for {given.absolute()}){hint}"
    if inside == given and names:
        return f"holds checkpoints. Name one of them: {key}={Path(path) / names[-1]}"
    if enclosing_run(given) is not None:
        return f"this checkpoint is not in its run: there is no {config_file(given)}. Move it back there."
    if (given / EXPORT_REPORT).is_file():
        return _export_reason(given)
    if (given / "checkpoints").is_dir():
        names = checkpoint_names(given / "checkpoints")
        last = f", or name a checkpoint: {key}={Path(path) / 'checkpoints' / names[-1]}" if names else ""
        return (
            f"its training has not ended, so it has no model yet. "
            f"Resume it with the same nmt-train command{last}"
        )
    return f"not a model folder: neither it nor its folder model/ has {CONFIG} and {WEIGHTS}"


def _export_reason(folder: Path) -> str:
    fix = "Give the model that it was made from"
    try:
        format = read_sections(folder / EXPORT_REPORT).get("format")
    except UserError:
        format = None
    if format == "ctranslate2":
        return (
            f"is an export for CTranslate2. {fix}. nmt-translate and nmt-serve also read the export, with "
            "backend=ctranslate2."
        )
    return f"is an export for another program. {fix}."


def model_folders(path: str | Path, key: str = "model_dir") -> list[Path]:
    """Returns the folders in which to look for a model that a user has named, the likeliest first.

    A model on the hub is downloaded, unless it is in the cache.

    Args:
        path: a model folder, a run folder, a checkpoint, whose number may lack the leading zeros, or
            `hf://owner/name`.
        key: the option that gave the path, for error messages.

    Raises:
        UserError: there is no such model on the hub, or it is neither on the network nor in the cache.
    """
    from nmt.runtime.hub.models import hub_folder, is_hub_name  # they import this module

    if is_hub_name(path):
        return [hub_folder(str(path), key)]
    given = expanded(path)
    update = update_of(given.name)
    padded = [] if update is None else [given.with_name(checkpoint_name(update))]
    return [given / "model", given, *padded]


def checkpoint_names(folder: Path) -> list[str]:
    """Returns the names of the checkpoints in a folder, the oldest first."""
    if not folder.is_dir():
        return []
    found = {update_of(path.name): path.name for path in folder.iterdir()}
    return [found[update] for update in sorted(update for update in found if update is not None)]


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
