"""`nmt.evaluate`: scores a model, or translations in memory or in files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace

from nmt.api.session import Folder, arguments_of, session
from nmt.config import EvalConfig
from nmt.errors import UserError
from nmt.evaluation.report import Report
from nmt.evaluation.task import evaluate as evaluated
from nmt.options.arguments import quoted, require_text
from nmt.options.compose import compose_jobs
from nmt.runtime.plugins import import_plugins

Text = Folder | Iterable[str]
"""The path of a text file, or its lines."""


def evaluate(
    hypotheses: Text | None = None,
    references: Text | Sequence[Text] | None = None,
    sources: Text | None = None,
    *,
    model_dir: Folder | Sequence[Folder] | None = None,
    baseline: Text | None = None,
    groups: Text | None = None,
    target_lang: str | None = None,
    metrics: Sequence[str] | None = None,
    overrides: Sequence[str] = (),
    config_dir: Folder | None = None,
    progress: bool = False,
) -> Report:
    """Scores translations, or a model on a test set, as `nmt-eval` does.

    A text is the path of a file (a string or a `Path`), or an iterable of lines. Give `hypotheses` and
    `references` to score translations. Give only `model_dir` to score a model on its test set. Give
    `model_dir`, `sources` and `references` to score it on another test set.

    Args:
        hypotheses: detokenised translations to score.
        references: reference translations, line for line; or a list of several such texts.
        sources: the source sentences.
        model_dir: a model folder, or a list of model folders for an ensemble.
        baseline: translations of another system, for a significance test.
        groups: a label for each line; the lines of each label also get scores.
        target_lang: language of the references; selects the tokenizer of BLEU.
        metrics: such as `["bleu", "chrf"]`; by default those of `evaluation.metrics`.
        overrides: other options of `nmt-eval`, each `key=value`, such as `data=quickstart`, `split=valid` or
            `decoding.beam_size=8`.
        config_dir: a folder with your YAML files, as for `--config-dir`.
        progress: whether to show a progress bar on standard error.

    Returns:
        The report: `report.scores["bleu"]`, `report.scores.signatures["bleu"]`, `report.hypotheses`,
        `report.comparison`, `report.groups`, `report.sets` (a report for each named test set of the model;
        the scores of the whole are means), `report.table()`, and `report.as_dict()` with the content that
        `nmt-eval json=FILE` writes.

    Raises:
        UserError: texts or options exclude each other, a file can't be read, texts have unequal length,
            or a model can't be loaded.
    """
    named: list[str] = []
    texts: dict[str, list[list[str]]] = {}
    sides = {"hypotheses": hypotheses, "source": sources, "baseline": baseline, "groups": groups}
    for key, text in sides.items():
        if isinstance(text, str | os.PathLike):
            named.append(f"{key}={_paths(text)}")
        elif text is not None:
            texts[key] = [_lines(text, key)]
    if model_dir is not None:
        named.append(f"model_dir={_paths(model_dir)}")
    if references is not None:
        several = _references(references)
        if isinstance(several, str):
            named.append(f"references={several}")
        else:
            texts["references"] = several
    if target_lang is not None:
        named.append(f"target_lang={quoted(target_lang)}")
    for word in named:
        require_text(word)
    arguments = arguments_of(overrides, config_dir, "nmt.evaluate")
    keys = {*(word.partition("=")[0] for word in named), *texts}
    for word in overrides:
        if (key := word.partition("=")[0].lstrip("+")) in keys:
            raise UserError(f"{key}: given both as an argument and as an override. Give only one of them.")
    needs_torch = any(word.startswith("model_dir=") for word in (*named, *overrides))
    with session(progress=progress, torch=needs_torch):
        arguments = replace(arguments, overrides=(*named, *arguments.overrides))
        (config,) = compose_jobs(EvalConfig, "eval", arguments)
        if metrics is not None:
            chosen = [metrics] if isinstance(metrics, str) else list(metrics)
            config = replace(config, evaluation=replace(config.evaluation, metrics=chosen))
        for key in ("output", "json", "table", "report"):
            if getattr(config, key) is not None:
                raise UserError(f"{key}: nmt.evaluate writes no files. Write its result yourself.")
        if config.score:
            raise UserError("score: nmt.evaluate returns no such scores. Call nmt.load(DIR).score(pairs).")
        import_plugins(config.plugins)
        return evaluated(config, texts)


def _references(references: Text | Sequence[Text]) -> str | list[list[str]]:
    """Returns the value of the option `references`, or the lines of one or more texts."""
    if isinstance(references, str | os.PathLike):
        return _paths(references)
    items = list(references)
    paths = [item for item in items if isinstance(item, os.PathLike)]
    lines = [item for item in items if isinstance(item, str)]
    texts = [item for item in items if not isinstance(item, str | os.PathLike)]
    if len(paths) == len(items) > 0:
        return _paths(paths)
    if len(lines) == len(items):
        return [_lines(lines, "references")]
    if len(texts) == len(items):
        return [_lines(text, "references") for text in texts]
    raise TypeError("references: must be lines, a file, or a list of texts: all paths or all lists of lines")


def _paths(paths: Folder | Sequence[Folder]) -> str:
    if isinstance(paths, str | os.PathLike):
        return quoted(os.fspath(paths))
    return f"[{','.join(quoted(os.fspath(path)) for path in paths)}]"


def _lines(text: Iterable[str], key: str) -> list[str]:
    lines = list(text)
    for number, line in enumerate(lines, 1):
        if not isinstance(line, str):
            raise TypeError(f"{key}, line {number}: must be a str, not {type(line).__name__}")
    return [line.removesuffix("\n").removesuffix("\r") for line in lines]
