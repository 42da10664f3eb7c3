"""A folder in which the commands of one tree run, and the outcomes that they leave."""

from __future__ import annotations

import fnmatch
import hashlib
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

CASES: dict[str, dict[str, Any]] = yaml.safe_load(
    Path(__file__).with_name("cases.yaml").read_text(encoding="utf-8")
)
"""The tables of `cases.yaml`: what is run."""

LONGEST_VALUE = 60
"""Characters of an outcome that is recorded as it is; a longer one is recorded as its SHA-256."""

NORMALISERS: dict[str, tuple[str, str]] = {
    "time of a log line": (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}", "<time>"),
    "duration": (r"\b\d[\d,]*\.\d+ (seconds|minutes)", r"<number> \1"),
    "speed": (
        r"\b[\d,]+(\.\d+)? (lines |tokens |target tokens )?(a second|per second)",
        r"<number> \2a second",
    ),
    "duration and speed": (r"\b[\d,.]+ s, [\d,.]+ (\w+)/s", r"<number> \1/s"),
    "port": (r"http://127\.0\.0\.1:\d+", "http://127.0.0.1:<port>"),
    "number of a process": (r"\b(process|pid) \d+", r"\1 <number>"),
    "version of nmt": (r"\bnmt 0\.\d+\.\d+\S*", "nmt <version>"),
    "lines of a slow machine": (r"(?m)^(<time> \w+ )?(memory probe: trying|training waits \d).*\n", ""),
    "times of the forecast": (r"(?m)^(<time> \w+ )?update \d+: .* an update; next .*\n", ""),
    "training.compile in YAML, which went": (r"(?m)^  compile: (true|false)\n", ""),
    "training.compile in --help": (r"(?m)^ {4}training\.compile=.*\n( {47}\S.*\n)*", ""),
    "line of the source": (r"(\.py):\d+", r"\1:<line>"),
}
"""Parts of texts that may differ between recordings of the same commit: name → pattern, replacement."""

UNSTABLE_KEYS = frozenset(
    ("seconds", "minutes", "target_tokens_per_second", "judging_seconds", "device", "cores", "torch", "nmt")
    + ("time", "tokens_per_second", "mfu", "data_wait", "peak_memory_gb", "eta_minutes", "total_seconds")
    + ("fingerprint", "fingerprints", "training.compile")
)
"""Keys of JSON files with times, speeds, versions or facts of the machine, and options that are gone.

The fingerprint of the data may change with the code of the tokenizer and the encoder.
"""


def normalised(text: str, folders: dict[str, str] | None = None) -> str:
    """Returns a text without the parts that may differ.

    Args:
        text: output of a command.
        folders: path → the name that replaces it.
    """
    for path, name in (folders or {}).items():
        text = text.replace(path, name)
    for pattern, replacement in NORMALISERS.values():
        text = re.sub(pattern, replacement, text)
    return text


def stable_json(value: Any) -> Any:
    """Returns decoded JSON without `UNSTABLE_KEYS`."""
    if isinstance(value, dict):
        return {key: stable_json(item) for key, item in value.items() if key not in UNSTABLE_KEYS}
    return [stable_json(item) for item in value] if isinstance(value, list) else value


def short_value(text: str) -> str:
    """Returns the value that is recorded for an outcome."""
    if len(text) <= LONGEST_VALUE and "\n" not in text:
        return text
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()[:24]}"


