"""Prints the values of each Triton kernel in Triton's interpreter as JSON; `gpu` starts it.

A kernel is found by the name of its function, in any module of nmt, so that it may move.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import traceback
from collections.abc import Callable
from functools import cache
from itertools import product
from typing import Any

import torch
from torch import Tensor

NAMES: dict[str, tuple[str, ...]] = {
    "flat_attention": ("flat_attention",),
    "flat_attention_backward": ("flat_attention_backward",),
    "residual_norm": ("residual_norm",),
    "residual_norm_backward": ("residual_norm_backward",),
    "relu_backward_": ("relu_backward_",),
    "embed": ("embed",),
    "embed_backward": ("embed_backward",),
    "relu_product": ("relu_product",),
    "cross_entropy_": ("cross_entropy_",),
    "rdrop_": ("rdrop_",),
}
"""Kernel → the names that its function has had. A rename adds one."""

_DTYPES = (torch.float32, torch.float16)


@cache
def modules() -> list[Any]:
    """Returns the modules of nmt that mention a kernel; those that can't be imported are left out."""
    import nmt

    found = []
    for info in pkgutil.walk_packages(nmt.__path__, "nmt."):
        if info.name.startswith(("nmt.model", "nmt.training")):
            try:
                found.append(importlib.import_module(info.name))
            except ImportError:
                continue
    return found


def kernel(name: str) -> Callable[..., Any]:
    """Returns the function that launches a kernel: of the module that defines it and imports Triton."""
    for known in NAMES[name]:
        for module in modules():
            if known in vars(module) and hasattr(module, "triton"):
                function: Callable[..., Any] = getattr(module, known)
                return function
    raise LookupError(f"no module defines {' or '.join(NAMES[name])}")


def draw(seed: int) -> Callable[..., Tensor]:
    """Returns a function that draws tensors."""
    generator = torch.Generator().manual_seed(seed)
    return lambda *shape: torch.randn(*shape, generator=generator)


def attention(dtype: torch.dtype, causal: bool, window: int) -> list[Tensor]:
    """Values and gradients of attention in a stream of four sentences."""
    drawn, lengths = draw(1), [3, 70, 0, 17]
    seqlens = torch.tensor([0, *torch.tensor(lengths).cumsum(0).tolist()], dtype=torch.int32)
    sentences = torch.arange(4, dtype=torch.int32).repeat_interleave(torch.tensor(lengths))
    q, k, v, grad = (drawn(90, 2, 16).to(dtype) for _ in range(4))
    out, sums = kernel("flat_attention")(q, k, v, sentences, seqlens, causal, window, 0.25)
    grads = [torch.zeros_like(q) for _ in range(3)]
    added = [torch.zeros(2, 32) for _ in range(3)]
    places = (sentences, seqlens, sentences, seqlens, causal, window, 0.25)
    kernel("flat_attention_backward")(grad, out, sums, q, k, v, *places, *grads, *added)
    return [out, sums, *grads, *added]


def norm(dtype: torch.dtype, rate: float) -> list[Tensor]:
    """Values and gradients of the end of a sub-layer."""
    drawn, seed = draw(2), torch.tensor([7])
    y, bias, x = drawn(9, 24).to(dtype), drawn(24), drawn(9, 24)
    weight, shift, grad = drawn(24), drawn(24), drawn(9, 24)
    out = kernel("residual_norm")(y, bias, x, weight, shift, 1e-5, rate, seed, 3)
    back = kernel("residual_norm_backward")(grad, out[1], out[2], weight, dtype, rate, seed, 3)
    return [*out, *back]


def relu(dtype: torch.dtype) -> list[Tensor]:
    """The gradient of a ReLU, alone and with its product."""
    drawn = draw(3)
    grad, out = drawn(130, 40).to(dtype), drawn(130, 40).to(dtype).relu_()
    sums = kernel("relu_backward_")(grad, out)
    before, weight = drawn(130, 72).to(dtype), drawn(72, 40).to(dtype)
    return [grad, sums, *kernel("relu_product")(before, weight, out)]


def embedding(dtype: torch.dtype, rate: float) -> list[Tensor]:
    """Values and gradients of embeddings."""
    drawn, seed = draw(4), torch.tensor([9])
    ids, places = torch.tensor([3, 10, 3, 0, 7]), torch.tensor([0, 1, 8, 0, 5])
    out = kernel("embed")(drawn(11, 24), ids, drawn(9, 24), places, 2.0, rate, seed, 2, dtype, torch.float16)
    return [*out, kernel("embed_backward")(drawn(5, 24).to(dtype), 2.0, rate, seed, 2)]


def loss(dtype: torch.dtype, num_pieces: int) -> list[Tensor]:
    """Gradients of logits and the figures of the loss, alone and with R-Drop."""
    drawn, ids = draw(5), torch.tensor([1, -1, 7, 0])
    first, second, third = (drawn(4, num_pieces).to(dtype) for _ in range(3))
    figures = [torch.zeros(3, 4), torch.zeros(3, 4)]
    kernel("cross_entropy_")(first, ids, figures[0], 0.9, 8.0)
    kernel("rdrop_")(second, third, ids.abs(), figures[1], 0.9, 1.25, 1.0)
    return [first, second, third, *figures]


def main() -> None:
    """Prints a line for each case."""
    cases: dict[str, tuple[Callable[..., list[Tensor]], tuple[Any, ...]]] = {}
    for dtype in _DTYPES:
        for causal, window in product((False, True), (-1, 5)):
            cases[f"attention {dtype} {causal} {window}"] = attention, (dtype, causal, window)
        for rate in (0.0, 0.3):
            cases[f"norm {dtype} {rate}"] = norm, (dtype, rate)
            cases[f"embedding {dtype} {rate}"] = embedding, (dtype, rate)
        cases[f"relu {dtype}"] = relu, (dtype,)
        for num_pieces in (37, 17000):
            cases[f"loss {dtype} {num_pieces}"] = loss, (dtype, num_pieces)
    for name, (function, arguments) in cases.items():
        try:
            with torch.no_grad():
                values = [x.double().flatten().tolist() for x in function(*arguments)]
            print(json.dumps({"case": name, "values": values}))
        except Exception:
            print(json.dumps({"case": name, "error": traceback.format_exc()}))


if __name__ == "__main__":
    main()
