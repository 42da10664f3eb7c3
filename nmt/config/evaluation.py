"""Options of scoring: the metrics to compute, and the options of single metrics."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from nmt.config.paths import path_field
from nmt.errors import UserError


@dataclass
class CometConfig:
    """The metric `comet`: COMET (Rei et al. 2020), a command in a separate environment."""

    command: Any = path_field("command", None, several=True)
    """Command `comet-score` of unbabel-comet 2.2. With arguments, a list:
    `[/opt/comet/bin/comet-score,--gpus,0]`. nmt adds `-s`, `-t` and `-r` with files, and `--quiet`."""

    def __post_init__(self) -> None:
        """Checks the value."""
        words = self.command
        if words is not None and not isinstance(words, str) and not (isinstance(words, list) and words):
            raise UserError(
                f"evaluation.comet.command={words}: must be a command, or a list of a command and its "
                "arguments, evaluation.comet.command=[/path/to/comet-score,--gpus,0]."
            )


@dataclass
class EvaluationConfig:
    """The metrics of translations, by the names that `nmt.evaluation.metrics` registers."""

    metrics: list[str] = field(default_factory=lambda: ["bleu", "chrf", "ter"])
    """Metrics of reports and of `results.json`: `bleu`, `chrf` (chrF2), `chrfpp` (chrF2++), `ter`, `comet`,
    or a metric of a plugin."""
    comet: CometConfig = field(default_factory=CometConfig)

    def __post_init__(self) -> None:
        """Checks the values."""
        if not self.metrics:
            raise UserError("evaluation.metrics=[]: is empty. Give a metric, such as [bleu].")
