"""Every option with values of the wrong type or out of range, options that do not exist, and flags."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterator
from enum import Enum
from itertools import count
from typing import Any

from attack.case import NUM_LINES, Case, Expected, either, evaluate, refused, train, translate, works
from nmt.config import EvalConfig, TrainConfig, TranslateConfig

_HUGE = "1" + "0" * 40
_WRONG: dict[type, tuple[str, ...]] = {
    bool: ("maybe", "2", "[true]", "{a:1}", "1.5", "-1", "y", "'2'", "00"),
    int: ("many", "1.5", "[1]", "{a:1}", "-7", "true", f"-{_HUGE}", "1e400", "nan", "'3'x"),
    float: ("many", "nan", "[1.0]", "{a:1}", "-7.5", "inf", "-1e400", "0x1p3q", "-inf"),
    Enum: ("nonsense", "[x]", "{a:1}", "-1", "NONE2", "2.5"),
}


def options(schema: type[Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yields the full name and the type of every option that holds one value."""
    hints = typing.get_type_hints(schema)
    for field in dataclasses.fields(schema):
        hint = hints[field.name]
        kinds = [kind for kind in typing.get_args(hint) or (hint,) if kind is not type(None)]
        if typing.get_origin(hint) in (dict, list):
            continue
        if dataclasses.is_dataclass(kinds[0]):
            yield from options(typing.cast(type[Any], kinds[0]), f"{prefix}{field.name}.")
        else:
            yield f"{prefix}{field.name}", kinds[0]


def _kind(hint: Any) -> type | None:
    if isinstance(hint, type) and issubclass(hint, Enum):
        return Enum
    return hint if hint in _WRONG else None


def _wrong_values() -> Iterator[Case]:
    """Wrong values for each option; options of one kind take the values of this kind in turn."""
    turns = {kind: count() for kind in _WRONG}
    for schema, make in ((TrainConfig, train), (TranslateConfig, translate), (EvalConfig, evaluate)):
        for key, hint in options(schema):
            kind = _kind(hint)
            if kind is None or (schema is EvalConfig and key.startswith(("data.", "decoding."))):
                continue
            if schema is TranslateConfig and key == "threads":
                continue
            values = _WRONG[kind]
            for _ in range(2 if schema is TrainConfig else 1):
                value = values[next(turns[kind]) % len(values)]
                name = f"options/{key}={value[:12]}"
                yield make(name, refused(key.rpartition(".")[2]), f"{key}={value}")


_UNKNOWN = (
    (
        "nmt-train",
        "training.max_update=3",
        ("training.max_update: there is no such option. Did you mean training.max_updates?",),
    ),
    ("nmt-train", "training.max_updates=lots", ("training.max_updates: must be a whole number, not lots.",)),
    ("nmt-train", "experiment=wmt14", ("experiment=wmt14: there is no such experiment",)),
    (
        "nmt-train",
        "data.source_lang=english",
        ("data.source_lang=english: is not a language code. Give a code such as en or zh",),
    ),
    (
        "nmt-train",
        "data.train.corpora.news.target_lang=english",
        ("data.train.corpora.news.target_lang=english: is not a language code",),
    ),
    ("nmt-train", "max_updates=3", ("training.max_updates",)),
    ("nmt-train", "nonsense=1", ("nonsense",)),
    ("nmt-train", "a.b.c.d=1", ("a: there is no such option",)),
    ("nmt-train", "++training.nonsense.deep=1", ("nonsense",)),
    ("nmt-train", "TRAINING.max_updates=3", ("training",)),
    ("nmt-train", "training=1", ("training",)),
    ("nmt-train", "training=null", ("training",)),
    ("nmt-train", "training.optimizer=adam", ("training.optimizer",)),
    ("nmt-train", "data=nonsense", ("nonsense",)),
    ("nmt-train", "nonsense/group=1", ("nonsense",)),
    ("nmt-train", "experiment=../../../etc/passwd", ("experiment",)),
    ("nmt-train", "experiment=", ()),
    ("nmt-train", "data.train.corpora.x.nonsense=1", ("nonsense",)),
    ("nmt-train", "data.train.corpora=1", ("corpora",)),
    ("nmt-train", "data.tokenizer.user_symbols=1", ("user_symbols",)),
    ("nmt-train", "data.tokenizer.user_symbols={a:1}", ("user_symbols",)),
    ("nmt-train", "data.max_tokens=[1]", ("data.max_tokens",)),
    ("nmt-train", "data.loaders=lots", ("data.loaders",)),
    ("nmt-train", "training.devices=cuda", ("training.devices",)),
    ("nmt-train", "model.d_model=33", ("model.d_model",)),
    ("nmt-train", "resume=must", ("resume",)),
    ("nmt-train", "start_from=nowhere", ("nowhere",)),
    ("nmt-train", "data.tokenizer.path=nowhere", ("nowhere",)),
    ("nmt-translate", "decoding.beam_size=0", ("decoding.beam_size=0: must be between 1 and 1,000.",)),
    ("nmt-translate", "device=tpu", ("device",)),
    ("nmt-translate", "device=cuda", ("device",)),
    ("nmt-translate", "nonsense=1", ("nonsense",)),
    ("nmt-translate", "input=nowhere", ("nowhere",)),
    ("nmt-translate", "model_dir=nowhere", ("nowhere", "there is no such folder")),
    ("nmt-translate", "model_dir=", ("model_dir",)),
    ("nmt-translate", "model_dir=null", ("model_dir",)),
    ("nmt-translate", "model_dir=[]", ("model_dir",)),
    ("nmt-translate", "model_dir=[[model]]", ("model_dir",)),
    ("nmt-translate", "model_dir={a:model}", ("model_dir",)),
    ("nmt-translate", "training.max_updates=1", ("training",)),
    ("nmt-eval", "model_dir=.", ("not a model folder",)),
    ("nmt-eval", "model_dir=nowhere", ("there is no such folder",)),
    ("nmt-eval", "target_lang=chinese", ("target_lang=chinese: is not a language code",)),
    ("nmt-eval", "score=perhaps", ("score",)),
    ("nmt-eval", "hypotheses=nowhere", ("nowhere",)),
    ("nmt-eval", "references=nowhere", ("nowhere",)),
    ("nmt-eval", "data=nonsense", ("nonsense",)),
    ("nmt-eval", "data.source_lang=en", ("data",)),
    ("nmt-eval", "nonsense=1", ("nonsense",)),
)

