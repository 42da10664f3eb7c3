"""The exports that engines read: written at the first use of a model, and reused.

An export is next to the weights, in `exports/`, or in the cache if that folder can't be written, is a
checkpoint, or is a download. It is used only if the files of the model and of the export have the recorded
checksums.
"""

from __future__ import annotations

import os
from pathlib import Path

from nmt.config import DecodingConfig, ExportConfig
from nmt.config.interop import MOST_POSITIONS
from nmt.errors import UserError
from nmt.interop.record import Record, fingerprint_of, read_record
from nmt.interop.tasks import export, exporter_of
from nmt.runtime.checksums import SUMS, damaged_file
from nmt.runtime.files import cache_folder, expanded, folder_in_cache, locked, make_folder, remove
from nmt.runtime.hub import find_model_folder, is_hub_name
from nmt.runtime.model_files import EXPORT_REPORT, enclosing_run
from nmt.runtime.streams import log

_LENGTH = 2048  # positions of an export; more if the options need them
_SENTENCES = 200  # of the comparison
_BLEU_LOSS = 1.0  # so few sentences need a wider limit than the default of nmt-export


def is_export(path: str) -> bool:
    """Returns whether a path is the folder of an export."""
    return (expanded(path) / EXPORT_REPORT).is_file()


def read_export(path: str, format: str, quantization: str | None) -> tuple[Path, Record]:
    """Returns the folder of an export that the user has named, and its record.

    Raises:
        UserError: it is damaged, of another format or number format, or of an earlier version of nmt.
    """
    folder = expanded(path)
    record = read_record(folder)
    if record.format != format:
        raise UserError(
            f"model_dir={path}: is an export for {record.format}, not for {format}. Give the model that it "
            "was made from."
        )
    if quantization not in (None, record.quantization):
        raise UserError(
            f"quantization={quantization}: the weights of the export {path} are {record.quantization}. "
            "Remove this option, or give the model that it was made from."
        )
    if name := damaged_file(folder):
        raise UserError(
            f"{folder / name}: is damaged or missing: its checksum is not the one in {SUMS}. Copy the file "
            "again, or export the model again."
        )
    return folder, record


def stored_export(
    path: str, format: str, quantization: str, decoding: DecodingConfig, *, key: str, threads: int
) -> tuple[Path, Record]:
    """Returns the folder of an export of a model, and its record; makes the export if there is none.

    A second process that needs the same export waits for the first. The export allows the maximum lengths of
    `decoding`; `key` is the option that has chosen the format, for error messages.

    Raises:
        UserError: the folder is not a model folder or is damaged, the engine can't compute the model, or the
            export translates differently.
    """
    exporter_of(format, quantization, key)  # reports a missing package before anything is read
    model, length = find_model_folder(path), _length(decoding)
    fingerprint = fingerprint_of(model, format, quantization, length)
    name = f"{format}-{quantization}" if length == _LENGTH else f"{format}-{quantization}-{length}"
    in_model = model / "exports" / name
    cached = folder_in_cache(cache_folder() / "exports", f"{name}-{fingerprint[:16]}", EXPORT_REPORT)
    for place in (in_model, cached):
        if (record := _usable(place, fingerprint)) is not None:
            return place, record
    place = in_model if not is_hub_name(path) and _may_hold_exports(model) else cached
    make_folder(place.parent)
    waiting = "%s: waiting for another process that is making this export"
    with locked(place.with_name(f".{place.name}.lock"), lambda: log.info(waiting, place)):
        if (record := _usable(place, fingerprint)) is None:
            if place.exists():
                log.info("%s: belongs to another version of the model, or is damaged", place)
                remove(place)
            log.info("%s: making an export of the model, once, and comparing it with the model", place)
            config = ExportConfig(
                model_dir=path,
                output=str(place),
                format=format,
                quantization=quantization,
                max_length=length,
                check_sentences=_SENTENCES,
                max_bleu_loss=_BLEU_LOSS,
                threads=threads,
            )
            export(config, key)
            record = read_record(place)
    return place, record


def _length(decoding: DecodingConfig) -> int:
    """Returns the number of positions that the options need, as a power of two, up to the maximum."""
    source = decoding.max_source_tokens
    needed = max(_LENGTH, 1 << (max(source, decoding.max_target_tokens(source)) - 1).bit_length())
    return min(needed, MOST_POSITIONS)


def _usable(place: Path, fingerprint: str) -> Record | None:
    """Returns the record of an export if it is complete and belongs to the model."""
    if not place.is_dir():
        return None
    try:
        record = read_record(place)
    except UserError:
        return None
    return record if record.made_from == fingerprint and damaged_file(place) is None else None


def _may_hold_exports(model: Path) -> bool:
    if enclosing_run(model) is not None:
        return False  # the run removes its checkpoints, and lists their files
    folder = model / "exports"
    return os.access(folder if folder.is_dir() else model, os.W_OK | os.X_OK)
