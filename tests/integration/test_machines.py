"""The commands and `nmt.load` for unusual users, containers and systems: each works, or prints one line."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.request import urlopen

import pytest
from commands import Toy, command_line, environment

pytestmark = pytest.mark.slow  # each command runs in an interpreter of its own

MOUNTS = ("unshare", "-m", "--propagation", "private", "sh", "-c")
READ_ONLY = (
    'mount --bind / / && mount --make-rprivate / && mount -t tmpfs tmpfs "$WRITABLE" && cd "$PWD" && '
    'mount -o remount,bind,ro / && exec "$@"'
)
NO_NAMES = 'mount -t tmpfs tmpfs /etc && exec "$@"'
NO_PROC = 'mount -t tmpfs tmpfs /proc && exec "$@"'
NO_SHARED_MEMORY = 'mount -t tmpfs -o ro tmpfs /dev/shm && exec "$@"'
SMALL_SHARED_MEMORY = 'mount -t tmpfs -o size=64m tmpfs /dev/shm && exec "$@"'
READ_ONLY_HOME = 'mount -t tmpfs -o ro tmpfs "$HOME" && exec "$@"'
EMPTY = 'exec env -i PATH="$PATH" NMT_CACHE="$NMT_CACHE" "$@"'
UNKNOWN_USER = ("unshare", "-U", "--map-user=54321", "--map-group=54321", "--")
OTHER_USER = ("setpriv", "--reuid", "54321", "--regid", "54321", "--clear-groups")
READER = ("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search")  # the packages may be in a home
HOMELESS = ("env", "-u", "HOME", "-u", "USER", "-u", "LOGNAME", "-u", "XDG_CACHE_HOME")
TWO = ("training.devices=2", "training.micro_batches=2")

MACOS = Path(__file__).parent / "macos"
"""Its `sitecustomize` makes an interpreter like one of macOS."""

NO_HOME = "NMT_CACHE: this user has no home folder, where prepared data and downloads are stored. "
READ_ONLY_DISK = "its disk is read-only. Choose another folder."


@dataclass(frozen=True)
class Environment:
    """An environment: the words before a command, options of its training, and parts of expected refusals."""

    name: str
    prefix: tuple[str, ...]
    training: tuple[str, ...] = ()
    refused: Mapping[str, str] = field(default_factory=dict)
    reachable: bool = True  # whether this process can connect to a server there


ENVIRONMENTS = [
    Environment("unknown user", (*UNKNOWN_USER, *HOMELESS)),
    Environment("no cache", (*UNKNOWN_USER, *HOMELESS, "-u", "NMT_CACHE"), refused={"nmt-train": NO_HOME}),
    Environment("other user", (*OTHER_USER, *READER, *HOMELESS)),
    Environment("empty", ("sh", "-c", EMPTY, "sh")),
    Environment(
        "read-only home",
        (*MOUNTS, READ_ONLY_HOME, "sh", "env", "-u", "NMT_CACHE", "-u", "XDG_CACHE_HOME"),
        refused={"nmt-train": READ_ONLY_DISK},
    ),
    Environment("read-only root", (*MOUNTS, READ_ONLY, "sh", "env", "-u", "TMPDIR"), TWO),
    Environment("no /proc", (*MOUNTS, NO_PROC, "sh"), ("data.max_tokens=auto",)),
    Environment(
        "macOS", (*MOUNTS, NO_PROC, "sh", "env", f"PYTHONPATH={MACOS}"), (*TWO, "data.max_tokens=auto")
    ),
    Environment(
        "no shared memory",
        (*MOUNTS, NO_SHARED_MEMORY, "sh"),
        TWO,
        {"nmt-train": "training.devices=2: several processes need semaphores in /dev/shm"},
    ),
    Environment(
        "no network",
        ("unshare", "-n"),
        TWO,
        {"nmt-train": "training.devices=2: the processes can't connect to each other at 127.0.0.1 ("},
        reachable=False,
    ),
    Environment("no names", (*MOUNTS, NO_NAMES, "sh"), TWO),
    Environment("small shared memory", (*MOUNTS, SMALL_SHARED_MEMORY, "sh"), TWO),
    Environment("few open files", ("prlimit", "--nofile=24")),
    Environment(
        "few threads",
        ("setpriv", "--reuid", "54399", "--clear-groups", *READER, "prlimit", "--nproc=16"),
        refused={"nmt-train": "training.devices=1: needs 20 threads, but this user may start only "},
    ),
    Environment("ASCII", ("env", "LC_ALL=C", "PYTHONCOERCECLOCALE=0", "PYTHONUTF8=0")),
    Environment(
        "few open files for two processes",
        ("prlimit", "--nofile=24"),
        TWO,
        {"nmt-train": "training.devices=2: this process may open 24 files, but 2 processes need 64."},
    ),
]


@pytest.mark.parametrize("place", ENVIRONMENTS, ids=lambda place: place.name)
def test_works_or_prints_one_line(place: Environment, toy: Toy, trained: Path, open_folder: Path) -> None:
    home, writable = open_folder / "home", open_folder / "writable"
    for folder in (home, writable, writable / "cache"):
        folder.mkdir()
        folder.chmod(0o1777)
    variables = {"HOME": os.fspath(home), "WRITABLE": os.fspath(writable)}
    variables = environment(writable / "cache") | variables
    _require(place.prefix, variables)

    model, commands = f"model_dir={trained}", {}
    commands["nmt-train"] = toy.small(f"run_dir={writable / 'run'}", *place.training)
    commands["nmt-translate"] = [model, "input=test.src"]
    commands["nmt-eval"] = [model]
    commands["nmt-export"] = [model, "format=marian", f"output={writable / 'export'}", "check_sentences=3"]
    lines = {name: command_line(name, *words) for name, words in commands.items()}
    code = f"import nmt; print(nmt.load({os.fspath(trained)!r}).translate('ba du'))"
    lines["nmt.load"] = [sys.executable, "-c", code]
    wrong = {}
    for name, line in lines.items():
        done = subprocess.run(
            [*place.prefix, *line], cwd=toy.folder, env=variables, capture_output=True, text=True, timeout=120
        )
        words = done.stderr.splitlines()[-1:] or [""]
        refusal = place.refused.get(name)
        good = done.returncode == 0 if refusal is None else done.returncode == 2 and refusal in words[0]
        if not good or "Traceback" in done.stderr:
            wrong[name] = (done.returncode, done.stderr)
    assert wrong == {}
    if place.reachable:
        line = [*place.prefix, *command_line("nmt-serve", model, "port=0")]
        assert _served(line, toy.folder, variables) == 0


@pytest.mark.parametrize("umask", ["027", "077"])
def test_users_share_a_cache(umask: str, toy: Toy, open_folder: Path) -> None:
    cache = open_folder / "cache"
    cache.mkdir()
    cache.chmod(0o1777)
    for number in ("1", "2"):
        user = ("sh", "-c", f'umask {umask}; exec "$@"', "sh", "setpriv", "--reuid", f"5432{number}")
        prefix = (*user, "--regid", "54321", "--clear-groups", *READER)
        _require(prefix, environment(cache))
        words = toy.small(f"run_dir={open_folder / number}", "prepare_only=true")
        done = subprocess.run(
            [*prefix, *command_line("nmt-train", *words)],
            cwd=toy.folder,
            env=environment(cache),
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
    noted = f"{cache}/prepared: has data of another user that this user can't read or change; using "
    assert (noted in done.stderr) == (umask == "077") == (cache / "prepared-54322").exists()


def _require(prefix: tuple[str, ...], variables: Mapping[str, str]) -> None:
    try:
        tried = subprocess.run(
            [*prefix, sys.executable, "-c", ""], env=variables, capture_output=True, text=True
        )
    except OSError as error:
        pytest.skip(f"{prefix[0]}: {error}")
    if tried.returncode:
        pytest.skip(f"{prefix[0]} is not possible here: {tried.stderr.strip()}")


def _served(line: list[str], folder: Path, variables: Mapping[str, str]) -> int:
    """Starts a server, asks it for a translation, stops it, and returns its exit status."""
    with subprocess.Popen(line, cwd=folder, env=variables, stderr=subprocess.PIPE, text=True) as server:
        late = threading.Timer(60, server.kill)
        late.start()
        assert server.stderr is not None
        for words in server.stderr:
            if address := re.search(r"Listening on (\S+)$", words):
                assert urlopen(f"{address[1]}/translate", b"q=ba du&source=xx&target=yy").status == 200
                server.terminate()
        late.cancel()
        return server.wait()