@dataclass
class Workshop:
    """Runs the commands of a tree and collects outcomes.

    Attributes:
        tree: a checkout of the project.
        folder: where the commands run; corpora, runs and the cache are in it.
        only: globs; an outcome is recorded if one of them matches its name or the beginning of its name.
        gpu_options: further options of the cases of the GPU ledger.
        outcomes: name → value.
        texts: name → the text of which the value is made.
    """

    tree: Path
    folder: Path
    only: tuple[str, ...] = ("*",)
    gpu_options: tuple[str, ...] = ()
    outcomes: dict[str, str] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    _models: list[str] | None = None

    def wants(self, name: str) -> bool:
        """Whether a case is recorded: its name, or the names of its outcomes, may match a glob."""
        return any(fnmatch.fnmatch(name, glob) or fnmatch.fnmatch(name, f"{glob}/*") for glob in self.only)

    def wants_part(self, part: str) -> bool:
        """Whether a part, the first word of names, may have outcomes that are wanted."""
        return any(fnmatch.fnmatch(part, glob.split("/")[0]) for glob in self.only)

    def note(self, name: str, text: str) -> None:
        """Records an outcome."""
        assert name not in self.outcomes, f"{name}: recorded twice"
        text = normalised(text, {str(self.folder): "<folder>", str(self.tree): "<tree>"})
        self.outcomes[name], self.texts[name] = short_value(text), text

    def environment(self, **more: str) -> dict[str, str]:
        """Returns the environment of a command: its own cache, one thread, no network, this tree."""
        kept = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "VIRTUAL_ENV")
        return {key: os.environ[key] for key in kept if key in os.environ} | {
            "PYTHONPATH": str(self.tree),
            "NMT_CACHE": str(self.folder / "cache"),
            "OMP_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            **more,
        }

    def start(self, *arguments: str, **options: Any) -> subprocess.Popen[bytes]:
        """Starts `python -m nmt`."""
        command = [sys.executable, "-m", "nmt", *arguments]
        return subprocess.Popen(command, cwd=self.folder, env=self.environment(), **options)

    def run(self, *arguments: str, stdin: str | bytes = b"") -> subprocess.CompletedProcess[bytes]:
        """Runs `python -m nmt` to its end."""
        return subprocess.run(
            [sys.executable, "-m", "nmt", *arguments],
            cwd=self.folder,
            env=self.environment(),
            input=stdin.encode() if isinstance(stdin, str) else stdin,
            capture_output=True,
            timeout=600,
        )

    def note_run(self, name: str, *arguments: str, stdin: str | bytes = b"") -> None:
        """Runs `python -m nmt` and records exit status, standard output and standard error."""
        if not self.wants(name):
            return
        result = self.run(*arguments, stdin=stdin)
        parts = {"stdout": result.stdout, "stderr": result.stderr}
        texts = [
            f"--- {part}\n{content.decode(errors='backslashreplace')}" for part, content in parts.items()
        ]
        self.note(name, "\n".join([f"exit status {result.returncode}", *texts]))

    def note_file(self, name: str, path: Path) -> None:
        """Records the text of a file; JSON without what may differ."""
        if not path.is_file():
            self.note(name, "missing")
        elif path.suffix == ".json":
            self.note(
                name, json.dumps(stable_json(json.loads(path.read_text())), indent=1, ensure_ascii=False)
            )
        elif path.suffix == ".jsonl":
            rows = [stable_json(json.loads(row)) for row in path.read_text().splitlines()]
            self.note(name, "\n".join(json.dumps(row, ensure_ascii=False) for row in rows))
        else:
            self.note(name, path.read_text(errors="backslashreplace"))

    def note_tensors(self, name: str, path: Path) -> None:
        """Records the SHA-256 of a safetensors file; its text has a line for each tensor."""
        if not path.is_file():
            self.note(name, "missing")
            return
        content = path.read_bytes()
        size = int.from_bytes(content[:8], "little")
        header = json.loads(content[8 : 8 + size])
        lines = [f"sha256 of the file {hashlib.sha256(content).hexdigest()}"]
        for key, entry in sorted(header.items()):
            if key == "__metadata__":
                lines.append(f"metadata {json.dumps(entry, sort_keys=True)}")
                continue
            first, last = (8 + size + offset for offset in entry["data_offsets"])
            digest = hashlib.sha256(content[first:last]).hexdigest()[:16]
            lines.append(f"{key} {entry['dtype']} {entry['shape']} {digest}")
        self.note(name, "\n".join(lines))
