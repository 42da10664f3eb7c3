"""Runs a case in a separate process: a fork of this process with all imports, or a fresh interpreter."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import sys
import time
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from commands import command_line
from forking import import_all, run_command

from attack.case import Case
from attack.room import SECRET, Room

_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGQUIT)
_HARNESS = 99  # exit status if the case could not be set up
_VARIABLES = {
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "CUDA_VISIBLE_DEVICES": "",
    "NMT_SECRET": SECRET,
    "SECRET": SECRET,
}


def import_everything() -> None:
    """Imports the modules that the commands import, so that forks have them; starts no thread."""
    os.environ.update(_VARIABLES)
    for module in ("datasets", "pyarrow.parquet"):
        import_module(module)
    import_all()


@dataclass
class Running:
    """A running case.

    Attributes:
        case: the case.
        room: its scratch folder.
        pid: its process, the leader of a separate session.
        started: `time.monotonic()` at its start.
        signals: the number of its signals sent so far.
    """

    case: Case
    room: Room
    pid: int
    started: float
    signals: int = 0

    def poll(self) -> int | None:
        """Sends the signals that are due; returns the exit status (-N after signal N), None while it runs."""
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        for number, when in self.case.machine.signals[self.signals :]:
            if not self._due(when):
                break
            os.kill(self.pid, number)
            self.signals += 1
        return None

    def overdue(self) -> bool:
        """Returns whether it has run for so long that it counts as a hang."""
        return time.monotonic() - self.started > self.case.machine.seconds

    def kill(self) -> None:
        """Kills it and all processes that it has started."""
        os.killpg(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)

    def left_behind(self) -> list[str]:
        """Returns the command lines of processes that outlived it, and kills them."""
        deadline = time.monotonic() + 2.0
        while found := _members(self.pid):
            if time.monotonic() > deadline:
                os.killpg(self.pid, signal.SIGKILL)
                return found
            time.sleep(0.02)
        return []

    def _due(self, when: float | str) -> bool:
        if isinstance(when, str):
            return when.encode() in self.room.stderr.read_bytes()
        return time.monotonic() - self.started >= when


def start(case: Case, room: Room, *, fresh: bool) -> Running:
    """Starts a case."""
    started = time.monotonic()
    pid = os.fork()
    if pid == 0:
        _child(case, room, fresh=fresh or case.machine.fresh)
    return Running(case, room, pid, started)


def _child(case: Case, room: Room, *, fresh: bool) -> None:
    status = _HARNESS
    try:
        os.setsid()
        arguments = [argument.replace("{room}", str(room.work)) for argument in case.arguments]
        _enter(case, room)
        if fresh:
            os.execv(sys.executable, command_line(case.command, *arguments))
        status = run_command(case.command, *arguments)
    except BaseException as error:
        os.write(2, f"harness: {error!r}\n".encode())
    finally:
        os._exit(status)


def _enter(case: Case, room: Room) -> None:
    """Sets the directory, environment, streams and limits of this process as the case requires."""
    machine = case.machine
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    os.environ.update(_VARIABLES, HOME=str(room.home), NMT_CACHE=str(room.cache), PYTHONPATH=_root())
    for key, value in machine.environment.items():
        os.environ.pop(key, None)
        if value is not None:
            os.environ[key] = value.replace("{room}", str(room.work))
    if "PYTHONPATH" in machine.environment:
        sys.path[:0] = os.environ["PYTHONPATH"].split(os.pathsep)
    if "datasets" in sys.modules:  # a fork imported it before HOME was set
        sys.modules["datasets"].config.HF_DATASETS_CACHE = room.home / "datasets"
    os.chdir(room.work)
    if machine.directory == "deleted":
        os.mkdir("gone")
        os.chdir("gone")
        os.rmdir(room.work / "gone")
    else:
        os.chdir(machine.directory)
    if machine.umask is not None:
        os.umask(machine.umask)
    streams = [
        _input(case, room),
        _output(machine.stdout, room.stdout),
        _output(machine.stderr, room.stderr),
    ]
    high = [None if stream is None else _above(stream) for stream in streams]
    for number, descriptor in enumerate(high):
        if descriptor is None:
            os.close(number)
        else:
            os.dup2(descriptor, number)
    os.closerange(3, 1024)
    for kind, limit in machine.limits.items():
        resource.setrlimit(kind, (limit, resource.getrlimit(kind)[1]))


def _above(descriptor: int) -> int:
    """Duplicates a descriptor to a number above those of the standard streams."""
    while descriptor < 10:
        descriptor = os.dup(descriptor)
    return descriptor


def _input(case: Case, room: Room) -> int | None:
    text = case.machine.stdin
    if text == "closed":
        return None
    if text is None or isinstance(text, str):
        return os.open(
            text or os.devnull, os.O_RDONLY | os.O_NONBLOCK * (text is not None and _is_fifo(text))
        )
    if case.machine.piped:
        reader, writer = os.pipe()
        os.write(writer, text)
        os.close(writer)
        return reader
    room.stdin.write_bytes(text)
    return os.open(room.stdin, os.O_RDONLY)


def _is_fifo(path: str) -> bool:
    return Path(path).is_fifo()


def _output(name: str | None, path: Path) -> int | None:
    if name == "closed":
        return None
    if name == "broken":
        reader, writer = os.pipe()
        os.close(reader)
        return writer
    return os.open(name or path, os.O_WRONLY | os.O_CREAT | os.O_APPEND * (name is None), 0o644)


def _root() -> str:
    return str(Path(__file__).resolve().parents[2])


def _members(group: int) -> list[str]:
    """Returns the command lines of the live processes of a group."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return []
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, _, number = (folder / "stat").read_text().rpartition(")")[2].split()[:3]
            if int(number) == group and state != "Z":
                found.append((folder / "cmdline").read_text().replace("\0", " "))
        except (OSError, ValueError):
            continue
    return found


def scratch(parent: Path, name: str) -> Path:
    """Creates an empty folder; replaces a folder of the same name."""
    folder = parent / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder
