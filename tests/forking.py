"""Commands in forks of a process that has imported everything: real processes that start in milliseconds.

The first command of a test session starts the process. A client is a tiny script in the place of the command:
it passes on its arguments, folder, environment and standard streams, forwards signals, and ends as the fork
ends.
"""

from __future__ import annotations

import array
import atexit
import gc
import io
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType

MODULES = {
    "nmt-train": "train",
    "nmt-translate": "translate",
    "nmt-eval": "evaluate",
    "nmt-export": "export",
    "nmt-import": "import_model",
    "nmt-serve": "serve",
}
"""Commands and their modules in `nmt.cli`."""

CLIENT = """
import array, json, os, select, signal, socket, sys
server = socket.socket(socket.AF_UNIX)
server.connect(sys.argv[1])
task = json.dumps([sys.argv[2:], os.getcwd(), dict(os.environ)]).encode()
streams = array.array("i", [0, 1, 2])
server.sendmsg([len(task).to_bytes(8, "big")], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, streams)])
server.sendall(task)
def number_of_line():
    line = b""
    while (byte := server.recv(1)) not in (b"\\n", b""):
        line += byte
    return int(line)
pid = number_of_line()
arrived, arriving = os.pipe()
os.set_blocking(arriving, False)
signal.set_wakeup_fd(arriving)  # the handler of a signal just before a call that waits would wait, too
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1):
    signal.signal(number, lambda number, frame: None)
while server not in select.select([server, arrived], [], [])[0]:
    for number in os.read(arrived, 64):
        os.kill(pid, number)
status = number_of_line()
if status < 0:
    signal.signal(-status, signal.SIG_DFL)
    os.kill(os.getpid(), -status)
os._exit(status)
"""


def forked_command(name: str, *arguments: str) -> list[str]:
    """Returns the command line that runs a command in a fork."""
    return [sys.executable, "-I", "-S", "-c", CLIENT, _server(), name, *arguments]


@cache
def _server() -> str:
    """Starts the process that forks, once; it ends with this one. Returns the path of its socket."""
    path = os.path.join(tempfile.mkdtemp(prefix="nmt-forks-"), "socket")
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(path)
    listening.listen(64)
    process = subprocess.Popen(
        [sys.executable, __file__, str(listening.fileno())],
        stdin=subprocess.PIPE,
        env=os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
        pass_fds=[listening.fileno()],
        start_new_session=True,
    )
    listening.close()
    atexit.register(_end, process, path)
    return path


def _end(process: subprocess.Popen[bytes], path: str) -> None:
    process.communicate()
    os.remove(path)
    os.rmdir(os.path.dirname(path))


def import_all() -> None:
    """Imports the modules that the commands import, so that forks have them; starts no thread."""
    for module in (
        *("numpy.ma", "numpy.random", "langcodes", "sacrebleu.significance"),
        *("tensorboard.compat", "torch.utils.tensorboard", "tensorboard.plugins.hparams.api_pb2"),
        "torch.fx.experimental.symbolic_shapes",  # of the first backward pass; with SymPy a third of a second
    ):
        import_module(module)
    for module in MODULES.values():
        import_module(f"nmt.cli.{module}")
    for name in ("nmt.training.run", "nmt.training.finish", "nmt.decoding.translator", "nmt.interop.tasks"):
        import_module(name)
    _compose_once()
    _read_templates()
    import torch

    from nmt.config import Precision
    from nmt.training.figures import meter

    torch.set_num_threads(1)
    meter.measured_ceiling = cache(meter.measured_ceiling)  # takes longer than most trainings of the tests
    meter.measured_ceiling(torch.device("cpu"), Precision.fp32)
    gc.collect()
    gc.freeze()  # a training collects garbage before it measures the free memory
    sys.stdout.flush()
    sys.stderr.flush()


