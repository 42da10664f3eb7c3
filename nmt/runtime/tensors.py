"""Safetensors files: reads them strictly, the header first and every number after loading; writes them."""

from __future__ import annotations

import math
import os
import re
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from nmt.runtime.files import parse_json, require_regular

_BYTES = {"F32": 4, "F16": 2, "BF16": 2}
_LONGEST_HEADER = 1 << 24


def read_header(path: Path) -> dict[str, tuple[int, ...]]:
    """Returns the name and shape of each tensor. The tensors must fill the file without gaps.

    Raises:
        OSError: the file can't be read.
        ValueError: the file is truncated, or is not a safetensors file of fp32, fp16 or bf16 numbers.
    """
    size = require_regular(path).st_size
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(_LONGEST_HEADER, size - 8):
            raise ValueError("its header is longer than the file")
        entries = parse_json(file.read(length))
    if not isinstance(entries, dict):
        raise ValueError("its header is not a list of tensors")
    entries.pop("__metadata__", None)
    ends, shapes = [0], {}
    for name, entry in sorted(entries.items(), key=lambda item: _offsets(*item)):
        begin, end = _offsets(name, entry)
        shape, kind = entry.get("shape"), entry.get("dtype")
        if kind not in _BYTES:
            raise ValueError(f"{name} holds {kind} numbers, not {', '.join(_BYTES)}")
        if not isinstance(shape, list) or not all(type(count) is int and count >= 0 for count in shape):
            raise ValueError(f"{name} has no valid shape")
        if begin != ends[-1] or end - begin != math.prod(shape) * _BYTES[kind]:
            raise ValueError(f"the data of {name} do not fit its shape")
        ends.append(end)
        shapes[name] = tuple(shape)
    if 8 + length + ends[-1] != size:
        raise ValueError("its size differs from the size in its header")
    return shapes


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Returns the tensors of a file by name, on the CPU.

    Raises:
        OSError: the file can't be read.
        ValueError: as for `read_header`, or a number is NaN or infinite.
    """
    read_header(path)
    try:
        tensors: dict[str, Tensor] = load_file(path)
    except SafetensorError as error:
        raise ValueError(str(error)) from error
    except RuntimeError as error:  # torch failed to map the file
        number = re.search(r"unable to (?:open|mmap) .*\((\d+)\)$", str(error))
        if number is None:
            raise
        raise OSError(int(number[1]), os.strerror(int(number[1])), os.fspath(path)) from error
    for name, tensor in tensors.items():
        if not _is_finite(tensor):
            raise ValueError(f"{name} holds NaN or infinite numbers")
    return tensors


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Writes a safetensors file. The tensors must be on the CPU and must not share memory.

    Raises:
        OSError: writing fails, for example on a full disk. It replaces the SafetensorError.
    """
    with open(path, "wb") as file:
        mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)  # follows the umask; safetensors sets 0600
    try:
        save_file({name: tensor.detach().contiguous() for name, tensor in tensors.items()}, path)
        with suppress(PermissionError):  # some file systems have the same mode for all files
            os.chmod(path, mode)
    except SafetensorError as error:
        number = re.search(r"os error (\d+)", str(error))
        if number is None:
            raise
        raise OSError(int(number[1]), os.strerror(int(number[1]))) from error


def _offsets(name: str, entry: Any) -> tuple[int, int]:
    offsets = entry.get("data_offsets") if isinstance(entry, dict) else None
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(type(at) is int for at in offsets):
        raise ValueError(f"{name} has no valid data_offsets")
    return offsets[0], offsets[1]


def _is_finite(tensor: Tensor) -> bool:
    """Reads the tensor once, without a copy; `isfinite(tensor).all()` takes 25 times as long."""
    if not tensor.numel():
        return True
    low, high = torch.aminmax(tensor)
    return math.isfinite(low.item()) and math.isfinite(high.item())
