"""Scores a model on a test set, or existing translations against references.

  nmt-eval model_dir=runs/quickstart                      the model's test set (split=valid: validation)
  nmt-eval model_dir=DIR data=NAME                        the test set of other data
  nmt-eval model_dir=DIR set=NAME                         one of several test sets (data.test.sets)
  nmt-eval model_dir=DIR source=FILE references=FILE      your files
  nmt-eval "model_dir=[DIR,DIR]"                          an ensemble of models
  nmt-eval hypotheses=FILE references=FILE target_lang=de existing translations
  nmt-eval hypotheses=FILE "references=[FILE,FILE]"       several references of each sentence
  nmt-eval runs/*                                         run folders: a table of all runs
  nmt-eval model_dir=DIR source=FILE references=FILE score=true > scores
                                                          the probabilities of given translations

baseline=FILE adds a significance test against other translations (significance=randomisation: by approximate
randomisation). groups=FILE adds a row for each label.
json=FILE writes the report, table=FILE.md or FILE.tex its tables, output=FILE the translations.
evaluation.metrics=[bleu,chrfpp] selects metrics. analysis=true adds intervals, scores by properties of the
sources, and signs of faults such as loops and lost numbers. report=FILE.html writes it as a page, with charts
and single sentences.

Run folders are compared with the first one: options that differ, recorded scores, and significant
differences of their translations. Nothing is translated. Folders without a finished run are left out.

score=true translates nothing. It writes a line for each pair of source and reference: the log-probability
of the reference (natural logarithm, its end included), its number of tokens, and the log-probability per
token, separated by tabs. A summary with the perplexity goes to standard error. If the source is blank, an
empty reference has the log-probability 0, any other -inf. Of the section decoding, the sizes of batches and
max_source_tokens apply.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nmt.cli.app import put, run
from nmt.config import EvalConfig, Significance, folders
from nmt.evaluation.forced import score_references
from nmt.evaluation.keys import check_runs
from nmt.evaluation.report import Report
from nmt.evaluation.scores import TRIALS
from nmt.evaluation.task import evaluate as evaluated
from nmt.runtime.files import written
from nmt.runtime.streams import log


def evaluate(config: EvalConfig) -> None:
    """Evaluates as `config` says and prints the table of scores to standard output.

    Raises:
        UserError: as `nmt.evaluation.task.evaluate`, or a file can't be written.
    """
    if config.score:
        _score(config)
        return
    if config.runs is not None:
        _compare(config)
        return
    report = evaluated(config)
    try:
        put(report.table())  # first: a file that can't be written must not lose the scores
    finally:
        if config.output is not None:
            _write(config.output, "".join(f"{line}\n" for line in report.hypotheses))
        if config.json is not None:
            _write_json(config.json, report.as_dict())
        if config.table is not None:
            _write(config.table, report.rendered(config.table))
        if config.report is not None:
            _write_page(config.report, report, config.model_dir)


def _compare(config: EvalConfig) -> None:
    from nmt.reports.comparison import compare_runs  # imports torch
    from nmt.reports.comparison_page import comparison_page

    check_runs(config)
    compared = compare_runs(
        folders("runs", config.runs),
        config.evaluation,
        split=config.split,
        set_name=config.set,
        trials=TRIALS if config.significance is Significance.randomisation else None,
    )
    try:
        put(compared.plain())
    finally:
        if config.json is not None:
            _write_json(config.json, compared.as_dict())
        if config.table is not None:
            _write(config.table, compared.rendered(config.table))
        if config.report is not None:
            _write(config.report, comparison_page(compared).html())


def _score(config: EvalConfig) -> None:
    report = score_references(config)
    text = "".join(f"{line}\n" for line in report.lines())
    log.info(report.summary())
    try:
        if config.output is None:
            put(text)
        else:
            _write(config.output, text)
    finally:
        if config.json is not None:
            _write_json(config.json, report.as_dict())


def main() -> None:
    """Entry point of `nmt-eval`."""
    run(evaluate, EvalConfig, "eval", __doc__ or "")


def _write_page(value: str, report: Report, model_dir: Any) -> None:
    from nmt.reports.evaluation import evaluation_page
    from nmt.reports.run_page import with_run  # imports numpy

    _write(value, with_run(evaluation_page(report), model_dir).html())


def _write_json(value: str, content: Mapping[str, Any]) -> None:
    _write(value, json.dumps(content, ensure_ascii=False, indent=2) + "\n")


def _write(value: str, text: str) -> None:
    with written(Path(value)) as out:
        out.write(text.encode())


if __name__ == "__main__":
    main()
