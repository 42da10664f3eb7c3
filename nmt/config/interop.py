"""The options of `nmt-export` and `nmt-import`."""

from __future__ import annotations

from dataclasses import dataclass, field

from nmt.config import disabled
from nmt.config.checks import PROCESSES, Section, between, bounded, check_language, check_licence
from nmt.config.schema import path_field, registered_name
from nmt.config.training import NO_AVERAGE_OF_MODELS
from nmt.errors import UserError

COPY = "nmt"
"""The format of a copy of a model folder."""
MOST_POSITIONS = 1 << 17
"""The maximum of another program's model. transformers computes their table entry by entry, on both sides."""


@dataclass
class ExportConfig(Section, refused=disabled.REFUSED_IN_EXPORTS):
    """Options of `nmt-export`: a model, a format, and the text for the comparison."""

    model_dir: str = path_field("folder", "???", alternative=NO_AVERAGE_OF_MODELS)
    """Model folder, run folder, checkpoint or `hf://OWNER/NAME`."""
    output: str = path_field("folder", "???")
    """Folder for the export. It must not exist, or be empty."""
    format: str = registered_name("ctranslate2", "ctranslate2", "marian", "argos", COPY)
    """Format of the export, as registered in `nmt.interop.EXPORTERS`. `nmt`: a folder for nmt itself."""
    quantization: str = "float32"
    """Number format of the weights: `float32`, `int8`, `int8_float32`, `int8_float16`, `int8_bfloat16`,
    `int16`, `float16` or `bfloat16`."""
    max_length: int = bounded(1024, between(1, MOST_POSITIONS))
    """Positions of an absolute positional encoding in the export: the maximum number of tokens of a sentence,
    EOS counted. At most 131,072."""
    check: str | None = path_field("file", None)
    """Text file of sources to compare the export with the model. null: the validation data of the model; if
    they are no longer there, the bundled sentences."""
    references: str | None = path_field("file", None)
    """Text file of the translations of `check`, line for line."""
    check_sentences: int = bounded(1000, between(1, 10_000_000))
    """Maximum number of sentences to compare."""
    max_bleu_loss: float = bounded(0.5, between(0, 100))
    """Largest loss of BLEU of a quantised export against the model, on the sentences of the comparison."""
    licence: str | None = None
    """Licence of the model, for its card: an identifier such as `apache-2.0` or `cc-by-4.0`. null: the one
    that the model was trained with."""
    push: str | None = None
    """Repository on the Hugging Face hub, `OWNER/NAME`, that the export is uploaded to. It is created if it
    does not exist. See docs/sharing.md."""
    private: bool | None = None
    """Whether a new repository of `push` is private. null: as its owner has set on the hub."""
    plugins: list[str] = field(default_factory=list)
    """Python modules to import first, such as `[my_package.formats]`. See docs/extending.md."""
    threads: int = bounded(0, between(0, PROCESSES))
    """CPU threads. 0: one per core."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_licence(self.licence)
        _check_comparison(self.check, self.references)


@dataclass
class ImportConfig(Section):
    """Options of `nmt-import`: a model of another program, and the text for the comparison."""

    model: str = path_field("folder", "???")
    """Folder or zip of the model, or its name on the Hugging Face hub: `hf://OWNER/NAME`, with `@REVISION` if
    need be."""
    output: str = path_field("folder", "???")
    """Model folder to write. It must not exist, or be empty."""
    format: str = registered_name("marian", "marian")
    """Format of the model, as registered in `nmt.interop.IMPORTERS`. `marian`: a Marian model of transformers
    or of Marian itself, such as the OPUS-MT models."""
    source_lang: str | None = None
    """Code of the source language, such as `en`. null: as the model says."""
    target_lang: str | None = None
    """Code of the target language. null: as the model says."""
    check: str | None = path_field("file", None)
    """Text file of sources to compare both models on. null: the bundled sentences."""
    references: str | None = path_field("file", None)
    """Text file of the translations of `check`, line for line."""
    check_sentences: int = bounded(200, between(1, 10_000_000))
    """Maximum number of sentences to compare."""
    plugins: list[str] = field(default_factory=list)
    """Python modules to import first, such as `[my_package.formats]`. See docs/extending.md."""
    threads: int = bounded(0, between(0, PROCESSES))
    """CPU threads. 0: one per core."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for key in ("source_lang", "target_lang"):
            code = getattr(self, key)
            if code is not None:
                check_language(key, code)
        _check_comparison(self.check, self.references)


def _check_comparison(sources: str | None, references: str | None) -> None:
    if (sources is None) != (references is None):
        missing, given = ("references", "check") if references is None else ("check", "references")
        raise UserError(f"{missing}: must be given with {given}, its file line for line.")
