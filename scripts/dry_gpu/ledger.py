"""Counts what code would launch on a GPU, by part of the model: the mode `Ledger`."""

from __future__ import annotations

import sys
import weakref
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode

from dry_gpu.costs import Cost, Gpu, cost_of, tensors

PARTS = (
    *("embedding", "attention", "layer tails", "feed-forward", "loss"),
    *("optimizer", "exchange", "search", "other"),
)
"""The parts of an update and of a search. "layer tails" are dropout, residual connections and norms."""

_PART_OF: Mapping[tuple[str, str], str] = {
    ("transformer.py", "_embed"): "embedding",
    ("transformer.py", "keys_values"): "attention",
    ("transformer.py", "sublayer"): "layer tails",
    ("transformer.py", "logits"): "loss",
    ("layers.py", "_embed"): "embedding",
    ("layers.py", "_fork"): "attention",
    ("layers.py", "_keys_values"): "attention",
    ("layers.py", "_end_attention"): "attention",
    ("layers.py", "_feed_forward"): "feed-forward",
    ("layers.py", "_end"): "layer tails",
    ("attention.py", "attend_flash"): "attention",
    ("triton_attention.py", "attend"): "attention",
    ("triton_attention.py", "attend_joined"): "attention",
    ("cached.py", "select"): "search",
    ("beams.py", "start"): "search",
    ("beams.py", "extend"): "search",
    ("beams.py", "rows"): "search",
    ("beams.py", "flags"): "search",
    ("update/loss.py", "training_loss"): "loss",
    ("parallel.py", "zero"): "optimizer",
    ("parallel.py", "step"): "optimizer",
    ("parallel.py", "sums"): "exchange",
    ("optimizer.py", "norm"): "optimizer",
    ("ema.py", "update"): "optimizer",
    ("training_step.py", "__init__"): "optimizer",
    ("verdict.py", "__init__"): "optimizer",
}
"""The part that a function of nmt belongs to, by the end of its file's path and its name."""

_PART_OF_MODULE: Mapping[str, str] = {
    "SelfAttention": "attention",
    "CrossAttention": "attention",
    "FeedForward": "feed-forward",
}
"""The part that the `forward` of a module belongs to, by its class."""


@dataclass
class Row:
    """Sums over calls.

    Attributes:
        launches: number of kernels.
        bytes: bytes read and written.
        bytes_outside_products: without those of matrix products and attention.
        flops: floating-point operations of matrix products and attention.
        seconds: time of the roofline on each GPU, by name.
    """

    launches: int = 0
    bytes: int = 0
    bytes_outside_products: int = 0
    flops: int = 0
    seconds: dict[str, float] = field(default_factory=dict)

    def add(self, cost: Cost, gpus: tuple[Gpu, ...]) -> None:
        """Adds a call."""
        self.launches += cost.launches
        self.bytes += cost.bytes
        self.flops += cost.flops
        if not cost.flops:
            self.bytes_outside_products += cost.bytes
        for gpu in gpus:
            self.seconds[gpu.name] = self.seconds.get(gpu.name, 0.0) + gpu.seconds(cost)


