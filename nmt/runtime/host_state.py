"""The state of a process that imports nmt, saved before a call and put back after it.

A command has a process to itself and sets what it needs. A guest shares these settings with its host:
those of torch, environment variables, and the levels of loggers.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from nmt.runtime.machine import set_threads

_VARIABLES = (
    *("NMT_", "CUBLAS_", "CUDA_HOME", "KMP_", "TORCH", "_TORCH", "TRITON_"),
    *("DISABLE_CUPTI", "TEARDOWN_CUPTI"),
)
"""Beginnings of the environment variables that nmt and torch set; another thread may set others meanwhile."""
_LOGGERS = ("nmt", "torch.distributed.elastic")

Restore = Callable[[], object]


@contextmanager
def host_state_kept(*, torch: bool) -> Iterator[None]:
    """Within, nmt may change the state of the process; afterwards it is what it was.

    Args:
        torch: whether torch is needed; it is imported then, and its state is saved too.
    """
    with ExitStack() as stack:
        stack.enter_context(_ENVIRONMENT.kept())
        stack.enter_context(_LOGS.kept())
        if torch:
            stack.enter_context(_NUMBERS.kept())
            stack.enter_context(torch_for_nmt())
        yield


@contextmanager
def torch_for_nmt(threads: int | None = None) -> Iterator[None]:
    """Within, torch has the settings that nmt expects, whatever its host has set; afterwards the host's.

    Args:
        threads: CPU threads of this thread's operations; 0: one a core; None: the host's number.
    """
    import torch

    before = torch.get_num_threads()
    with ExitStack() as stack:
        stack.callback(torch.set_num_threads, before)
        stack.enter_context(_SETTINGS.kept())
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        if torch.get_default_device().type != "cpu":
            stack.enter_context(torch.device("cpu"))
        for kind in ("cpu", "cuda"):
            if torch.is_autocast_enabled(kind):
                stack.enter_context(torch.autocast(kind, enabled=False))
        if threads is not None:
            set_threads(threads)
        yield


class _Shared:
    """A part of the state that all threads share: the first call saves it, and the last one puts it back.

    Args:
        save: saves it, sets it for nmt where that is needed, and returns what puts it back.
    """

    def __init__(self, save: Callable[[], Restore]) -> None:
        self._save = save
        self._lock = threading.Lock()
        self._calls = 0
        self._restore: Restore = lambda: None

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Within, it may change."""
        with self._lock:
            if not self._calls:
                self._restore = self._save()
            self._calls += 1
        try:
            yield
        finally:
            with self._lock:
                self._calls -= 1
                if not self._calls:
                    self._restore()


def _environment() -> Restore:
    before = _variables()

    def restore() -> None:
        for name in _variables().keys() - before.keys():
            os.environ.pop(name, None)
        os.environ.update(before)

    return restore


def _variables() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith(_VARIABLES)}


def _logs() -> Restore:
    levels = {name: logging.getLogger(name).level for name in _LOGGERS}

    def restore() -> None:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)

    return restore


def _numbers() -> Restore:
    """The states of torch's random number generators."""
    import torch

    gpus: Any = torch.cuda
    seed, state = torch.initial_seed(), torch.get_rng_state()
    on_gpus = gpus.get_rng_state_all() if gpus.is_initialized() else None

    def restore() -> None:
        torch.set_rng_state(state)
        if on_gpus is None:
            gpus.manual_seed_all(seed)  # what they had before their first use
        else:
            gpus.set_rng_state_all(on_gpus)

    return restore


def _settings() -> Restore:
    """The default type, determinism, and how fp32 products are computed."""
    import torch

    dtype = torch.get_default_dtype()
    deterministic = torch.are_deterministic_algorithms_enabled()
    warns = torch.is_deterministic_algorithms_warn_only_enabled()
    products: Any = getattr(torch.backends.mkldnn, "matmul", None)
    precision = getattr(products, "fp32_precision", None)
    torch.set_default_dtype(torch.float32)

    def restore() -> None:
        torch.set_default_dtype(dtype)
        if torch.are_deterministic_algorithms_enabled() != deterministic:  # it imports much
            torch.use_deterministic_algorithms(deterministic, warn_only=warns)
        if precision is not None and products.fp32_precision != precision:
            products.fp32_precision = precision

    return restore


_ENVIRONMENT, _LOGS = _Shared(_environment), _Shared(_logs)
_NUMBERS, _SETTINGS = _Shared(_numbers), _Shared(_settings)
