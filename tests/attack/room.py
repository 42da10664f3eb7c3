"""The scratch folder of a case: the toy corpus, a cache, and copies of a model or a run on request."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from pathlib import Path

SECRET = "hunter2-of-the-environment"
"""Present in the environment of every command; no output and no file may contain it."""


class Room:
    """The scratch folder of one case.

    Args:
        folder: an empty folder.
        prepared: the folder that `runner.prepare` created.
    """

    def __init__(self, folder: Path, prepared: Path) -> None:
        self.folder = folder
        self.prepared = prepared
        self.work = folder / "work"
        self.home = folder / "home"
        self.cache = folder / "cache"
        self.stdout, self.stderr, self.stdin = folder / "stdout", folder / "stderr", folder / "stdin"
        self.home.mkdir()
        shutil.copytree(prepared / "toy", self.work)
        shutil.copytree(prepared / "cache", self.cache)

    def put_model(self, name: str = "model") -> Path:
        """Puts a trained model into the working directory."""
        return Path(shutil.copytree(self.prepared / "run" / "model", self.work / name))

    def put_run(self, name: str = "run") -> Path:
        """Puts the folder of a finished run into the working directory."""
        return Path(shutil.copytree(self.prepared / "run", self.work / name))

    def snapshot(self) -> dict[str, str]:
        """Maps each path in the working directory to a digest or a description of its content."""
        found = {}
        for folder, folders, files in os.walk(self.work):
            for name in [*folders, *files]:
                path = Path(folder) / name
                found[os.fsencode(path.relative_to(self.work)).decode(errors="replace")] = _content(path)
        return found


def _content(path: Path) -> str:
    status = path.lstat()
    if stat.S_ISLNK(status.st_mode):
        return f"link to {os.readlink(path)!r}"
    if not stat.S_ISREG(status.st_mode):
        return f"kind {stat.S_IFMT(status.st_mode):o}"
    if status.st_size > 1 << 26:
        return f"{status.st_size} bytes"
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
