"""Trial of a kernel: a build may lack it for the GPU at hand, or be unable to compile it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from nmt.data.batches.batching import Layout
from nmt.runtime import log


def failure(
    attend: Callable[[Tensor, Layout], Tensor], device: torch.device, dtype: torch.dtype, width: int
) -> str | None:
    """Tries a kernel for attention on a sentence of two tokens, with its gradient.

    Args:
        attend: causal self-attention: (N, 3, H, E) queries, keys and values, and their layout → (N, H, E).
        device: of the tensors.
        dtype: of the tensors.
        width: E.

    Returns:
        The reason why the kernel can't be used; None if it can.

    Raises:
        OutOfMemoryError: there is too little memory to try it.
    """

    def is_right() -> bool:
        layout = Layout.of([2]).to(device)
        qkv = torch.ones(2, 3, 1, width, dtype=dtype, device=device, requires_grad=True)
        out = attend(qkv, layout)
        (grad,) = torch.autograd.grad(out, qkv, torch.ones_like(out))
        # The first token sees itself, the second one both.
        return bool((out == 1).all()) and grad[:, 2, 0, 0].tolist() == [1.5, 0.5]

    with torch.autocast(device.type, enabled=False):
        return reason_of(is_right)


def right(name: str, place: object, is_right: Callable[[], bool]) -> bool:
    """Tries kernels and returns whether they run and are right; logs a warning if not.

    Args:
        name: of the kernels, such as "attention kernels".
        place: where they are tried, for the warning.
        is_right: see `reason_of`.
    """
    reason = reason_of(is_right)
    report(name, place, reason)
    return reason is None


def report(name: str, place: object, reason: str | None) -> None:
    """Logs a warning if there is a reason why kernels can't be used."""
    if reason is not None:
        log.warning(
            "the %s of nmt do not run on %s (%s). Those of torch are used instead, which are slower",
            *(name, place, reason),
        )


def reason_of(is_right: Callable[[], bool]) -> str | None:
    """Tries kernels; see `failure`.

    Args:
        is_right: computes something with gradients, and returns whether the results are right.
    """
    try:
        with torch.inference_mode(False), torch.enable_grad():
            right = is_right()
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # also Triton's own classes, and those of its compilers
        return (str(error) or type(error).__name__).partition("\n")[0]
    return None if right else "its results are wrong"
