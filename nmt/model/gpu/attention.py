"""Attention over flat batches on GPUs, without padding: the choice of it, and the flash attention of torch.

`nmt.model.gpu.triton_attention` has the faster kernels of nmt. As for flash attention,
`torch.nn.attention.varlen` calls the same operator. But in Python, once more for the gradient, and with a
kernel that fills a tensor which nothing reads. On an H100 that took 0.4 ms of the host per layer and update.

Shapes: N tokens of a stream, Nq of the queries and Nk of the keys; H heads, E width of a head.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

from nmt.model.attention import Attention, Pattern, Projected, Score, separated
from nmt.model.gpu.kernel import attends_right, failure, has_triton
from nmt.runtime.streams import log

HALF = (torch.bfloat16, torch.float16)
_WIDTHS = (16, 32, 64, 128)


def attention_without_padding(pattern: Pattern, device: torch.device, dtype: torch.dtype) -> Attention | None:
    """Returns the fastest attention without padding that computes a pattern; None if there is none."""
    if pattern.scale is None or pattern.acts_on_scores or not pattern.has_one_width:
        return None
    kind = triton_kind(device, dtype, pattern.width)
    if kind is not None:
        return kind(pattern)
    return FlashAttention(pattern) if supports_flash(device, dtype, pattern.width) else None


def triton_kind(
    device: torch.device, dtype: torch.dtype, width: int
) -> Callable[[Pattern], FlatAttention] | None:
    """Returns the attention with the kernels of nmt, if they run for heads of this width."""
    if dtype not in HALF or width not in _WIDTHS or not has_triton():
        return None
    from nmt.model.gpu.triton_attention import TritonAttention, runs  # a local import: it needs Triton

    usable = torch.cuda.get_device_capability(device) >= (8, 0) and runs(device, dtype, width)
    return TritonAttention if usable else None


def supports_flash(device: torch.device, dtype: torch.dtype, width: int) -> bool:
    """Whether the flash attention of torch runs for heads of this width."""
    return (
        dtype in HALF
        and width % 8 == 0
        and width <= 256
        and torch.cuda.get_device_capability(device) >= (8, 0)
        and flash_kernel() is not None
        and flash_runs(device, dtype, width)
    )


@cache
def flash_runs(device: torch.device, dtype: torch.dtype, width: int) -> bool:
    """Whether flash attention runs on this device for heads of this width, tried once.

    A build of torch may have the operator but not the kernel, or not for the GPU at hand. The memory probe
    tries it first, so that the warning comes before the first batch.
    """

    def attend(qkv: Tensor, pattern: Pattern) -> Tensor:
        q, k, v = qkv.unbind(1)
        return attend_flash(q, k, v, pattern)

    reason = failure(lambda: attends_right(attend, device, dtype, width))
    if reason is not None:
        log.warning(
            "this build of torch has no flash attention for %s with heads of %d on %s (%s). Attention pads "
            "the sentences of a batch instead, which is slower",
            *(f"{dtype}".removeprefix("torch."), width, device, reason),
        )
    return reason is None


class FlatAttention(Attention):
    """Attention that reads queries, keys and values of a batch without padding."""

    def __init__(self, pattern: Pattern) -> None:
        self.pattern = pattern

    def self_attend(self, qkv: Projected, score: Score, layer: int) -> Tensor:
        """See `Attention.self_attend`."""
        q, k, v = separated(qkv)
        return self.attend(*self.pattern.rotated(q, k), v).flatten(1)

    def cross_attend(self, q: Tensor, keys_values: Projected | None, score: Score, layer: int) -> Tensor:
        """See `Attention.cross_attend`."""
        k, v = separated(keys_values)
        return self.attend(q, k, v).flatten(1)

    @abstractmethod
    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Queries (Nq, H, E), keys and values (Nk, H, E) → (Nq, H, E)."""


class FlashAttention(FlatAttention):
    """The flash attention that is part of torch."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """See `FlatAttention.attend`."""
        return attend_flash(q, k, v, self.pattern)


def attend_flash(q: Tensor, k: Tensor, v: Tensor, pattern: Pattern) -> Tensor:
    """Queries (Nq, H, E), keys and values (Nk, H, E) → (Nq, H, E)."""
    attend = flash_kernel()
    assert attend is not None
    queries, keys, window = pattern.queries, pattern.keys, pattern.window
    before = -1 if window is None else window  # keys that a query sees; -1: all
    out: Tensor = attend(
        *(q, k, v, queries.cu_seqlens, keys.cu_seqlens, queries.max_len, keys.max_len),
        # dropout, causality without a window, a matrix for debugging
        *(0.0, pattern.causal and window is None, False),
        scale=pattern.scale,
        window_size_left=before,
        window_size_right=0 if pattern.causal else before,
    )[0]
    return out


@cache
def flash_kernel() -> Callable[..., Any] | None:
    """Returns the operator of the installed torch; None if it has none."""
    operator = getattr(torch.ops.aten, "_flash_attention_forward", None)
    return None if operator is None else operator.default
