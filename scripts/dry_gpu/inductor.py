"""What `torch.compile` fuses, counted by Inductor itself on a machine without a GPU.

`counting_compile` takes the place of `torch.compile` in a dry run. It traces a function and passes the graph
to Inductor. Inductor lowers it for a GPU and decides which operations share a kernel. It is stopped before it
would generate and build the kernels. A call of the function then costs what these kernels would cost, forward
and backward.

The bytes are Inductor's own: every buffer that a kernel uses is read or written once.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast
from unittest.mock import patch

import torch
from torch import Tensor, nn

from dry_gpu.costs import Cost
from dry_gpu.ledger import Ledger
from nmt.model import Linear

Kernel = tuple[str, str, Cost]
"""Part, name and cost of a kernel."""


@contextmanager
def counting_compile(ledger: Ledger) -> Iterator[None]:
    """Within, functions passed to `torch.compile` are traced and counted in `ledger` instead."""

    def compile_function(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
        return _Counted(function, ledger)

    with patch.object(torch, "compile", compile_function):
        yield


class _Counted:
    """A function of a layer that was compiled for counting.

    Args:
        function: its first argument is a module; the others are tensors, or tuples of tensors and None.
        ledger: receives the costs of each call.
    """

    def __init__(self, function: Callable[..., Any], ledger: Ledger) -> None:
        self._function, self._ledger = function, ledger
        self._compiled: dict[Any, Callable[..., Any]] = {}

    def __call__(self, layer: nn.Module, *inputs: Any) -> Any:
        """Calls the function and counts the kernels of its forward pass; autograd counts its backward."""
        weights = _weights(layer)
        tensors = [x for x in inputs if isinstance(x, Tensor)]
        assert len(tensors) + sum(x is None or isinstance(x, tuple) for x in inputs) == len(inputs)
        key = (type(layer), *((tuple(x.shape), x.dtype) for x in tensors))
        if key not in self._compiled:
            with self._ledger.paused(memory=False):
                self._compiled[key] = self._compile(layer, weights, inputs, tensors)
        with self._ledger.paused(memory=True):
            return self._compiled[key](*tensors, *weights.values())

    def _compile(
        self,
        layer: nn.Module,
        weights: Mapping[str, Tensor],
        inputs: Sequence[Any],
        tensors: Sequence[Tensor],
    ) -> Callable[..., Any]:
        from torch._inductor.compile_fx import compile_fx
        from torch.fx.experimental.proxy_tensor import make_fx

        def pure(*flat: Tensor) -> Any:
            given = iter(flat[: len(tensors)])
            arguments = [next(given) if isinstance(x, Tensor) else x for x in inputs]
            with _replaced(layer, dict(zip(weights, flat[len(tensors) :], strict=True))):
                return self._function(layer, *arguments)

        arguments = [*tensors, *weights.values()]
        graph = make_fx(pure)(*arguments)
        with _inductor_without_a_device():
            inner: Any = self._inner_compile
            compiled: Any = compile_fx(graph, arguments, inner_compile=inner)
            return cast(Callable[..., Any], compiled)

    def _inner_compile(self, graph: Any, inputs: Sequence[Any], **options: Any) -> Callable[..., Any]:
        """Takes the place of the second half of Inductor, from the graph of a pass to a callable."""
        from functorch.compile import make_boxed_func

        with self._ledger.paused(memory=False):  # the graph of a backward pass arrives within the first one
            kernels = kernels_of(graph, inputs, options)

        def run(*arguments: Any) -> Any:
            with self._ledger.paused(memory=True):
                results = graph(*arguments)
            for kernel in kernels:
                self._ledger.record(*kernel)
            return results

        boxed: Any = make_boxed_func(run)
        return cast(Callable[..., Any], boxed)


def kernels_of(graph: Any, inputs: Sequence[Any], options: Mapping[str, Any]) -> list[Kernel]:
    """Returns the kernels that Inductor would launch for the graph of a forward or a backward pass."""
    from torch._inductor.compile_fx import fx_codegen_and_compile
    from torch._inductor.debug import DebugContext
    from torch._inductor.graph import GraphLowering
    from torch._inductor.virtualized import V

    def stop(self: Any) -> None:
        self.init_wrapper_code()
        self._update_scheduler()
        raise _Scheduled(self)

    try:
        with _inductor_without_a_device(), patch.object(GraphLowering, "codegen", stop), DebugContext():
            fx_codegen_and_compile(copy.deepcopy(graph), inputs, inputs_to_check=[], **options)
    except Exception as error:
        found: BaseException | None = error
        while found is not None and not isinstance(found, _Scheduled):
            found = found.__cause__ or found.__context__
        if found is None:
            raise
        lowered = found.args[0]
        with V.set_graph_handler(lowered):
            return [_kernel(node) for node in lowered.scheduler.nodes if not _is_free(node)]
    raise AssertionError("Inductor has compiled the graph")


class _Scheduled(Exception):
    """Inductor has decided which operations share a kernel."""


def _is_free(node: Any) -> bool:
    return "Nop" in type(node).__name__


def _kernel(node: Any) -> Kernel:
    """Returns part, name and cost of a node of Inductor's schedule."""
    moved = node.get_read_write_buffers_sizes()
    if not node.is_extern():
        part = "feed-forward" if _is_wide(node) else "layer tails"
        return part, "fused", Cost(1, moved)
    name = str(getattr(node.node, "python_kernel_name", "")).rpartition(".")[2] or "extern"
    if name not in ("mm", "addmm"):
        return "layer tails", name, Cost(1, moved)
    (a, b), out = ([int(n) for n in x.get_size()] for x in node.node.inputs[-2:]), node.node
    rows, columns = (int(n) for n in out.get_size())
    part = "feed-forward" if max(*b, columns) > 3 * min(*b, columns) else "attention"
    half = out.get_dtype() in (torch.bfloat16, torch.float16)
    return part, name, Cost(1, moved, 2 * rows * columns * a[1], min(b), half)


