"""Triton kernels of the loss, for GPUs: the logits are read as they are, and their gradient replaces them.

`nmt.training.update.loss` has the plain version of the same arithmetic. This module needs Triton, so it is
imported only where the kernels are used. Each program handles one row of logits, or with R-Drop one row of
both passes. All arithmetic is in fp32.

With `loss_rows` of `training.unmeasured_kernels`, a row of `cross_entropy_` stays in registers if it is
short. A long one is read once more, from the cache: `_THREADS` bounds the rows that are in work at a time.
And a row of any multiple of 8 is read 16 bytes at a time.

Shapes: R rows of logits, V vocabulary size.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from nmt.model.gpu.kernel import operator, right

_BLOCK = 4096  # logits of a row that a program holds in registers at a time
_WARPS = 8
_LONGEST = 16384  # logits that a program of the cross-entropy can hold in registers

_THREADS = 1024  # of a program that reads a row twice. A multiprocessor has up to 2,048, so at most two rows


def replace_logits(
    loss_rows: bool,
    logits: Sequence[Tensor],
    ids: Tensor,
    figures: Tensor,
    peak: float,
    rdrop: float,
    scale: float,
) -> None:
    """Replaces the logits of each pass; see `nmt.model.backend.LossKernel` and `cross_entropy_`."""
    if rdrop:
        rdrop_(logits[0], logits[1], ids, figures, peak, rdrop / 4, scale, loss_rows)
    else:
        cross_entropy_(logits[0], ids, figures, peak, scale, loss_rows)


@cache
def runs(device: torch.device, loss_rows: bool) -> bool:
    """Whether the kernels run on a device, tried once with `cross_entropy_`."""

    def is_right() -> bool:
        logits = torch.zeros(2, 8, dtype=torch.float16, device=device)
        figures = torch.zeros(3, 2, device=device)
        cross_entropy_(logits, torch.tensor([3, -1], device=device), figures, 0.5, 8.0, loss_rows)
        exact = torch.tensor([[1.0, 1.0, 1.0, -3.0, 1.0, 1.0, 1.0, 1.0], [0.0] * 8], device=device)
        nll = figures.new_tensor([math.log(8), 0.0])
        return torch.equal(logits.float(), exact) and torch.allclose(figures[0], nll)

    return right("kernels of the loss", device, is_right)


@operator(lambda logits, ids, figures, *others: _check(ids, figures, logits), mutates=("logits", "figures"))
def cross_entropy_(
    logits: Tensor, ids: Tensor, figures: Tensor, peak: float, scale: float, loss_rows: bool = True
) -> None:
    """Replaces logits by `scale * (softmax(logits) - peak * onehot(ids))`.

    Args:
        logits: (R, V) bf16, fp16 or fp32; the values of a row are adjacent.
        ids: (R,) int64, the target of each row; contiguous. Below 0: the row has none, and gets zeros.
        figures: (3, R) fp32. Row 0 receives -log softmax(logits)[id], row 1 logits[id].
        peak: 1 - label smoothing.
        scale: the loss scale.
        loss_rows: whether the kernel of that name is used.
    """
    _check(ids, figures, logits)
    if len(logits):
        num_values, stride = logits.shape[1], logits.stride(0)
        constants, warps = sizes(num_values, loss_rows)
        unit = math.gcd(num_values, stride, 16) if loss_rows else 1
        _cross_entropy[(len(logits),)](
            *(logits, stride // unit, ids, figures, figures.stride(0), num_values // unit, peak, scale),
            **constants,
            UNIT=unit,
            num_warps=warps,
        )


@operator(
    lambda first, second, ids, figures, *others: _check(ids, figures, first, second),
    mutates=("first", "second", "figures"),
)
def rdrop_(
    first: Tensor,
    second: Tensor,
    ids: Tensor,
    figures: Tensor,
    peak: float,
    weight: float,
    scale: float,
    loss_rows: bool = True,
) -> None:
    """Replaces the logits of both passes by their gradients; `loss.training_loss` has the objective.

    `first` and `second`, (R, V), are the logits of the passes. Row 0 of `figures` receives the mean of both
    -log softmax(logits)[id], row 1 the mean of both logits[id], and row 2 the divergence times `weight`,
    which is a quarter of `training.rdrop`. The others are as for `cross_entropy_`.
    """
    _check(ids, figures, first, second)
    if len(first):
        num_values, strides = first.shape[1], (first.stride(0), second.stride(0))
        unit = math.gcd(num_values, *strides, 16) if loss_rows else 1
        _rdrop[(len(first),)](
            *(first, strides[0] // unit, second, strides[1] // unit, ids, figures, figures.stride(0)),
            *(num_values // unit, peak, weight, scale),
            BLOCK=_BLOCK,
            UNIT=unit,
            num_warps=_WARPS,
        )


def _check(ids: Tensor, figures: Tensor, *logits: Tensor) -> None:
    """Checks what a kernel can't: shapes, memory layout and devices."""
    for each in logits:
        assert each.shape == logits[0].shape and each.stride(1) == 1
        assert each.device == ids.device, f"the device of the targets is {ids.device}, not {each.device}"
    assert ids.shape == logits[0].shape[:1] and ids.dtype is torch.int64 and ids.is_contiguous()
    assert figures.shape == (3, len(ids)) and figures.dtype is torch.float32 and figures.stride(1) == 1
    assert figures.device == ids.device


