"""What all Triton kernels need: to be operators of PyTorch, and to be tried on a GPU before they are used.

As operators, FakeTensors know their results, and profiles their names. `torch.library.custom_op` does that
too. But each call of its operators passes through four more functions of Python, for gradients and checks
that kernels within an `autograd.Function` do not need. Over an update these calls take longer than the
kernels.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from nmt.data.batches.batching import Layout
from nmt.model.attention import Pattern
from nmt.runtime.streams import log

_Function = TypeVar("_Function", bound=Callable[..., Any])
_LIBRARY: Any = torch.library.Library("nmt", "FRAGMENT")  # type: ignore[no-untyped-call]


def operator(fake: Callable[..., Any], *, mutates: Sequence[str] = ()) -> Callable[[_Function], _Function]:
    """Makes a function the operator `nmt::NAME` of all devices, without a gradient.

    Its first argument must be a tensor; it runs with the GPU of that tensor as the current one.

    Args:
        fake: takes the same arguments, and returns tensors with the shapes and dtypes of the results; their
            values are not used.
        mutates: names of the arguments that the function overwrites.

    Returns:
        A decorator. Its result has the signature of the function, whose annotations are the schema.
    """

    def register(function: _Function) -> _Function:
        name = function.__name__
        schema = torch.library.infer_schema(function, mutates_args=mutates)

        def on_its_device(first: Tensor, *others: Any) -> Any:
            # Triton launches a kernel on the current GPU, wherever the tensors are.
            device = first.device
            if device.type != "cuda" or device.index == torch.cuda.current_device():
                return function(first, *others)
            with torch.cuda.device(device):
                return function(first, *others)

        _LIBRARY.define(f"{name}{schema}")
        _LIBRARY.impl(name, on_its_device, "CompositeExplicitAutograd")
        torch.library.register_fake(f"nmt::{name}", fake)
        return cast(_Function, getattr(torch.ops.nmt, name).default)

    return register


@cache
def has_triton() -> bool:
    """Whether Triton is installed; the modules of kernels need it."""
    return find_spec("triton") is not None


def attends_right(
    attend: Callable[[Tensor, Pattern], Tensor], device: torch.device, dtype: torch.dtype, width: int
) -> bool:
    """Whether a kernel computes the attention of a sentence of two tokens, with its gradient.

    `attend` maps queries, keys and values, (N, 3, 1, width), to (N, 1, width).
    """
    layout = Layout.of([2]).to(device)
    qkv = torch.ones(2, 3, 1, width, dtype=dtype, device=device, requires_grad=True)
    with torch.autocast(device.type, enabled=False):
        out = attend(qkv, Pattern(layout, layout, 1, width, 1 / width**0.5, causal=True))
        (grad,) = torch.autograd.grad(out, qkv, torch.ones_like(out))
    # The first token sees itself, the second one both.
    return bool((out == 1).all()) and grad[:, 2, 0, 0].tolist() == [1.5, 0.5]


def right(name: str, place: object, is_right: Callable[[], bool]) -> bool:
    """Tries kernels and returns whether they run and are right; logs a warning if not.

    `place` is where they are tried, for the warning. For `is_right` see `failure`.
    """
    reason = failure(is_right)
    if reason is not None:
        log.warning(
            "the %s of nmt do not run on %s (%s). Those of torch are used instead, which are slower",
            *(name, place, reason),
        )
    return reason is None


def failure(is_right: Callable[[], bool]) -> str | None:
    """Tries kernels, and returns the reason why they can't be used; None if they can.

    `is_right` computes something with gradients, and returns whether the results are right.

    Raises:
        OutOfMemoryError: there is too little memory to try them.
    """
    choose_kernel_cache()
    try:
        with torch.inference_mode(False), torch.enable_grad():
            right = is_right()
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # also Triton's own classes, and those of its compilers
        return (str(error) or type(error).__name__).partition("\n")[0]
    return None if right else "its results are wrong"


@cache
def choose_kernel_cache() -> None:
    """Chooses the folder of compiled kernels if Triton can't use its default, `~/.triton`.

    It is in `NMT_CACHE`, or else a temporary folder of this process. Without a home folder, Triton would
    create a folder named `~`.
    """
    if "TRITON_CACHE_DIR" in os.environ or "TRITON_HOME" in os.environ:
        return
    home = Path(os.path.expanduser("~"))
    folder = home / ".triton"
    if home.is_absolute() and os.access(folder if folder.exists() else home, os.W_OK | os.X_OK):
        return
    chosen = os.environ.get("NMT_CACHE")
    if not chosen:
        chosen = tempfile.mkdtemp(prefix="nmt-kernels-")
        atexit.register(shutil.rmtree, chosen, ignore_errors=True)
    os.environ["TRITON_CACHE_DIR"] = os.path.join(chosen, "triton")
