"""Names of models on the hub: their commits, and the answers of the hub."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx2
import huggingface_hub
import pytest
from huggingface_hub import errors

from nmt.config import ExportConfig, TranslateConfig
from nmt.errors import UserError
from nmt.options.arguments import Arguments
from nmt.options.compose import compose_jobs
from nmt.runtime.checksums import file_sum, sums_text
from nmt.runtime.hub import is_hub_name, model_folders, pinned, require_repository
from nmt.runtime.model_files import BUNDLE_FILES
from nmt.runtime.streams import log

COMMIT = "c" * 40
NAME = f"hf://me/toy@{COMMIT}"


class Library:
    """Stands in for `huggingface_hub`: answers from a folder, or raises `error`."""

    def __init__(self, cache: Path) -> None:
        self.cache = cache
        self.error: Exception | None = None
        self.calls: list[tuple[Any, ...]] = []
        self.local_only_error: Exception | None = None

    def model_info(self, api: object, repository: str, **options: Any) -> Any:
        self.calls.append(("info", repository, options["revision"]))
        if self.error is not None:
            raise self.error
        return SimpleNamespace(sha=COMMIT)

    def snapshot_download(self, repository: str, **options: Any) -> str:
        local = options.get("local_files_only", False)
        self.calls.append(("local" if local else "download", repository, options["revision"]))
        if local and self.local_only_error is not None:
            raise self.local_only_error
        if not local and self.error is not None:
            raise self.error
        folder = self.cache / COMMIT
        folder.mkdir(parents=True, exist_ok=True)
        for name in options["allow_patterns"]:
            (folder / name).touch()
        return str(folder)


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Library:
    found = Library(tmp_path)
    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", lambda *a, **o: found.model_info(*a, **o))
    monkeypatch.setattr(huggingface_hub, "snapshot_download", found.snapshot_download)
    return found


def answer(kind: Callable[..., Exception], status: int) -> Exception:
    request = httpx2.Request("GET", "https://huggingface.co/api/models/me/toy")
    return kind(f"{status} Client Error.\n\nMore.", response=httpx2.Response(status, request=request))


def test_a_name_gets_its_commit_once(library: Library) -> None:
    assert pinned("hf://me/toy") == NAME == pinned("hf://me/toy@main") == pinned("hf://me/toy@refs/pr/1")
    revisions = [None, None, "main", "main", "refs/pr/1", "refs/pr/1"]
    assert [call[2] for call in library.calls] == revisions
    library.calls.clear()
    assert pinned(NAME) == NAME and pinned("runs/a") == "runs/a"
    assert library.calls == []


def test_only_files_of_a_model_are_asked_for(library: Library) -> None:
    (folder,) = model_folders(NAME)
    assert {path.name for path in folder.iterdir()} == set(BUNDLE_FILES)
    assert library.calls == [("download", "me/toy", COMMIT)] * 2
    assert model_folders("runs/a") == [Path("runs/a/model"), Path("runs/a")]


@pytest.mark.parametrize(
    "error",
    [
        httpx2.ConnectError("no route"),
        errors.OfflineModeIsEnabled("no route"),
        ConnectionRefusedError(errno.ECONNREFUSED, "no route"),
        answer(errors.HfHubHTTPError, 503),
    ],
    ids=lambda error: type(error).__name__,
)
def test_without_a_network_the_cache_is_used(
    error: Exception, library: Library, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(log, "propagate", True)
    library.error = error
    assert pinned("hf://me/toy", "start_from") == NAME
    (record,) = caplog.records
    assert record.getMessage().startswith("start_from=hf://me/toy: the hub could not be reached (")
    assert record.getMessage().endswith(f"). Using commit {COMMIT} from the cache.")
    library.local_only_error = errors.LocalEntryNotFoundError("nothing there")
    with pytest.raises(UserError) as raised:
        pinned("hf://me/toy", "start_from")
    assert str(raised.value).startswith("start_from=hf://me/toy: the hub could not be reached (")
    assert str(raised.value).endswith(
        "), and the cache does not have all files of this model. Connect to the network once, or give a "
        "local folder."
    )


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (answer(errors.RepositoryNotFoundError, 401), "there is no model me/toy on the hub, or you may not"),
        (
            answer(errors.GatedRepoError, 403),
            "its owner must grant you access. Ask for it at https://hugging",
        ),
        (answer(errors.RevisionNotFoundError, 404), "me/toy has no revision v1."),
        (
            errors.HFValidationError("odd"),
            "not the name of a model on the hub (odd). Give hf://OWNER/NAME or",
        ),
        (answer(errors.HfHubHTTPError, 401), "the hub refuses the token (401 Client Error. More.). Run hf"),
        (OSError(errno.ENOSPC, "No space"), "could not be written to the cache: [Errno 28] No space"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_answer_of_the_hub_is_one_line(error: Exception, message: str, library: Library) -> None:
    library.error = error
    with pytest.raises(UserError) as raised:
        pinned("hf://me/toy@v1")
    assert str(raised.value).startswith(f"model_dir=hf://me/toy@v1: {message}")
    assert "\n" not in str(raised.value)
    with pytest.raises(UserError):
        model_folders(NAME)


def test_a_bug_is_not_hidden(library: Library) -> None:
    library.error = TypeError("bug")
    with pytest.raises(TypeError):
        pinned("hf://me/toy")


@pytest.mark.parametrize(
    "name", ["me", "me/", "/toy", "me/a/b", "me/..", "m e/toy", "me/toy@", ".me/toy", "a--b/c"]
)
def test_other_names_are_refused(name: str, library: Library) -> None:
    with pytest.raises(
        UserError, match=r"^data\.tokenizer\.path=hf://.*: not the name of a model on the hub\."
    ):
        pinned(f"hf://{name}", "data.tokenizer.path")
    with pytest.raises(
        UserError, match=r"^push=.*: not the name of a repository on the hub\. Give OWNER/NAME\."
    ):
        require_repository(name, "push")
    assert library.calls == []


def test_names_on_the_hub() -> None:
    require_repository("me/toy-1.0_x", "push")
    assert is_hub_name("hf://a/b")
    assert not any(map(is_hub_name, ("hf:", "hf/a", "runs/hf://a", Path("hf://a/b"))))


def test_the_options_of_a_command_have_the_commit(
    library: Library, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def model_dirs(schema: type[Any], name: str, *words: str) -> list[Any]:
        return [job.model_dir for job in compose_jobs(schema, name, Arguments(words, sweep=len(words) > 2))]

    (tmp_path / COMMIT).mkdir()
    (tmp_path / COMMIT / "config.yaml").write_text("decoding: {beam_size: 7}\n")
    (tmp_path / COMMIT / "SHA256SUMS").write_text(
        sums_text({"config.yaml": file_sum(tmp_path / COMMIT / "config.yaml")})
    )
    monkeypatch.setenv("WHO", "me")
    assert model_dirs(ExportConfig, "export", "model_dir=hf://${oc.env:WHO}/toy", "output=o") == [NAME]
    assert model_dirs(TranslateConfig, "translate", "model_dir=[hf://me/toy,runs/a]") == [[NAME, "runs/a"]]
    (job,) = compose_jobs(TranslateConfig, "translate", Arguments(("model_dir=hf://me/toy@v1",)))
    assert (job.model_dir, job.decoding.beam_size) == (NAME, 7)
