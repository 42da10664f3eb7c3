"""A small Hugging Face hub on this machine: the endpoints that uploads and downloads of models need.

The library `huggingface_hub` talks to it as to the real one, by the variable HF_ENDPOINT.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

import yaml

TOKEN = "hf_of_the_test"


@dataclass(frozen=True)
class Commit:
    oid: str
    title: str
    files: dict[str, bytes]


@dataclass
class Repository:
    private: bool
    commits: list[Commit] = field(default_factory=list)

    def find(self, revision: str) -> Commit | None:
        if revision == "main":
            return self.commits[-1] if self.commits else None
        return next((one for one in self.commits if one.oid == revision), None)

    def commit(self, title: str, files: dict[str, bytes]) -> Commit:
        content = json.dumps([title, len(self.commits), sorted(files)])
        self.commits.append(Commit(hashlib.sha1(content.encode()).hexdigest(), title, files))
        return self.commits[-1]


class Hub:
    """The repositories, and what was asked."""

    def __init__(self) -> None:
        self.repositories: dict[str, Repository] = {}
        self.requests: list[str] = []
        self.created: list[dict[str, Any]] = []
        self.forbidden = False
        self.url = ""

    def downloads(self) -> list[str]:
        return [
            one.split("/resolve/")[1].split("/")[1]
            for one in self.requests
            if one.startswith("GET /") and "/resolve/" in one
        ]


@contextmanager
def running_hub() -> Iterator[Hub]:
    hub = Hub()

    class Handler(_Handler):
        state = hub

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    state: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *arguments: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._read()

    def do_GET(self) -> None:
        self._read()

    def _path(self) -> str:
        return unquote(urlsplit(self.path).path)

    def _authorised(self) -> bool:
        return self.headers.get("Authorization") == f"Bearer {TOKEN}"

    def _read(self) -> None:
        path = self._path()
        patterns = (
            r"/api/models/(?P<repo>[^/]+/[^/]+)(?:/revision/(?P<revision>.+))?",
            r"/api/models/(?P<repo>[^/]+/[^/]+)/tree/(?P<revision>[^/]+)",
            r"/(?P<repo>[^/]+/[^/]+)/resolve/(?P<revision>[^/]+)/(?P<file>.+)",
        )
        number, match = next(
            ((number, found) for number, one in enumerate(patterns) if (found := re.fullmatch(one, path))),
            (0, None),
        )
        if match is None:  # questions of the library that are not about a repository
            self._refuse(404, "", "Not found")
            return
        self.state.requests.append(f"{self.command} {path}")
        repository = self.state.repositories.get(match["repo"])
        if repository is None or (repository.private and not self._authorised()):
            self._refuse(401, "RepoNotFound", "Repository not found")
            return
        commit = repository.find(match["revision"] or "main")
        if commit is None:
            self._refuse(404, "RevisionNotFound", "Invalid rev id")
            return
        if number == 0:
            siblings = [{"rfilename": name} for name in commit.files]
            self._answer({"id": match["repo"], "sha": commit.oid, "siblings": siblings})
        elif number == 1:
            self._answer(
                [
                    {"type": "file", "path": name, "size": len(content), "oid": _oid(content)}
                    for name, content in commit.files.items()
                ]
            )
        elif match["file"] not in commit.files:
            self._refuse(404, "EntryNotFound", "Entry not found")
        else:
            content = commit.files[match["file"]]
            self._send(200, content, {"X-Repo-Commit": commit.oid, "ETag": f'"{_oid(content)}"'})

    def do_POST(self) -> None:
        path = self._path()
        self.state.requests.append(f"{self.command} {path}")
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if not self._authorised():
            self._refuse(401, "", "Invalid credentials in Authorization header")
        elif self.state.forbidden:
            self._refuse(403, "", "you have no write access")
        elif path == "/api/repos/create":
            self._create(json.loads(body))
        elif path == "/api/validate-yaml":
            self._validate(json.loads(body)["content"])
        else:
            match = re.fullmatch(r"/api/models/([^/]+/[^/]+)/(preupload|commit)/main", path)
            assert match, path
            repository = self.state.repositories[match[1]]
            before = repository.commits[-1].files if repository.commits else {}
            if match[2] == "preupload":
                files = [
                    {"path": one["path"], "uploadMode": "regular", "shouldIgnore": False}
                    | ({"oid": _oid(before[one["path"]])} if one["path"] in before else {})
                    for one in json.loads(body)["files"]
                ]
                self._answer({"files": files})
            else:
                self._commit(
                    match[1], repository, dict(before), [json.loads(one) for one in body.splitlines()]
                )

    def _create(self, asked: dict[str, Any]) -> None:
        self.state.created.append(asked)
        name = f"{asked['organization']}/{asked['name']}"
        if name in self.state.repositories:
            self._refuse(409, "", "You already created this model repo", {"url": f"{self.state.url}/{name}"})
            return
        new = self.state.repositories[name] = Repository(asked.get("visibility") == "private")
        new.commit("initial commit", {".gitattributes": b""})
        self._answer({"url": f"{self.state.url}/{name}", "name": name})

    def _validate(self, content: str) -> None:
        header = yaml.safe_load(content.split("---\n")[1])
        wrong = [one for one in header["language"] if not re.fullmatch("[a-z]{2,3}", str(one))]
        if wrong:
            self._answer({"errors": [{"message": f"language {wrong}"}], "warnings": []}, 400)
        else:
            self._answer({"errors": [], "warnings": []})

    def _commit(
        self, name: str, repository: Repository, files: dict[str, bytes], lines: list[dict[str, Any]]
    ) -> None:
        title = ""
        for line in lines:
            value = line["value"]
            if line["key"] == "header":
                title = value["summary"]
            elif line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            else:
                assert line["key"] == "deletedFile", line
                del files[value["path"]]
        commit = repository.commit(title, files)
        self._answer({"commitUrl": f"{self.state.url}/{name}/commit/{commit.oid}", "commitOid": commit.oid})

    def _refuse(self, status: int, code: str, message: str, body: dict[str, Any] | None = None) -> None:
        self._answer(body or {"error": message}, status, {"X-Error-Code": code, "X-Error-Message": message})

    def _answer(self, value: Any, status: int = 200, headers: dict[str, str] | None = None) -> None:
        content = json.dumps(value).encode()
        self._send(status, content, {"Content-Type": "application/json"} | (headers or {}))

    def _send(self, status: int, content: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            if value:
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


def _oid(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
