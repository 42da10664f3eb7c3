"""Safetensors files: one strict reader and one writer, for arrays of numpy and for tensors of torch.

The library `safetensors` is not used: it copies what it writes, and raises no `OSError` on a full disk. What
is written here is equal to its files, byte for byte. torch is imported when a function needs it.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nmt.runtime.arrays import Array
from nmt.runtime.files import parse_json, require_regular

if TYPE_CHECKING:
    from torch import Tensor

_LONGEST_HEADER = 1 << 24
_KINDS = {
    "BOOL": "bool",
    **{"U8": "uint8", "I8": "int8", "I16": "int16", "U16": "uint16", "F16": "float16", "BF16": "bfloat16"},
    **{"I32": "int32", "U32": "uint32", "F32": "float32", "F64": "float64", "I64": "int64", "U64": "uint64"},
}
"""Number format → its name in numpy and torch. Data of later formats stand first, which aligns them."""
_NAMES = {name: kind for kind, name in _KINDS.items()}
_WEIGHTS = ("F32", "F16", "BF16")


class DamagedFile(Exception):
    """The file was truncated or changed since it was written, or is of another kind."""


class _Entry(NamedTuple):
    """A tensor of a file: number format, sizes, its first byte, and the byte after its last one."""

    kind: str
    shape: tuple[int, ...]
    begin: int
    end: int


def read_header(path: Path) -> dict[str, tuple[int, ...]]:
    """Returns the name and shape of each tensor. The tensors must fill the file without gaps.

    Raises:
        OSError: the file can't be read.
        ValueError: the file is truncated, or is not a safetensors file of fp32, fp16 or bf16 numbers.
    """
    return {name: entry.shape for name, entry in _read_entries(path, _WEIGHTS)[0].items()}


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Returns the tensors of a file by name, on the CPU. They are mapped: a page is read when it is used.

    Raises:
        OSError: the file can't be read.
        ValueError: as for `read_header`, or a number is NaN or infinite.
    """
    import torch

    entries, _ = _read_entries(path, _WEIGHTS)
    try:
        # Written pages are copies of this process.
        mapped = torch.UntypedStorage.from_file(os.fspath(path), shared=False, nbytes=os.path.getsize(path))
    except RuntimeError as error:  # torch failed to map the file
        number = re.search(r"unable to (?:open|mmap) .*\((\d+)\)$", str(error))
        if number is None:
            raise
        raise OSError(int(number[1]), os.strerror(int(number[1])), os.fspath(path)) from error
    tensors = {}
    for name, entry in entries.items():
        data: Any = mapped[entry.begin : entry.end]  # a storage of its own, so that it can be shared alone
        kind = getattr(torch, _KINDS[entry.kind])
        # Not with `asarray`, which turns the exception of a signal into a ValueError, as of a damaged file.
        tensors[name] = torch.empty(0, dtype=torch.uint8).set_(data).view(kind).reshape(entry.shape)
        if not _is_finite(tensors[name]):
            raise ValueError(f"{name} holds NaN or infinite numbers")
    return tensors


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Writes a safetensors file. Tensors of a GPU are copied one at a time.

    Raises:
        OSError: writing fails, for example on a full disk.
    """
    import torch

    def numbers(tensor: Tensor) -> Array:
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        return flat.view(torch.uint8).numpy()

    values = {
        name: (_NAMES[str(tensor.dtype)[6:]], tuple(tensor.shape), lambda tensor=tensor: numbers(tensor))
        for name, tensor in tensors.items()
    }
    with open(path, "wb") as file:
        file.writelines(file_parts(values))


def safetensors_bytes(arrays: Mapping[str, Array], metadata: Any) -> Iterator[bytes | memoryview]:
    """Yields the parts of a safetensors file. Metadata is stored as one JSON text under the key `nmt`."""
    values = {
        name: (_NAMES[array.dtype.name], array.shape, lambda array=array: np.ascontiguousarray(array))
        for name, array in arrays.items()
    }
    return file_parts(values, {"nmt": json.dumps(metadata, sort_keys=True)})


def map_safetensors(path: Path) -> tuple[dict[str, Array], Any]:
    """Memory-maps the arrays of a file; returns them with the metadata it was written with.

    Raises:
        DamagedFile: the file is missing, truncated or of another kind.
    """
    try:
        entries, metadata = _read_entries(path, tuple(_KINDS))
        mapped = np.asarray(np.memmap(path, np.uint8, "r"))  # indexing np.memmap is slow
        return {
            name: mapped[entry.begin : entry.end].view(_KINDS[entry.kind]).reshape(entry.shape)
            for name, entry in entries.items()
        }, json.loads(metadata["nmt"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DamagedFile(f"{path}: {error}") from error


def file_parts(
    values: Mapping[str, tuple[str, tuple[int, ...], Callable[[], Array]]],
    metadata: Mapping[str, str] | None = None,
) -> Iterator[bytes | memoryview]:
    """Yields the parts of a file; `values` has number format, shape, and a function for the data."""
    ranks = list(_KINDS)
    ordered = sorted(values, key=lambda name: (-ranks.index(values[name][0]), name))
    header: dict[str, Any] = {} if metadata is None else {"__metadata__": metadata}
    end = 0
    for name in ordered:
        kind, shape, _ = values[name]
        begin, end = end, end + math.prod(shape) * _size_of(kind)
        header[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    yield len(text).to_bytes(8, "little") + text
    for name in ordered:
        yield values[name][2]().reshape(-1).view(np.uint8).data


def _read_entries(path: Path, kinds: tuple[str, ...]) -> tuple[dict[str, _Entry], dict[str, Any]]:
    """Returns the entries of the tensors, which must fill the file without gaps, and the metadata."""
    size = require_regular(path).st_size
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(_LONGEST_HEADER, size - 8):
            raise ValueError("its header is longer than the file")
        header = parse_json(file.read(length))
    if not isinstance(header, dict):
        raise ValueError("its header is not a list of tensors")
    metadata = header.pop("__metadata__", {})
    entries: dict[str, _Entry] = {}
    last = 0
    for name, value in sorted(header.items(), key=lambda item: _offsets(*item)):
        begin, end = _offsets(name, value)
        shape, kind = value.get("shape"), value.get("dtype")
        if kind not in kinds:
            raise ValueError(f"{name} holds {kind} numbers, not {', '.join(kinds)}")
        if not isinstance(shape, list) or not all(type(count) is int and count >= 0 for count in shape):
            raise ValueError(f"{name} has no valid shape")
        if begin != last or end - begin != math.prod(shape) * _size_of(kind):
            raise ValueError(f"the data of {name} do not fit its shape")
        last = end
        entries[name] = _Entry(kind, tuple(shape), 8 + length + begin, 8 + length + end)
    if 8 + length + last != size:
        raise ValueError("its size differs from the size in its header")
    return entries, metadata


def _size_of(kind: str) -> int:
    return 1 if kind == "BOOL" else int(kind.lstrip("BFIU")) // 8


def _offsets(name: str, entry: Any) -> tuple[int, int]:
    offsets = entry.get("data_offsets") if isinstance(entry, dict) else None
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(type(at) is int for at in offsets):
        raise ValueError(f"{name} has no valid data_offsets")
    return offsets[0], offsets[1]


def _is_finite(tensor: Tensor) -> bool:
    """Reads the tensor once, without a copy; `isfinite(tensor).all()` takes 25 times as long."""
    if not tensor.numel():
        return True
    low, high = tensor.aminmax()
    return math.isfinite(low.item()) and math.isfinite(high.item())