def reads(num_pieces: int, loss_rows: bool) -> int:
    """Returns how often the cross-entropy reads a row of this many logits."""
    return 1 if loss_rows and num_pieces <= _LONGEST else 2


def sizes(num_pieces: int, loss_rows: bool) -> tuple[dict[str, Any], int]:
    """Returns constants of the cross-entropy for a row of this many logits, and its warps."""
    if not loss_rows:
        return {"BLOCK": _BLOCK, "WHOLE": False, "FIRST": "", "SECOND": ""}, _WARPS
    if reads(num_pieces, loss_rows) == 2:
        constants = {"BLOCK": 8 * _THREADS, "WHOLE": False, "FIRST": "evict_last", "SECOND": "evict_first"}
        return constants, _THREADS // 32
    block = max(256, 1 << (num_pieces - 1).bit_length())
    return {"BLOCK": block, "WHOLE": True, "FIRST": "", "SECOND": ""}, max(1, block // 1024)


# Triton compiles the functions below and accepts no annotations except constexpr.
@triton.jit
def _softmax_of_row(logits, num_values, BLOCK: tl.constexpr, EVICTION: tl.constexpr):
    """Returns the highest logit, and the logarithm of the sum of exp(logit - highest)."""
    highest = -float("inf")
    total = 0.0
    for start in range(0, num_values, BLOCK):
        places = start + tl.arange(0, BLOCK)
        mask = places < num_values
        values = tl.load(logits + places, mask=mask, other=-float("inf"), eviction_policy=EVICTION)
        highest, total = _added(highest, total, values.to(tl.float32))
    return highest, tl.log(total)


@triton.jit
def _added(highest, total, values):
    """Returns the highest logit and the sum of exponentials of a row, after some more of its logits."""
    higher = tl.maximum(highest, tl.max(values, 0))
    # While all logits are -inf, their differences would be NaN.
    base = tl.where(higher == -float("inf"), 0.0, higher)
    return higher, total * tl.exp(highest - base) + tl.sum(tl.exp(values - base), 0)


@triton.jit
def _cross_entropy(
    logits,
    row_units,
    ids,
    figures,
    figure_stride,
    num_units,
    peak,
    scale,
    BLOCK: tl.constexpr,
    WHOLE: tl.constexpr,
    FIRST: tl.constexpr,
    SECOND: tl.constexpr,
    UNIT: tl.constexpr,
):
    # Sizes in units: Triton itself notices only multiples of 16, and loads other rows value by value.
    num_values = num_units * UNIT
    row = tl.program_id(0).to(tl.int64)
    logits += row * row_units * UNIT
    target = tl.load(ids + row)
    has_target = target >= 0
    target_logit = tl.load(logits + target, mask=has_target, other=0.0).to(tl.float32)
    scale = tl.where(has_target, scale, 0.0)
    if WHOLE:
        places = tl.arange(0, BLOCK)
        inside = places < num_values
        values = tl.load(logits + places, mask=inside, other=-float("inf")).to(tl.float32)
        highest, total = _added(-float("inf"), 0.0, values)
        log_total = tl.log(total)
        _store_gradient(logits, places, inside, values, highest, log_total, target, peak, scale)
    else:
        highest, log_total = _softmax_of_row(logits, num_values, BLOCK, FIRST)
        for start in range(0, num_values, BLOCK):
            places = start + tl.arange(0, BLOCK)
            inside = places < num_values
            values = tl.load(logits + places, mask=inside, other=-float("inf"), eviction_policy=SECOND)
            values = values.to(tl.float32)
            _store_gradient(logits, places, inside, values, highest, log_total, target, peak, scale)
    tl.store(figures + row, tl.where(has_target, highest + log_total - target_logit, 0.0))
    tl.store(figures + figure_stride + row, target_logit)


@triton.jit
def _store_gradient(logits, places, inside, values, highest, log_total, target, peak, scale):
    """Replaces logits of a row by their gradient."""
    gradient = tl.exp(values - highest - log_total)
    gradient = tl.where(places == target, gradient - peak, gradient) * scale
    tl.store(logits + places, gradient.to(logits.dtype.element_ty), mask=inside)


@triton.jit
def _rdrop(
    first,
    first_units,
    second,
    second_units,
    ids,
    figures,
    figure_stride,
    num_units,
    peak,
    weight,
    scale,
    BLOCK: tl.constexpr,
    UNIT: tl.constexpr,
):
    num_values = num_units * UNIT  # as in `_cross_entropy`
    row = tl.program_id(0).to(tl.int64)
    first += row * first_units * UNIT
    second += row * second_units * UNIT
    target = tl.load(ids + row)
    target_a, target_b = tl.load(first + target).to(tl.float32), tl.load(second + target).to(tl.float32)
    highest_a, log_total_a = _softmax_of_row(first, num_values, BLOCK, "")
    highest_b, log_total_b = _softmax_of_row(second, num_values, BLOCK, "")
    nll = (highest_a + log_total_a - target_a) + (highest_b + log_total_b - target_b)
    tl.store(figures + row, nll / 2)
    tl.store(figures + figure_stride + row, (target_a + target_b) / 2)
    kl_a, kl_b = 0.0, 0.0  # the divergences, times `weight`
    for start in range(0, num_values, BLOCK):
        places = start + tl.arange(0, BLOCK)
        inside = places < num_values
        # Outside, both probabilities are 0 and their logarithms finite.
        log_p = tl.load(first + places, mask=inside, other=0.0).to(tl.float32) - highest_a - log_total_a
        log_q = tl.load(second + places, mask=inside, other=0.0).to(tl.float32) - highest_b - log_total_b
        difference = tl.where(inside, log_p - log_q, 0.0) * weight
        kl_a += tl.sum(tl.exp(log_p) * difference, 0)
        kl_b -= tl.sum(tl.exp(log_q) * difference, 0)
    tl.store(figures + 2 * figure_stride + row, kl_a + kl_b)
    for start in range(0, num_values, BLOCK):
        places = start + tl.arange(0, BLOCK)
        inside = places < num_values
        log_p = tl.load(first + places, mask=inside, other=0.0).to(tl.float32) - highest_a - log_total_a
        log_q = tl.load(second + places, mask=inside, other=0.0).to(tl.float32) - highest_b - log_total_b
        p, q = tl.exp(log_p), tl.exp(log_q)
        difference = (log_p - log_q) * weight
        onehot = tl.where(places == target, peak / 2, 0.0)
        gradient_a = p * (0.5 + weight - kl_a + difference) - weight * q - onehot
        gradient_b = q * (0.5 + weight - kl_b - difference) - weight * p - onehot
        tl.store(first + places, (gradient_a * scale).to(first.dtype.element_ty), mask=inside)
        tl.store(second + places, (gradient_b * scale).to(second.dtype.element_ty), mask=inside)
