"""A Triton kernel for the gradient before a ReLU; `nmt.model.gpu.products` calls it.

The gradient of the hidden layer of a feed-forward network is a product whose values are then zeroed where the
ReLU returned 0, and summed over tokens for the bias. As separate kernels, the second one reads the gradient,
the hidden layer and writes the gradient again, which takes longer than the product. Here a tile of the
product is zeroed and summed before it is stored.

This module needs Triton, so it is imported only where the kernel is used.

Shapes: N tokens, D d_model, F d_ff.
"""

from __future__ import annotations

import math
from functools import cache

import torch
import triton
import triton.language as tl
from torch import Tensor

from nmt.model.gpu.kernel import operator, right

_ROWS, _COLUMNS = 128, 128  # of a tile of the product
_GROUP = 8  # rows of tiles that are computed together, so that they find `weight` in the cache
_WARPS = 4
_UNIT = 8  # D and F must be multiples of it, so that 16 bytes can be loaded at a time


@operator(lambda *given: _results(*given))
def relu_product(grad: Tensor, weight: Tensor, out: Tensor) -> tuple[Tensor, Tensor]:
    """Computes `grad @ weight` where `out` is not 0, and 0 elsewhere.

    Args:
        grad: (N, D), the gradient of the product that reads the hidden layer; contiguous.
        weight: (D, F), its weights; contiguous.
        out: (N, F), the hidden layer, results of a ReLU; contiguous.

    Returns:
        (N, F), the gradient before the ReLU. (P, F) fp32, whose sum over P parts of the tokens is the
        gradient of the bias before the ReLU.
    """
    found, sums = _results(grad, weight, out)
    if len(out):
        width, inner = out.shape[1], grad.shape[1]
        unit = math.gcd(width, inner, 16)
        part, stages = parts_and_stages(_capability(out.device))
        _relu_product[(len(sums) * -(-width // _COLUMNS),)](
            *(grad, weight, out, found, sums, len(out), width // unit, inner // unit),
            ROWS=_ROWS,
            COLUMNS=_COLUMNS,
            INNER=part,
            GROUP=_GROUP,
            UNIT=unit,
            num_warps=_WARPS,
            num_stages=stages,
        )
    return found, sums


def supports(weight: Tensor) -> bool:
    """Whether the kernel is fast for a weight, (D, F)."""
    return all(size % _UNIT == 0 for size in weight.shape)


@cache
def _capability(device: torch.device) -> tuple[int, int]:
    """Returns the compute capability of a GPU; (0, 0) on the CPU, where Triton's interpreter runs."""
    return torch.cuda.get_device_capability(device) if device.type == "cuda" else (0, 0)


def parts_and_stages(capability: tuple[int, int]) -> tuple[int, int]:
    """Returns how many of D a tile sums at a time, and how many of these parts are in work.

    A multiprocessor then has room for two tiles, one of which computes while the other one reads and writes.
    That takes 196 KB of shared memory on GPUs of data centres; others have 100 KB.
    """
    return (64, 3) if capability in ((8, 0), (9, 0), (10, 0), (10, 3)) else (32, 4)


def _results(grad: Tensor, weight: Tensor, out: Tensor) -> tuple[Tensor, Tensor]:
    """Checks the arguments of `relu_product`, and allocates its results."""
    rows, width = out.shape
    assert grad.shape == (rows, len(weight)) and weight.shape == (len(weight), width)
    assert grad.is_contiguous() and weight.is_contiguous() and out.is_contiguous()
    assert grad.dtype is weight.dtype is out.dtype
    return torch.empty_like(out), out.new_empty(-(-rows // _ROWS), width, dtype=torch.float32)


@cache
def runs(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether the kernel is used on this device: tried once, unless Triton has no fast products there."""

    def is_right() -> bool:
        # Sizes like those of models, multiples of 256, and of 16 for tokens: what Triton compiles for them is
        # used later. Integers up to 64, so that all sums are exact.
        places = torch.arange(256, device=device)
        tokens = places[:144, None]
        grad = ((tokens * places % 3 - 1) * ((tokens + places) % 8 == 0)).to(dtype)
        weight = (places[:, None] * places % 5 - 2).to(dtype)
        out = (tokens * places % 2).to(dtype)
        found, sums = relu_product(grad, weight, out)
        exact = grad.float() @ weight.float() * out.float()
        return torch.equal(found.float(), exact) and torch.equal(sums.sum(0), exact.sum(0))

    if device.type == "cuda" and _capability(device) < (8, 0):
        return False
    return right("kernels for ReLU", device, is_right)


# Triton compiles this function and accepts no annotations except constexpr.
@triton.jit
def _relu_product(
    grad,
    weight,
    out,
    found,
    sums,
    num_rows,
    column_units,
    inner_units,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    INNER: tl.constexpr,
    GROUP: tl.constexpr,
    UNIT: tl.constexpr,
):
    # Sizes in units: Triton itself notices only multiples of 16, and loads other rows value by value.
    num_columns, num_inner = column_units * UNIT, inner_units * UNIT
    row_tiles, column_tiles = tl.cdiv(num_rows, ROWS), tl.cdiv(num_columns, COLUMNS)
    program = tl.program_id(0)
    first = program // (GROUP * column_tiles) * GROUP
    group = tl.minimum(row_tiles - first, GROUP)
    within = program % (GROUP * column_tiles)
    row_tile, column_tile = first + within % group, within // group

    rows = row_tile * ROWS + tl.arange(0, ROWS)
    columns = column_tile * COLUMNS + tl.arange(0, COLUMNS)
    inner = tl.arange(0, INNER)
    has_row, has_column = (rows < num_rows)[:, None], (columns < num_columns)[None, :]
    row_places = rows.to(tl.int64)[:, None]
    grads = grad + row_places * num_inner + inner[None, :]
    weights = weight + inner[:, None] * num_columns + columns[None, :]
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for start in range(0, num_inner, INNER):
        is_inner = inner < num_inner - start
        a = tl.load(grads, mask=has_row & is_inner[None, :], other=0.0)
        b = tl.load(weights, mask=has_column & is_inner[:, None], other=0.0)
        total = tl.dot(a, b, total)
        grads += INNER
        weights += INNER * num_columns
    places = row_places * num_columns + columns[None, :]
    inside = has_row & has_column
    is_positive = tl.load(out + places, mask=inside, other=0.0).to(tl.float32) > 0
    total = tl.where(is_positive, total, 0.0)
    tl.store(found + places, total.to(found.dtype.element_ty), mask=inside)
    tl.store(sums + row_tile * num_columns + columns, tl.sum(total, 0), mask=columns < num_columns)
