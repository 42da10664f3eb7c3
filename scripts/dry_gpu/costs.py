"""What an operator costs on a GPU: launches, bytes moved and floating-point operations, from its operands.

Every operator is one launch that reads its inputs once and writes its outputs once, except for those in the
tables of this module, and for kernels of attention and of nmt, whose costs `declared_costs` lists.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from nmt.data.batches.batching import Batch

VIEWS = frozenset(
    "_reshape_alias _unsafe_view alias as_strided chunk detach device diagonal empty empty_like "
    "empty_strided expand is_same_size lift_fresh narrow new_empty new_empty_strided permute reshape resize_ "
    "select set_ slice split split_with_sizes squeeze t transpose unbind unsqueeze view view_as".split()
)
"""Operators that launch nothing: they return views or uninitialised memory."""

PRODUCTS = frozenset("mm addmm addmm_ _addmm_activation bmm baddbmm".split())
"""Matrix products."""

_FILLS = frozenset(
    "zero_ fill_ zeros zeros_like new_zeros full full_like new_full ones ones_like new_ones".split()
)
_GATHERS = frozenset("embedding index_select gather".split())
_SCATTERS = frozenset("scatter_add_ index_fill_".split())
_THREADS_OF_MULTIPROCESSOR = 2048
_TILE = 128  # rows and columns that the flash attention kernels compute at a time


@dataclass(frozen=True)
class Cost:
    """The cost of one call of an operator.

    Attributes:
        launches: number of kernels.
        bytes: bytes read and written.
        flops: floating-point operations of matrix products.
        inner: the inner size of the product, which limits its rate; 0: no product.
        half: whether the product has 16-bit operands.
        again: bytes, not in `bytes`, that are read once more while they are in the GPU's cache, if they fit.
        in_work: bytes that must be in the cache for that, for each multiprocessor.
    """

    launches: int = 1
    bytes: int = 0
    flops: int = 0
    inner: int = 0
    half: bool = False
    again: int = 0
    in_work: int = 0


@dataclass(frozen=True)
class Gpu:
    """A GPU in a roofline model: the time of a launch is that of its bytes or of its FLOPs, plus an overhead.

    Attributes:
        name: the product.
        bandwidth: bytes per second that kernels reach.
        narrow: FLOP/s of 16-bit products with an inner size of at most 512.
        wide: FLOP/s of other 16-bit products.
        fp32: FLOP/s of fp32 products.
        multiprocessors: their number.
        cache: bytes of the second-level cache, of which half is counted on.
        launch: seconds of one launch.
    """

    name: str
    bandwidth: float
    narrow: float
    wide: float
    fp32: float
    multiprocessors: int
    cache: float
    launch: float = 2.5e-6

    def seconds(self, cost: Cost) -> float:
        """Returns the time of an operator."""
        rate = self.fp32 if not cost.half else self.narrow if cost.inner <= 512 else self.wide
        is_cached = cost.in_work * self.multiprocessors <= self.cache / 2
        moved = cost.bytes if is_cached else cost.bytes + cost.again
        return max(moved / self.bandwidth, cost.flops / rate) + cost.launches * self.launch


GPUS = (
    # 85 % of the data sheet's bandwidth; half and 65 % of its 989 TFLOP/s; two thirds of its 67 in fp32.
    Gpu("H100", 0.85 * 3.35e12, 500e12, 640e12, 45e12, 132, 50e6),
    # The same shares of the data sheets: 312 TFLOP/s, 2.04 TB/s; 242 and 0.86; 125 and 0.60.
    Gpu("A100", 0.85 * 2.04e12, 158e12, 202e12, 13e12, 108, 40e6),
    Gpu("L40S", 0.85 * 0.86e12, 183e12, 234e12, 61e12, 142, 96e6),
    Gpu("A10G", 0.85 * 0.60e12, 63e12, 81e12, 21e12, 80, 6e6),
)
"""The GPUs of the ledger; the figures of the first are those that documents quote."""


def nbytes(x: Tensor) -> int:
    """Returns the size of a tensor in bytes; what `expand` repeats is there once."""
    sizes = [size for size, stride in zip(x.shape, x.stride(), strict=True) if stride]
    return (math.prod(sizes) if x.numel() else 0) * x.element_size()


def cost_of(name: str, args: Sequence[Any], kwargs: dict[str, Any], out: Any) -> Cost | None:
    """Returns the cost of a call of an operator of torch; None if it launches nothing on the GPU.

    Args:
        name: of the operator, without namespace and overload.
        args: its arguments.
        kwargs: its keyword arguments.
        out: its results.
    """
    inputs, outputs = tensors((args, {**kwargs, "out": None})), tensors(out)  # `out=` is written, not read
    if name in VIEWS or not any(x.device.type == "cuda" for x in inputs + outputs):
        return None
    if not any(x.numel() for x in outputs) and outputs:
        return None  # such as zeroing the padding where there is none
    flops, inner, half = _products(name, inputs)
    launches = _launches(name, args)
    return Cost(launches, _bytes(name, args, kwargs, inputs, outputs), flops, inner, half)


def attention_cost(pairs: int, q: Tensor, k: Tensor, *, backward: bool) -> Cost:
    """Returns the cost of flash attention.

    Args:
        pairs: pairs of query and key that the kernel computes, by `tiled_pairs`.
        q: (Nq, H, E), queries.
        k: (Nk, H, E), keys.
        backward: whether it is the backward pass, which computes five products instead of two.
    """
    flops = 2 * pairs * q.shape[1] * q.shape[2] * (5 if backward else 2)
    moved = (2 * nbytes(q) + 2 * nbytes(k)) * (2 if backward else 1)
    return Cost(3 if backward else 1, moved, flops, q.shape[2], half=True)


def flat_attention_cost(
    queries: Sequence[int], keys: Sequence[int], q: Tensor, k: Tensor, *, causal: bool, backward: bool
) -> Cost:
    """Returns the cost of `nmt.model.gpu.attention_kernels`, over the blocks that it computes.

    Args:
        queries: number of queries of each sentence.
        keys: number of keys of each sentence.
        q: (Nq, H, E), queries.
        k: (Nk, H, E), keys.
        causal: whether a query sees the keys up to its place.
        backward: whether it is the backward pass: two kernels, of three and of four products.
    """
    from nmt.model.gpu.attention_kernels import _BLOCK, _TILE

    def pairs(own: Sequence[int], other: Sequence[int], earlier: bool, later: bool) -> int:
        """Returns the pairs of the tiles of a stream with the blocks of the other one."""
        sentences = np.repeat(np.arange(len(own)), own)
        lengths = np.array(other, np.int64)
        ends = np.cumsum(lengths)
        begin, end = (ends - lengths)[sentences], ends[sentences]
        places = np.arange(len(sentences))
        begin, end = (places if later else begin), (places + 1 if earlier else end)
        starts = np.arange(0, len(places), _TILE)
        spans = np.maximum.reduceat(end, starts) - np.minimum.reduceat(begin, starts)
        return int((-(-spans // _BLOCK)).sum()) * _BLOCK * _TILE

    one = pairs(queries, keys, causal, False) * q.shape[1] * q.shape[2]
    if not backward:
        return Cost(1, 2 * nbytes(q) + 2 * nbytes(k), 2 * 2 * one, q.shape[2], half=True)
    other = pairs(keys, queries, False, causal) * q.shape[1] * q.shape[2]
    # Queries and gradients are read by both kernels, as are keys and values.
    moved = 6 * nbytes(q) + 6 * nbytes(k)
    return Cost(2, moved, 2 * (3 * one + 4 * other), q.shape[2], half=True)


def tiled_pairs(queries: Sequence[int], keys: Sequence[int], *, causal: bool) -> int:
    """Returns the pairs of query and key that flash attention computes: lengths are rounded up to tiles.

    Args:
        queries: number of queries of each sentence.
        keys: number of keys of each sentence.
        causal: whether tiles above the diagonal are left out.
    """
    total = 0
    for q, k in zip(queries, keys, strict=True):
        rows, columns = math.ceil(q / _TILE), math.ceil(k / _TILE)
        tiles = rows * (rows + 1) // 2 if causal else rows * columns
        total += tiles * _TILE * _TILE
    return total


def declared_costs(batch: Batch) -> Mapping[str, Callable[[tuple[Any, ...], Any], Cost]]:
    """Returns the costs of the kernels that torch has no formula for, for this batch.

    A kernel of attention sees the lengths only on the GPU, so they are taken from the batch.
    """
    from nmt.model.gpu.loss_kernels import reads, sizes  # a local import: it needs Triton

    source, target = batch.source.lengths, batch.target.lengths

    def pairs(num_queries: int, num_keys: int, causal: bool) -> int:
        if causal:
            return tiled_pairs(target, target, causal=True)
        return tiled_pairs(*sides(num_queries, num_keys), causal=False)

    def sides(num_queries: int, num_keys: int) -> tuple[Sequence[int], Sequence[int]]:
        # Sizes of source and target may be equal; then self-attention and cross-attention have the same cost.
        queries, keys = (target if size == sum(target) else source for size in (num_queries, num_keys))
        return queries, keys

    def forward(args: tuple[Any, ...], out: Any) -> Cost:
        q, k = args[0], args[1]
        return attention_cost(pairs(len(q), len(k), args[8]), q, k, backward=False)

    def backward(args: tuple[Any, ...], out: Any) -> Cost:
        q, k = args[1], args[2]
        return attention_cost(pairs(len(q), len(k), args[11]), q, k, backward=True)

    def flat(args: tuple[Any, ...], out: Any) -> Cost:
        q, k, causal = args[0], args[1], args[5]
        return flat_attention_cost(*sides(len(q), len(k)), q, k, causal=causal, backward=False)

    def flat_backward(args: tuple[Any, ...], out: Any) -> Cost:
        q, k, causal = args[3], args[4], args[10]
        return flat_attention_cost(*sides(len(q), len(k)), q, k, causal=causal, backward=True)

    def relu_product_cost(args: tuple[Any, ...], out: Any) -> Cost:
        grad, weight = args[:2]
        flops = 2 * grad.shape[0] * weight.numel()
        return Cost(1, sum(map(nbytes, (*args, *out))), flops, min(weight.shape), half=True)

    def embed(args: tuple[Any, ...], out: Any) -> Cost:
        # Of the weights, only the rows that are read are counted; all encodings fit into the cache.
        weight, ids, table = args[:3]
        rows = len(ids) + min(len(ids), len(table))
        return Cost(1, sum(map(nbytes, out)) + rows * nbytes(weight[:1]))

    def cross_entropy(args: tuple[Any, ...], out: Any) -> Cost:
        logits, loss_rows = args[0], args[5:] != (False,)  # torch leaves out a default
        again = nbytes(logits) * (reads(logits.shape[1], loss_rows) - 1)
        rows = _THREADS_OF_MULTIPROCESSOR // (32 * sizes(logits.shape[1], loss_rows)[1])
        return Cost(1, 2 * nbytes(logits), again=again, in_work=rows * nbytes(logits[:1]))

    def rdrop(args: tuple[Any, ...], out: Any) -> Cost:
        # Three reads of a row are counted, although all but the first may hit the cache.
        return Cost(1, sum(nbytes(logits) * 4 for logits in args[:2]))

    return {
        "flat_attention": flat,
        "flat_attention_backward": flat_backward,
        "_flash_attention_forward": forward,
        "_flash_attention_backward": backward,
        "embed": embed,
        "relu_product": relu_product_cost,
        "cross_entropy_": cross_entropy,
        "rdrop_": rdrop,
    }


def tensors(tree: Any) -> list[Tensor]:
    """Returns all tensors of nested lists, tuples and dictionaries."""
    return [x for x in tree_leaves(tree) if isinstance(x, Tensor)]


def _products(name: str, inputs: Sequence[Tensor]) -> tuple[int, int, bool]:
    """Returns FLOPs, inner size, and whether the operands have 16 bits."""
    if name not in PRODUCTS:
        return 0, 0, False
    dimensions = 3 if name in ("bmm", "baddbmm") else 2
    a, b = [x for x in inputs if x.dim() == dimensions][-2:]
    batch = a.shape[0] if a.dim() == 3 else 1
    flops = 2 * batch * a.shape[-2] * a.shape[-1] * b.shape[-1]
    # Either product of a linear layer's backward has a long inner dimension, but narrow operands.
    return flops, min(b.shape[-2:]), a.dtype in (torch.bfloat16, torch.float16)


def _launches(name: str, args: Sequence[Any]) -> int:
    """Returns the number of kernels: multi-tensor kernels take some dozens of tensors each."""
    if name.startswith(("_foreach", "_fused_adam")):
        lists = sum(isinstance(argument, list | tuple) for argument in args)
        at_a_time = {1: 110, 2: 64, 3: 48, 4: 36}.get(lists, 30)
        return math.ceil(len(args[0]) / at_a_time)
    return 1


def _bytes(
    name: str,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
) -> int:
    if name in _GATHERS:
        return 2 * sum(map(nbytes, outputs))
    if name in _SCATTERS:
        return 3 * min(nbytes(x) for x in inputs if x.dim())
    if name in _FILLS:
        return sum(map(nbytes, outputs))
    if name == "copy_":
        return nbytes(args[0]) + nbytes(args[1])
    if name.startswith("_fused_adam"):
        # Reads weight, gradient and two moments, and writes three of them; all if it scales the gradient.
        return (7 if kwargs.get("grad_scale") is None else 8) * sum(map(nbytes, tensors(args[0])))
    if name.startswith("_foreach"):
        return 2 * sum(map(nbytes, tensors(args[0])))
    distinct = {id(x): x for x in inputs if x.device.type == "cuda"}
    in_place = name.endswith("_") and not name.endswith("__")
    written = inputs[:1] if in_place else [x for x in outputs if x.device.type == "cuda"]
    return sum(map(nbytes, distinct.values())) + sum(map(nbytes, written))
