"""`nmt.train`: trains a model and returns its results."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from nmt.api.session import Folder, LaunchFailed, arguments_of, session
from nmt.config import TrainConfig
from nmt.errors import UserError
from nmt.options.compose import compose_jobs
from nmt.runtime.machine import default_freed_memory
from nmt.runtime.plugins import load_plugins
from nmt.runtime.signals import Terminated

if TYPE_CHECKING:
    from nmt.training.run import TrainResult


def train(
    overrides: Sequence[str] = (), *, config_dir: Folder | None = None, progress: bool = False
) -> TrainResult:
    """Trains a model as `nmt-train` does with the same overrides; resumes a run that has stopped.

    Ctrl-C in the main thread saves the state after the current update and raises KeyboardInterrupt. A second
    Ctrl-C raises it at once. Only one training runs at a time: a call from another thread waits. In a daemon
    thread, the end of the program saves the state, too.

    Args:
        overrides: options, each `key=value` as on the command line; by default those of the quickstart.
        config_dir: a folder with your YAML files, as for `--config-dir`.
        progress: whether to show progress bars on standard error.

    Returns:
        The folders of the run and of the model, and the content of `results.json`.

    Raises:
        UserError: the options, the data, the folder or the machine do not allow the training.
        KeyboardInterrupt: after Ctrl-C; the same call resumes the run.
        RuntimeError: a training process failed because of a bug; the log has its traceback.
    """
    arguments = arguments_of(overrides, config_dir, "nmt.train")
    with _TRAINING, session(progress=progress):
        # They import torch, for which `import nmt` and the errors of its arguments do not wait.
        from nmt.training.processes.environments import launched
        from nmt.training.processes.stopping import Stopped
        from nmt.training.run import run

        if launched():
            raise UserError("nmt.train: does not run under torchrun. Use nmt-train there.")
        (config,) = compose_jobs(TrainConfig, "train", arguments)
        load_plugins(config.plugins)
        try:
            result = run(config)
        except (Stopped, Terminated):
            if threading.current_thread() is threading.main_thread():
                raise KeyboardInterrupt from None
            raise  # at the end of the program: this thread ends without a message
        except SystemExit as error:
            raise LaunchFailed("a training process failed; the log has its traceback") from error
        finally:
            default_freed_memory()
        assert result is not None, "only other ranks of torchrun have no result"
        return result


_TRAINING = threading.RLock()


def _forget_other_threads() -> None:
    """Replaces the lock in a forked process, which lacks the thread that may hold it."""
    global _TRAINING
    _TRAINING = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_other_threads)
