"""The fork server: imports the modules of training once; the processes of a run are forked from it.

Each process would otherwise spend a second or two on these imports.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from glob import glob
from multiprocessing import forkserver, set_forkserver_preload, util

from nmt.config import TrainConfig
from nmt.errors import UserError
from nmt.runtime.machine import wanted_processes
from nmt.runtime.signals import start_resource_tracker, stop_signals_blocked

START_METHOD = "forkserver" if sys.platform == "linux" else "spawn"  # macOS does not like forks

_IMPORTS = "nmt.training.run"  # everything that the processes of a run need
_GPUS = "/dev/nvidia[0-9]*"
_LONGEST_FOLDER = 107 - len("/pymp-12345678/listener-12345678")  # in bytes, of a socket of multiprocessing


def start_ahead(config: TrainConfig) -> None:
    """Starts the fork server early, if the run will probably have several processes.

    The fork server then imports while this process imports, prepares data and checks options. The number of
    GPUs is guessed from the device files, because torch is not imported yet. After a wrong guess the fork
    server is unused, or `launch` starts it later.
    """
    processes = wanted_processes(config.training, len(glob(_GPUS)))
    if processes > 1 and not (config.prepare_only or config.find_rate) and "RANK" not in os.environ:
        start()


def start() -> None:
    """Starts the fork server unless it is running; does not wait until it is ready."""
    if START_METHOD == "forkserver":
        set_forkserver_preload([_IMPORTS])
        if not _environment:
            _environment.update(os.environ)
        start_resource_tracker()
        # `timeout`, systemd, Slurm and terminals send stop signals to all processes. The fork server must
        # outlive the processes that it forks, because it reports their exit statuses; it ends when no client
        # is left. They inherit the mask, and unblock the signals when they have their handlers.
        with stop_signals_blocked(), _folder_for_sockets():
            forkserver.ensure_running()


@contextmanager
def _folder_for_sockets() -> Iterator[None]:
    """Has multiprocessing choose /tmp for its socket if the temporary folder has too long a path for one."""
    folder = tempfile.gettempdir()
    if len(os.fsencode(folder)) > _LONGEST_FOLDER:
        tempfile.tempdir = "/tmp"
    try:
        util.get_temp_dir()  # multiprocessing keeps the folder that it makes
    except OSError as error:
        raise UserError(f"TMPDIR={folder}: the path is too long. Set TMPDIR to a shorter one.") from error
    finally:
        tempfile.tempdir = folder
    yield


def environment_since() -> dict[str, str | None]:
    """Returns the environment variables that changed since the fork server was started.

    A forked process applies them to its copy of the environment. None: the variable was removed.
    """
    if START_METHOD != "forkserver":
        return {}
    now = os.environ
    keys = {*_environment, *now}
    return {key: now.get(key) for key in keys if now.get(key) != _environment.get(key)}


_environment: dict[str, str] = {}
