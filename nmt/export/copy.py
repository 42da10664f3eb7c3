"""`format=nmt`: a model folder for nmt itself, from a run, a checkpoint or a model on the hub."""

from __future__ import annotations

from pathlib import Path

import torch

from nmt.bundle import Bundle, load_bundle, write_files
from nmt.errors import UserError


def write_copy(bundle: Bundle, folder: Path, place: str) -> None:
    """Writes a model into an empty folder, reads it back, and compares each weight, bit for bit.

    Args:
        bundle: the model.
        folder: the folder.
        place: as for `nmt.card.bundle_card`.

    Raises:
        UserError: the copy differs; this is an error of the disk or of nmt.
    """
    weights = bundle.model.state_dict()
    write_files(folder, bundle.config, weights, bundle.tokenizer, bundle.results, place)
    copy = load_bundle(folder)
    there = copy.model.state_dict()
    same = (
        copy.config == bundle.config
        and copy.tokenizer.fingerprint == bundle.tokenizer.fingerprint
        and all(torch.equal(_bits(weights[name]), _bits(there[name])) for name in weights)
    )
    if not same:
        raise UserError(f"format=nmt: {folder} differs from the model in {bundle.folder}. It was deleted.")


def _bits(weight: torch.Tensor) -> torch.Tensor:
    return weight.contiguous().view(torch.uint8)
