"""Options of the training text that models write: distillation and back-translation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from nmt.config.checks import MANY, Section, above, bounded
from nmt.config.schema import path_field


@dataclass
class SyntheticConfig(Section):
    """A training corpus of which a model has written one side."""

    decoding: dict[str, Any] = field(default_factory=dict)
    """Options of decoding that replace those of the model, such as `{beam_size: 5, nbest: 2}`, or
    `{samples: 1, top_k: 10}` for translations drawn at random. All translations of a line are used."""
    keep: float = bounded(1.0, above(0, 1))
    """Fraction of the translations to retain: those with the best scores."""
    weight: float | None = bounded(None, above(0, MANY))
    """How often each pair is drawn per epoch, relative to the pairs that are translated. null: 1."""
    tag: str | None = None
    """Piece put before every source of the corpus."""


@dataclass
class DistillationConfig(SyntheticConfig, key="distillation."):
    """Sequence-level distillation (Kim & Rush 2016): the corpus whose targets `teacher` has written."""

    reverse: Any = path_field("folder", None, several=True)
    """Model from the target to the source language, or a list of models. Its mean log-probability of a token
    of the source, given the translation, is added to the score of the teacher. null: none."""


@dataclass
class MonolingualConfig(SyntheticConfig, key="data.monolingual."):
    """Back-translation (Sennrich et al. 2016): the corpus of targets whose sources a reverse model writes."""

    target: Any = path_field("file", None, several=True)
    """Text file of sentences in the target language, one per line: plain, .gz, .xz or .zst. Several are a
    list or a quoted glob. null: no back-translation."""
    reverse: Any = path_field("folder", None, several=True)
    """Model from the target to the source language, or a list of models. null: it is trained first, on the
    same pairs."""
    tag: str | None = "<bt>"
    """Piece put before every source of the corpus (Caswell et al. 2019). null: none."""
