"""YAML files of a user (`--config-dir`): every fault is reported in one line that names the file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from attack.case import Case, Expected, either, refused, train, works
from attack.families.models import _BOMB
from attack.room import Room

_GLOBAL = "# @package _global_\n"
_PREPARE = "prepare_only=true"

FAULTS: dict[str, tuple[str | bytes, Expected]] = {
    "whole": (f"{_GLOBAL}seed: 3\n", works()),
    "without package": ("training:\n  max_updates: 3\n", either()),
    "empty": ("", either()),
    "list": ("- 1\n- 2\n", refused("own.yaml")),
    "unknown key inside": (f"{_GLOBAL}training:\n  max_update: 1\n", refused("own.yaml", "max_update")),
    "section as list": (f"{_GLOBAL}training: [x]\n", refused("own.yaml", "training")),
    "section null": (f"{_GLOBAL}training: null\n", either()),
    "true as yes": (f"{_GLOBAL}prepare_only: yes\n", works()),
    "tab": (f"{_GLOBAL}training:\n\tmax_updates: 1\n", refused("own.yaml", "3")),
    "duplicate key": (f"{_GLOBAL}seed: 1\nseed: 2\n", refused("own.yaml", "seed")),
    "tag": (f"{_GLOBAL}seed: !!python/object/apply:os.system ['touch owned']\n", refused("own.yaml")),
    "binary tag": (f"{_GLOBAL}name: !!binary aGVsbG8=\n", either()),
    "two documents": (f"{_GLOBAL}seed: 1\n---\nseed: 2\n", refused("own.yaml")),
    "latin-1": (b"# @package _global_\nname: caf\xe9\n", refused("own.yaml")),
    "utf-16": (f"{_GLOBAL}seed: 3\n".encode("utf-16"), either()),
    "bom": (b"\xef\xbb\xbf# @package _global_\nseed: 3\n", either()),
    "escape": (f'{_GLOBAL}name: "\\e[2J"\n', either()),
    "crlf": (f"{_GLOBAL}seed: 3\n".replace("\n", "\r\n"), works()),
    "deep": ("[" * 5000, refused("own.yaml")),
    "bomb": (_GLOBAL + _BOMB, refused()),
    "alias to itself": (f"{_GLOBAL}training: &a\n  schedule: *a\n", refused("own.yaml")),
    "itself by group": (f"{_GLOBAL}defaults:\n  - /experiment: own\n", refused()),
    "itself by override": (f"{_GLOBAL}defaults:\n  - override /experiment: own\n", either()),
    "each other": (f"{_GLOBAL}defaults:\n  - other\n", refused()),
    "defaults missing": (f"{_GLOBAL}defaults:\n  - override /model: nonsense\n", refused("nonsense")),
    "defaults twice": (f"{_GLOBAL}defaults:\n  - _self_\n  - _self_\n", either()),
    "defaults below": (f"{_GLOBAL}seed: 1\ndefaults:\n  - _self_\n", either()),
    "package nonsense": ("# @package nonsense\nseed: 3\n", refused("own.yaml")),
    "interpolation": (f"{_GLOBAL}name: ${{nowhere}}\n", refused("nowhere")),
    "environment": (f"{_GLOBAL}name: ${{oc.env:NOWHERE}}\n", refused("NOWHERE")),
    "missing": (f"{_GLOBAL}data:\n  source_lang: ???\n", either()),
}  # fmt: skip


def _put(room: Room, content: str | bytes, group: str = "experiment") -> None:
    folder = room.work / "conf" / group
    folder.mkdir(parents=True)
    (folder / "own.yaml").write_bytes(content if isinstance(content, bytes) else content.encode())
    (folder / "other.yaml").write_text(f"{_GLOBAL}defaults:\n  - own\n")


def _odd(room: Room, make: Callable[[Room], object]) -> None:
    _put(room, "")
    (room.work / "conf" / "experiment" / "own.yaml").unlink()
    make(room)


def cases() -> Iterator[Case]:
    """All cases of this family."""
    for name, (content, expected) in FAULTS.items():
        arguments = ("--config-dir", "conf", "experiment=own", _PREPARE)
        yield train(f"yaml/{name}", expected, *arguments, setup=partial(_put, content=content))
    for name in ("tab", "list", "duplicate key", "latin-1", "tag", "deep"):
        content, _ = FAULTS[name]
        for group in ("data", "model", "model/positions"):
            yield train(
                f"yaml/{group} {name}",
                refused("own.yaml"),
                "--config-dir=conf",
                f"{group}=own",
                _PREPARE,
                setup=partial(_put, content=content, group=group),
            )
    for name, make in {
        "a folder": lambda path: path.mkdir(),
        "a loop": lambda path: path.symlink_to("own.yaml"),
        "dangling": lambda path: path.symlink_to("nowhere"),
        "missing": lambda path: None,
    }.items():
        yield train(
            f"yaml/own.yaml is {name}",
            refused("own"),
            "--config-dir=conf",
            "experiment=own",
            _PREPARE,
            setup=partial(_odd, make=lambda room, make=make: make(room.work / "conf/experiment/own.yaml")),
        )
    for name in ("a#b", "a b", "a,b", "é", "a'b", "seed=1"):
        yield train(
            f"yaml/--config-dir {name}",
            works(),
            "--config-dir",
            name,
            _PREPARE,
            setup=partial(_folder, name=name),
        )


def _folder(room: Room, name: str) -> None:
    (room.work / name).mkdir()
