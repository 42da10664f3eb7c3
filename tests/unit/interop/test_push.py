"""Copies of models, and uploads to the hub at the border of `HfApi`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import pytest
import torch
from exported_models import POST, positions

from nmt import __version__
from nmt.bundle import Bundle, load_bundle
from nmt.config import ExportConfig, ModelConfig, Tie
from nmt.errors import UserError
from nmt.interop import tasks
from nmt.interop.tasks import export
from nmt.runtime.model_files import BUNDLE_FILES

BundleOf = Callable[[ModelConfig], Bundle]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, Any]]]:
    """Replaces the uploads of `HfApi`; returns their names and arguments."""
    found: list[tuple[str, dict[str, Any]]] = []

    def create_repo(self: object, repo_id: str, **options: Any) -> None:
        found.append(("create_repo", {"repo_id": repo_id, **options}))

    def upload_folder(self: object, **options: Any) -> Any:
        names = sorted(path.name for path in Path(options["folder_path"]).iterdir())
        found.append(("upload_folder", {**options, "names": names}))
        return SimpleNamespace(commit_url="https://hub/commit/1")

    monkeypatch.setattr(huggingface_hub, "get_token", lambda: "hf_x")
    monkeypatch.setattr(huggingface_hub.HfApi, "create_repo", create_repo)
    monkeypatch.setattr(huggingface_hub.HfApi, "upload_folder", upload_folder)
    return found


@pytest.mark.parametrize(
    "model",
    [
        POST,
        replace(POST, tie=Tie.none),
        replace(POST, architecture="rnn_attention", attention="additive"),
        positions("learned", max_positions=9),
    ],
    ids=["joint", "two vocabularies", "rnn", "short"],
)
def test_a_copy_is_the_model(model: ModelConfig, bundle_of: BundleOf, tmp_path: Path) -> None:
    bundle = bundle_of(model)
    assert export(ExportConfig(str(bundle.folder), str(tmp_path / "out"), "nmt", licence="mit")) == {}
    read = load_bundle(tmp_path / "out")
    assert read.config == replace(bundle.config, licence="mit") and bundle.config.licence is None
    for name in BUNDLE_FILES:
        there, here = bundle.folder / name, tmp_path / "out" / name
        assert there.exists() == here.exists()
        if there.exists() and name not in ("config.yaml", "SHA256SUMS"):
            assert there.read_bytes() == here.read_bytes()
    assert "license: mit\n" in (tmp_path / "out/README.md").read_text()
    again = ExportConfig(str(tmp_path / "out"), str(tmp_path / "again"), "nmt")
    export(again)
    assert "license: mit\n" in (tmp_path / "again/README.md").read_text()


def test_a_copy_that_differs_is_deleted(
    bundle_of: BundleOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def damaged(folder: Path) -> Bundle:
        read = load_bundle(folder)
        with torch.no_grad():
            next(read.model.parameters()).view(-1)[0].neg_()
        return read

    monkeypatch.setattr(tasks, "load_bundle", damaged)
    with pytest.raises(UserError, match=r"^format=nmt: .* differs from the model in .*\. It was deleted\.$"):
        export(ExportConfig(str(bundle_of(POST).folder), str(tmp_path / "out"), "nmt"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("private", [None, True, False])
def test_the_arguments_of_an_upload(
    private: bool | None,
    bundle_of: BundleOf,
    tmp_path: Path,
    calls: list[tuple[str, dict[str, Any]]],
) -> None:
    output = tmp_path / "out"
    folder = str(bundle_of(POST).folder)
    export(ExportConfig(folder, str(output), "nmt", push="me/toy", private=private))
    assert calls == [
        ("create_repo", {"repo_id": "me/toy", "private": private, "exist_ok": True}),
        (
            "upload_folder",
            {
                "repo_id": "me/toy",
                "folder_path": output,
                "commit_message": f"nmt {__version__}: nmt, float32",
                "delete_patterns": list(BUNDLE_FILES),
                "names": sorted(path.name for path in output.iterdir()),
            },
        ),
    ]


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            ValueError("Invalid metadata in README.md.\n- odd"),
            "the hub refuses it (Invalid metadata in README.md. - odd).",
        ),
        (ConnectionError("no route"), "the hub could not be reached (no route)."),
        (TimeoutError("slow"), "the hub could not be reached (slow)."),
    ],
)
def test_an_upload_that_fails_leaves_the_export(
    error: Exception,
    message: str,
    bundle_of: BundleOf,
    tmp_path: Path,
    calls: list[tuple[str, dict[str, Any]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(self: object, **options: Any) -> None:
        raise error

    monkeypatch.setattr(huggingface_hub.HfApi, "upload_folder", refuse)
    output = tmp_path / "out"
    with pytest.raises(UserError) as raised:
        export(ExportConfig(str(bundle_of(POST).folder), str(output), "nmt", push="me/toy"))
    assert str(raised.value) == (
        f"push=me/toy: {message} {output} is complete; to upload it later: hf upload me/toy {output}"
    )
    assert load_bundle(output).folder == output


def test_without_a_token_nothing_is_exported(
    bundle_of: BundleOf,
    tmp_path: Path,
    calls: list[tuple[str, dict[str, Any]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(huggingface_hub, "get_token", lambda: None)
    with pytest.raises(UserError, match=r"^push=me/toy: no token for the hub\. Run hf auth login, or set HF"):
        export(ExportConfig(str(bundle_of(POST).folder), str(tmp_path / "out"), "nmt", push="me/toy"))
    assert not calls and not (tmp_path / "out").exists()


def test_a_bug_in_an_upload_is_not_hidden(
    bundle_of: BundleOf,
    tmp_path: Path,
    calls: list[tuple[str, dict[str, Any]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(self: object, **options: Any) -> None:
        raise TypeError("bug")

    monkeypatch.setattr(huggingface_hub.HfApi, "create_repo", lambda *a, **o: fail(*a))
    with pytest.raises(TypeError, match="bug"):
        export(ExportConfig(str(bundle_of(POST).folder), str(tmp_path / "out"), "nmt", push="me/toy"))


def test_options_that_exclude_each_other() -> None:
    with pytest.raises(UserError, match="^private=false: requires push=OWNER/NAME. Remove it, or add that.$"):
        ExportConfig("m", "o", private=False)
    with pytest.raises(UserError, match="^quantization=int8: format=nmt has float32 alone.$"):
        ExportConfig("m", "o", "nmt", quantization="int8")
    with pytest.raises(
        UserError, match="^check=.*: format=nmt compares the weights themselves. Remove check and"
    ):
        ExportConfig("m", "o", "nmt", check="a", references="b")
