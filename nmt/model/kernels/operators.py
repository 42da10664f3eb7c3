"""Registers kernels as operators of PyTorch: FakeTensors then know their results, and profiles their names.

`torch.library.custom_op` does that too. But each call of its operators passes through four more functions of
Python, for gradients and checks that kernels within an `autograd.Function` do not need. Over an update these
calls take longer than the kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

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
