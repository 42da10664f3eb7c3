"""The interface of an export format, and `EXPORTERS`, its registry."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol

from nmt.errors import UserError
from nmt.runtime import Registry

if TYPE_CHECKING:
    from nmt.bundle import Bundle


class Engine(Protocol):
    """An exported model, loaded by the engine that it was made for."""

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        """Returns the source ids of each line, without EOS, as a user of the export computes them."""
        ...

    def encodings_tie(self, line: str, ids: Sequence[int]) -> bool:
        """Returns whether `ids` encode the line as well as the result of `encode`, up to rounding."""
        ...

    def translate(self, sources: Sequence[Sequence[int]], limits: Sequence[int]) -> list[list[int]]:
        """Translates by greedy search.

        Args:
            sources: ids of each source, without EOS.
            limits: the maximum number of target tokens of each, EOS counted.

        Returns:
            The ids of each translation, without EOS.
        """
        ...

    def score(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[list[float]]:
        """Returns the log-probabilities of the tokens of each target, EOS last."""
        ...


class Exporter(ABC):
    """Writes models in the format of an engine, and loads them again.

    A subclass is registered in `EXPORTERS` under the name of the option `format`.

    Attributes:
        library: the name of the engine on the Hugging Face hub, for the model card.
        packages: the Python packages that it needs, as they are imported.
        quantizations: the number formats of weights that it can write, the exact one first.
    """

    library: ClassVar[str]
    packages: ClassVar[tuple[str, ...]]
    quantizations: ClassVar[tuple[str, ...]]

    @abstractmethod
    def reason_against(self, bundle: Bundle) -> str | None:
        """Returns why the engine can't compute this model, beginning with the option; None if it can."""

    @abstractmethod
    def write(self, bundle: Bundle, folder: Path, *, quantization: str, max_length: int) -> None:
        """Writes a model into an empty folder.

        Args:
            bundle: the model.
            folder: the folder.
            quantization: one of `quantizations`.
            max_length: positions of the tables of an absolute encoding: the maximum number of tokens of a
                sentence.

        Raises:
            OSError: writing fails.
        """

    @abstractmethod
    def load(self, folder: Path, quantization: str) -> Engine:
        """Loads what `write` has written."""

    @abstractmethod
    def usage(self, bundle: Bundle, quantization: str) -> str:
        """Returns a paragraph and an example in Markdown: how a program translates with the export."""


EXPORTERS: Registry[type[Exporter]] = Registry("export format")
"""Name of the format → exporter."""


def tags_before(bundle: Bundle) -> list[str]:
    """Returns the tags of a model that are one piece before those of the text, in the order of their ids.

    SentencePiece cuts them in another way as part of a text: it puts the piece of a space before them.
    """
    tokenizer = bundle.tokenizer
    return [tag for tag in tokenizer.source_symbols if tokenizer.split_tag(tag)[0]]


def require_packages(option: str, packages: Sequence[str]) -> None:
    """Checks that the packages of a format are installed.

    Args:
        option: the option that has chosen the format, and its value.
        packages: their names, as they are imported.

    Raises:
        UserError: one is missing.
    """
    for package in packages:
        try:
            import_module(package)
        except ImportError:
            raise UserError(
                f'{option}: the package {package} is not installed. Run pip install "nmt[export]".'
            ) from None