_FLAGS: tuple[tuple[str, tuple[str, ...], Expected], ...] = (
    ("--help", ("--help",), either()),
    ("-h", ("-h", "nonsense=1"), either()),
    ("--version", ("--version",), either(1)),
    ("--verbose", ("--verbose",), refused("--verbose: is not a flag")),
    ("-x", ("-x",), refused("-x")),
    ("dashes", ("--",), refused("--")),
    ("dash", ("-",), refused("-")),
    ("--config-dir alone", ("--config-dir",), refused("--config-dir")),
    ("--config-dir empty", ("--config-dir=",), refused("--config-dir")),
    ("--config-dir nowhere", ("--config-dir", "nowhere"), refused("nowhere")),
    ("--config-dir file", ("--config-dir", "train.src"), refused("train.src")),
    ("--config-dir null", ("--config-dir", "/dev/null"), refused("/dev/null")),
    ("--cfg all", ("--cfg=all",), refused("--cfg")),
    ("--config-name", ("--config-name=eval",), refused("--config-name")),
    ("--package", ("-p", "x"), refused("-p")),
    ("--help=yes", ("--help=yes",), refused("--help")),
    ("unicode dash", ("\N{EN DASH}-help",), refused()),
)


_TRUE, _FALSE = ("true", "True", "yes", "on", "1", "'true'"), ("false", "FALSE", "no", "off", "0")


def _truth_values() -> Iterator[Case]:
    """Every word for a truth value, and near misses."""
    for word in (*_TRUE, *_FALSE):
        yield translate(f"options/scores={word}", works(NUM_LINES), f"scores={word}")
    for word in _TRUE:
        yield train(
            f"options/prepare_only={word}", works(None, "run/data_report.json"), f"prepare_only={word}"
        )
    for word in ("2", "-1", "y", "n", "t", "1.0", "0.0", "10", "''", "'2'", "None", "+2"):
        yield train(f"options/prepare_only={word}!", refused("prepare_only"), f"prepare_only={word}")
    section = "data.cleaning={drop_leaked:2}"
    yield train(f"options/{section}", refused("drop_leaked"), section)


def cases() -> Iterator[Case]:
    """All cases of this family."""
    yield from _truth_values()
    yield from _wrong_values()
    makers = {"nmt-train": train, "nmt-translate": translate, "nmt-eval": evaluate}
    for command, argument, words in _UNKNOWN:
        yield makers[command](f"options/{argument[:60]}", refused(*words), argument)
    yield Case("options/nmt-translate no model", "nmt-translate", (), refused("model_dir: must be given"))
    for make in makers.values():
        for name, arguments, expected in _FLAGS:
            yield make(f"flags/{name}", expected, *arguments)
