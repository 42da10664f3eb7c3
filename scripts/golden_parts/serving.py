"""Goldens of nmt-serve: a transcript of requests and answers."""

from __future__ import annotations

import http.client
import re
import signal
import subprocess
import time
from json import dumps
from typing import Any

from golden_parts.trainings import learnt_models
from golden_parts.workshop import CASES, Workshop

_HEADERS = (
    *("content-type", "allow", "retry-after", "location", "access-control-allow-origin", "cache-control"),
    *("content-security-policy", "x-content-type-options", "content-language"),
)
"""The headers that are recorded."""

_LIMITS = ("limits.body_bytes=20000", "limits.characters=1000", "limits.sentences=20")


def record(workshop: Workshop) -> None:
    """Records the answers of two servers, one with a key and one with CTranslate2."""
    model, _ = learnt_models(workshop)
    (workshop.folder / "key").write_text("open sesame\n")
    origin, requests = "cors_origins=[https://example.org]", CASES["requests"]
    _serve(workshop, "serve", requests, f"model_dir={model}", origin, *_LIMITS)
    _serve(workshop, "serve/key", CASES["requests_with_key"], f"model_dir={model}", "api_key_file=key")
    engine = {name: requests[name] for name in ("languages", "text", "alternatives", "options", "attention")}
    _serve(workshop, "serve/engine", engine, f"model_dir={model}", "backend=ctranslate2")


def _serve(workshop: Workshop, name: str, requests: dict[str, Any], *options: str) -> None:
    """Starts a server, records its answers and its log, and ends it."""
    if not any(workshop.wants(f"{name}/{case}") for case in requests):
        return
    process = workshop.start(
        "serve", "port=0", "threads=1", *options, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stderr is not None
    log = b""
    while (address := re.search(rb"http://127\.0\.0\.1:(\d+)", log)) is None:
        part = process.stderr.readline()
        assert part or process.poll() is None, log.decode()
        log += part
    time.sleep(0.2)
    for case, request in requests.items():
        parts = {"path": request} if isinstance(request, str) else request
        workshop.note(f"{name}/{case}", _answer(int(address[1]), **parts))
    process.send_signal(signal.SIGTERM)
    output, rest = (part.decode() for part in process.communicate(timeout=120))
    status = f"exit status {process.returncode}"
    workshop.note(f"{name}/log", f"{status}\n--- stdout\n{output}\n--- stderr\n{log.decode()}{rest}")


def _answer(
    port: int,
    path: str = "/translate",
    method: str = "",
    json: Any = None,  # in place of `body`
    body: str = "",
    headers: dict[str, str] | None = None,
) -> str:
    """Sends a request; returns status, chosen headers and body of its answer."""
    if json is not None:
        body, headers = dumps(json), {"content-type": "application/json"}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    connection.request(method or ("POST" if body else "GET"), path, body.encode("latin-1"), headers or {})
    response = connection.getresponse()
    text = response.read().decode(errors="backslashreplace")
    connection.close()
    if path == "/metrics":
        text = re.sub(r"(?m)^(\S+(?:seconds|bytes|memory|cpu|le=)\S*) \S+$", r"\1 <number>", text)
    found = {name.lower(): value for name, value in response.getheaders()}
    lines = [f"{key}: {found[key]}" for key in _HEADERS if key in found]
    return "\n".join([f"{response.status} {response.reason}", *lines, "", text])
