"""Trial of a kernel for attention: a build may lack it for the GPU at hand, or be unable to compile it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from nmt.data.batches.batching import Layout


def failure(
    attend: Callable[[Tensor, Layout], Tensor], device: torch.device, dtype: torch.dtype, width: int
) -> str | None:
    """Tries a kernel on a sentence of two tokens, with its gradient.

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
    layout = Layout.of([2]).to(device)
    try:
        with torch.inference_mode(False), torch.enable_grad(), torch.autocast(device.type, enabled=False):
            qkv = torch.ones(2, 3, 1, width, dtype=dtype, device=device, requires_grad=True)
            out = attend(qkv, layout)
            (grad,) = torch.autograd.grad(out, qkv, torch.ones_like(out))
        # The first token sees itself, the second one both.
        is_right = bool((out == 1).all()) and grad[:, 2, 0, 0].tolist() == [1.5, 0.5]
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # also Triton's own classes, and those of its compilers
        return (str(error) or type(error).__name__).partition("\n")[0]
    return None if is_right else "its results are wrong"
