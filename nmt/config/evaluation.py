"""Options of scoring: which metrics are computed."""

from __future__ import annotations

from dataclasses import dataclass, field

from nmt.errors import UserError


@dataclass
class EvaluationConfig:
    """The metrics of translations, by the keys under which `nmt.evaluation.metrics` registers them."""

    metrics: list[str] = field(default_factory=lambda: ["bleu", "chrf", "ter"])
    """The metrics of reports and of `results.json`: `bleu`, `chrf` (chrF2), `chrfpp` (chrF2++), `ter`."""

    def __post_init__(self) -> None:
        """Checks the values."""
        if not self.metrics:
            raise UserError("evaluation.metrics=[]: is empty. Name a metric, such as [bleu].")
