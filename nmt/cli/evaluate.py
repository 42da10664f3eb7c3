"""Scores a model on a test set, or existing translations against references.

  nmt-eval model_dir=runs/quickstart                      the model's test set (split=valid: validation)
  nmt-eval model_dir=DIR data=NAME                        the test set of other data
  nmt-eval model_dir=DIR source=FILE references=FILE      your files
  nmt-eval "model_dir=[DIR,DIR]"                          an ensemble of models
  nmt-eval hypotheses=FILE references=FILE target_lang=de existing translations
  nmt-eval hypotheses=FILE "references=[FILE,FILE]"       several references of each sentence

baseline=FILE adds a significance test against other translations. groups=FILE adds a row for each label.
json=FILE writes the report, output=FILE the translations. evaluation.metrics=[bleu,chrfpp] selects metrics.
"""

from __future__ import annotations

import json
from pathlib import Path

from nmt.cli.app import put, run
from nmt.config import EvalConfig
from nmt.evaluation.task import evaluate as evaluated
from nmt.runtime import written


def evaluate(config: EvalConfig) -> None:
    """Evaluates as `config` says and prints the table of scores to standard output.

    Raises:
        UserError: as `nmt.evaluation.task.evaluate`, or a file can't be written.
    """
    report = evaluated(config)
    try:
        put(report.table())  # first: a file that can't be written must not lose the scores
    finally:
        if config.output is not None:
            _write(config.output, "".join(f"{line}\n" for line in report.hypotheses))
        if config.json is not None:
            _write(config.json, json.dumps(report.as_dict(), ensure_ascii=False, indent=2) + "\n")


def main() -> None:
    """Entry point of `nmt-eval`."""
    run(evaluate, EvalConfig, "eval", __doc__ or "")


def _write(value: str, text: str) -> None:
    with written(Path(value)) as out:
        out.write(text.encode())


if __name__ == "__main__":
    main()
