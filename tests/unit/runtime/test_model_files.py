"""The files of a model, a run or a checkpoint that a user names."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from nmt.errors import UserError
from nmt.runtime.hub import find_model_folder, model_folders
from nmt.runtime.model_files import (
    abbreviated,
    checkpoint_name,
    checkpoint_names,
    config_file,
    enclosing_run,
    pieces_folder,
    update_of,
)


@pytest.mark.parametrize(
    ("name", "update"),
    [
        ("update-300", 300),
        ("update-00000300", 300),
        ("update-123456789", 123456789),
        ("update-0", 0),
        ("update-", None),
        ("update--3", None),
        ("update-3.5", None),
        ("update-3e2", None),
        ("update-" + "9" * 19, None),
        (".update-00000300.tmp", None),
        ("Update-300", None),
        ("300", None),
        ("", None),
    ],
)
def test_the_names_of_checkpoints(name: str, update: int | None) -> None:
    assert update_of(name) == update


def test_a_name_is_padded() -> None:
    assert checkpoint_name(300) == "update-00000300"
    assert checkpoint_name(123456789) == "update-123456789"
    assert model_folders("runs/a/checkpoints/update-300")[1:] == [
        Path("runs/a/checkpoints/update-300"),
        Path("runs/a/checkpoints/update-00000300"),
    ]
    assert model_folders("runs/a/") == [Path("runs/a/model"), Path("runs/a")]


def test_the_checkpoints_of_a_folder_in_order(tmp_path: Path) -> None:
    for name in ("update-123456789", "update-00000300", "update-00000020", ".update-00000400.tmp", "notes"):
        (tmp_path / name).mkdir()
    names = ["update-00000020", "update-00000300", "update-123456789"]
    assert checkpoint_names(tmp_path) == names
    assert checkpoint_names(tmp_path / "none") == []
    assert abbreviated(names) == ", ".join(names)
    assert abbreviated(list("abcdefghijk")) == "a, b, c, ..., i, j, k"


def test_a_checkpoint_has_the_configuration_and_the_pieces_of_its_run(tmp_path: Path) -> None:
    checkpoint = tmp_path / "run/checkpoints/update-00000300"
    (tmp_path / "run/model").mkdir(parents=True)
    checkpoint.mkdir(parents=True)
    assert enclosing_run(checkpoint) is None and config_file(checkpoint) == checkpoint / "config.yaml"
    (checkpoint / "state.json").touch()
    run = tmp_path / "run"
    assert enclosing_run(checkpoint) == run and config_file(checkpoint) == run / "config.yaml"
    assert pieces_folder(checkpoint) == run
    (run / "model/joint.spm").touch()
    assert pieces_folder(checkpoint) == run / "model"
    (run / "source.spm").touch()
    assert pieces_folder(checkpoint) == run
    (checkpoint / "config.yaml").touch()  # a separate model
    assert enclosing_run(checkpoint) is None and pieces_folder(checkpoint) == checkpoint


def test_folders_that_are_not_models(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no such folder"):
        find_model_folder(tmp_path / "none")
    with pytest.raises(UserError, match="not a model folder"):
        find_model_folder(tmp_path)
    (tmp_path / "checkpoints").mkdir()
    with pytest.raises(UserError, match="its training has not ended"):
        find_model_folder(tmp_path)


def test_a_folder_that_may_not_be_entered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def is_file(path: Path) -> bool:
        raise PermissionError(errno.EACCES, "Permission denied", os.fspath(path))

    monkeypatch.setattr(Path, "is_file", is_file)
    with pytest.raises(UserError, match=f"can't read {tmp_path}: permission is denied"):
        find_model_folder(tmp_path)
