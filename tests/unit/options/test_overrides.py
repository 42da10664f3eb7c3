"""Text and paths on the command line: values that are taken literally, and values with a special meaning."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nmt.config import CorpusConfig, EvalConfig, TrainConfig, TranslateConfig
from nmt.config.schema import TextOption
from nmt.config.storage import from_yaml, to_yaml
from nmt.errors import UserError
from nmt.options.arguments import Arguments, read_arguments
from nmt.options.compose import compose_jobs
from nmt.options.overrides import parsed, quoted, read_text, split

LOCAL = ("data=local", "data.source_lang=en", "data.target_lang=de")

LITERAL = [
    *r"""
    ~/a.en ~nobody-of-this-name/a.en données.fr 日本 it's 'tis a(1) a#b a&b a,b seed=1
    runs/seed=1,model.norm=pre $HOME a$ 2026_11_23 1.10 1e3 0x10 007 inf nan true False NULL ~ - --help
    a[1].en [ab]*.en [ a] {} part*.en 100% a:b " !tag @x | a;b <a> a?b .. ./a//b choice(a,b) +x 🦊
    """.split(),
    *(
        "a b",
        "a, b ,c",
        "C:\\data\\",
        "back\\",
        "{a: b}",
        "a: b",
        "a\tb",
        " a ",
        'say "hi".txt',
        "'a' and 'b'",
        "\x07\x7f",
        "\u2028",
        "e\u0301",
    ),
]
"""Values that arrive unchanged in the options."""


def trained(*overrides: str) -> TrainConfig:
    (job,) = compose_jobs(TrainConfig, "train", Arguments(overrides))
    return job


KEYS = {
    TrainConfig: (
        "run_dir",
        "name",
        "start_from",
        "data.name",
        "data.train.source",
        "data.train.target",
        "data.valid.path",
        "data.test.groups",
        "data.hub.path",
        "data.hub.revision",
        "data.tokenizer.path",
        "data.cache_dir",
        "data.train.corpora.back.source",
        "data.train.corpora.back.hub.path",
        "data.train.corpora.back.tag",
    ),
    TranslateConfig: ("model_dir", "input", "output", "terminology"),
    EvalConfig: ("source", "references", "hypotheses", "baseline", "groups", "output", "json"),
}


def value_of(config: Any, key: str) -> Any:
    for name in key.split("."):
        config = config[name] if isinstance(config, dict) else getattr(config, name)
    return config


@pytest.mark.parametrize(
    ("schema", "name", "first"),
    [
        *((TrainConfig, "train", first) for first in range(0, len(LITERAL), 7)),
        *((TranslateConfig, "translate", first) for first in range(0, len(LITERAL), 3)),
        *((EvalConfig, "eval", first) for first in range(0, len(LITERAL), 7)),
    ],
)
def test_text_arrives_as_typed(schema: type, name: str, first: int) -> None:
    """Gives the values from `first` on to different options; in training, every value occurs twice."""
    given = dict(zip(KEYS[schema], (LITERAL * 2)[first:], strict=False))
    overrides = [f"{'+' * (number % 3)}{key}={value}" for number, (key, value) in enumerate(given.items())]
    local = LOCAL if schema is TrainConfig else ()
    (config,) = compose_jobs(schema, name, Arguments((*local, *overrides)))
    assert {key: value_of(config, key) for key in given} == given
    if schema is TrainConfig:
        assert from_yaml(TrainConfig, to_yaml(config), "here") == config


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("'my file, v2.txt'", "my file, v2.txt"),
        (r"'it\'s'", "it's"),
        ('"it\'s"', "it's"),
        ("\"'a'\"", "'a'"),
        (r"'a\\'", "a\\"),
        (r"'a\\\'b'", r"a\'b"),
        ("'[a,b]'", "[a,b]"),
        ("'null'", "null"),
        ("' a '", " a "),
        ("[a.en,b.en]", ["a.en", "b.en"]),
        ("[a.en, b.en]", ["a.en", "b.en"]),
        ("[ab]", ["ab"]),
        ("['a, 1','it\\'s',\"b]\"]", ["a, 1", "it's", "b]"]),
        ("[1.10,true,null]", ["1.10", "true", "null"]),
        ("[a[1].en,b(2)]", ["a[1].en", "b(2)"]),
        ("[a b,日本]", ["a b", "日本"]),
        ("[]", []),
        ("null", None),
    ],
)
def test_quotes_lists_and_null(written: str, value: Any) -> None:
    data = trained(*LOCAL, f"data.train.source={written}", f"data.train.corpora.x.path={written}").data
    assert data.train.source == value
    assert data.train.corpora["x"].path == value


def test_null_is_the_name_of_what_must_be_given() -> None:
    assert trained("run_dir=null").run_dir == "null"
    (job,) = compose_jobs(TranslateConfig, "translate", Arguments(("model_dir=null", "input=null")))
    assert (job.model_dir, job.input) == ("null", None)


def test_interpolations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLACE", "/a, b")
    config = trained("run_dir=${oc.env:PLACE}/it's/${name}", "data.cache_dir='${run_dir}/c'", "name=1.10")
    assert (config.run_dir, config.data.cache_dir) == ("/a, b/it's/1.10", "/a, b/it's/1.10/c")


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("run_dir=", "run_dir: is empty. Give a folder."),
        ("run_dir=${oc.env:EMPTY}", "run_dir: is empty. Give a folder."),
        ("name=", "name: is empty. Give a name."),
        ("data.train.source=", "data.train.source: is empty. Give a file, or null for none."),
        ("data.train.source=[a,]", "data.train.source: is empty. Give a file, or null for none."),
        ("data.train.corpora.x.path=", "data.train.corpora.x.path: is empty. Give a file, or null for none."),
        ("experiment=", "experiment=: is empty. Give a name."),
        ("run_dir=a\nb", "run_dir: contains a line break. Give a folder without it."),
        ("data.valid.source=[a,b\nc]", "data.valid.source: contains a line break. Give a file without it."),
        ("run_dir=a\0b", "run_dir: contains a NUL character. Give a folder without it."),
        ("run_dir=a\udcff", "run_dir=a?: is not valid UTF-8. Rename the folder."),
        (
            "run_dir=[a,b]",
            "run_dir=[a,b]: must be one folder, not a list. Put the name of a single folder in ",
        ),
        (
            "start_from=[a,b]",
            "start_from=[a,b]: must be one folder, not a list. Weights are averaged over checkpoints ",
        ),
        ("run_dir=a${b", "run_dir=a${b: ${ begins an interpolation such as ${name}, but this one can't be "),
        ("run_dir=\\${name}", "run_dir=${name}: ${ begins an interpolation. Give a folder without it."),
        ("run_dir=${none}", "run_dir: interpolation key 'none' not found"),
        ("run_dir=???", "run_dir=???: stands for a missing value. Give a value."),
        (
            "data.train.corpora={x: {path: 1.10}}",
            "data.train.corpora.x.path=1.1: is not text. Give a file; in ",
        ),
        ("data.train.corpora..path=x", "data.train.corpora..path: a part of the key is empty."),
    ],
)
def test_values_that_are_refused(override: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMPTY", "")
    with pytest.raises(UserError) as caught:
        trained(override)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("name", ["2026_11_23", "1e3", "1.10", "true", "it's a(1) #&日本", "a\\b", "x=1"])
def test_files_and_folders_of_ones_own_yaml_may_have_odd_names(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    (folder / "experiment").mkdir(parents=True)
    (folder / "experiment" / f"{name}.yaml").write_text("# @package _global_\nname: mine\n")
    arguments = read_arguments([f"experiment={name}", "--config-dir", str(folder)])
    assert compose_jobs(TrainConfig, "train", arguments)[0].name == "mine"


def test_corpora_stay_in_order_and_have_odd_names() -> None:
    corpora = trained(
        *LOCAL,
        "data.train.corpora.2013.source=a",
        "data.train.corpora.été 1.weight=2",
        "data.train.corpora.2013.weight=3",
        "data.train.corpora.été 1.source=b",
    ).data.train.corpora
    assert list(corpora.items()) == [
        ("2013", CorpusConfig(source="a", weight=3)),
        ("été 1", CorpusConfig(source="b", weight=2)),
    ]


@pytest.mark.parametrize("override", ["+seed=3", "++seed=3", "+experiment=multi30k", "+model=tiny"])
def test_a_plus_is_allowed(override: str) -> None:
    trained(override)


@pytest.mark.parametrize(
    ("text", "items"),
    [
        ("a.en,b.en", ["a.en", "b.en"]),
        (" a , b ", ["a", "b"]),
        ("'a,b',c", ["'a,b'", "c"]),
        ("'tis,c'mon", ["'tis", "c'mon"]),
        ("[a,b],[c]", ["[a,b]", "[c]"]),
        ("['],',b],c", ["['],',b]", "c"]),
        ("part[1,2].en,x", ["part[1,2].en", "x"]),
        ("a[1,b", ["a[1", "b"]),
        ("[a,b", ["[a", "b"]),
        ("", [""]),
        ("a,", ["a", ""]),
    ],
)
def test_commas(text: str, items: list[str]) -> None:
    assert split(text) == items


TEXT = st.text(st.characters(exclude_categories=["Cs"]))


@given(TEXT)
@settings(max_examples=300)
def test_any_text_can_be_quoted(text: str) -> None:
    """Quotes can hold any text, also as an item of a list, and in Hydra's grammar."""
    option = TextOption("file", several=True, optional=True)
    assert read_text("key", quoted(text), option) == text
    assert read_text("key", f"[{quoted(text)}, {quoted(text)}]", option) == [text, text]
    assert split(f"{quoted(text)},x") == [quoted(text), "x"]
    assert parsed("key=", f"key={quoted(text)}").value() == text


@given(TEXT)
@settings(max_examples=300)
def test_most_text_needs_no_quotes(text: str) -> None:
    if text[:1] not in ("'", '"', "[") and text != "null":
        assert read_text("key", text, TextOption("file", several=True, optional=True)) == text
