"""Triton kernels for the parts of a model between its matrix products; `nmt.model.gpu.products` calls them.

- `residual_norm`: LayerNorm(x + dropout(y + bias)), the end of a sub-layer with post-norm; both directions.
- `relu_backward_`: the gradient before a ReLU and its bias.
- `embed`: dropout(factor * embedding + position), the input of the first layer; both directions.

Each is one pass over the activations: the dropout mask is computed twice instead of stored. Sums over tokens
(the gradients of biases and norms) are computed per program, in a fixed order, and then added up.

All arithmetic is in fp32. This module needs Triton, so it is imported only where the kernels are used.

Shapes: N tokens, D d_model, F d_ff.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from nmt.model.gpu.kernel import operator

_PROGRAMS = 1056  # of the kernels that sum over tokens: eight for each multiprocessor of an H100


@operator(lambda *given: _results(*given[:5]))
def residual_norm(
    y: Tensor,
    bias: Tensor,
    x: Tensor,
    weight: Tensor,
    shift: Tensor,
    epsilon: float,
    rate: float,
    seed: Tensor,
    mask: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Computes LayerNorm(x + dropout(y + bias)).

    Args:
        y: (N, D), the product that ends a sub-layer, without its bias; contiguous.
        bias: (D,), its bias.
        x: (N, D), the input of the sub-layer; contiguous.
        weight: (D,), the gain of the norm.
        shift: (D,), the bias of the norm.
        epsilon: added to the variance.
        rate: probability that dropout zeroes a value.
        seed: (1,) int64, of the dropout mask.
        mask: the number of the mask, which depends on this and the seed alone.

    Returns:
        (N, D), the result; (N, D), the sum before the norm; both with the dtype of `x`. (N, 2) fp32, the mean
        and the inverse standard deviation of each token's sum. (N, D), the result with the dtype of `y`, for
        the next product; (0, D) if that is the dtype of `x`.
    """
    out, total, statistics, rounded = _results(y, bias, x, weight, shift)
    if len(x):
        block = _power_of_2(x.shape[1])
        _residual_norm[(len(x),)](
            *(y, bias, x, weight, shift, out, total, statistics, rounded),
            *(x.shape[1], epsilon, rate, 1 / (1 - rate), seed, mask),
            ROUNDS=len(rounded) > 0,
            BLOCK=block,
            num_warps=_warps(block),
        )
    return out, total, statistics, rounded


