"""Stored configurations are data: no interpolation is resolved, and every value has its option's type."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

from nmt.config import CleaningConfig, CorpusConfig, DataConfig, ModelConfig, TrainConfig
from nmt.config.plain_yaml import write_yaml
from nmt.config.storage import from_plain, from_yaml, to_plain, to_yaml, typed_options
from nmt.errors import UserError
from nmt.training.state.run_folder import fixed_options

SECRET = "s3cr3t"
ENV = "${oc.env:SECRET}"


def stored() -> dict[str, Any]:
    """The plain values of a configuration."""
    values: dict[str, Any] = to_plain(
        TrainConfig(run_dir="runs/a", data=DataConfig(name="d", source_lang="en", target_lang="de"))
    )
    return values


def put(values: Any, key: Sequence[str], value: Any) -> None:
    for part in key[:-1]:
        values = values.setdefault(part, {})
    values[key[-1]] = value


def at(values: Any, key: Sequence[str]) -> Any:
    for part in key:
        values = values[part]
    return values


TEXTS = [
    *(("name", ENV), ("run_dir", f"runs/{ENV}"), ("run_dir", "runs/${name}"), ("start_from", ENV)),
    *(("data.name", ENV), ("data.name", "${oc.env:SECRET,${name}}"), ("data.name", "${a:${b}}")),
    *(("data.name", "\\" + ENV), ("data.name", "\\\\" + ENV), ("data.name", f"two\nlines {ENV}\n")),
    *(("data.name", "${oc.decode:${oc.env:SECRET}}"), ("data.name", "${hydra:runtime.cwd}")),
    *(("data.name", "${now:%Y}"), ("data.name", "${.source_lang}"), ("data.name", "${..name}")),
    *(("data.name", "${oc.select:name}"), ("data.name", "${oc.dict.values:data}"), ("data.name", "${")),
    *(("data.name", "${oc.deprecated:name}"), ("data.name", "${oc.create:{a:1}}"), ("data.name", "???x")),
    *(
        ("data.source_lang", ENV),
        ("data.target_lang", ENV),
        ("data.source_key", ENV),
        ("data.target_key", ENV),
    ),
    *(("data.hub.path", f"x/{ENV}"), ("data.hub.name", ENV), ("data.hub.revision", ENV)),
    *((f"data.{split}.{key}", ENV) for split in ("train", "valid", "test") for key in ("split", "sacrebleu")),
    *((f"data.test.{key}", ENV) for key in ("source", "target", "path", "groups", "tag")),
    *((f"data.test.{key}", ["a", ENV]) for key in ("source", "target", "path")),
    *(
        ("data.tokenizer.path", ENV),
        ("data.tokenizer.user_symbols", [ENV, "${name}"]),
        ("data.cache_dir", ENV),
    ),
    *(
        ("data.train.corpora.a.hub.path", ENV),
        ("data.train.corpora.a.tag", ENV),
        (f"data.train.corpora.{ENV}.tag", "<a>"),
    ),
    *(("data.train.corpora.a.source", [ENV]), ("model.positions.name", ENV)),
]


@pytest.mark.parametrize(("key", "value"), TEXTS)
def test_text_is_never_resolved(key: str, value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", SECRET)
    values, parts = stored(), key.split(".") if ENV not in key else ["data", "train", "corpora", ENV, "tag"]
    put(values, parts, value)
    config = from_yaml(TrainConfig, write_yaml(values), "x")
    for _ in range(2):  # the processes of a run receive it in this way
        assert at(to_plain(config), parts) == value
        assert SECRET not in repr(config) and SECRET not in repr(fixed_options(config))
        text = to_yaml(config)
        assert SECRET not in text
        config = from_yaml(TrainConfig, text, "x")


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("seed", ENV, "seed=${oc.env:SECRET}: must be a whole number"),
        ("resume", ENV, "resume=${oc.env:SECRET}: must be one of auto, never, must"),
        ("prepare_only", ENV, "prepare_only=${oc.env:SECRET}: must be true or false"),
        ("data", ENV, "data=${oc.env:SECRET}: must be a section of options"),
        ("data.max_tokens", ENV, "data.max_tokens=${oc.env:SECRET}: must be auto or a number"),
        ("data.tokenizer.user_symbols", ENV, "data.tokenizer.user_symbols=${oc.env:SECRET}: must be a list"),
        ("data.tokenizer.user_symbols", [["a"]], "data.tokenizer.user_symbols[0]=['a']: must be text"),
        ("data.train.corpora", ENV, "data.train.corpora=${oc.env:SECRET}: must be a mapping"),
        ("data.train.corpora", {"a": ENV}, "data.train.corpora.a=${oc.env:SECRET}: must be a section"),
        (
            "data.train.corpora",
            {"a": {"cleaning": {"max_ratio": ENV}}},
            "data.train.corpora.a.cleaning.max_ratio=",
        ),
        (
            "data.train.corpora",
            {"a": {"cleaning": {ENV: 1}}},
            "data.train.corpora.a.cleaning.${oc.env:SECRET}: ",
        ),
        ("model.d_model", True, "model.d_model=True: must be a whole number"),
        ("model.d_model", 1.5, "model.d_model=1.5: must be a whole number"),
        ("model.norm", None, "model.norm=None: must be one of post, pre"),
        ("model", None, "model=None: must be a section of options"),
        ("decoding.length_penalty", [1], "decoding.length_penalty=[1]: must be a number"),
        ("decoding.length_penalty", float("nan"), "decoding.length_penalty=nan: must be "),
        (ENV, 1, "${oc.env:SECRET}: this version of nmt has no such option"),
        ("data.name\x1b[2J", 1, "data.name?[2J: this version of nmt has no such option"),
    ],
)
def test_values_of_another_type_are_refused(
    key: str, value: Any, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", SECRET)
    values = stored()
    put(values, [key] if ENV in key else key.split("."), value)
    with pytest.raises(UserError) as caught:
        from_yaml(TrainConfig, write_yaml(values), "x")
    assert str(caught.value).startswith(f"x: {words}")
    assert SECRET not in str(caught.value)


def test_a_corpus_s_cleaning_is_not_resolved_either(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "7")
    data = DataConfig(name="d", source_lang="en", target_lang="de")
    with pytest.raises(UserError, match=r"^k\.cleaning\.max_ratio=\$\{oc\.env:SECRET\}: must be a number\.$"):
        data.cleaning_of("k", CorpusConfig(cleaning={"max_ratio": ENV}))
    assert data.cleaning_of("k", CorpusConfig(cleaning={"max_ratio": 3})) == CleaningConfig(max_ratio=3.0)


def test_numbers_and_words_as_people_write_them() -> None:
    found = from_plain(ModelConfig, {"d_model": "64", "dropout": 0, "norm": "pre"})
    assert (found.d_model, found.dropout, found.norm.name) == (64, 0.0, "pre")
    assert type(found.dropout) is float
    assert from_plain(TrainConfig, {**stored(), "name": 7}).name == "7"


def test_what_is_not_given_has_its_default_or_is_missing() -> None:
    assert from_plain(ModelConfig, {}) == ModelConfig()
    with pytest.raises(UserError, match=r"^data\.target_lang: is missing\.$"):
        from_plain(TrainConfig, {"data": {"name": "d", "source_lang": "en"}})


@pytest.mark.parametrize("value", [False, True])
def test_a_removed_option_is_ignored_in_its_section_alone(value: bool) -> None:
    values = stored()
    expected = from_plain(TrainConfig, values)
    values["training"]["compile"] = value
    assert from_plain(TrainConfig, values) == expected
    with pytest.raises(UserError, match=r"^model\.compile: this version of nmt has no such option\.$"):
        from_plain(TrainConfig, {**stored(), "model": {"compile": value}})


def test_options_that_are_not_unicode_are_refused() -> None:
    config = from_plain(TrainConfig, stored())
    config.name = "a\udcff"
    with pytest.raises(
        UserError, match="the options can't be stored: a value holds text that is not Unicode"
    ):
        to_yaml(config)


class Layout(Enum):
    interleaved = "interleaved"
    halves = "halves"


@dataclass(frozen=True)
class Options:
    layout: Layout = Layout.interleaved
    base: float = 10000.0
    clip: int | None = None
    values: bool = True
    file: str = ""
    betas: tuple[float, float] = (0.9, 0.98)
    sizes: tuple[int, ...] = ()
    folder: Path = Path()

    def __post_init__(self) -> None:
        if self.base <= 1:
            raise ValueError(f"base={self.base}: must be above 1.")


def read(given: dict[str, Any]) -> Options:
    return typed_options(Options, given, "model.positions.options", "model.positions.name=waves")


def test_values_get_their_types_and_the_others_their_defaults() -> None:
    assert read({}) == Options()
    assert read({"layout": "halves", "base": 20000, "clip": 16, "values": False, "file": "a"}) == Options(
        Layout.halves, 20000.0, 16, False, "a"
    )
    assert isinstance(read({"base": 3}).base, float)
    assert read({"clip": None}).clip is None
    several = read({"betas": [1, "0.5"], "sizes": [1, 2, 3], "folder": "a/b"})
    assert (several.betas, several.sizes, several.folder) == ((1.0, 0.5), (1, 2, 3), Path("a/b"))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (
            {"bsae": 3},
            "bsae: not an option of model.positions.name=waves. It has layout, base, clip, values, file, "
            "betas, sizes, folder. Did you mean model.positions.options.base?",
        ),
        ({"base": "high"}, "base=high: must be a number."),
        ({"base": None}, "base=None: must be a number."),
        ({"base": True}, "base=True: must be a number."),
        ({"base": [1]}, "base=[1]: must be a number."),
        ({"clip": 1.5}, "clip=1.5: must be a whole number or null."),
        ({"values": "perhaps"}, "values=perhaps: must be true or false."),
        ({"layout": "thirds"}, "layout=thirds: must be interleaved or halves."),
        ({"file": {"a": 1}}, "file={'a': 1}: must be text."),
        ({"betas": [0.9]}, "betas=[0.9]: must be of type tuple[float, float]."),
        ({"betas": [0.9, "x"]}, "betas=[0.9, 'x']: must be of type tuple[float, float]."),
        ({"base": 0.5}, "base=0.5: must be above 1."),
        ({"base": "${x}"}, "base=${x}: must be a number."),
    ],
)
def test_errors_name_the_option(given: dict[str, Any], expected: str) -> None:
    with pytest.raises(UserError) as caught:
        read(given)
    assert str(caught.value) == f"model.positions.options.{expected}"


def test_the_options_of_a_command_are_declared_without_omegaconf() -> None:
    """Every import delays `--help` and completion."""
    script = "import sys, nmt.config; print(sorted({'omegaconf', 'hydra', 'torch'} & sys.modules.keys()))"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"
