"""The facts of an export that a translator needs. `export.json` has them and the result of the comparison."""

from __future__ import annotations

from dataclasses import MISSING, asdict, dataclass, field, fields
from pathlib import Path

from nmt import __version__
from nmt.bundle import Bundle, read_config, read_results
from nmt.config import DecodingConfig
from nmt.config.storage import from_plain, to_plain
from nmt.data.cache import fingerprint
from nmt.decoding.facts import TextFacts
from nmt.errors import UserError
from nmt.runtime.checksums import file_sums, read_sections
from nmt.runtime.model_files import EXPORT_REPORT, PIECE_LIST, PIECES, WEIGHTS, config_file, pieces_folder
from nmt.runtime.os_errors import read_errors

_VERSION = 2  # increase it if the same model gives another export
_TARGET = "target.spm"


@dataclass(frozen=True, kw_only=True)
class Record(TextFacts):
    """The facts of an export, with those of the text of its model. All maximum numbers of tokens count EOS.

    Attributes:
        format: the format, as registered in `EXPORTERS`.
        quantization: the number format of its weights.
        decoding: the options of decoding of the model.
        made_from: the fingerprint of what the export depends on; see `fingerprint_of`.
    """

    format: str
    quantization: str
    max_source_tokens: int
    max_target_tokens: int
    decoding: DecodingConfig
    made_from: str
    targets: dict[str, str] = field(default_factory=dict)  # `from_plain` reads no `Mapping`


def record_of(bundle: Bundle, format: str, quantization: str, max_length: int) -> Record:
    """Returns the record of an export of a model; see `Exporter.write` for the arguments."""
    model = bundle.model
    return Record(
        **vars(TextFacts.of(bundle.config.data, bundle.results)),
        format=format,
        quantization=quantization,
        max_source_tokens=min(max_length, model.max_source_len or max_length),
        max_target_tokens=min(max_length, model.max_target_len or max_length),
        decoding=bundle.config.decoding,
        made_from=fingerprint_of(bundle.folder, format, quantization, max_length),
    )


def fingerprint_of(folder: Path, format: str, quantization: str, max_length: int) -> str:
    """Returns a fingerprint of everything that an export of a model folder depends on, with its record.

    Raises:
        UserError: a file of the model can't be read.
    """
    pieces, config = pieces_folder(folder), read_config(config_file(folder))
    with read_errors(folder):
        names = [name for name in (*PIECES, _TARGET, PIECE_LIST) if (pieces / name).is_file()]
        sums = file_sums(folder, [WEIGHTS]) | file_sums(pieces, names)
    return fingerprint(
        {
            "files": sums,
            "model": to_plain(config.model),
            "decoding": to_plain(config.decoding),
            "text": asdict(TextFacts.of(config.data, read_results(folder))),
            "nmt": [__version__, _VERSION],
            "export": [format, quantization, max_length],
        }
    )


def read_record(folder: Path) -> Record:
    """Reads the record of an export.

    Raises:
        UserError: `export.json` is missing or damaged, or an earlier version of nmt wrote it.
    """
    path = folder / EXPORT_REPORT
    values, known = read_sections(path), fields(Record)
    if any(
        one.name not in values for one in known if one.default is MISSING and one.default_factory is MISSING
    ):
        raise UserError(f"{path}: was written by an earlier version of nmt. Export the model again.")
    try:
        return from_plain(Record, {one.name: values[one.name] for one in known if one.name in values})
    except UserError as error:
        raise UserError(f"{path}: is damaged: {error}") from error
