"""The checks of the options of `nmt-eval`: valid combinations, and outputs that overwrite nothing."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from nmt.config import DecodingConfig, EvalConfig, EvaluationConfig, Precision, Significance
from nmt.data.corpora.text import expand
from nmt.errors import UserError
from nmt.evaluation.metrics import metric_kinds
from nmt.runtime.files import expanded, require_writable

TEXTS = ("source", "hypotheses", "baseline", "references", "groups")
"""Keys that name text files; all the given files must correspond line for line."""


def check_keys(config: EvalConfig, in_memory: Collection[str] = ()) -> None:
    """Checks that the given keys form a valid combination; those `in_memory` are given as lines.

    Raises:
        UserError: a key is missing, excludes another or has a wrong value, or an output can't be written.
    """
    readers = [key for key, kind in metric_kinds(config.evaluation.metrics).items() if kind.needs_sources]
    keys = {key for key in (*TEXTS, "model_dir", "data", "output") if getattr(config, key) is not None}
    keys |= set(in_memory)
    if config.set is not None and keys & {"hypotheses", "source"}:
        raise UserError(f"set={config.set}: names a set of the data, but the files are given. Leave it out.")
    hypotheses = as_option("hypotheses", config.hypotheses)
    if config.score:
        _check_forced(config)
    if config.runs is not None:
        raise UserError("runs: only the command nmt-eval compares runs. Leave it out.")
    if not keys & {"model_dir", "hypotheses"}:
        raise UserError("nothing to score. Give model_dir=DIR, or hypotheses=FILE and references=FILE.")
    if {"model_dir", "hypotheses"} <= keys:
        raise UserError(
            "model_dir and hypotheses exclude each other. Give one of them. To compare two systems, give "
            "baseline=FILE."
        )
    if "hypotheses" in keys:
        for key in ("source", "data", "output"):
            if key in keys and not (key == "source" and (readers or config.analysed)):
                raise UserError(f"{key}: requires model_dir=DIR; {hypotheses} is already translated.")
        if config.decoding != DecodingConfig():
            raise UserError(f"decoding: requires model_dir=DIR; {hypotheses} is already translated.")
        if "references" not in keys:
            raise UserError(f"{hypotheses}: references=FILE is missing.")
        if readers and "source" not in keys:
            raise UserError(f"{hypotheses}: source=FILE is missing; {readers[0]} needs the sources.")
    elif len(keys & {"source", "references"}) == 1:
        raise UserError(
            "source and references require each other. Give both, or neither for the test set of the model."
        )
    elif {"source", "data"} <= keys:
        raise UserError(
            "source and data exclude each other. Give source=FILE and references=FILE, or data=NAME."
        )
    if config.significance is not Significance.bootstrap and "baseline" not in keys:
        raise UserError(f"significance={config.significance.name}: baseline=FILE is missing.")
    _check_split(config)
    if config.precision not in Precision.__members__:
        raise UserError(f"precision={config.precision}: must be one of {', '.join(Precision.__members__)}.")
    _check_outputs(config)


def check_runs(config: EvalConfig) -> None:
    """Checks the options of a comparison of runs.

    Raises:
        UserError: an option has no meaning there or has a wrong value, or an output can't be written.
    """
    keys = "model_dir", "data", "output", "score", "analysis", "source_lang", "target_lang"
    _refuse(config, (*TEXTS, *keys), "for run folders, which have their translations and scores")
    _check_split(config)
    _check_outputs(config)


def _check_split(config: EvalConfig) -> None:
    if config.split not in ("valid", "test"):
        raise UserError(f"split={config.split}: must be valid or test.")


def _refuse(config: EvalConfig, keys: Iterable[str], why: str) -> None:
    """Refuses options that have no meaning, for the reason `why`."""
    for key in keys:
        if (value := getattr(config, key)) not in (None, False):
            raise UserError(f"{as_option(key, value)}: has no meaning {why}. Leave one of them out.")


def _check_forced(config: EvalConfig) -> None:
    """Refuses options that have no meaning with `score=true`."""
    keys = "hypotheses baseline groups source_lang target_lang analysis table report"
    _refuse(config, keys.split(), "with score=true, which scores references with a model")
    if config.evaluation != EvaluationConfig():
        raise UserError("evaluation: score=true computes no metrics. Leave one of them out.")
    if config.model_dir is None:
        raise UserError("score=true: model_dir=DIR is missing.")


def as_option(key: str, value: Any) -> str:
    """Returns `key=value` for messages, where the value is one file or a list; only the key if it is None."""
    if value is None:
        return key
    return f"{key}={', '.join(map(str, value)) if isinstance(value, list | tuple) else value}"


def _check_outputs(config: EvalConfig) -> None:
    texts = {key: value for key in TEXTS if (value := getattr(config, key)) is not None}
    inputs = {
        _path(str(path)): key
        for key, value in texts.items()
        for path in expand(value, key, several=key == "references")
    }
    for key in ("output", "json", "table", "report"):
        value = getattr(config, key)
        if value is None:
            continue
        path = _path(value)
        if path in inputs:
            raise UserError(f"{key}={value}: would overwrite {inputs[path]}. Give another name.")
        require_writable(Path(value), f"{key}={value}")
        inputs[path] = key


def _path(value: str) -> Path:
    return Path(os.path.realpath(expanded(value)))