def _is_wide(node: Any) -> bool:
    """Whether a kernel works on the hidden layer of a feed-forward network."""
    return any(
        len(size := buffer.node.get_size()) == 2 and int(size[1]) > 3 * 512 for buffer in node.get_outputs()
    )


def _weights(layer: nn.Module) -> dict[str, Tensor]:
    """Returns the tensors of a layer by name: the copies where it has them, else the parameters."""
    found: dict[str, Tensor] = {}
    for name, module in layer.named_modules():
        prefix = f"{name}." if name else ""
        copies = module.copies if isinstance(module, Linear) else None
        for key, parameter in module.named_parameters(recurse=False):
            index = ("weight", "bias").index(key)
            copy_of = None if copies is None else copies[index]
            found[prefix + key] = parameter if copy_of is None else copy_of
    return found


@contextmanager
def _replaced(layer: nn.Module, tensors: Mapping[str, Tensor]) -> Iterator[None]:
    """Within, the layer computes with other tensors."""
    before = {}
    for name, module in layer.named_modules():
        if isinstance(module, Linear) and module.copies is not None:
            before[module] = module.copies
            prefix = f"{name}." if name else ""
            module.copies = tensors[f"{prefix}weight"], tensors.get(f"{prefix}bias")
    reparametrized = torch.nn.utils.stateless._reparametrize_module
    try:
        with reparametrized(layer, {n: x for n, x in tensors.items() if not _is_copy(layer, n)}):
            yield
    finally:
        for module, copies in before.items():
            module.copies = copies


def _is_copy(layer: nn.Module, name: str) -> bool:
    module = layer.get_submodule(name.rpartition(".")[0])
    return isinstance(module, Linear) and module.copies is not None


@contextmanager
def _inductor_without_a_device() -> Iterator[None]:
    import torch._inductor.config as config
    import torch._inductor.scheduler as scheduler

    # Constants can't be folded: that computes them on the device.
    changes = {"fx_graph_cache": False, "joint_graph_constant_folding": False}
    with config.patch(changes), patch.object(scheduler, "has_triton", lambda: True):
        yield
