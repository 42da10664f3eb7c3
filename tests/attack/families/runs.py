"""Untrusted and damaged run folders: resumed, delivered again, read by the other commands."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from attack.case import NUM_LINES, Case, Expected, either, refused, train, translate, works
from attack.families.models import CONFIGS, DAMAGES, Damage, resealed, write
from attack.room import Room

CHECKPOINT = "checkpoints/update-00000004"
ANY = either(leaves=("run", "run/*"))
"""The run resumes from its intact files or is refused; its log and its checkpoints may have changed."""

MORE = "training.max_updates=6"
"""Lets a finished run resume."""

_FILES = (
    f"{CHECKPOINT}/state.json",
    f"{CHECKPOINT}/model.safetensors",
    f"{CHECKPOINT}/optimizer.safetensors",
)
_OTHERS = (
    "config.yaml",
    "results.json",
    "metrics.jsonl",
    "train.log",
    "data_report.json",
    ".lock",
    "model/source.spm",
)


def state(*keys: str, value: Any) -> Damage:
    """Replaces one value of `state.json`, or the whole content if no keys are given."""

    def change(path: Path) -> None:
        found = json.loads(path.read_text())
        inner = found
        for key in keys[:-1]:
            inner = inner[key]
        if keys:
            inner[keys[-1]] = value
        path.write_text(json.dumps(found if keys else value))

    return change


_HUGE = 10**40
STATES: dict[str, Damage] = {
    "list": write("[]"),
    "deep": write("[" * 100_000),
    "format 2": state("format_version", value=2),
    "progress list": state("progress", value=[]),
    "progress empty": state("progress", value={}),
    "fingerprints null": state("fingerprints", value=None),
    "options list": state("options", value=[1]),
    "sha256 empty": state("sha256", value={}),
    "update huge": state("progress", "update", value=_HUGE),
    "cursor list": state("progress", "cursor", value=[]),
    "cursor batch": state("progress", "cursor", "batch", value=1),
    "cursor batch huge": state("progress", "cursor", "batch", value=_HUGE),
    "cursor epoch huge": state("progress", "cursor", "epoch", value=_HUGE),
    "checkpoints of text": state("progress", "checkpoints", value=["x"]),
    "seconds inf": state("progress", "seconds", value=float("inf")),
    "one more key": state("progress", "nonsense", value=1),
}

RESULTS: dict[str, Damage] = {
    "list": write("[]"),
    "empty": write("{}"),
    "deep": write("[" * 100_000),
    "training list": write('{"training": []}'),
    "valid list": state("valid", value=[]),
    "test signatures": state("test", "signatures", value=3),
    "training missing": state("training", value={"updates": 4}),
}


def _damaged(room: Room, file: str, damage: Damage) -> None:
    damage(room.put_run() / file)


def _changed(room: Room, file: str, damage: Damage) -> None:
    _damaged(room, file, damage)
    resealed((room.work / "run" / file).parent)


def _without(room: Room, name: str = "") -> None:
    run = room.put_run()
    path = run / name
    if path.is_dir() and name:
        shutil.rmtree(path)
    elif name:
        path.unlink()


def _both(room: Room, file: str, damage: Damage) -> None:
    run = room.put_run()
    for folder in (run / "checkpoints").iterdir():
        damage(folder / file)
        resealed(folder)


def _replaced_by_folder(room: Room, name: str) -> None:
    _without(room, name)
    (room.work / "run" / name).mkdir()


def _replaced_by_file(room: Room, name: str) -> None:
    _without(room, name)
    (room.work / "run" / name).write_text("x")


PLACES = (
    *_OTHERS,
    "data_report.html",
    "source.spm",
    "test.hypotheses.txt",
    "tensorboard",
    "model",
    "model/config.yaml",
    "model/results.json",
    "model/SHA256SUMS",
    "checkpoints",
    CHECKPOINT,
    *_FILES,
    f"{CHECKPOINT}/SHA256SUMS",
    "checkpoints/.update-00000006.tmp",
    "checkpoints/.update-00000004.replaced",
    "checkpoints/.update-00000002.removed",
    ".model.tmp",
    ".model.old",
)
KINDS: dict[str, Callable[[Path], object]] = {
    "pipe": os.mkfifo,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "null": lambda path: path.symlink_to("/dev/null"),
    "file": lambda path: path.write_text("x"),
    "folder": lambda path: (path / "inner").mkdir(parents=True),
    "loop": lambda path: path.symlink_to(path.name),
}


def _replaced(room: Room, name: str, make: Callable[[Path], object]) -> None:
    path = room.put_run() / name
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    make(path)


def _of_another_kind() -> Iterator[Case]:
    """Replaces each file and folder of a run by another kind of file: the run resumes or is refused."""
    for number, place in enumerate(PLACES):
        for turn, (kind, make) in enumerate(KINDS.items()):
            if kind in ("pipe", "device", "file") or (number + turn) % 3 == 0:
                setup = partial(_replaced, name=place, make=make)
                yield train(f"runs/a {kind} as {place}", ANY, MORE, setup=setup)
    for kind in ("pipe", "device"):
        for place in ("results.json", "model/results.json", "model/config.yaml", "data_report.json"):
            setup = partial(_replaced, name=place, make=KINDS[kind])
            yield train(f"runs/a {kind} as {place}, the same again", ANY, setup=setup)


def cases() -> Iterator[Case]:
    """All cases of this family."""
    yield from _of_another_kind()
    resumed = works(None, "run/results.json", "run/model/model.safetensors")
    for file in _FILES:
        for damage in DAMAGES:
            name = f"runs/{Path(file).name} {damage.__name__}"
            yield train(name, resumed, MORE, setup=partial(_damaged, file=file, damage=damage))
    for file in _OTHERS:
        for damage in DAMAGES[2:]:
            name = f"runs/{file} {damage.__name__}"
            yield train(name, ANY, MORE, setup=partial(_damaged, file=file, damage=damage))
    for name, damage in STATES.items():
        setup = partial(_changed, file=_FILES[0], damage=damage)
        yield train(f"runs/state {name}", resumed, MORE, setup=setup)
        setup = partial(_both, file="state.json", damage=damage)
        yield train(f"runs/all states {name}", ANY, MORE, setup=setup)
    for name, damage in RESULTS.items():
        setup = partial(_damaged, file="results.json", damage=damage)
        yield train(f"runs/results {name}", ANY, setup=setup)
    for name, damage in CONFIGS.items():
        if name.startswith(("decoding", "beam", "layers", "d_", "heads")):
            continue
        yield train(
            f"runs/config {name}", ANY, MORE, setup=partial(_damaged, file="config.yaml", damage=damage)
        )
    yield from _whole()


def _whole() -> Iterator[Case]:
    resumed = works(None, "run/results.json", "run/model/model.safetensors")
    again: tuple[tuple[str, Expected, tuple[str, ...], Callable[[Room], None]], ...] = (
        ("the same again", resumed, (), partial(_without)),
        ("more updates", resumed, (MORE,), partial(_without)),
        ("fewer updates", ANY, ("training.max_updates=2",), partial(_without)),
        ("other seed", refused("seed"), ("seed=2",), partial(_without)),
        ("other model", refused("model.d_ff", "64", "128", "seed"), ("model.d_ff=128", "seed=3"), partial(_without)),
        ("other data", ANY, ("data.train.source=train.tgt",), partial(_without)),
        ("resume=never", refused("resume"), ("resume=never",), partial(_without)),
        ("no results", resumed, (), partial(_without, name="results.json")),
        ("no model", resumed, (), partial(_without, name="model")),
        ("no config", refused("config.yaml"), (), partial(_without, name="config.yaml")),
        ("no log", resumed, (MORE,), partial(_without, name="train.log")),
        ("no metrics", resumed, (MORE,), partial(_without, name="metrics.jsonl")),
        ("no tensorboard", resumed, (MORE,), partial(_without, name="tensorboard")),
        ("no lock", resumed, (MORE,), partial(_without, name=".lock")),
        ("no checkpoints", ANY, (MORE,), partial(_without, name="checkpoints")),
        ("no newest checkpoint", ANY, (MORE,), partial(_without, name=CHECKPOINT)),
        ("results a folder", ANY, (MORE,), partial(_replaced_by_folder, name="results.json")),
        ("config a folder", ANY, (MORE,), partial(_replaced_by_folder, name="config.yaml")),
        ("log a folder", ANY, (MORE,), partial(_replaced_by_folder, name="train.log")),
        ("metrics a folder", ANY, (MORE,), partial(_replaced_by_folder, name="metrics.jsonl")),
        ("lock a folder", ANY, (MORE,), partial(_replaced_by_folder, name=".lock")),
        ("hypotheses a folder", ANY, (MORE,), partial(_replaced_by_folder, name="test.hypotheses.txt")),
        ("model a file", ANY, (MORE,), partial(_replaced_by_file, name="model")),
        ("checkpoints a file", ANY, (MORE,), partial(_replaced_by_file, name="checkpoints")),
        ("tensorboard a file", ANY, (MORE,), partial(_replaced_by_file, name="tensorboard")),
        ("checkpoint a file", ANY, (MORE,), partial(_replaced_by_file, name=CHECKPOINT)),
        ("leftovers", resumed, (MORE,), _leftovers),
        ("odd names among checkpoints", resumed, (MORE,), _odd_names),
        ("renamed checkpoint", ANY, (MORE,), _renamed),
        ("checkpoint of another run", ANY, (MORE,), _swapped),
    )  # fmt: skip
    for name, expected, arguments, setup in again:
        yield train(f"runs/{name}", expected, *arguments, setup=setup)
    for name in ("train.src", "run/config.yaml", "/dev/null", "/proc/self/run", "/proc", "run/config.yaml/x"):
        yield train(f"runs/run_dir {name}", refused(), f"run_dir={name}", setup=partial(_without))
    for name in ("run", "run/model"):
        yield train(
            f"runs/start_from {name}", works(), f"start_from={name}", "run_dir=new", setup=partial(_without)
        )
    for name in ("run/checkpoints", "train.src", "/dev/null", ".", "/"):
        yield train(
            f"runs/start_from {name}",
            refused("start_from"),
            f"start_from={name}",
            "run_dir=new",
            setup=partial(_without),
        )
    yield train(
        "runs/start_from itself", either(leaves=("run/*",)), "start_from=run", MORE, setup=partial(_without)
    )
    yield translate(
        "runs/run without model", refused("run"), "model_dir=run", setup=partial(_without, name="model")
    )
    yield translate(
        "runs/results damaged",
        either(NUM_LINES),
        "model_dir=run",
        setup=partial(_damaged, file="results.json", damage=write("[")),
    )


def _leftovers(room: Room) -> None:
    checkpoints = room.put_run() / "checkpoints"
    for name in (".update-00000006.tmp", ".update-00000002.replaced", ".update-00000002.removed"):
        (checkpoints / name).mkdir()
        (checkpoints / name / "state.json").write_text("{")


def _odd_names(room: Room) -> None:
    checkpoints = room.put_run() / "checkpoints"
    for name in (
        "update-9",
        "update-0000000x",
        "update--0000001",
        "notes",
        "update-99999999999999999999",
        "update-٠٠٠٠٠٠٠٩",
    ):
        (checkpoints / name).mkdir()


def _renamed(room: Room) -> None:
    checkpoints = room.put_run() / "checkpoints"
    (checkpoints / "update-00000004").rename(checkpoints / "update-00000005")


def _swapped(room: Room) -> None:
    checkpoints = room.put_run() / "checkpoints"
    shutil.copy(checkpoints / "update-00000002" / "model.safetensors", checkpoints / "update-00000004")
