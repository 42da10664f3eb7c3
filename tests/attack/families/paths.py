"""Odd paths for every path option: taken literally, never changed silently."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator

from attack.case import LINES, NUM_LINES, Case, Machine, evaluate, refused, train, translate, works
from attack.room import Room

NAMES = (
    *("données.fr", "日本", "it's", 'say "hi"', "a(1)", "a#b", "seed=1", "a b", " lead", "trail ", "a,b"),
    *("{a: 1}", "{a:1}", "[1]", "a[1]", "a*b", "a$b", "a\\b", "a@b", "+a", "-a", "--help", "~a"),
    *("2026_11_23", "1.10", "1e3", "007", "true", "null", "nan", "1:30", "...", ".hidden", "a.b.c"),
    *("e\u0301", "\u202ereversed", "\N{GRINNING FACE}", "a\u2028b", "=", "x" * 200),
)
"""Names of files and folders with a special meaning in a shell, in YAML or in Hydra."""

CLEARED = "null"
"""Not a path for an optional option: there it means that the option is not given."""


def _copied(source: str, name: str) -> Callable[[Room], None]:
    return lambda room: shutil.copy(room.work / source, room.work / name) and None


def _model_at(name: str) -> Callable[[Room], None]:
    return lambda room: room.put_model(name) and None


def _run_dir(index: int, name: str) -> Case:
    return train(
        f"paths/run_dir {index:02d} {ascii(name)[:30]}",
        works(None, f"{name}/data_report.json"),
        f"run_dir={name}",
        "prepare_only=true",
    )


def cases() -> Iterator[Case]:
    """All cases of this family: every name with several options, in turn."""
    for index, name in enumerate(NAMES):
        short = f"{index:02d} {ascii(name)[:30]}"
        yield _run_dir(index, name)
        if name == CLEARED:
            continue
        yield translate(f"paths/output {short}", works(0, name), f"output={name}")
        turn = index % 5
        if turn == 0:
            yield translate(
                f"paths/model_dir {short}", works(NUM_LINES), f"model_dir={name}", setup=_model_at(name)
            )
        elif turn == 1:
            yield translate(
                f"paths/input {short}",
                works(6),
                f"input={name}",
                setup=lambda room, name=name: (room.put_model(), _copied("test.src", name)(room)) and None,
                machine=Machine(),
            )
        elif turn == 2:
            listed = name.startswith("[") and name.endswith("]")  # a list of files, none of which exists
            yield train(
                f"paths/data.train.source {short}",
                refused("data.train.source") if listed else works(None, "run/data_report.json"),
                f"data.train.source={name}",
                "prepare_only=true",
                setup=_copied("train.src", name),
            )
        elif turn == 3:
            yield evaluate(
                f"paths/hypotheses {short}", works(), f"hypotheses={name}", setup=_copied("hyp.txt", name)
            )
        else:
            yield evaluate(f"paths/json {short}", works(None, name), f"json={name}")
    yield from _cleared()
    yield from _quoted()
    yield from _interpolated()
    yield train("paths/run_dir empty", refused("run_dir"), "run_dir=")
    yield translate("paths/output empty", refused("output"), "output=")
    yield evaluate("paths/json empty", refused("json"), "json=")
    home = Machine(stdin=LINES, environment={"HOME": "{room}"})
    yield translate("paths/output ~/out", works(0, "out"), "output=~/out", machine=home)
    yield translate("paths/model_dir ~/model", works(NUM_LINES), "model_dir=~/model", machine=home)
    yield train(
        "paths/run_dir ~/r",
        works(None, "r/data_report.json"),
        "run_dir=~/r",
        "prepare_only=true",
        machine=home,
    )
    yield train(
        "paths/source ~/train.src",
        works(),
        "data.train.source=~/train.src",
        "prepare_only=true",
        machine=home,
    )
    yield translate("paths/model_dir list", works(NUM_LINES), "model_dir=[model,model]")
    yield translate(
        "paths/model_dir list of odd", works(NUM_LINES), "model_dir=['a b','a b']", setup=_model_at("a b")
    )
    for make, key, long in (
        *((train, "run_dir", long) for long in ("x" * 300, "x/" * 3000, "x" * 5000)),
        *((train, f"data.{key}", "x" * 300) for key in ("train.source", "train.path", "cache_dir")),
        *((translate, "output", "x" * 256), (translate, "input", "y/" * 4000)),
        *((translate, "model_dir", "x" * 5000), (evaluate, "hypotheses", "x" * 300)),
        *((evaluate, key, "x" * 300) for key in ("json", "groups")),
    ):
        yield make(f"paths/{key} of {len(long)}", refused(), f"{key}={long}")


def _cleared() -> Iterator[Case]:
    """`null` for optional options, while a file or folder with this name exists; in quotes it is a name."""
    prepare = "prepare_only=true"
    report = works(None, "run/data_report.json")
    file = _copied("train.src", CLEARED)
    both = _put_at("model", "test.src")
    yield translate("paths/output null", works(NUM_LINES, check=_nothing_at(CLEARED)), "output=null")
    yield translate("paths/input null", works(NUM_LINES), "input=null", setup=both)
    yield evaluate("paths/json null", works(check=_nothing_at(CLEARED)), "json=null")
    none = refused("model_dir", "hypotheses", "references")
    yield evaluate("paths/hypotheses null", none, "hypotheses=null", setup=_copied("hyp.txt", CLEARED))
    yield evaluate("paths/baseline null", works(), "baseline=null", setup=file)
    for key in ("data.train.source", "data.test.target"):
        yield train(f"paths/{key} null", refused(key), f"{key}=null", prepare, setup=file)
    for key in ("start_from", "data.cache_dir", "data.tokenizer.path", "data.hub.path"):
        yield train(f"paths/{key} null", report, f"{key}=null", prepare, setup=file)
    yield translate("paths/output 'null'", works(0, CLEARED), "output='null'")
    yield translate("paths/input 'null'", works(6), "input='null'", setup=both)
    yield evaluate("paths/json 'null'", works(None, CLEARED), "json='null'")
    yield train("paths/source 'null'", report, "data.train.source='null'", prepare, setup=file)


def _quoted() -> Iterator[Case]:
    """Quotes around a whole value are not part of it, but those inside them are."""
    for given, name in (("'quoted'", "quoted"), ("\"'quoted'\"", "'quoted'"), ("'a'b", "'a'b")):
        report = works(None, f"{name}/data_report.json")
        yield train(f"paths/run_dir {given}", report, f"run_dir={given}", "prepare_only=true")
        yield translate(f"paths/output {given}", works(0, name), f"output={given}")


def _interpolated() -> Iterator[Case]:
    """`${name}` stands for another option, `${oc.env:NAME}` for a variable; it cannot be escaped."""
    machine = Machine(stdin=LINES, environment={"PLACE": "{room}/x"})
    prepare = "prepare_only=true"
    yield train("paths/run_dir ${seed}", works(None, "1/data_report.json"), "run_dir=${seed}", prepare)
    yield train(
        "paths/run_dir ${oc.env:PLACE}",
        works(None, "x/data_report.json"),
        "run_dir=${oc.env:PLACE}",
        prepare,
        machine=machine,
    )
    yield train("paths/run_dir ${run_dir}", refused("run_dir"), "run_dir=${run_dir}")
    yield train("paths/run_dir \\${seed}", refused("run_dir", "${"), "run_dir=\\${seed}")
    yield train("paths/run_dir ${seed", refused("run_dir", "${"), "run_dir=${seed")
    yield translate("paths/output ${seed}", refused("output", "seed"), "output=${seed}")
    yield translate("paths/output ${oc.env:PLACE}", works(0, "x"), "output=${oc.env:PLACE}", machine=machine)
    yield translate(
        "paths/output ${oc.env:NOWHERE}", refused("output", "NOWHERE"), "output=${oc.env:NOWHERE}"
    )
    yield evaluate("paths/json ${split}", works(None, "test"), "json=${split}")


def _put_at(model: str, source: str) -> Callable[[Room], None]:
    return lambda room: (room.put_model(model), _copied(source, CLEARED)(room)) and None


def _nothing_at(name: str) -> Callable[[Room], str | None]:
    return lambda room: f"{name} was written" if (room.work / name).exists() else None
