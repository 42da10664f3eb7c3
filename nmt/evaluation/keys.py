"""Which options of `nmt-eval` go together, and which files it must not overwrite."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

from nmt.config import DecodingConfig, EvalConfig, Precision
from nmt.errors import UserError
from nmt.evaluation.metrics import metric_kinds
from nmt.runtime import expanded, require_writable

TEXTS = ("source", "hypotheses", "baseline", "references", "groups")
"""Keys that name text files; all that are given must stand line for line."""


def check_keys(config: EvalConfig, in_memory: Collection[str] = ()) -> None:
    """Checks which keys stand together.

    Args:
        config: the options.
        in_memory: those of `TEXTS` that are given as lines.

    Raises:
        UserError: naming the keys.
    """
    readers = [key for key, kind in metric_kinds(config.evaluation.metrics).items() if kind.needs_sources]
    given = {key for key in (*TEXTS, "model_dir", "data", "output") if getattr(config, key) is not None}
    given |= set(in_memory)
    hypotheses = named("hypotheses", config.hypotheses)
    if not given & {"model_dir", "hypotheses"}:
        raise UserError("nothing to score: give model_dir=DIR, or hypotheses=FILE and references=FILE")
    if {"model_dir", "hypotheses"} <= given:
        raise UserError(
            "model_dir and hypotheses exclude each other: give one; baseline=FILE compares two systems"
        )
    if "hypotheses" in given:
        for key in ("source", "data", "output"):
            if key in given and not (key == "source" and readers):
                raise UserError(f"{key} goes with model_dir=DIR: {hypotheses} is translated already")
        if config.decoding != DecodingConfig():
            raise UserError(f"decoding goes with model_dir=DIR: {hypotheses} is translated already")
        if "references" not in given:
            raise UserError(f"{hypotheses} needs references=FILE")
        if readers and "source" not in given:
            raise UserError(f"{hypotheses} needs source=FILE: {readers[0]} reads the sources")
    elif len(given & {"source", "references"}) == 1:
        raise UserError(
            "source and references go together: give both, or neither for the model's own test set"
        )
    elif {"source", "data"} <= given:
        raise UserError(
            "source and data exclude each other: give source=FILE and references=FILE, or data=NAME"
        )
    if config.split not in ("valid", "test"):
        raise UserError(f"split={config.split}: must be valid or test")
    if config.precision not in Precision.__members__:
        raise UserError(f"precision={config.precision}: must be one of {', '.join(Precision.__members__)}")
    _check_outputs(config)


def named(key: str, value: Any) -> str:
    """An option of one file or a list of them, for messages; the key alone for lines in memory."""
    if value is None:
        return key
    return f"{key}={', '.join(map(str, value)) if isinstance(value, list | tuple) else value}"


def _check_outputs(config: EvalConfig) -> None:
    from nmt.data.corpora.text import expand

    given = {key: value for key in TEXTS if (value := getattr(config, key)) is not None}
    inputs = {
        _path(str(path)): key
        for key, value in given.items()
        for path in expand(value, key, several=key == "references")
    }
    for key in ("output", "json"):
        value = getattr(config, key)
        if value is None:
            continue
        path = _path(value)
        if path in inputs:
            raise UserError(f"{key}={value}: would overwrite {inputs[path]}; give another name")
        require_writable(Path(value), f"{key}={value}")
        inputs[path] = key


def _path(value: str) -> Path:
    return Path(os.path.realpath(expanded(value)))
