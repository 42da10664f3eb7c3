"""`--help` lists every option, quickly and without importing the heavy libraries."""

from __future__ import annotations

import pytest

from nmt.cli.help import help_text
from nmt.config import EvalConfig, TrainConfig, TranslateConfig
from nmt.config.schema import schema_keys


@pytest.mark.parametrize(
    ("schema", "name"), [(TrainConfig, "train"), (TranslateConfig, "translate"), (EvalConfig, "eval")]
)
def test_every_option_is_there(schema: type, name: str) -> None:
    text = help_text(schema, name, "What it does.")
    assert text.startswith("What it does.\n")
    for key in (key.replace("*", "NAME") for key in schema_keys(schema) if not key.endswith("*")):
        mark = f"\n  {key}: " if key in text and f"    {key}=" not in text else f"\n    {key}="
        assert mark in text, key
    assert all(len(line) <= 116 for line in text.splitlines())


def test_groups_and_choices_are_told() -> None:
    text = help_text(TrainConfig, "train", "x")
    assert "experiment=            multi30k, quickstart, wmt14_en_de_base" in text
    assert "post|pre." in text
    assert "\n    data.train.corpora.NAME.weight=null" in text and "How often each pair is drawn" in text


def test_an_optional_section_has_no_name_of_its_own() -> None:
    text = help_text(EvalConfig, "eval", "")
    assert "\n    data.source_lang=" in text and "data.NAME." not in text


def test_early_stopping_is_found_by_its_name() -> None:
    lines = help_text(TrainConfig, "train", "").splitlines()
    found = [line for line in lines if "Early stopping" in line]
    assert [line.split()[0] for line in found] == ["training.patience=0"]
