"""nmt as a guest in a program that imports it: the call, and the state of the process that it must restore.

A command has the process to itself and may change its settings. A guest shares them with its host: the
settings of torch, environment variables, the levels of loggers, and the garbage collector.
"""

from __future__ import annotations

import gc
import logging
import os
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from nmt.runtime.forks import is_forked, undivided
from nmt.runtime.machine import set_threads

_VARIABLES = (
    *("NMT_", "CUBLAS_", "CUDA_HOME", "KMP_", "PYTORCH_", "TORCH", "_TORCH", "TRITON_"),
    *("DISABLE_CUPTI", "TEARDOWN_CUPTI"),
)
"""Prefixes of the environment variables that nmt and torch set; other threads may set others."""
_LOGGERS = ("nmt", "torch.distributed.elastic", "torch.multiprocessing")


@dataclass(frozen=True)
class Guest:
    """A call from another program, which owns the signals, streams and child processes.

    Attributes:
        progress: whether to show progress bars.
        level: log level of the program. Processes that nmt starts use it for their log on standard error.
    """

    progress: bool = False
    level: int = logging.WARNING


def guest() -> Guest | None:
    """Returns the call that this thread serves; None in a command."""
    return _guest.get()


@contextmanager
def as_guest(call: Guest | None) -> Iterator[None]:
    """Makes this thread serve `call` in the body."""
    token = _guest.set(call)
    try:
        yield
    finally:
        _guest.reset(token)


_guest: ContextVar[Guest | None] = ContextVar("nmt_guest", default=None)


@contextmanager
def preserved_host_state(*, torch: bool) -> Iterator[None]:
    """Restores the state of the process after the body; with `torch`, also that of torch, imported first."""
    with ExitStack() as stack:
        stack.enter_context(_ENVIRONMENT.preserved())
        stack.enter_context(_LOGS.preserved())
        if torch:
            stack.enter_context(_RNG_STATES.preserved())
            stack.enter_context(torch_for_nmt())
        yield


@contextmanager
def torch_for_nmt(threads: int | None = None) -> Iterator[None]:
    """Gives torch the settings that nmt expects during the body, then restores those of the host.

    The garbage collector does not read the objects of the host during the body.

    Args:
        threads: CPU threads for operations of this thread; 0: one a core; None: the host's number.
    """
    import torch

    before = torch.get_num_threads()
    with ExitStack() as stack:
        stack.callback(torch.set_num_threads, before)
        stack.enter_context(_SETTINGS.preserved())
        stack.enter_context(_OBJECTS.preserved())
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        if torch.get_default_device().type != "cpu":
            stack.enter_context(torch.device("cpu"))
        for kind in ("cpu", "cuda"):
            if torch.is_autocast_enabled(kind):
                stack.enter_context(torch.autocast(kind, enabled=False))
        if threads is not None or is_forked():
            set_threads(threads or 0)
        yield


class _Shared:
    """A part of the state that all threads share: the first call saves it, and the last call restores it.

    `saved` saves the state, sets it for nmt if necessary, and restores it at the end of its body.
    """

    def __init__(self, saved: Callable[[], AbstractContextManager[None]]) -> None:
        self._saved, self._lock, self._stack = saved, threading.Lock(), ExitStack()
        self._threads: list[int] = []  # of the calls
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget_other_threads)

    @contextmanager
    def preserved(self) -> Iterator[None]:
        """Saves the state before the body and restores it afterwards."""
        thread = threading.get_ident()
        with undivided(), self._lock:
            if not self._threads:
                self._stack.enter_context(self._saved())
            self._threads.append(thread)
        try:
            yield
        finally:
            with undivided(), self._lock:
                self._threads.remove(thread)
                if not self._threads:
                    self._stack.close()

    def _forget_other_threads(self) -> None:
        """Restores the state in a forked process if only calls of threads that it lacks have changed it."""
        calls = [thread for thread in self._threads if thread == threading.get_ident()]
        if self._threads and not calls:
            self._stack.close()
        self._lock, self._threads = threading.Lock(), calls


@contextmanager
def _environment() -> Iterator[None]:
    before = _variables()
    yield
    for name in _variables().keys() - before.keys():
        os.environ.pop(name, None)
    os.environ.update(before)


def _variables() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith(_VARIABLES)}


@contextmanager
def _log_levels() -> Iterator[None]:
    levels = {name: logging.getLogger(name).level for name in _LOGGERS}
    yield
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


@contextmanager
def _rng_states() -> Iterator[None]:
    """Saves the states of the random number generators of torch, and of Python, which torch's agent uses."""
    import torch

    gpus: Any = torch.cuda
    seed, state, python_state = torch.initial_seed(), torch.get_rng_state(), random.getstate()
    on_gpus = gpus.get_rng_state_all() if gpus.is_initialized() else None
    yield
    random.setstate(python_state)
    torch.set_rng_state(state)
    if on_gpus is None:
        gpus.manual_seed_all(seed)  # their state before their first use
    else:
        gpus.set_rng_state_all(on_gpus)


@contextmanager
def _settings() -> Iterator[None]:
    import torch

    dtype = torch.get_default_dtype()
    deterministic = torch.are_deterministic_algorithms_enabled()
    warns = torch.is_deterministic_algorithms_warn_only_enabled()
    products: Any = getattr(torch.backends.mkldnn, "matmul", None)
    precision = getattr(products, "fp32_precision", None)
    torch.set_default_dtype(torch.float32)
    yield
    torch.set_default_dtype(dtype)
    if torch.are_deterministic_algorithms_enabled() != deterministic:  # the call imports many modules
        torch.use_deterministic_algorithms(deterministic, warn_only=warns)
    if precision is not None and products.fp32_precision != precision:
        products.fp32_precision = precision


@contextmanager
def _frozen_objects() -> Iterator[None]:
    """Hides all present objects from the garbage collector, unless the host has hidden some itself.

    With the modules of torch and the model loaded, a full collection takes a tenth of a second, and the
    results of a thousand lines can start one.
    """
    is_free = not gc.get_freeze_count()
    if is_free:
        gc.freeze()
    yield
    if is_free:
        gc.unfreeze()


_OBJECTS = _Shared(_frozen_objects)
_ENVIRONMENT, _LOGS = _Shared(_environment), _Shared(_log_levels)
_RNG_STATES, _SETTINGS = _Shared(_rng_states), _Shared(_settings)
