"""The adapter to the CUDA kernel, with stand-ins of its two signatures; the real kernel on a GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from nmt.data.batches.batching import Layout
from nmt.model.kernels import Pattern, cross_attend, self_attend, varlen
from nmt.model.reference import naive_attention
from nmt.runtime import log

calls: list[dict[str, Any]] = []


def up_to_2_10(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seq_q: Tensor,
    cu_seq_k: Tensor,
    max_q: int,
    max_k: int,
    is_causal: bool = False,
    return_aux: object = None,
) -> Tensor:
    calls.append({"is_causal": is_causal, "cu_seq_q": cu_seq_q, "cu_seq_k": cu_seq_k, "max": (max_q, max_k)})
    return query


def since_2_11(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seq_q: Tensor,
    cu_seq_k: Tensor,
    max_q: int,
    max_k: int,
    *,
    return_aux: object = None,
    scale: float | None = None,
    window_size: tuple[int, int] = (-1, -1),
) -> Tensor:
    calls.append(
        {"window_size": window_size, "cu_seq_q": cu_seq_q, "cu_seq_k": cu_seq_k, "max": (max_q, max_k)}
    )
    return query


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    calls.clear()
    varlen.causal_argument.cache_clear()
    yield
    varlen.causal_argument.cache_clear()


@pytest.mark.parametrize(
    ("kernel", "causal", "expected"),
    [
        (up_to_2_10, True, {"is_causal": True}),
        (up_to_2_10, False, {"is_causal": False}),
        (since_2_11, True, {"window_size": (-1, 0)}),
        (since_2_11, False, {"window_size": (-1, -1)}),
    ],
)
def test_both_signatures(
    kernel: Callable[..., Tensor], causal: bool, expected: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(varlen, "kernel", lambda: kernel)
    queries, keys = Layout.of([2, 3]), Layout.of([4, 1])
    q, k = torch.zeros(5, 2, 8), torch.zeros(5, 2, 8)
    assert varlen.attend_varlen(q, k, k, queries, keys, causal=causal) is q
    (call,) = calls
    assert expected.items() <= call.items()
    assert call["cu_seq_q"] is queries.cu_seqlens and call["cu_seq_k"] is keys.cu_seqlens
    assert call["max"] == (3, 4)


def test_this_torch_takes_the_argument() -> None:
    import inspect

    kernel = varlen.kernel()
    if kernel is not None:
        assert varlen.causal_argument(True).keys() <= inspect.signature(kernel).parameters.keys()


def test_the_cpu_is_never_offered_it() -> None:
    assert not varlen.supports_varlen(torch.zeros(1, 2, 8, dtype=torch.bfloat16))


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> pytest.LogCaptureFixture:
    """The log records of the program."""
    monkeypatch.setattr(log, "propagate", True)
    return caplog


def without_gradient(q: Tensor, *others: object, **options: object) -> Tensor:
    """A kernel whose backward pass does not exist."""
    return q.detach()


def missing(error: type[Exception]) -> Callable[..., Tensor]:
    def kernel(*arguments: object, window_size: object = None) -> Tensor:
        raise error("USE_FLASH_ATTENTION was not enabled for build.\nA second line.")

    return kernel


def attending(q: Tensor, k: Tensor, v: Tensor, *rest: object, window_size: object = None) -> Tensor:
    assert q.shape == (2, 1, 16)
    return q + k + v


@pytest.mark.parametrize(
    ("kernel", "runs"),
    [(attending, True), (missing(RuntimeError), False), (without_gradient, False)],
)
@pytest.mark.parametrize("grad", [True, False])
def test_a_kernel_that_does_not_run_is_reported_once_and_not_used(
    kernel: Callable[..., Tensor],
    runs: bool,
    grad: bool,
    monkeypatch: pytest.MonkeyPatch,
    said: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(varlen, "kernel", lambda: kernel)
    varlen.runs.cache_clear()
    with torch.inference_mode(not grad), torch.autocast("cpu", torch.bfloat16):
        for _ in range(2):
            assert varlen.runs(torch.device("cpu"), torch.bfloat16, 16) is runs
    varlen.runs.cache_clear()
    start = "this build of torch has no flash attention for bfloat16 with heads of 16 on cpu ("
    assert len(said.messages) == (not runs)
    assert all(line.startswith(start) and "\n" not in line for line in said.messages)


def test_a_kernel_without_memory_is_not_a_missing_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(varlen, "kernel", lambda: missing(torch.OutOfMemoryError))
    varlen.runs.cache_clear()
    with pytest.raises(torch.OutOfMemoryError):
        varlen.runs(torch.device("cpu"), torch.bfloat16, 16)


needs_a_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
QUERIES, KEYS = [3, 40, 17], [5, 20, 33]


def naive(q: Tensor, k: Tensor, v: Tensor, keys: list[int], causal: bool) -> Tensor:
    parts = zip(q.split(QUERIES), k.split(keys), v.split(keys), strict=True)
    return torch.cat([naive_attention(*part, causal=causal) for part in parts])


def assert_near_with_gradients(
    fast: Callable[..., Tensor], slow: Callable[..., Tensor], inputs: list[Tensor], dtype: torch.dtype
) -> None:
    """Compares the kernel (`dtype`, GPU) with its twin (fp32, CPU); the inputs are rounded to `dtype`."""
    exact = [x.to(dtype).float().requires_grad_() for x in inputs]
    rounded = [x.to("cuda", dtype).requires_grad_() for x in inputs]
    expected, found = slow(*exact), fast(*rounded)
    assert found.dtype is dtype
    torch.testing.assert_close(found.float().cpu(), expected, rtol=0.03, atol=0.03)
    grad = torch.randn(expected.shape, generator=torch.Generator().manual_seed(2))
    expected.backward(grad)
    found.backward(grad.to(found))
    for a, b in zip(rounded, exact, strict=True):
        assert a.grad is not None and b.grad is not None
        torch.testing.assert_close(a.grad.float().cpu(), b.grad, rtol=0.05, atol=0.05)


@pytest.mark.gpu
@needs_a_gpu
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_kernel_in_self_attention_is_the_naive_twin(dtype: torch.dtype, causal: bool) -> None:
    layout = Layout.of(QUERIES).to("cuda")
    pattern = Pattern(layout, layout, 2, causal=causal)
    qkv = torch.randn(60, 3, 2, 32, generator=torch.Generator().manual_seed(1))
    assert varlen.supports_varlen(qkv.to("cuda", dtype))
    assert_near_with_gradients(
        lambda x: self_attend(x, pattern), lambda x: naive(*x.unbind(1), QUERIES, causal), [qkv], dtype
    )


@pytest.mark.gpu
@needs_a_gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_kernel_in_cross_attention_is_the_naive_twin(dtype: torch.dtype) -> None:
    pattern = Pattern(Layout.of(QUERIES).to("cuda"), Layout.of(KEYS).to("cuda"), 2, causal=False)
    generator = torch.Generator().manual_seed(1)
    q, kv = (torch.randn(tokens, parts, 2, 32, generator=generator) for tokens, parts in ((60, 1), (58, 2)))
    assert_near_with_gradients(
        lambda q, kv: cross_attend(q, kv, pattern),
        lambda q, kv: naive(q[:, 0], *kv.unbind(1), KEYS, False),
        [q, kv],
        dtype,
    )


@pytest.mark.gpu
@needs_a_gpu
def test_the_grouped_path_on_a_gpu_is_the_naive_twin() -> None:
    """In fp32, which the kernel does not support."""
    layout = Layout.of(QUERIES).to("cuda")
    pattern = Pattern(layout, layout, 2, causal=True)
    qkv = torch.randn(60, 3, 2, 32, generator=torch.Generator().manual_seed(1))
    found = self_attend(qkv.to("cuda"), pattern).cpu()
    torch.testing.assert_close(found, naive(*qkv.unbind(1), QUERIES, True), rtol=1e-3, atol=1e-3)
