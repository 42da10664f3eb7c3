"""Runs the attention kernels in Triton's interpreter; prints one JSON object per case.

The interpreter must be chosen before Triton is imported, so this is a separate process. It computes on the
CPU in fp32 and fp16.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Case:
    """Attention of queries to keys, or of a stream to itself if `keys` is None."""

    queries: tuple[int, ...]
    keys: tuple[int, ...] | None = None
    causal: bool = False
    window: int | None = None
    heads: int = 2
    width: int = 16
    scale: float = 0.25


CASES = {
    "self": Case((3, 40, 17, 70)),
    "one token": Case((1,)),
    "a tile exactly": Case((64, 64)),
    "a sentence of several tiles": Case((5, 150, 2)),
    "empty sentences": Case((0, 7, 0, 0, 30, 0)),
    "causal": Case((3, 40, 17, 70, 1), causal=True),
    "causal, long": Case((140,), causal=True, heads=1),
    "window": Case((3, 40, 17, 90), window=5),
    "window of nothing": Case((3, 40), window=0),
    "causal window": Case((3, 40, 17, 90), causal=True, window=9),
    "cross": Case((3, 40, 17), (5, 20, 33)),
    "cross, many short": Case((2,) * 40, (1, 9) * 20),
    "cross, long": Case((2, 130), (150, 3)),
    "cross, no keys": Case((4, 3, 5), (2, 0, 6)),
    "wide heads": Case((30, 50), (20, 60), heads=1, width=64),
    "another scale": Case((30, 50), causal=True, scale=1.0),
}


def run(case: Case, dtype: torch.dtype) -> dict[str, float]:
    """Returns the largest errors of the kernels and of plain attention in `dtype`, against fp64."""
    from nmt.data.batches.batching import Layout
    from nmt.model.attention import Pattern, ScaledDot
    from nmt.model.gpu.triton_attention import TritonAttention

    queries, keys = Layout.of(case.queries), Layout.of(case.keys or case.queries)
    generator = torch.Generator().manual_seed(1)
    num_queries, num_keys = sum(case.queries), sum(case.keys or case.queries)
    attention = TritonAttention(
        Pattern(*(queries, keys, case.heads, case.width, case.scale), causal=case.causal, window=case.window)
    )
    score = ScaledDot(case.heads, case.width)

    def drawn(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator).to(dtype)

    outer = drawn(num_queries, case.heads, case.width)
    inputs = [drawn(num_queries, 3, case.heads, case.width)]
    if case.keys is not None:
        inputs = [drawn(num_queries, case.heads, case.width), drawn(num_keys, 2, case.heads, case.width)]

    def kernels(*given: Tensor) -> Tensor:
        if case.keys is None:
            found = attention.self_attend(*given, score, 0)
        else:
            found = attention.cross_attend(*given, score, 0)
        return found.view(outer.shape)

    def plain(*given: Tensor) -> Tensor:
        q, k, v = given[0].unbind(1) if case.keys is None else (given[0], *given[1].unbind(1))
        return naive(q, k, v, case)

    def with_gradients(function: Callable[..., Tensor], kind: torch.dtype) -> list[Tensor]:
        leaves = [x.to(kind).detach().requires_grad_() for x in inputs]
        out = function(*leaves)
        out.backward(outer.to(kind))
        return [out.detach(), *(x.grad for x in leaves if x.grad is not None)]

    found, rounded = with_gradients(kernels, dtype), with_gradients(plain, dtype)
    exact = with_gradients(plain, torch.float64)
    assert all(x.dtype is dtype for x in found) and len(found) == 1 + len(inputs)
    return {
        "error": max(float((a - b).abs().max()) for a, b in zip(found, exact, strict=True)),
        "error_of_plain": max(float((a - b).abs().max()) for a, b in zip(rounded, exact, strict=True)),
        "size": max(float(x.abs().max()) for x in exact),
    }


def naive(q: Tensor, k: Tensor, v: Tensor, case: Case) -> Tensor:
    """Attention with one mask for all pairs of tokens; 0 for a query that sees nothing."""
    of_queries = torch.arange(len(case.queries)).repeat_interleave(torch.tensor(case.queries))
    sizes = torch.tensor(case.keys or case.queries)
    of_keys = torch.arange(len(sizes)).repeat_interleave(sizes)
    seen = of_queries[:, None] == of_keys
    places = torch.arange(len(q))[:, None] - torch.arange(len(k))
    if case.causal:
        seen &= places >= 0
    if case.window is not None:
        seen &= places.abs() <= case.window
    scores = torch.einsum("qhe,khe->hqk", q, k) * case.scale
    weights = scores.masked_fill(~seen, float("-inf")).softmax(-1).nan_to_num(0.0)
    return torch.einsum("hqk,khe->qhe", weights, v)


def main() -> None:
    """Runs all cases in both number formats, and the trial of the kernels."""
    from nmt.model.gpu.triton_attention import runs, sums_biases

    assert runs(torch.device("cpu"), torch.float16, 16)
    assert sums_biases(torch.device("cpu"), torch.float16, 16)
    for name, case in CASES.items():
        for dtype in (torch.float32, torch.float16):
            record = {"case": name, "dtype": str(dtype).removeprefix("torch."), **run(case, dtype)}
            print(json.dumps(record))


if __name__ == "__main__":
    os.environ["TRITON_INTERPRET"] = "1"  # nothing has imported Triton yet
    main()
