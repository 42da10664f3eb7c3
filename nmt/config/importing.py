"""The options of `nmt-import`."""

from __future__ import annotations

from dataclasses import dataclass, field

from nmt.config.checks import PROCESSES, between, check, check_language
from nmt.config.choices import registered_name
from nmt.config.paths import path_field
from nmt.errors import UserError


@dataclass
class ImportConfig:
    """Options of `nmt-import`: a model of another program, and the text for the comparison."""

    model: str = path_field("folder", "???")
    """Folder of the model, or its name on the Hugging Face hub: `hf://OWNER/NAME`, with `@REVISION` if need
    be."""
    output: str = path_field("folder", "???")
    """Model folder to write. It must not exist, or be empty."""
    format: str = registered_name("marian", "marian")
    """Format of the model, as registered in `nmt.export.IMPORTERS`. `marian`: a Marian model of transformers,
    such as the OPUS-MT models."""
    source_lang: str | None = None
    """Code of the source language, such as `en`. null: as the model says."""
    target_lang: str | None = None
    """Code of the target language. null: as the model says."""
    check: str | None = path_field("file", None)
    """Text file of sources to compare both models on. null: the bundled sentences."""
    references: str | None = path_field("file", None)
    """Text file of the translations of `check`, line for line."""
    check_sentences: int = 200
    """Maximum number of sentences to compare."""
    plugins: list[str] = field(default_factory=list)
    """Python modules to import first, such as `[my_package.formats]`. See docs/extending.md."""
    threads: int = 0
    """CPU threads. 0: one per core."""

    def __post_init__(self) -> None:
        """Checks the values."""
        check("threads", self.threads, between(0, PROCESSES))
        check("check_sentences", self.check_sentences, between(1, 10_000_000))
        for key in ("source_lang", "target_lang"):
            code = getattr(self, key)
            if code is not None:
                check_language(key, code)
        if (self.check is None) != (self.references is None):
            missing, given = ("references", "check") if self.references is None else ("check", "references")
            raise UserError(f"{missing}: must be given with {given}, its file line for line.")
