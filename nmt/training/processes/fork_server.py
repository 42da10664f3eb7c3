"""The process that those of a run are forked from: what each would need a second or two to import, it has."""

from __future__ import annotations

import os
import sys
from glob import glob
from multiprocessing import forkserver, set_forkserver_preload

from nmt.config import TrainConfig
from nmt.runtime import start_resource_tracker, wanted_processes

START_METHOD = "forkserver" if sys.platform == "linux" else "spawn"  # macOS does not like forks

_IMPORTS = "nmt.training.processes.preload"
_GPUS = "/dev/nvidia[0-9]*"


def start_ahead(config: TrainConfig) -> None:
    """Starts it, if the run will most likely be one of several processes.

    It then imports while this process imports too, prepares and checks. Without torch, which knows, it can
    only be guessed how many GPUs there are: if wrongly, one is started in vain, or by `launch`, and later.
    """
    processes = wanted_processes(config.training, len(glob(_GPUS)))
    if processes > 1 and not config.prepare_only and "RANK" not in os.environ:
        start()


def start() -> None:
    """Starts it, unless it runs, and does not wait until it is ready."""
    if START_METHOD == "forkserver":
        set_forkserver_preload([_IMPORTS])
        if not _environment:
            _environment.update(os.environ)
        start_resource_tracker()
        forkserver.ensure_running()


def environment_since() -> dict[str, str | None]:
    """What has changed in the environment since it was started, for what is forked now; None: it is gone."""
    if START_METHOD != "forkserver":
        return {}
    now = os.environ
    keys = {*_environment, *now}
    return {key: now.get(key) for key in keys if now.get(key) != _environment.get(key)}


_environment: dict[str, str] = {}
