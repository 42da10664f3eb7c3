"""Safetensors files: equal to those of the library, read back equal, and refused if they are damaged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import safetensors.torch
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nmt.runtime.tensors import (
    DamagedFile,
    map_safetensors,
    read_header,
    read_tensors,
    safetensors_bytes,
    write_tensors,
)

SHAPES = st.lists(st.integers(0, 3), max_size=3)
DTYPES = st.sampled_from([torch.float32, torch.float16, torch.bfloat16])
STEPS = {
    **{"step": torch.tensor(3), "small": torch.ones(3, dtype=torch.int32), "f": torch.zeros(2)},
    **{"flags": torch.tensor([True, False, True]), "byte": torch.ones(1, dtype=torch.uint8)},
}


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(values=st.dictionaries(st.text(max_size=3), st.tuples(SHAPES, DTYPES), max_size=4))
def test_tensors_are_written_as_the_library_does_and_read_back(
    values: dict[str, tuple[list[int], torch.dtype]], tmp_path: Path
) -> None:
    tensors = {name: torch.randn(shape).to(dtype) for name, (shape, dtype) in values.items()}
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    write_tensors(ours, tensors)
    safetensors.torch.save_file(tensors, theirs)
    assert ours.read_bytes() == theirs.read_bytes()
    assert read_header(ours) == {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    found = read_tensors(ours)
    assert found.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert found[name].dtype is tensor.dtype and torch.equal(found[name], tensor)


def test_other_numbers_are_written_too(tmp_path: Path) -> None:
    write_tensors(tmp_path / "ours", STEPS)
    assert (tmp_path / "ours").read_bytes() == safetensors.torch.save(STEPS)


def test_a_signal_while_tensors_are_read_is_not_a_damaged_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tensors(tmp_path / "x", {"a": torch.ones(2)})
    part = torch.UntypedStorage.__getitem__

    def interrupted(storage: torch.UntypedStorage, key: Any) -> Any:
        """Raises when torch reads a byte: it would take the exception for one of the storage."""
        if isinstance(key, slice):
            return part(storage, key)
        raise KeyboardInterrupt

    monkeypatch.setattr(torch.UntypedStorage, "__getitem__", interrupted)
    assert read_tensors(tmp_path / "x")["a"].tolist() == [1.0, 1.0]


def test_tensors_may_be_views_and_are_copies_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "x"
    write_tensors(path, {"a": torch.arange(6.0).reshape(2, 3).T, "b": torch.ones(2, requires_grad=True)})
    before = path.read_bytes()
    found = read_tensors(path)
    assert found["a"].tolist() == [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]]
    found["a"].zero_()
    assert path.read_bytes() == before and read_tensors(path)["a"].sum() == 15


def test_arrays_are_mapped_with_their_facts(tmp_path: Path) -> None:
    arrays: dict[str, np.ndarray[Any, Any]] = {
        "ids": np.arange(5, dtype=np.uint16),
        "offsets": np.array([[0, 5]], np.int64),
        "text": np.frombuffer(b"abc", np.uint8),
    }
    path = tmp_path / "x"
    path.write_bytes(b"".join(safetensors_bytes(arrays, {"n": [1]})))
    found, facts = map_safetensors(path)
    assert facts == {"n": [1]} and found.keys() == arrays.keys()
    theirs = safetensors.numpy.load_file(path)
    for name, array in arrays.items():
        assert np.array_equal(found[name], array) and found[name].dtype == array.dtype
        assert np.array_equal(theirs[name], array)


def written(path: Path, header: object, data: bytes = b"") -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


def entry(dtype: object = "F32", shape: object = (2,), offsets: object = (0, 8)) -> dict[str, object]:
    return {"x": {"dtype": dtype, "shape": shape, "data_offsets": offsets}}


@pytest.mark.parametrize(
    ("header", "data", "words"),
    [
        (b"{", b"", "Expecting"),
        ([], b"", "not a list of tensors"),
        (b'{"x": 1, "x": 2}', b"", "duplicate"),
        ({"x": 3}, b"", "no valid data_offsets"),
        (entry(offsets=[0]), bytes(8), "no valid data_offsets"),
        (entry(offsets=[0, 8.0]), bytes(8), "no valid data_offsets"),
        (entry("I64", offsets=[0, 16]), bytes(16), "holds I64 numbers, not F32, F16, BF16"),
        (entry(shape=[-2]), bytes(8), "no valid shape"),
        (entry(shape=[2.0]), bytes(8), "no valid shape"),
        (entry(shape=[3]), bytes(8), "do not fit its shape"),
        (entry(offsets=[4, 12]), bytes(12), "do not fit its shape"),
        (entry(), bytes(7), "its size differs"),
        (entry(), bytes(9), "its size differs"),
        (entry(), np.array([1, np.nan], np.float32).tobytes(), "x holds NaN or infinite"),
        (entry(), np.array([-np.inf, 1], np.float32).tobytes(), "x holds NaN or infinite"),
    ],
)
def test_damaged_files(tmp_path: Path, header: object, data: bytes, words: str) -> None:
    path = written(tmp_path / "x", header, data)
    with pytest.raises(ValueError, match=words):
        read_tensors(path)
    with pytest.raises(DamagedFile):
        map_safetensors(path)


@pytest.mark.parametrize("content", [b"", b"1234567", (1 << 40).to_bytes(8, "little") + b"{}"])
def test_files_without_a_header(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="its header is longer than the file"):
        read_header(path)


def test_missing_files_and_other_metadata(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_tensors(tmp_path / "none")
    with pytest.raises(DamagedFile):
        map_safetensors(tmp_path / "none")
    with pytest.raises(DamagedFile):
        map_safetensors(written(tmp_path / "x", {"__metadata__": 3}))
