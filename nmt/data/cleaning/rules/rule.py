"""The base class of cleaning rules, which drop training pairs by their text alone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from nmt.config import CleaningConfig
from nmt.data.corpora.held_out import HeldOut


@dataclass(frozen=True)
class Setting:
    """Facts about the data from which a rule is built; `nmt.languages` knows what a language code means.

    Attributes:
        held_out: validation and test; their text must not occur in training.
        source_lang: language code of the source side; empty if unknown.
        target_lang: language code of the target side; empty if unknown.
        tags: tags with which held-out sources may begin; training text has none.
    """

    held_out: Sequence[HeldOut] = ()
    source_lang: str = ""
    target_lang: str = ""
    tags: Collection[str] = ()


class Rule(ABC):
    """A rule that drops pairs by their text alone.

    To add a rule, write a subclass and register it in `nmt.data.cleaning.cleaner.RULES`. Rules are pickled
    for the cleaning processes. A rule must create objects that can't be pickled at their first use.
    """

    name: ClassVar[str]
    """Name of the rule in results."""
    words: ClassVar[str]
    """Description in the report: the problem of a dropped pair."""
    option: ClassVar[str | None] = None
    """Name of the option in `data.cleaning` that sets the rule, or None."""
    version: ClassVar[int] = 1
    """Increase it when the behaviour of the rule changes. Text is then cleaned again."""

    @classmethod
    def build(cls, config: CleaningConfig, setting: Setting) -> Rule | None:
        """Builds the rule from the options, or returns None if they disable it.

        By default `option` enables the rule, which is always enabled without it.
        """
        return cls() if cls.option is None or getattr(config, cls.option) else None

    @abstractmethod
    def drops(self, source: str, target: str) -> bool:
        """Whether to drop the pair; both sides are output of `normal_text`."""

    def suspects(self, sources: Sequence[str], targets: Sequence[str]) -> Iterable[int]:
        """Returns the indices, in ascending order, of the pairs for which `drops` must be called.

        By default these are all pairs. Override it if a faster test rules out most pairs at once.
        """
        return range(len(sources))

    def facts(self) -> Any:
        """Returns everything that `drops` depends on, except `version`, for `nmt.data.cache.fingerprint`.

        By default these are the attributes. Override it if they can't be fingerprinted, or if the rule
        depends on a package.
        """
        return vars(self)
