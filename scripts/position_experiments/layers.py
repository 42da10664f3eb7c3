"""Table 1 of the paper: time and memory of one layer, and the length of the path between distant tokens."""

from __future__ import annotations

import bisect
import math
import multiprocessing
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from nmt.config import ModelConfig
from nmt.data.batches.batching import Layout
from nmt.model.attention import Pattern, build_score
from nmt.model.backend import Backend
from nmt.model.packed import Packing
from nmt.model.recurrent import BidirectionalLayer, Cell
from position_experiments.convolution import Convolution
from position_experiments.experiment import Experiment, Place, Result

LENGTHS = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
WIDTHS = (64, 256, 512)
WINDOW, KERNEL = 32, 3
HEAD_WIDTH = 64
KINDS = ("self-attention", "restricted", "recurrent", "convolutional")
SCORES = ("scaled_dot", "additive")
"""Kinds of layers with one head of this score."""
KEY_WIDTHS = (16, 64, 256)
"""Their widths."""
_SECONDS, _FEWEST = 0.5, 5


class Attention(nn.Module):
    """Self-attention without its projections, as the paper counts it: products, softmax, products."""

    def __init__(self, d_model: int, window: int | None, heads: int, score: str = "scaled_dot") -> None:
        super().__init__()
        self.heads, self.window = heads, window
        self.score = build_score(ModelConfig(d_model=d_model, heads=heads, attention=score))

    def forward(self, x: Tensor, layout: Layout) -> Tensor:
        """(N, D) → (N, D)."""
        width = x.shape[1] // self.heads
        pattern = Pattern(layout, layout, self.heads, width, self.score.scale, window=self.window)
        qkv = x[:, None].expand(-1, 3, -1).reshape(len(x), 3, self.heads, -1)
        attention = Backend(x.device).attention(pattern, x.dtype)
        return attention.self_attend(qkv, self.score, 0)


