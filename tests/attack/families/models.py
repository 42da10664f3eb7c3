"""Untrusted and damaged model folders: every file truncated, emptied, replaced, or with false content."""

from __future__ import annotations

import hashlib
import json
import os
import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from attack.case import NUM_LINES, Case, either, evaluate, refused, train, translate, works
from attack.room import Room

Damage = Callable[[Path], None]

SUMS = "SHA256SUMS"
FILES = ("config.yaml", "model.safetensors", "source.spm", "results.json")


def truncated(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def shortened(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def lengthened(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\0\0tail")


def zeroed(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def noise(path: Path) -> None:
    path.write_bytes(random.Random(1).randbytes(path.stat().st_size))


def missing(path: Path) -> None:
    path.unlink()


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


def dangling(path: Path) -> None:
    path.unlink()
    path.symlink_to("nowhere")


def fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def zeros(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def null(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/null")


def utf16(path: Path) -> None:
    path.write_bytes(path.read_bytes().decode(errors="replace").encode("utf-16"))


def flipped(path: Path, seed: int = 1) -> None:
    """Changes one bit of one byte."""
    content = bytearray(path.read_bytes() or b"\0")
    chance = random.Random(seed)
    content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    path.write_bytes(content)


DAMAGES: tuple[Damage, ...] = (
    truncated, shortened, emptied, lengthened, zeroed, noise, missing, folder, loop, dangling, fifo, zeros,
    null, utf16, flipped,
)  # fmt: skip


def write(content: str | bytes) -> Damage:
    """Replaces a file by this content."""
    return lambda path: path.write_bytes(content if isinstance(content, bytes) else content.encode()) and None


def added(text: str) -> Damage:
    """Appends a text."""
    return lambda path: path.write_text(path.read_text() + text) and None


def put(*keys: str, value: str) -> Damage:
    """Replaces one value of a YAML file, given as YAML, or drops the key where the value is empty."""

    def change(path: Path) -> None:
        from omegaconf import OmegaConf

        config = OmegaConf.create(path.read_text())
        text = OmegaConf.to_yaml(config)
        container: Any = OmegaConf.to_container(config)
        inner = container
        for key in keys[:-1]:
            inner = inner[key]
        if value:
            inner[keys[-1]] = "@@"
        else:
            del inner[keys[-1]]
        text = OmegaConf.to_yaml(OmegaConf.create(container))
        path.write_text(text.replace("'@@'", value).replace("@@", value))

    return change


def tensors(change: Callable[[dict[str, torch.Tensor]], None]) -> Damage:
    """Changes the weights."""

    def damage(path: Path) -> None:
        from safetensors import safe_open

        with safe_open(path, "pt") as file:
            metadata = file.metadata()
        found = load_file(path)
        change(found)
        save_file({name: tensor.contiguous() for name, tensor in found.items()}, path, metadata)

    return damage


def _each(change: Callable[[torch.Tensor], torch.Tensor]) -> Damage:
    def all_of(found: dict[str, torch.Tensor]) -> None:
        for name in found:
            found[name] = change(found[name])

    return tensors(all_of)


def _first(change: Callable[[torch.Tensor], torch.Tensor]) -> Damage:
    def one_of(found: dict[str, torch.Tensor]) -> None:
        name = sorted(found)[0]
        found[name] = change(found[name].clone())

    return tensors(one_of)


def _filled(value: float) -> Callable[[torch.Tensor], torch.Tensor]:
    def fill(tensor: torch.Tensor) -> torch.Tensor:
        tensor.view(-1)[0] = value
        return tensor

    return fill


WEIGHTS: dict[str, Damage] = {
    "int32": _each(lambda tensor: tensor.to(torch.int32)),
    "bool": _each(lambda tensor: tensor > 0),
    "one NaN": _first(_filled(float("nan"))),
    "transposed": _each(lambda tensor: tensor.t() if tensor.ndim == 2 else tensor),
    "flat": _each(lambda tensor: tensor.reshape(-1)),
    "one missing": tensors(lambda found: found.__delitem__(sorted(found)[0])),
    "one more": tensors(lambda found: found.update(evil=torch.zeros(3))),
    "header of 2**63": write(b"\xff\xff\xff\xff\xff\xff\xff\x7f{}"),
    "header is deep": write((60_000).to_bytes(8, "little") + b"[" * 60_000),
    "pickle": write(b"\x80\x04cos\nsystem\n(S'touch owned'\ntR."),
    "shape of 10**12": write(
        (
            len(text := json.dumps({"x": {"dtype": "F32", "shape": [10**12], "data_offsets": [0, 4]}}))
        ).to_bytes(8, "little")
        + text.encode()
        + b"\0\0\0\0"
    ),
}

_BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{new}: &{new} [{','.join(['*' + old] * 9)}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)

CONFIGS: dict[str, Damage] = {
    "list": write("[1, 2]\n"),
    "null": write("null\n"),
    "tab": write("a:\n\tb: 1\n"),
    "tag inside": added("\nevil: !!python/object/apply:os.system ['touch owned']\n"),
    "duplicate key": added("\nseed: 3\nseed: 4\n"),
    "bomb": write(_BOMB),
    "deep": write("[" * 20_000),
    "unknown key": added("\nnonsense: 1\n"),
    "5000 digits": put("seed", value="1" * 5000),
    "huge file": write("a: 1\n" * 400_000),
    "data.name secret": put("data", "name", value="${oc.env:NMT_SECRET}"),
    "target_lang secret": put("data", "target_lang", value="${oc.env:NMT_SECRET}"),
    "hub secret": put("data", "hub", "path", value="x/${oc.env:NMT_SECRET}"),
    "test secret": put("data", "test", "source", value="${oc.env:NMT_SECRET}"),
    "decoding secret": put("decoding", "beam_size", value="${oc.env:NMT_SECRET}"),
    "interpolation decode": put("model", "d_model", value="${oc.decode:32}"),
    "name with escapes": put("data", "name", value='"\\e[2J\\e[31mred"'),
    "no model": put("model", value=""),
    "no data": put("data", value=""),
    "model null": put("model", value="null"),
    "decoding null": put("decoding", value="null"),
    "decoding unknown": put("decoding", value="{nonsense: 1}"),
    "decoding odd keys": put("decoding", value='{"a=b": 1, "": 2, 3: 4}'),
    "beam 0": put("decoding", "beam_size", value="0"),
    "beam sweep": put("decoding", "beam_size", value="'1,2'"),
    "beam comma": put("decoding", "beam_size", value="'choice(1,2)'"),
    "length_penalty nan": put("decoding", "length_penalty", value=".nan"),
    "max_tokens 10**40": put("decoding", "max_tokens", value="1" + "0" * 40),
    "layers 10**9": put("model", "encoder_layers", value="1000000000"),
    "layers 2": put("model", "encoder_layers", value="2"),
    "d_model 10**7": put("model", "d_model", value="10000000"),
    "d_ff 10**12": put("model", "d_ff", value="1000000000000"),
    "heads 3": put("model", "heads", value="3"),
    "norm nonsense": put("model", "norm", value="nonsense"),
    "tie none": put("model", "tie", value="none"),
    "positions nonsense": put("model", "positions", "name", value="nonsense"),
    "dropout nan": put("model", "dropout", value=".nan"),
    "vocab 10**12": put("data", "tokenizer", "vocab_size", value="1000000000000"),
    "joint false": put("data", "tokenizer", "joint", value="false"),
}

RESULTS: dict[str, Damage] = {
    "list": write("[]"),
    "deep": write("[" * 100_000),
    "test list": write('{"test": [], "valid": 3, "training": "x", "data": null}'),
    "5000 digits": write('{"test": ' + "1" * 5000 + "}"),
}


def resealed(folder: Path) -> None:
    """Rewrites the checksums of a folder, as an attacker does after changing its files."""
    sums = folder / SUMS
    if not sums.is_file():
        return
    names = [line.partition("  ")[2] for line in sums.read_text().splitlines()]
    files = [folder / name for name in names if (folder / name).is_file()]
    sums.write_text(
        "".join(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files)
    )


def _damaged(room: Room, file: str, damage: Damage) -> None:
    damage(room.put_model() / file)


def _changed(room: Room, file: str, damage: Damage) -> None:
    _damaged(room, file, damage)
    resealed(room.work / "model")


def _lie(name: str, file: str, damage: Damage, make: Any = translate, *arguments: str, **others: Any) -> Case:
    """A file with false content in a folder whose checksums are correct."""
    expected = others.get("expected", either())
    return make(f"models/{name}", expected, *arguments, setup=partial(_changed, file=file, damage=damage))


def cases() -> Iterator[Case]:
    """All cases of this family."""
    for file in FILES:
        for damage in DAMAGES:
            setup = partial(_damaged, file=file, damage=damage)
            yield translate(f"models/{file} {damage.__name__}", refused("model"), setup=setup)
        for seed in range(2, 7):
            setup = partial(_damaged, file=file, damage=partial(flipped, seed=seed))
            yield translate(f"models/{file} flipped {seed}", refused("model"), setup=setup)
    for damage in DAMAGES:
        setup = partial(_damaged, file=SUMS, damage=damage)
        yield translate(f"models/{SUMS} {damage.__name__}", either(NUM_LINES), setup=setup)
    for name, damage in WEIGHTS.items():
        yield _lie(f"weights {name}", "model.safetensors", damage, expected=refused("model"))
    for name, damage in CONFIGS.items():
        yield _lie(f"config {name}", "config.yaml", damage)
    for name in ("data.name secret", "hub secret", "test secret", "target_lang secret", "bomb", "list"):
        damage = CONFIGS[name]
        yield _lie(f"config {name}", "config.yaml", damage, evaluate, "model_dir=model")
        expected = either(leaves=("run*",))
        yield _lie(f"config {name}", "config.yaml", damage, train, "start_from=model", expected=expected)
    for name, damage in RESULTS.items():
        yield _lie(f"results {name}", "results.json", damage)
        yield _lie(f"results {name}", "results.json", damage, evaluate, "model_dir=model")
    yield from _other_folders()


def _other_folders() -> Iterator[Case]:
    yield translate("models/whole", works(NUM_LINES))
    yield translate(
        "models/run folder", works(NUM_LINES), "model_dir=run", setup=lambda room: room.put_run() and None
    )
    yield translate("models/a file", refused("model"), "model_dir=train.src")
    yield translate(
        "models/this folder", refused("model_dir", "not a model folder"), "model_dir=.", setup=None
    )
    yield translate("models/root", refused("model_dir"), "model_dir=/")
    yield translate("models/dev null", refused("model_dir"), "model_dir=/dev/null")
    yield translate("models/proc", refused("model_dir"), "model_dir=/proc/self")
    yield translate("models/link", works(NUM_LINES), "model_dir=link", setup=_linked)
    yield translate("models/loop", refused("loop"), "model_dir=loop", setup=_looped)
    yield translate(
        "models/fifo", refused("pipe"), "model_dir=pipe", setup=lambda room: os.mkfifo(room.work / "pipe")
    )
    yield translate("models/two of one", works(NUM_LINES), "model_dir=[model,model]")
    yield translate(
        "models/two, one damaged", refused("other"), "model_dir=[model,other]", setup=_second_damaged
    )
    yield translate("models/two, one missing", refused("nowhere"), "model_dir=[model,nowhere]")
    yield translate("models/two, other pieces", refused(), "model_dir=[model,other]", setup=_other_pieces)


def _linked(room: Room) -> None:
    room.put_model()
    (room.work / "link").symlink_to("model")


def _looped(room: Room) -> None:
    (room.work / "loop").symlink_to("loop")


def _second_damaged(room: Room) -> None:
    room.put_model()
    truncated(room.put_model("other") / "model.safetensors")


def _other_pieces(room: Room) -> None:
    room.put_model()
    other = room.put_model("other")
    flipped(other / "source.spm")
