"""Models on the hub: uploads and downloads by real commands, against a hub on this machine."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from commands import Toy, environment
from fake_hub import TOKEN, Hub, Repository, running_hub
from forking import forked_command

from nmt.bundle import load_bundle, read_config

PIECES = {"source.spm", "target.spm"}
FILES = {"README.md", "SHA256SUMS", "config.yaml", "model.safetensors", "results.json", *PIECES}


@dataclass
class Desk:
    """Commands of a user of the hub, with a cache and a token."""

    toy: Toy
    hub: Hub
    home: Path

    def run(
        self, name: str, *arguments: str, text: str = "", token: str | None = TOKEN, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        kept = {key: value for key, value in environment(self.toy.cache).items() if not key.startswith("HF_")}
        given = {"HF_ENDPOINT": self.hub.url, "HF_HOME": os.fspath(self.home), **variables}
        return subprocess.run(
            forked_command(name, *arguments),
            cwd=self.toy.folder,
            env=kept | given | ({} if token is None else {"HF_TOKEN": token}),
            input=text,
            capture_output=True,
            text=True,
            timeout=600,
        )

    def done(self, *arguments: str, **options: str) -> subprocess.CompletedProcess[str]:
        result = self.run(*arguments, **options)
        assert result.returncode == 0, result.stderr
        return result

    def error(self, name: str, *arguments: str, **options: str | None) -> str:
        result = self.run(name, *arguments, **options)  # type: ignore[arg-type]
        assert (result.returncode, result.stdout) == (2, ""), result.stderr
        (line,) = [one for one in result.stderr.splitlines() if one.startswith(f"{name}: ")]
        return line.removeprefix(f"{name}: ")


@pytest.fixture
def desk(toy: Toy, tmp_path: Path) -> Iterator[Desk]:
    with running_hub() as hub:
        yield Desk(toy, hub, tmp_path / "hf")


@pytest.fixture
def shared(desk: Desk, trained: Path) -> str:
    """Uploads the trained model as one made it by hand; returns the commit."""
    repository = desk.hub.repositories["me/toy"] = Repository(private=False)
    model = trained / "model"
    files = {path.name: path.read_bytes() for path in model.iterdir()}
    return repository.commit("first", files | {"pytorch_model.bin": b"pickle"}).oid


def test_a_model_is_pushed_and_read_again(desk: Desk, trained: Path, tmp_path: Path) -> None:
    output = tmp_path / "copy"
    result = desk.done(
        *("nmt-export", f"model_dir={trained}", f"output={output}", "format=nmt"),
        *("push=me/toy", "private=true", "licence=CC-BY-4.0"),
    )
    repository = desk.hub.repositories["me/toy"]
    _, commit = repository.commits
    assert repository.private and commit.files.pop(".gitattributes") == b""
    assert commit.files.keys() == FILES
    assert commit.title == "nmt 0.1.0: nmt, float32"
    assert f"{desk.hub.url}/me/toy/commit/{commit.oid}\n" in result.stderr
    assert {name: (output / name).read_bytes() for name in FILES} == commit.files
    assert commit.files["model.safetensors"] == (trained / "model/model.safetensors").read_bytes()
    card = commit.files["README.md"].decode()
    assert yaml.safe_load(card.split("---\n")[1])["license"] == "cc-by-4.0"
    assert "nmt-translate model_dir=hf://me/toy input=news.xx output=news.yy\n" in card

    here = desk.run("nmt-translate", f"model_dir={trained}", text="bada feno\n")
    there = desk.run("nmt-translate", "model_dir=hf://me/toy", text="bada feno\n")
    assert (there.returncode, there.stdout) == (0, here.stdout), there.stderr
    assert f"model_dir=hf://me/toy@{commit.oid}\n" in there.stderr

    error = desk.error("nmt-translate", "model_dir=hf://me/toy", token=None, HF_HOME=str(tmp_path / "other"))
    assert error == (
        "model_dir=hf://me/toy: there is no model me/toy on the hub, or you may not read it. For a private "
        "one, run hf auth login, or set HF_TOKEN."
    )


def test_a_second_push_removes_files_of_the_earlier_model_alone(
    desk: Desk, trained: Path, shared: str, tmp_path: Path
) -> None:
    repository = desk.hub.repositories["me/toy"]
    repository.commit("odd", {"joint.spm": b"", "pieces.json": b"", "photo.png": b"1", ".gitattributes": b""})
    arguments = f"model_dir={trained}", f"output={tmp_path / 'copy'}", "format=nmt", "push=me/toy"
    desk.done("nmt-export", *arguments)
    assert repository.commits[-1].files.keys() == FILES | {"photo.png", ".gitattributes"}


def test_only_the_files_of_a_model_are_downloaded_once(desk: Desk, shared: str) -> None:
    for _ in range(2):
        result = desk.done("nmt-translate", "model_dir=hf://me/toy", text="bada\n")
    assert sorted(desk.hub.downloads()) == sorted(FILES - {"README.md"})
    count = len(desk.hub.requests)
    pinned = desk.run("nmt-translate", f"model_dir=hf://me/toy@{shared}", text="bada\n")
    assert pinned.stdout == result.stdout
    assert len(desk.hub.requests) == count  # a commit in the cache needs no network

    offline = desk.run("nmt-translate", "model_dir=hf://me/toy", text="bada\n", HF_HUB_OFFLINE="1")
    assert offline.stdout == result.stdout, offline.stderr
    assert len(desk.hub.requests) == count
    dead = desk.run("nmt-translate", "model_dir=hf://me/toy", text="bada\n", HF_ENDPOINT="http://127.0.0.1:1")
    assert dead.stdout == result.stdout, dead.stderr
    for one in (offline, dead):
        warning = r"warning: model_dir=hf://me/toy: the hub could not be reached \(.+\). Using commit "
        assert re.search(f"{warning}{shared} from the cache", one.stderr), one.stderr


def test_evaluations_and_exports_record_the_commit(desk: Desk, shared: str, tmp_path: Path) -> None:
    name = f"hf://me/toy@{shared}"
    files = "source=test.src", "references=test.tgt"
    desk.done("nmt-eval", "model_dir=hf://me/toy", *files, f"json={tmp_path / 'report'}")
    assert json.loads((tmp_path / "report").read_text())["model_dir"] == name

    several = "model_dir=[hf://me/toy,trained]"
    desk.done("nmt-eval", several, *files, f"json={tmp_path / 'report'}")
    assert json.loads((tmp_path / "report").read_text())["model_dir"] == [name, "trained"]

    pytest.importorskip("ctranslate2", reason="the extra export is not installed")
    desk.done("nmt-export", "model_dir=hf://me/toy", f"output={tmp_path / 'out'}", "check_sentences=9")
    assert json.loads((tmp_path / "out/export.json").read_text())["model"] == name


@pytest.mark.slow
def test_a_run_resumes_with_the_commit_that_it_started_from(
    desk: Desk, toy: Toy, trained: Path, shared: str, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    arguments = toy.small("start_from=hf://me/toy", f"run_dir={run}")
    result = desk.done("nmt-train", *arguments)
    config = read_config(run / "config.yaml")
    name = f"hf://me/toy@{shared}"
    assert (config.start_from, config.data.tokenizer.path) == (name, name)
    assert f"start_from={name}" in (run / "train.log").read_text() or f"start_from={name}" in result.stderr

    repository = desk.hub.repositories["me/toy"]
    newer = repository.commit("newer", repository.commits[0].files).oid
    result = desk.done("nmt-train", *arguments, "training.max_updates=8")
    assert read_config(run / "config.yaml").start_from == name
    assert f"start_from=hf://me/toy: the resumed run uses {name}" in result.stderr
    # Another commit with the same weights is the same model.
    desk.done("nmt-train", *toy.small(f"start_from=hf://me/toy@{newer}", f"run_dir={run}"))
    error = desk.error("nmt-train", *toy.small(f"run_dir={run}"))
    assert "started with data.tokenizer.path=a model, not null" in error


@pytest.mark.slow
def test_a_damaged_model_and_plugins_of_a_stranger(
    desk: Desk, trained: Path, shared: str, tmp_path: Path
) -> None:
    """A download never imports a module: its name in the configuration is only text."""
    repository, files = desk.hub.repositories["me/toy"], desk.hub.repositories["me/toy"].commits[0].files
    weights = bytearray(files["model.safetensors"])
    weights[-1] ^= 1
    repository.commit("damaged", files | {"model.safetensors": bytes(weights)})
    assert "its checksum is not the one in SHA256SUMS" in desk.error("nmt-translate", "model_dir=hf://me/toy")
    for lacks in ("config.yaml", "model.safetensors"):
        commit = repository.commit(lacks, {name: files[name] for name in files if name != lacks}).oid
        assert desk.error("nmt-translate", "model_dir=hf://me/toy") == (
            f"model_dir=hf://me/toy@{commit}: not a model of nmt: the repository has no {lacks}."
        )

    (tmp_path / "stranger.py").write_text(f"open({str(tmp_path / 'imported')!r}, 'w')\n")
    text = files["config.yaml"].decode()
    plugged = {name: content for name, content in files.items() if name != "SHA256SUMS"}
    plugged["config.yaml"] = text.replace("plugins: []", "plugins: [stranger]").encode()
    assert plugged["config.yaml"] != files["config.yaml"]
    repository.commit("plugged", plugged)
    desk.done(
        "nmt-translate",
        "model_dir=hf://me/toy",
        text="bada\n",
        PYTHONPATH=str(tmp_path) + os.pathsep + os.environ.get("PYTHONPATH", ""),
    )
    plugged["config.yaml"] = plugged["config.yaml"].replace(
        b"architecture: transformer", b"architecture: own"
    )
    repository.commit("own", plugged)
    line = desk.error(
        "nmt-translate",
        "model_dir=hf://me/toy",
        PYTHONPATH=str(tmp_path) + os.pathsep + os.environ.get("PYTHONPATH", ""),
    )
    assert line.endswith("The model was trained with plugins=[stranger]. Add that.")
    assert not (tmp_path / "imported").exists()


@pytest.mark.slow
def test_a_push_that_the_hub_refuses(desk: Desk, trained: Path, tmp_path: Path) -> None:
    output = tmp_path / "copy"
    desk.hub.forbidden = True
    line = desk.error("nmt-export", f"model_dir={trained}", f"output={output}", "format=nmt", "push=me/toy")
    assert re.fullmatch(
        r"push=me/toy: the token may not write there \(.*no write access.*\)\. Use one with write access to "
        rf"me\. {output} is complete; to upload it later: hf upload me/toy {output}",
        line,
    )
    line = desk.error(
        "nmt-export", f"model_dir={trained}", "output=x", "format=nmt", "push=me/toy", token="x"
    )
    assert line.startswith(
        "push=me/toy: the hub does not accept the token. Run hf auth login, or set HF_TOKEN."
    )
    assert load_bundle(output).folder == output and not desk.hub.repositories


def test_nothing_is_pushed_if_the_export_fails(desk: Desk, trained: Path, tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2", reason="the extra export is not installed")
    (tmp_path / "empty").write_text("\n")
    check = f"check={tmp_path / 'empty'}", f"references={tmp_path / 'empty'}"
    line = desk.error(
        "nmt-export", f"model_dir={trained}", f"output={tmp_path / 'out'}", *check, "push=me/toy"
    )
    assert (
        line.endswith(" pieces. Give nmt-export check=FILE and references=FILE.")
        and "has no sentence that can be" in line
    )
    assert not desk.hub.requests and not (tmp_path / "out").exists()
