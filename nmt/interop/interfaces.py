"""The interfaces of export formats, import formats and engines, and their registries."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from nmt.config import DecodingConfig, ModelConfig, ServeConfig, TranslateConfig
from nmt.errors import UserError
from nmt.runtime.plugins import Registry

if TYPE_CHECKING:
    from torch import Tensor

    from nmt.bundle import Bundle
    from nmt.data.subwords.tokenizer import Tokenizer
    from nmt.decoding.translator import Translator


class ForeignModel(Protocol):
    """A model that another program has loaded, for the comparison with one of nmt."""

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        """Returns the source ids of each line, without EOS, as a user of the export computes them."""
        ...

    def encodings_tie(self, line: str, ids: Sequence[int]) -> bool:
        """Returns whether `ids` encode the line as well as the result of `encode`, up to rounding."""
        ...

    def encode_target(self, lines: Sequence[str]) -> list[list[int]] | None:
        """Returns the target ids of each line, without EOS, as a user of the export computes them.

        None: the program does not encode targets.
        """
        ...

    def decode(self, targets: Sequence[Sequence[int]]) -> list[str]:
        """Returns the text of target ids, as a user of the export decodes them."""
        ...

    def translate(self, sources: Sequence[Sequence[int]], limits: Sequence[int]) -> list[list[int]]:
        """Returns the ids of the translations by greedy search.

        Sources and translations are without EOS; the limits of their target tokens count it.
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

    def prepared(self, bundle: Bundle) -> Bundle:
        """Returns the model to write and to compare with: the same, unless the engine can't forbid pieces."""
        return bundle

    @abstractmethod
    def write(self, bundle: Bundle, folder: Path, *, quantization: str, max_length: int) -> None:
        """Writes a model into an empty folder.

        `max_length` is the number of positions of an absolute encoding: the maximum number of tokens of a
        sentence.

        Raises:
            OSError: writing fails.
        """

    @abstractmethod
    def load(self, folder: Path, quantization: str) -> ForeignModel:
        """Loads what `write` has written."""

    def finished(self, folder: Path, quantization: str, lines: Sequence[str]) -> dict[str, Any]:
        """Translates the lines of the comparison as the users of the export do, after it has passed.

        Returns:
            Facts for the report.

        Raises:
            UserError: the program translates in another way.
        """
        return {}

    @abstractmethod
    def usage(self, bundle: Bundle, quantization: str) -> str:
        """Returns a paragraph and an example in Markdown: how a program translates with the export."""


EXPORTERS: Registry[type[Exporter]] = Registry("export format")
"""Name of the format → exporter."""


@dataclass(frozen=True)
class Imported:
    """A model of another program, as one of `nmt`.

    Attributes:
        weights: as in `state_dict`.
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
    engine: ForeignModel


class Importer(ABC):
    """Reads models of another program.

    A subclass is registered in `IMPORTERS` under the name of the option `format`.

    Attributes:
        packages: the Python packages that it needs, as they are imported.
        files: the names of the files of a model, except its weights; some models lack some of them.
        weights: the names that the file of the weights may have, the preferred first.
        archives: the endings of single files that hold a whole model, such as `.zip`.
    """

    packages: ClassVar[tuple[str, ...]]
    archives: ClassVar[tuple[str, ...]] = ()
    files: ClassVar[tuple[str, ...]]
    weights: ClassVar[tuple[str, ...]]

    def packages_for(self, model: Path) -> tuple[str, ...]:
        """Returns the packages that a model needs, given as a folder or an archive; by default all."""
        return self.packages

    @abstractmethod
    def read(self, folder: Path) -> Imported:
        """Reads the model in a folder, or in a file whose name has an ending of `archives`.

        Raises:
            UserError: it is not a model of this format, is damaged, or has an option that `nmt` lacks.
        """


IMPORTERS: Registry[type[Importer]] = Registry("import format")
"""Name of the format → importer."""


@dataclass(frozen=True)
class LoadedModel:
    """A model that an engine has loaded.

    Attributes:
        decoding: the options of decoding that the model was tested with.
        threads: the number of threads of one process whose calls the engine computes side by side.
        translator: returns a translator with these options; raises a UserError if one is wrong or not
            available.
    """

    source_lang: str
    target_lang: str
    decoding: DecodingConfig
    threads: int
    translator: Callable[[DecodingConfig], Translator]


class Engine(ABC):
    """Translates with models.

    A subclass is registered in `ENGINES` under the name of the option `backend`.
    """

    @abstractmethod
    def check(self, config: TranslateConfig | ServeConfig) -> None:
        """Refuses options that the engine does not have, before a model is loaded.

        Raises:
            UserError: the message names the option.
        """

    @abstractmethod
    def load(self, config: TranslateConfig | ServeConfig, model_dir: list[str]) -> LoadedModel:
        """Loads a model, or several models that translate together.

        `check` has passed for the options. The folders are in `model_dir`, not in `config.model_dir`.

        Raises:
            UserError: a folder is not a model folder or is damaged, or the device is not available.
        """


ENGINES: Registry[type[Engine]] = Registry("backend")
"""Name of the engine → engine."""


_TAG_EXAMPLE = """
A tag is one piece, before the pieces of the text. Within the text, SentencePiece would cut it differently:

```python
{}```
"""


def tag_example(bundle: Bundle, code: str) -> str:
    """Returns a paragraph about tags; empty if the model has no tag that is one piece before the text.

    `code` shows how to put the tag TAG before the pieces of a text.
    """
    tokenizer = bundle.tokenizer
    tags = [tag for tag in tokenizer.source_symbols if tokenizer.split_tag(tag)[0]]
    return _TAG_EXAMPLE.format(code.replace("TAG", tags[0])) if tags else ""


def require_packages(option: str, packages: Sequence[str]) -> None:
    """Checks that the packages of a format are installed.

    Raises:
        UserError: one is missing. The message begins with `option`, which has chosen the format.
    """
    for package in packages:
        try:
            import_module(package)
        except ImportError:
            raise UserError(
                f'{option}: the package {package} is not installed. Run pip install "nmt[export]".'
            ) from None
