"""The interface of an import format, and `IMPORTERS`, its registry."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from torch import Tensor

from nmt.config import DecodingConfig, ModelConfig
from nmt.data.subwords.tokenizer import Tokenizer
from nmt.export.engine import Engine
from nmt.runtime import Registry


@dataclass(frozen=True)
class Imported:
    """A model of another program, as one of `nmt`.

    Attributes:
        model: its options.
        weights: its weights, as in `state_dict`.
        tokenizer: its vocabulary.
        decoding: options of decoding that the model recommends.
        languages: the codes of its source and target language; None: it does not say.
        longest: the maximum number of tokens of a sentence that the other program can compute, EOS counted.
        engine: the model, loaded by the other program.
    """

    model: ModelConfig
    weights: Mapping[str, Tensor]
    tokenizer: Tokenizer
    decoding: DecodingConfig
    languages: tuple[str | None, str | None]
    longest: int
    engine: Engine


class Importer(ABC):
    """Reads models of another program.

    A subclass is registered in `IMPORTERS` under the name of the option `format`.

    Attributes:
        packages: the Python packages that it needs, as they are imported.
        files: the names of the files of a model, except its weights; some models lack some of them.
        weights: the names that the file of the weights may have, the preferred first.
    """

    packages: ClassVar[tuple[str, ...]]
    files: ClassVar[tuple[str, ...]]
    weights: ClassVar[tuple[str, ...]]

    @abstractmethod
    def read(self, folder: Path) -> Imported:
        """Reads the model in a folder.

        Raises:
            UserError: it is not a model of this format, is damaged, or has an option that `nmt` lacks.
        """


IMPORTERS: Registry[type[Importer]] = Registry("import format")
"""Name of the format → importer."""
