"""Words that cannot be options are refused in one line, before Hydra parses them."""

from __future__ import annotations

import pytest

from nmt.config import TrainConfig
from nmt.errors import UserError
from nmt.options.arguments import Arguments, one_line, read_arguments
from nmt.options.compose import compose_jobs


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("=3", "=3: the key is missing"),
        ("", "an empty argument: options are written key=value. --help lists them"),
        (" ", "an empty argument: options are written key=value"),
        ("/", "/: options are written key=value, such as model_dir=/. --help lists them"),
        ("key", "key: options are written key=value. --help lists them"),
        ("++=1", "++=1: the key is missing"),
        ("~x", "~x: an option can't be removed. Leave it out, or set another value"),
        ("~seed=3", "~seed=3: an option can't be removed"),
        ("a..b=1", "a..b=1: a part of the key is empty"),
        (".a=1", ".a=1: a part of the key is empty"),
        ("a b=1", "a b=1: a key has no spaces"),
        ("data@x=local", "data@x=local: @ is not allowed in a key"),
        ("seed=\x1b[31m", "seed=\x1b[31m: contains the control character U+001B. Remove it"),
        ("seed=a\nb", "seed=a\nb: contains the control character U+000A"),
        ("seed=\udcff", "seed=\udcff: is not UTF-8 text. Rename the file or folder"),
        ("\udce9=1", "\udce9=1: is not UTF-8 text"),
        ("a" * 300_000 + "=1", "a" * 100 + "…"),
        (
            "hydra.run.dir=x",
            "hydra.run.dir=x: options of Hydra are not supported. Set the run folder by run_dir=DIR",
        ),
        (
            "hydra/launcher=basic",
            "hydra/launcher=basic: options of Hydra are not supported. The jobs of a sweep (-m)",
        ),
        ("+hydra.foo=1", "+hydra.foo=1: options of Hydra are not supported"),
        ("experiment=null", "experiment=null: must be the name of a file"),
        ("experiment={a:1}", "experiment={a:1}: must be the name of a file"),
        ("data=null", "data=null: must be the name of a file: local, multi30k"),
    ],
)
def test_words_are_refused(word: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        read_arguments([word], TrainConfig)
    assert str(caught.value).startswith(message)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    "word", ["x==y", "seed==3", "seed=${", "seed=[1", "seed='", "ä=1", "0=1", "seed=foo(3)", "seed[0]=1"]
)
def test_hydra_refuses_the_rest_in_one_line(word: str) -> None:
    with pytest.raises(UserError) as caught:
        compose_jobs(TrainConfig, "train", Arguments((word,)))
    assert str(caught.value).startswith(word) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "word",
    [
        "seed=1",
        "data={name: x}",
        "model=tiny",
        "++seed=1",
        "data.train.source=a\tb",
        "run_dir=",
        "run_dir=é日本",
        "experiment=2026_11",
    ],
)
def test_options_pass(word: str) -> None:
    assert read_arguments([word]).overrides == (word,)


def test_config_dir_is_text() -> None:
    with pytest.raises(UserError, match="is not UTF-8 text"):
        read_arguments(["--config-dir", "\udcff"])
    with pytest.raises(UserError, match="--config-dir: has no value. Give the name of a folder"):
        compose_jobs(TrainConfig, "train", Arguments(config_dir=""))


def test_a_message_is_one_printable_line() -> None:
    assert one_line("a\n b\x1b[31m\udcff é") == "a b\\x1b[31m\\udcff é"
    assert len(one_line("x" * 10_000)) == 1000
