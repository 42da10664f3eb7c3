"""A server that is not the hub, such as the login page of a network, answers 200 to everything: one line."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import huggingface_hub
import pytest
from huggingface_hub import constants

from nmt.config import HubConfig
from nmt.data.corpora.hub import commit_of
from nmt.errors import UserError
from nmt.interop.tasks import push
from nmt.runtime.hub import hub_folder, pinned
from nmt.runtime.streams import log

COMMIT = "c" * 40
ANSWERS: dict[str, object] = {
    "page": "<html>Please log in</html>",
    "empty": "",
    "list": [],
    "object": {},
    "null": None,
    "number for a commit": {"id": "me/toy", "sha": 5, "siblings": []},
    "path for a commit": {"id": "me/toy", "sha": "../../x", "siblings": []},
    "number for files": {"id": "me/toy", "sha": COMMIT, "siblings": 5},
    "files that are not there": {"id": "me/toy", "sha": COMMIT, "siblings": [{"rfilename": "config.yaml"}]},
}


class Portal(BaseHTTPRequestHandler):
    body = b""

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.body)

    do_POST = do_GET

    def do_HEAD(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Portal) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.fixture
def portal(address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Points the library at the portal; returns its cache."""
    monkeypatch.setattr(constants, "ENDPOINT", address)
    monkeypatch.setattr(
        constants, "HUGGINGFACE_CO_URL_TEMPLATE", address + "/{repo_id}/{revision}/{filename}"
    )
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(huggingface_hub, "get_token", lambda: "hf_x")
    return tmp_path / "cache"


@pytest.mark.parametrize("name", ANSWERS)
def test_a_foreign_answer_is_one_line(
    name: str, portal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = ANSWERS[name]
    monkeypatch.setattr(Portal, "body", (answer if isinstance(answer, str) else json.dumps(answer)).encode())
    messages = []
    for call in (
        lambda: pinned("hf://me/toy", "model"),
        lambda: hub_folder(f"hf://me/toy@{COMMIT}", "model"),
        lambda: push(tmp_path, "me/toy", "title", None),
    ):
        with pytest.raises(UserError) as raised:
            call()
        messages.append(str(raised.value))
    assert messages[0].startswith("model=hf://me/toy: ")
    assert messages[1].startswith(f"model=hf://me/toy@{COMMIT}: ")
    assert messages[0].endswith("of this model. Connect to the network once, or give a local folder.")
    assert messages[2].startswith("push=me/toy: the answer is not the hub's (")
    assert not any("\n" in message for message in messages)
    assert not list(tmp_path.rglob("x"))


def test_a_data_set_behind_a_portal_is_one_line(portal: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("datasets", reason="the extra hub is not installed")
    monkeypatch.setattr(Portal, "body", b"<html>")
    with pytest.raises(
        UserError, match=r"^data\.hub\.path=me/set: me/set could not be downloaded \(Expecting"
    ):
        commit_of(HubConfig("me/set"))


def test_behind_a_portal_the_cache_is_used(
    portal: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Portal, "body", b"{")
    monkeypatch.setattr(log, "propagate", True)
    folder = portal / "models--me--toy"
    (folder / "snapshots" / COMMIT).mkdir(parents=True)
    (folder / "refs").mkdir()
    (folder / "refs/main").write_text(COMMIT)
    with caplog.at_level(logging.WARNING):
        assert pinned("hf://me/toy") == f"hf://me/toy@{COMMIT}"
    assert caplog.messages == [
        "model_dir=hf://me/toy: the answer is not the hub's (JSONDecodeError: Expecting property name "
        f"enclosed in double quotes: line 1 column 2 (char 1)). Using commit {COMMIT} from the cache."
    ]
