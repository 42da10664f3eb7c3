"""What a rule is: a reason to drop a training pair, judged by its text alone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from nmt.config import CleaningConfig
from nmt.data.corpora.corpus import HeldOut


@dataclass(frozen=True)
class Setting:
    """What a rule may ask about the data it is to judge.

    Attributes:
        held_out: validation and test, whose text training must not see.
        source_lang: language code of the source side; empty if nobody says.
        target_lang: language code of the target side.
        tags: what held-out sources may begin with and training text does not.
    """

    held_out: Sequence[HeldOut] = ()
    source_lang: str = ""
    target_lang: str = ""
    tags: Collection[str] = ()


class Rule(ABC):
    """A reason to drop a pair, judged by its text alone.

    To add one, write a subclass and name it in `nmt.data.cleaning.cleaner.RULES`. Rules are pickled for the
    processes that clean, so a rule creates what cannot be pickled at its first use.
    """

    name: ClassVar[str]
    """Its name in results."""
    words: ClassVar[str]
    """Its meaning in the report: what is the case with a dropped pair."""
    option: ClassVar[str | None] = None
    """The option of `data.cleaning` that sets it; None if none does."""
    version: ClassVar[int] = 1
    """To be raised when the rule comes to judge otherwise: text cleaned before is then cleaned again."""

    @classmethod
    @abstractmethod
    def build(cls, config: CleaningConfig, setting: Setting) -> Rule | None:
        """Makes the rule as the options want it, or None where they switch it off."""

    @abstractmethod
    def drops(self, source: str, target: str) -> bool:
        """Whether the pair, both sides as `normal_text` gives them, is to go."""

    def suspects(self, sources: Sequence[str], targets: Sequence[str]) -> Iterable[int]:
        """Which of many pairs `drops` is to be asked about: their places, ascending.

        A rule that can tell most pairs to be sound in a faster way than one by one has its own.
        """
        return range(len(sources))

    def facts(self) -> Any:
        """What `drops` depends on beside `version`, as `nmt.data.cache.fingerprint` takes it: the attributes.

        A rule whose attributes are something else, or which asks a package, has its own.
        """
        return vars(self)


def base_language(code: str) -> str:
    """The language of a code, without region or script: `pt` of `pt_BR` and of `pt-BR`."""
    return code.replace("_", "-").partition("-")[0].lower()