class Recurrence(nn.Module):
    """A bidirectional GRU, the layer of the recurrent encoder."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.layer = BidirectionalLayer(Cell.gru, d_model, None)

    def forward(self, x: Tensor, layout: Layout) -> Tensor:
        """(N, D) → (N, D)."""
        packing = Packing.of(layout)
        return packing.flat(self.layer(packing.packed(x), packing.batch_sizes))


def layer(kind: str, d_model: int, dilation: int = 1) -> nn.Module:
    """Builds a layer; `dilation` is that of the convolution of the kind `dilated`."""
    torch.manual_seed(1)
    if kind == "recurrent":
        return Recurrence(d_model)
    if kind == "convolutional":
        return Convolution(d_model, KERNEL)
    if kind == "dilated":
        return Convolution(d_model, KERNEL, dilation)
    if kind in SCORES:
        return Attention(d_model, None, 1, kind)
    return Attention(d_model, WINDOW if kind == "restricted" else None, d_model // HEAD_WIDTH)


def experiments() -> list[Experiment]:
    """Returns the experiments of the parts `layers` and `scores`."""
    timed = [_timed("layers", kind, width, LENGTHS) for kind in KINDS for width in WIDTHS]
    timed += [_timed("scores", kind, width, (64, 256, 512)) for kind in SCORES for width in KEY_WIDTHS]
    return [*timed, Experiment("layers-path", "layers", _paths, 0.5, {"kind": "path"})]


def _timed(part: str, kind: str, width: int, lengths: Sequence[int]) -> Experiment:
    facts = {"kind": kind, "width": width}
    measure, minutes = _timing(kind, width, lengths), 0.4 * len(lengths) / len(LENGTHS)
    return Experiment(f"{part}-{kind}-{width}", part, measure, minutes, facts, alone=True)


def _timing(kind: str, width: int, lengths: Sequence[int]) -> Callable[[Place], Result]:
    def measure(place: Place) -> Result:
        rows = []
        for length in lengths:
            # A separate process, so that the memory is that of this layer alone.
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                seconds, memory = pool.apply(time_and_memory, (kind, width, length))
            rows.append({"length": length, "seconds": seconds, "memory_bytes": memory})
        return {"rows": rows, "threads": torch.get_num_threads()}

    return measure


def time_and_memory(kind: str, width: int, length: int) -> tuple[float, int]:
    """Returns the median time of one layer forward and backward on one sentence, and its peak memory."""
    module, layout = layer(kind, width), Layout.of([length])
    x = torch.randn(length, width, requires_grad=True)

    def step() -> None:
        module(x, layout).sum().backward()

    step()
    with _peak_memory() as peak:
        step()
    times: list[float] = []
    while len(times) < _FEWEST or sum(times) < _SECONDS:
        begin = time.perf_counter()
        step()
        times.append(time.perf_counter() - begin)
    return median(times), peak[0]


@contextmanager
def _peak_memory() -> Iterator[list[int]]:
    """Yields a list that has the largest growth of resident memory, in bytes, after the block (Linux)."""
    found: list[int] = []
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    before = _status("VmRSS")
    yield found
    found.append(max(0, _status("VmHWM") - before))


def _status(key: str) -> int:
    text = Path("/proc/self/status").read_text()
    match = re.search(rf"{key}:\s+(\d+) kB", text)
    assert match is not None
    return int(match[1]) * 1024


def _paths(place: Place) -> Result:
    rows = []
    for kind in (*KINDS, "dilated"):
        for length in (16, 64, 256, 1024):
            rows.append({"kind": kind, "length": length, "layers": path_length(kind, length)})
    return {"rows": rows}


def path_length(kind: str, length: int) -> int:
    """Returns the number of layers after which the first token has an influence on the last one.

    It is found by the gradient: in a stack of fewer layers it is exactly 0. A recurrent layer connects all
    tokens, but by as many steps as there are tokens between them. Dilated layers have the dilations 1, k, k²
    and so on, as far as they are below the length, and then again from 1.
    """
    dilations = [1]
    while dilations[-1] * KERNEL < length:
        dilations.append(dilations[-1] * KERNEL)
    layout = Layout.of([length])
    x = torch.randn(length, HEAD_WIDTH, dtype=torch.float64, requires_grad=True)
    outputs = [x]

    def reached(depth: int) -> bool:
        """Whether the first token has an influence on the last one after this number of layers."""
        while len(outputs) <= depth:
            dilation = dilations[(len(outputs) - 1) % len(dilations)]
            y = layer(kind, HEAD_WIDTH, dilation).double()(outputs[-1], layout)
            # Normalisation keeps the values of a deep stack in range; it acts on each token alone.
            outputs.append(nn.functional.layer_norm(y, (HEAD_WIDTH,)))
        last = outputs[depth][-1]
        (gradient,) = torch.autograd.grad(last.square().sum() + last.sum(), x, retain_graph=True)
        return bool((gradient[0] != 0).any())

    deep = 1
    while not reached(deep):
        deep *= 2
    return bisect.bisect_left(range(deep), True, lo=1, key=reached)


def sequential_operations(kind: str, length: int) -> int:
    """Returns the number of operations of a layer that must follow each other, whatever the hardware.

    It is the longest path in the graph of operations that autograd records. An operation on all tokens counts
    once.
    """
    x = torch.randn(length, HEAD_WIDTH, requires_grad=True)
    end = layer(kind, HEAD_WIDTH)(x, Layout.of([length])).grad_fn
    depths: dict[Any, int] = {}
    pending: list[Any] = [end]
    while pending:  # a recursion would be too deep
        inputs = [node for node, _ in pending[-1].next_functions if node is not None]
        unknown = [node for node in inputs if node not in depths]
        if unknown:
            pending += unknown
        else:
            depths[pending.pop()] = 1 + max((depths[node] for node in inputs), default=0)
    depth: int = depths[end]
    return depth


def largest_tensor(kind: str, width: int, length: int) -> int:
    """Returns the number of values of the largest tensor that the forward pass of a layer computes."""
    sizes = _Sizes()
    with sizes, torch.no_grad():
        layer(kind, width)(torch.randn(length, width), Layout.of([length]))
    return max(sizes.seen)


class _Sizes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Collects the sizes of the tensors that operators return."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: list[int] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = function(*args, **(kwargs or {}))
        self.seen += [x.numel() for x in tree_leaves(out) if isinstance(x, Tensor)]
        return out


def slope(rows: list[dict[str, float]], key: str, shortest: int = 256) -> float:
    """Returns the slope of a figure against the length on logarithmic axes, by least squares."""
    points = [
        (math.log(row["length"]), math.log(row[key]))
        for row in rows
        if row["length"] >= shortest and row[key] > 0
    ]
    mean_x, mean_y = (sum(point[axis] for point in points) / len(points) for axis in (0, 1))
    covariance = sum((x - mean_x) * (y - mean_y) for x, y in points)
    return covariance / sum((x - mean_x) ** 2 for x, _ in points)