def _compose_once() -> None:
    """Fills the caches of Hydra's parser, which take longer than most commands."""
    from nmt.config import EvalConfig, TrainConfig, TranslateConfig
    from nmt.options.arguments import Arguments
    from nmt.options.compose import compose_jobs

    overrides = ("seed=1", "training.precision=fp32", "data.tokenizer.user_symbols=['a b',c]")
    compose_jobs(TrainConfig, "train", Arguments(overrides))
    compose_jobs(TranslateConfig, "translate", Arguments(("model_dir=x", "decoding.beam_size=2")))
    compose_jobs(EvalConfig, "eval", Arguments(("hypotheses=x",)))


def _read_templates() -> None:
    """Compiles the templates of reports."""
    from nmt.data.preparation import report_page
    from nmt.reports import page

    for environment in (page._environment(), report_page._environment()):
        for name in environment.list_templates(extensions=["html"]):
            environment.get_template(name)


def run_command(name: str, *arguments: str) -> int:
    """Runs a command in this process as the interpreter would; returns its exit status."""
    from nmt.runtime.forks import forked_before_computing

    forked_before_computing()  # as a new process
    sys.argv = [name, *arguments]
    sys.modules["__main__"] = ModuleType("__main__")
    _standard_streams()
    return _interpreted(import_module(f"nmt.cli.{MODULES[name]}").main)


def _standard_streams() -> None:
    """Opens the streams of `sys` as the interpreter does at its start."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        stream: io.TextIOWrapper | None
        try:
            os.fstat(number)
            raw = io.FileIO(number, "rb" if number == 0 else "wb", closefd=False)
        except OSError:
            stream = None
        else:
            buffered = io.BufferedReader(raw) if number == 0 else io.BufferedWriter(raw)
            errors = "backslashreplace" if number == 2 else "strict"
            stream = io.TextIOWrapper(buffered, "utf-8", errors=errors, line_buffering=number == 2)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _interpreted(main: object) -> int:
    """Runs `main`, then the threads, exit handlers and flushes of the interpreter; returns the status."""
    status = 0
    try:
        main()  # type: ignore[operator]
    except SystemExit as exit:
        status = exit.code if isinstance(exit.code, int) else 0 if exit.code is None else 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
        status = 1
    try:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
    except BaseException:
        sys.excepthook(*sys.exc_info())
    try:
        if sys.stdout is not None and not sys.stdout.closed:
            sys.stdout.flush()
    except (OSError, ValueError) as error:
        os.write(2, f"Exception ignored in: stdout\n{error!r}\n".encode())
        status = 120
    if sys.stderr is not None:
        sys.stderr.flush()
    return status


def _serve(listening: socket.socket) -> None:
    """Forks for each client, until the process that started this one ends."""
    import_all()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no zombies
    while select.select([listening, 0], [], [])[0] == [listening]:
        client, _ = listening.accept()
        if os.fork() == 0:
            listening.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _watch(client)
        client.close()


def _watch(client: socket.socket) -> None:
    """Runs the command of a client in a fork, reports its end, and kills it if the client ends first."""
    streams = array.array("i", [0, 0, 0])
    head, [(_, _, descriptors)], *_ = client.recvmsg(8, socket.CMSG_SPACE(streams.itemsize * 3))
    streams.frombytes(descriptors)
    size, task = int.from_bytes(head, "big"), bytearray()
    while len(task) < size:
        task += client.recv(size - len(task))
    pid = os.fork()
    if pid == 0:
        client.close()
        _become(list(streams)[3:], *json.loads(task))
    for descriptor in [0, 1, 2, *streams[3:]]:
        os.close(descriptor)
    try:
        client.sendall(b"%d\n" % pid)
        process = os.pidfd_open(pid)
        if select.select([client, process], [], [])[0] == [client]:
            os.kill(pid, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        client.sendall(b"%d\n" % status)
    finally:
        os._exit(0)


def _become(streams: list[int], words: list[str], folder: str, environment: dict[str, str]) -> None:
    status = 1
    try:
        for number, descriptor in enumerate(streams):
            os.dup2(descriptor, number)
        os.closerange(3, 1024)
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        paths = environment.get("PYTHONPATH", "").split(os.pathsep)
        sys.path[:1] = ["", *filter(None, paths)]
        status = run_command(*words)
    finally:
        os._exit(status)


if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[1])
    _serve(socket.socket(fileno=int(sys.argv[1])))
