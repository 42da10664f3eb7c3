"""Options of scoring: which metrics are computed, and the options of those that have some."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from nmt.config.paths import path_field
from nmt.errors import UserError


@dataclass
class CometConfig:
    """The metric `comet`: COMET (Rei et al. 2020), run as a command in a separate environment."""

    command: Any = path_field("command", None, several=True)
    """The command `comet-score` of unbabel-comet 2.2, or a list of it and its arguments:
    `[/opt/comet/bin/comet-score,--gpus,0]`. nmt adds `-s`, `-t` and `-r` with files, and `--quiet`."""

    def __post_init__(self) -> None:
        """Checks the value."""
        words = self.command
        if words is not None and not isinstance(words, str) and not (isinstance(words, list) and words):
            raise UserError(
                f"evaluation.comet.command={words}: must be a command, or a list of a command and its "
                "arguments: evaluation.comet.command=[/path/to/comet-score,--gpus,0]"
            )


@dataclass
class EvaluationConfig:
    """The metrics of translations, by the keys under which `nmt.evaluation.metrics` registers them."""

    metrics: list[str] = field(default_factory=lambda: ["bleu", "chrf", "ter"])
    """The metrics of reports and of `results.json`: `bleu`, `chrf` (chrF2), `chrfpp` (chrF2++), `ter`,
    `comet`."""
    comet: CometConfig = field(default_factory=CometConfig)

    def __post_init__(self) -> None:
        """Checks the values."""
        if not self.metrics:
            raise UserError("evaluation.metrics=[]: is empty. Name a metric, such as [bleu].")
