"""Forward and backward passes as CUDA graphs: a GPU then runs them without waiting for Python.

A pass of the base model launches some 400 kernels, one after the other, which takes Python longer than the
GPU needs for a batch of a few thousand tokens. A CUDA graph records the launches once, and is launched as a
whole. It needs the same shapes and the same memory every time: batches are padded to few shapes
(`Batch.padded`), and each is copied into the memory of the batch that was recorded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from nmt.config import Precision, Sharding, TrainingConfig
from nmt.data.batches.batching import Batch
from nmt.errors import UserError
from nmt.model.gpu.half_weights import HalfWeights
from nmt.model.seq2seq import Seq2Seq
from nmt.runtime.streams import log

_MOST = 32  # graphs; passes of other shapes are not recorded
_STEPS = 16  # shapes per budget of tokens: padding takes half of such a step on average
_MULTIPLE = 64  # of the tokens of a side, as in batches without CUDA graphs


def padding_steps(max_target: int, max_source: int) -> tuple[int, int]:
    """Returns the multiples to which source and target of a batch are padded, from their budgets."""
    source, target = (
        math.ceil(math.ceil(budget / _STEPS) / _MULTIPLE) * _MULTIPLE for budget in (max_source, max_target)
    )
    return source, target


def check_capture(options: TrainingConfig, model: Seq2Seq | None = None) -> None:
    """Requires options with which the passes of a model on a GPU can be recorded.

    The model is on the GPU, in training mode, with copies of its weights in bf16; None: it is not built yet.

    Raises:
        UserError: `training.cuda_graphs=true` and another option exclude each other.
    """
    reason = None
    if options.precision is not Precision.bf16:
        reason = f"needs training.precision=bf16, and it is {options.precision.value}"
    elif options.rdrop or options.simcut:
        name = "rdrop" if options.rdrop else "simcut"
        reason = f"is not available with training.{name}={getattr(options, name)}"
    elif options.sharding is not Sharding.none:
        reason = f"is not available with training.sharding={options.sharding.value}"
    elif options.objective.name != "label_smoothing":
        reason = f"is not available with training.objective.name={options.objective.name}"
    elif model is not None and not model.can_be_captured:
        reason = (
            "is for the Transformer of the paper (post-norm, ReLU, sinusoidal positions, dot-product "
            "attention, no dropout in the feed-forward network or of words) with heads of 16, 32, 64 or 128, "
            "and needs Triton and a GPU of compute capability 8.0"
        )
    if reason:
        raise UserError(f"training.cuda_graphs=true: {reason}. Set training.cuda_graphs=false.")


@dataclass(frozen=True)
class _Recorded:
    """A CUDA graph.

    Attributes:
        graph: the graph.
        batch: the batch whose memory it reads.
        has_gradient: `HalfWeights.has_gradient` after the passes.
        buffers: the buffers of the model when it was recorded. A model may replace them, such as a table of
            positions that a longer sentence needs; the graph still reads those.
    """

    graph: Any
    batch: Batch
    has_gradient: frozenset[int]
    buffers: Sequence[Tensor]


class CapturedPasses:
    """Runs the passes of batches; those of each shape as a graph from the second time on.

    The first pass of a shape is not recorded: it compiles kernels, and many shapes occur once. It launches
    the same kernels.

    Args:
        passes: runs forward and backward pass of a batch on the GPU, with the same dropout whenever it is
            called. It changes only tensors that are never replaced, and what `weights` notes about gradients.
            It must not hold this object, because graphs in a cycle would be freed too late.
        model: the model.
        weights: its copies and gradients.
        exchange: starts the sum of the gradients over the processes.
        device: the GPU.

    Attributes:
        needs_memory: whether to raise `OutOfMemoryError` if there is too little memory to record. Otherwise
            the passes run without graphs from then on.
    """

    def __init__(
        self,
        passes: Callable[[Batch], None],
        model: Seq2Seq,
        weights: HalfWeights,
        exchange: Callable[[], None],
        device: torch.device,
    ) -> None:
        self._passes, self._model, self._weights, self._device = passes, model, weights, device
        self._exchange = exchange
        self._most = _MOST
        self._stream: Any = None
        self.needs_memory = False
        self.clear()

    def clear(self) -> None:
        """Forgets all graphs, and frees their memory."""
        self._recorded: dict[Hashable, _Recorded] = {}
        self._seen: set[Hashable] = set()
        self._pool: Any = None

    @property
    def num_graphs(self) -> int:
        """The number of graphs."""
        return len(self._recorded)

    def run(self, batch: Batch, *, last: bool) -> None:
        """Runs the passes of a batch; then starts the sum over the processes, if it is the `last` batch.

        The batch is in one piece of memory; see `Batch.pin_memory`.
        """
        key = (batch.shape, self._weights.has_gradient)
        recorded = self._recorded.get(key)
        if recorded is None and key in self._seen and len(self._recorded) < self._most:
            recorded = self._record_or_warn(batch)
            if recorded is not None:
                self._recorded[key] = recorded
        if recorded is None:
            self._seen.add(key)
            self.run_once(batch)
        else:
            assert batch.memory is not None and recorded.batch.memory is not None
            recorded.batch.memory.copy_(batch.memory, non_blocking=True)
            recorded.graph.replay()
            self._weights.has_gradient = recorded.has_gradient
        if last:
            self._exchange()

    def run_once(self, batch: Batch) -> None:
        """Runs the passes of a batch without a graph."""
        self._passes(batch.to(self._device, non_blocking=True))

    def _record_or_warn(self, batch: Batch) -> _Recorded | None:
        """Records the passes of a batch; if torch can't, warns, and returns None from then on."""
        before = self._weights.has_gradient
        try:
            return self._record(batch)
        except RuntimeError as error:
            if self.needs_memory and "out of memory" in str(error).lower():  # CUDA raises another class
                raise torch.OutOfMemoryError(str(error)) from error
            log.warning(
                "training.cuda_graphs=true: this machine can't record the passes (%s). They run without "
                "graphs, which is slower",
                str(error).partition("\n")[0],
            )
            self._most = 0
        finally:
            self._weights.has_gradient = before
        self._weights.detach()
        self.clear()  # the memory of all graphs is needed for the passes without them
        return None

    def _record(self, batch: Batch) -> _Recorded:
        """Records the passes of a batch, without running them."""
        static, buffers = batch.to(self._device, non_blocking=True), [*self._model.buffers()]
        graph: Any = torch.cuda.CUDAGraph()
        # The graphs share their memory: none needs what another leaves behind.
        pool = self._pool or torch.cuda.graph_pool_handle()
        # Of its own: when torch frees a graph, it also frees the workspaces of cuBLAS that belong to the
        # stream on which it was recorded (pytorch/pytorch#193402).
        self._stream = self._stream or _new_stream(self._device)
        with _left_as_it_was(self._device, pool):
            # Other threads may use the GPU.
            options: Any = {"stream": self._stream, "capture_error_mode": "thread_local"}
            with torch.cuda.graph(graph, pool=pool, **options):
                self._passes(static)
        self._pool = pool
        return _Recorded(graph, static, self._weights.has_gradient, buffers)


@contextmanager
def _left_as_it_was(device: torch.device, pool: Any) -> Iterator[None]:
    """Restores current stream and allocator if torch raises an error when it completes a graph."""
    try:
        with torch.cuda.stream(torch.cuda.current_stream(device)):
            yield
    except BaseException:
        # torch 2.11 would continue to allocate from the pool. In later ones this call is an error.
        with suppress(RuntimeError):
            torch._C._cuda_endAllocateToPool(device.index, pool)
        raise


_new_stream: Callable[[torch.device], Any] = torch.cuda.Stream