class Ledger(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts launches, bytes, FLOPs, host synchronisations, copies and memory while it is active.

    An operator of the forward pass belongs to the part whose function is innermost on the stack. An operator
    of the backward pass belongs to the part in which its autograd node was made. Sums of gradients belong to
    the part of the weights.

    Args:
        gpus: the GPUs of the roofline.
        declared: operator name → its cost, for kernels that torch does not know.

    Attributes:
        parts: part → sums.
        operators: operator name → sums.
        attention: sums of the attention kernels, also in `parts`.
        host_syncs: place in the code → operators that would wait for the GPU.
        copies: place in the code → copies from host memory to the GPU.
        weights: id of a weight → its part; see `parts_of_weights`.
        peak_bytes: largest sum of memory that was allocated within the ledger.
    """

    def __init__(
        self,
        gpus: tuple[Gpu, ...],
        declared: Mapping[str, Callable[[tuple[Any, ...], Any], Cost]] | None = None,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._gpus, self._declared = gpus, declared or {}
        self.parts: dict[str, Row] = {part: Row() for part in PARTS}
        self.operators: dict[str, Row] = {}
        self.attention = Row()
        self.host_syncs: Counter[str] = Counter()
        self.copies: Counter[str] = Counter()
        self.peak_bytes = self._bytes = 0
        self._live: dict[int, int] = {}
        self._part_of_node: dict[int, str] = {}
        self.weights: Mapping[int, str] = {}

    @property
    def total(self) -> Row:
        """The sums over all parts."""
        total = Row()
        for row in self.parts.values():
            total.launches += row.launches
            total.bytes += row.bytes
            total.bytes_outside_products += row.bytes_outside_products
            total.flops += row.flops
            for name, seconds in row.seconds.items():
                total.seconds[name] = total.seconds.get(name, 0.0) + seconds
        return total

    def record(self, part: str, name: str, cost: Cost) -> None:
        """Adds a call of an operator to the sums."""
        for row in (self.parts[part], self.operators.setdefault(name, Row())):
            row.add(cost, self._gpus)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Runs an operator and counts it."""
        kwargs = kwargs or {}
        part = self._current_part()
        out = func(*args, **kwargs)
        name = func._schema.name.split("::")[1]
        if (make := self._declared.get(name)) is not None:
            cost: Cost | None = make(args, out)
            if "attention" in name and cost is not None:
                self.attention.add(cost, self._gpus)
        else:
            cost = cost_of(name, args, kwargs, out)
        if cost is not None:
            self._note_crossing(name, args, kwargs, out)
            self.record(part, name, cost)
        self._track(out)
        return out

    def _current_part(self) -> str:
        """Returns the part of the operator that runs now; notes it for the autograd node being built."""
        node = torch._C._current_autograd_node()
        if node is not None:
            number = node._sequence_nr()
            if number in self._part_of_node:
                return self._part_of_node[number]
            weight = getattr(node, "variable", None)
            if weight is not None:
                return self._part_of_weight(weight)
            return "other"
        part = part_on_stack()
        # An operator's node is built before the operator runs, so the newest number is that of its node.
        # Without a gradient, it is that of an earlier operator.
        self._part_of_node.setdefault(torch.autograd._get_sequence_nr() - 1, part)
        return part

    def _part_of_weight(self, weight: torch.Tensor) -> str:
        return self.weights.get(id(weight), "other")

    def _note_crossing(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        devices = {x.device.type for x in tensors((args, kwargs)) if x.dim() or x.device.type == "cuda"}
        outputs = {x.device.type for x in tensors(out)}
        if devices | outputs != {"cpu", "cuda"}:
            return
        blocking = not (kwargs.get("non_blocking") or (len(args) > 2 and args[2] is True))
        place = _place()
        to_host = outputs == {"cpu"}
        if blocking:
            self.host_syncs[f"{name} at {place}"] += 1
        if not to_host:
            self.copies[f"{name} at {place}"] += 1

    def _track(self, out: Any) -> None:
        for x in tensors(out):
            if isinstance(x, FakeTensor) and x.device.type == "cuda":
                storage = x.untyped_storage()
                key = storage._cdata
                if key not in self._live:
                    self._live[key] = storage.nbytes()
                    self._bytes += storage.nbytes()
                    self.peak_bytes = max(self.peak_bytes, self._bytes)
                    weakref.finalize(storage, self._free, key)

    def _free(self, key: int) -> None:
        self._bytes -= self._live.pop(key, 0)


def part_on_stack() -> str:
    """Returns the part of the innermost function of nmt on Python's stack that belongs to one."""
    frame = sys._getframe(1)
    while frame is not None:
        path = frame.f_code.co_filename
        if "/nmt/" in path:
            name = frame.f_code.co_name
            if name == "forward":
                module = type(frame.f_locals.get("self")).__name__
                if (of_module := _PART_OF_MODULE.get(module)) is not None:
                    return of_module
            for (file, function), part in _PART_OF.items():
                if name == function and path.endswith(f"/{file}"):
                    return part
        frame = frame.f_back  # type: ignore[assignment]
    return "other"


def parts_of_weights(named: Mapping[str, torch.Tensor]) -> dict[int, str]:
    """Returns id → part of the weights of a Transformer, by their names."""

    def part(name: str) -> str:
        if "norm" in name:
            return "layer tails"
        if "attention" in name:
            return "attention"
        return "feed-forward" if "feed_forward" in name else "embedding"

    return {id(weight): part(name) for name, weight in named.items()}


def _place() -> str:
    """Returns file and name of the innermost function of nmt."""
    frame = sys._getframe(1)
    while frame is not None:
        if "/nmt/" in frame.f_code.co_filename:
            return f"{frame.f_code.co_filename.split('/nmt/')[-1]}:{frame.f_code.co_qualname}"
        frame = frame.f_back  # type: ignore[assignment]
    return "?"