def _results(
    y: Tensor, bias: Tensor, x: Tensor, weight: Tensor, shift: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Checks the arguments of `residual_norm`, and allocates its results."""
    _check(
        x, y=(y, x.shape), bias=(bias, x.shape[1:]), weight=(weight, x.shape[1:]), shift=(shift, x.shape[1:])
    )
    rounded = torch.empty_like(y) if y.dtype is not x.dtype else y.new_empty(0, y.shape[1])
    return torch.empty_like(x), torch.empty_like(x), x.new_empty(len(x), 2, dtype=torch.float32), rounded


def _check(x: Tensor, **others: tuple[Tensor, tuple[int, ...]]) -> None:
    """Checks what a kernel can't: shapes, memory layout and devices.

    Each other tensor, by name, must have the shape that is given with it.
    """
    assert x.is_contiguous()
    for name, (tensor, shape) in others.items():
        assert tensor.shape == shape, f"{name}: the shape is {tuple(tensor.shape)}, not {tuple(shape)}"
        assert tensor.is_contiguous(), f"{name}: the values are not adjacent"
        assert tensor.device == x.device, f"{name}: the device is {tensor.device}, not {x.device}"


@operator(lambda *given: _gradients(*given[:5]))
def residual_norm_backward(
    grad: Tensor,
    total: Tensor,
    statistics: Tensor,
    weight: Tensor,
    y_dtype: torch.dtype,
    rate: float,
    seed: Tensor,
    mask: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """Computes the gradients of `residual_norm`.

    `grad`, (N, D), is the gradient of its result; contiguous. `total` and `statistics` are as it returned
    them, and the others as it received them; `y_dtype` is the dtype of `y`.

    Returns:
        The gradients of y, (N, D), and of x, (N, D); (P, 3, D) fp32, whose sums over the P programs are the
        gradients of `bias`, `weight` and `shift`.
    """
    grad_y, grad_x, sums = _gradients(grad, total, statistics, weight, y_dtype)
    if len(grad):
        block = _power_of_2(grad.shape[1])
        _residual_norm_backward[(len(sums),)](
            *(grad, total, statistics, weight, grad_y, grad_x, sums, len(grad), grad.shape[1]),
            *(rate, 1 / (1 - rate), seed, mask),
            BLOCK=block,
            num_warps=_warps(block),
        )
    return grad_y, grad_x, sums


def _gradients(
    grad: Tensor, total: Tensor, statistics: Tensor, weight: Tensor, y_dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    """Checks the arguments of `residual_norm_backward`, and allocates its results."""
    rows, width = grad.shape
    _check(grad, total=(total, (rows, width)), statistics=(statistics, (rows, 2)), weight=(weight, (width,)))
    sums = grad.new_empty(min(_PROGRAMS, rows), 3, width, dtype=torch.float32)
    return torch.empty_like(grad, dtype=y_dtype), torch.empty_like(grad), sums


@operator(lambda grad, out: _sums(grad, out), mutates=("grad",))
def relu_backward_(grad: Tensor, out: Tensor) -> Tensor:
    """Zeroes a gradient where the output of a ReLU is 0, and sums it over tokens.

    Args:
        grad: (N, F), the gradient of the output; it becomes the gradient of the input. Contiguous.
        out: (N, F), the output of the ReLU; contiguous.

    Returns:
        (P, F) fp32, whose sum over the P programs is the gradient of the bias of the input.
    """
    rows, width = grad.shape
    sums = _sums(grad, out)
    if rows:
        block = min(_power_of_2(width), 1024)
        grid = (len(sums), -(-width // block))
        _relu_backward[grid](grad, out, sums, rows, width, BLOCK=block, num_warps=4)
    return sums


def _sums(grad: Tensor, out: Tensor) -> Tensor:
    """Checks the arguments of `relu_backward_`, and allocates its result."""
    _check(grad, out=(out, grad.shape))
    return grad.new_empty(min(_PROGRAMS, len(grad)), grad.shape[1], dtype=torch.float32)


@operator(lambda *given: _embedded(*given[:4], *given[8:]))
def embed(
    weight: Tensor,
    ids: Tensor,
    table: Tensor,
    positions: Tensor,
    factor: float,
    rate: float,
    seed: Tensor,
    mask: int,
    dtype: torch.dtype,
    rounded_dtype: torch.dtype,
) -> tuple[Tensor, Tensor]:
    """Computes dropout(factor * weight[ids] + table[positions]).

    Args:
        weight: (V, D), the embeddings; contiguous.
        ids: (N,) int64.
        table: (L, D), the encodings of positions; contiguous.
        positions: (N,) int64.
        factor: on the embeddings.
        rate: see `residual_norm`.
        seed: see `residual_norm`.
        mask: see `residual_norm`.
        dtype: of the result.
        rounded_dtype: of the second result.

    Returns:
        (N, D), the result of `dtype`; the same of `rounded_dtype`, (0, D) if that is `dtype`.
    """
    out, rounded = _embedded(weight, ids, table, positions, dtype, rounded_dtype)
    if len(ids):
        block = _power_of_2(weight.shape[1])
        _embed[(len(ids),)](
            *(weight, ids, table, positions, out, rounded, weight.shape[1], factor, rate, 1 / (1 - rate)),
            *(seed, mask),
            ROUNDS=len(rounded) > 0,
            BLOCK=block,
            num_warps=_warps(block),
        )
    return out, rounded


def _embedded(
    weight: Tensor,
    ids: Tensor,
    table: Tensor,
    positions: Tensor,
    dtype: torch.dtype,
    rounded_dtype: torch.dtype,
) -> tuple[Tensor, Tensor]:
    """Checks the arguments of `embed`, and allocates its results."""
    width = weight.shape[1]
    _check(
        weight,
        table=(table, (len(table), width)),
        ids=(ids, ids.shape),
        positions=(positions, (len(ids),)),
    )
    rows = len(ids) if rounded_dtype is not dtype else 0
    return weight.new_empty(len(ids), width, dtype=dtype), weight.new_empty(rows, width, dtype=rounded_dtype)


@operator(lambda grad, *others: torch.empty_like(grad, dtype=torch.float32))
def embed_backward(grad: Tensor, factor: float, rate: float, seed: Tensor, mask: int) -> Tensor:
    """Computes the gradient of the rows of `weight` that `embed` has read.

    `grad`, (N, D), is the gradient of the result; contiguous. The others are as for `embed`.

    Returns:
        (N, D) fp32.
    """
    _check(grad)
    rows = torch.empty_like(grad, dtype=torch.float32)
    if len(grad):
        block = _power_of_2(grad.shape[1])
        _embed_backward[(len(grad),)](
            *(grad, rows, grad.shape[1], factor, rate, 1 / (1 - rate), seed, mask),
            BLOCK=block,
            num_warps=_warps(block),
        )
    return rows


def _power_of_2(width: int) -> int:
    """Returns the smallest power of 2 that is not below `width`; triton's function takes longer."""
    return 1 << (width - 1).bit_length()


def _warps(block: int) -> int:
    return 1 if block <= 256 else 4 if block <= 2048 else 8


# Triton compiles the functions below and accepts no annotations except constexpr.
@triton.jit
def _kept(row, rate, seed, mask, BLOCK: tl.constexpr):
    """Returns the dropout mask of a row, a function of seed, `mask` and `row`; false: the value is zeroed."""
    key = tl.load(seed) + mask.to(tl.int64) * 0x1E3779B97F4A7C15  # far apart for neighbouring numbers
    # One call of the generator gives four numbers, for values in an order that is always the same.
    offsets = row * (BLOCK // 4) + tl.arange(0, BLOCK // 4)
    a, b, c, d = tl.randint4x(key, offsets)
    random = tl.reshape(tl.join(tl.join(a, b), tl.join(c, d)), (BLOCK,))
    uniform = (random.to(tl.uint32) >> 8).to(tl.float32) * 5.9604644775390625e-08  # 2^-24: from [0, 1)
    return uniform >= rate


@triton.jit(do_not_specialize=["mask"])
def _residual_norm(
    y,
    bias,
    x,
    weight,
    shift,
    out,
    total,
    statistics,
    rounded,
    width,
    epsilon,
    rate,
    scale,
    seed,
    mask,
    ROUNDS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0)
    start = tl.cast(row, tl.int64) * width
    columns = tl.arange(0, BLOCK)
    inside = columns < width
    values = tl.load(y + start + columns, mask=inside, other=0.0).to(tl.float32)
    values += tl.load(bias + columns, mask=inside, other=0.0).to(tl.float32)
    if rate > 0:
        values = tl.where(_kept(row, rate, seed, mask, BLOCK), values * scale, 0.0)
    values += tl.load(x + start + columns, mask=inside, other=0.0).to(tl.float32)
    mean = tl.sum(values, 0) / width
    centred = tl.where(inside, values - mean, 0.0)
    deviation = 1.0 / tl.sqrt(tl.sum(centred * centred, 0) / width + epsilon)
    gain = tl.load(weight + columns, mask=inside, other=0.0).to(tl.float32)
    result = centred * deviation * gain + tl.load(shift + columns, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + start + columns, result.to(out.dtype.element_ty), mask=inside)
    if ROUNDS:
        tl.store(rounded + start + columns, result.to(rounded.dtype.element_ty), mask=inside)
    tl.store(total + start + columns, values.to(total.dtype.element_ty), mask=inside)
    tl.store(statistics + 2 * row, mean)
    tl.store(statistics + 2 * row + 1, deviation)


@triton.jit(do_not_specialize=["mask"])
def _residual_norm_backward(
    grad,
    total,
    statistics,
    weight,
    grad_y,
    grad_x,
    sums,
    rows,
    width,
    rate,
    scale,
    seed,
    mask,
    BLOCK: tl.constexpr,
):
    program = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    inside = columns < width
    gain = tl.load(weight + columns, mask=inside, other=0.0).to(tl.float32)
    of_bias = tl.zeros((BLOCK,), tl.float32)
    of_weight = tl.zeros((BLOCK,), tl.float32)
    of_shift = tl.zeros((BLOCK,), tl.float32)
    for row in range(program, rows, tl.num_programs(0)):
        start = tl.cast(row, tl.int64) * width
        outer = tl.load(grad + start + columns, mask=inside, other=0.0).to(tl.float32)
        values = tl.load(total + start + columns, mask=inside, other=0.0).to(tl.float32)
        mean, deviation = tl.load(statistics + 2 * row), tl.load(statistics + 2 * row + 1)
        normal = tl.where(inside, (values - mean) * deviation, 0.0)
        scaled = outer * gain
        along = tl.sum(scaled * normal, 0) / width
        inner = (scaled - tl.sum(scaled, 0) / width - normal * along) * deviation
        inner = tl.where(inside, inner, 0.0)
        tl.store(grad_x + start + columns, inner.to(grad_x.dtype.element_ty), mask=inside)
        if rate > 0:
            inner = tl.where(_kept(row, rate, seed, mask, BLOCK), inner * scale, 0.0)
        tl.store(grad_y + start + columns, inner.to(grad_y.dtype.element_ty), mask=inside)
        of_bias += inner
        of_weight += outer * normal
        of_shift += outer
    sums += program * 3 * width
    tl.store(sums + columns, of_bias, mask=inside)
    tl.store(sums + width + columns, of_weight, mask=inside)
    tl.store(sums + 2 * width + columns, of_shift, mask=inside)


@triton.jit
def _relu_backward(grad, out, sums, rows, width, BLOCK: tl.constexpr):
    program = tl.program_id(0)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < width
    total = tl.zeros((BLOCK,), tl.float32)
    for row in range(program, rows, tl.num_programs(0)):
        start = tl.cast(row, tl.int64) * width
        values = tl.load(grad + start + columns, mask=inside, other=0.0).to(tl.float32)
        is_positive = tl.load(out + start + columns, mask=inside, other=0.0).to(tl.float32) > 0
        values = tl.where(is_positive, values, 0.0)
        tl.store(grad + start + columns, values.to(grad.dtype.element_ty), mask=inside)
        total += values
    tl.store(sums + program * width + columns, total, mask=inside)


@triton.jit(do_not_specialize=["mask"])
def _embed(
    weight,
    ids,
    table,
    positions,
    out,
    rounded,
    width,
    factor,
    rate,
    scale,
    seed,
    mask,
    ROUNDS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    inside = columns < width
    piece, place = tl.load(ids + row), tl.load(positions + row)
    values = tl.load(weight + piece * width + columns, mask=inside, other=0.0).to(tl.float32) * factor
    values += tl.load(table + place * width + columns, mask=inside, other=0.0).to(tl.float32)
    if rate > 0:
        values = tl.where(_kept(row, rate, seed, mask, BLOCK), values * scale, 0.0)
    start = tl.cast(row, tl.int64) * width
    tl.store(out + start + columns, values.to(out.dtype.element_ty), mask=inside)
    if ROUNDS:
        tl.store(rounded + start + columns, values.to(rounded.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["mask"])
def _embed_backward(grad, rows, width, factor, rate, scale, seed, mask, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    inside = columns < width
    start = tl.cast(row, tl.int64) * width
    values = tl.load(grad + start + columns, mask=inside, other=0.0).to(tl.float32)
    if rate > 0:
        values = tl.where(_kept(row, rate, seed, mask, BLOCK), values * scale, 0.0)
    tl.store(rows + start + columns, values * factor, mask=inside)
