"""The adapter to torch's CUDA kernel, with stand-ins for it; on a GPU the real kernel, and those of nmt."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from nmt.data.batches.batching import Layout
from nmt.model import kernels
from nmt.model.kernels import Pattern, cross_attend, self_attend, varlen
from nmt.model.reference import naive_attention
from nmt.runtime import log


@pytest.mark.parametrize(
    ("causal", "window", "expected"),
    [
        (False, None, (False, -1, -1)),
        (True, None, (True, -1, 0)),
        (False, 3, (False, 3, 3)),
        (True, 3, (False, 3, 0)),
    ],
)
def test_the_arguments_of_the_operator(
    causal: bool, window: int | None, expected: tuple[bool, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def operator(*given: Any, **named: Any) -> tuple[Tensor, ...]:
        calls.append((given, named))
        return given[0], given[1], given[2]

    monkeypatch.setattr(varlen, "kernel", lambda: operator)
    queries, keys = Layout.of([2, 3]), Layout.of([4, 1])
    q, k, v = (torch.zeros(5, 2, 8) for _ in "qkv")
    assert varlen.attend_varlen(q, k, v, queries, keys, causal=causal, window=window, scale=0.5) is q
    [(given, named)] = calls
    assert all(a is b for a, b in zip(given, (q, k, v, queries.cu_seqlens, keys.cu_seqlens), strict=False))
    is_causal, left, right = expected
    assert given[5:] == (3, 4, 0.0, is_causal, False)
    assert named == {"scale": 0.5, "window_size_left": left, "window_size_right": right}


def test_this_torch_has_the_operator_with_these_arguments() -> None:
    kernel = varlen.kernel()
    assert kernel is not None
    arguments = [(one.name, str(one.type)) for one in kernel._schema.arguments]  # type: ignore[attr-defined]
    assert [name for name, _ in arguments[:10]] == [
        *("query", "key", "value", "cum_seq_q", "cum_seq_k", "max_q", "max_k", "dropout_p", "is_causal"),
        "return_debug_mask",
    ]
    assert {"scale", "window_size_left", "window_size_right"} <= {name for name, _ in arguments}


def test_the_cpu_is_never_offered_it() -> None:
    assert not varlen.supports_varlen(torch.zeros(1, 2, 8, dtype=torch.bfloat16))


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> pytest.LogCaptureFixture:
    """The log records of the program."""
    monkeypatch.setattr(log, "propagate", True)
    return caplog


def without_gradient(q: Tensor, *others: object, **options: object) -> tuple[Tensor]:
    """A kernel whose backward pass does not exist."""
    return (q.detach(),)


def missing(error: type[Exception]) -> Callable[..., tuple[Tensor]]:
    def kernel(*arguments: object, **options: object) -> tuple[Tensor]:
        raise error("USE_FLASH_ATTENTION was not enabled for build.\nA second line.")

    return kernel


def attending(q: Tensor, k: Tensor, v: Tensor, *rest: object, **options: object) -> tuple[Tensor]:
    """Causal attention."""
    assert q.shape == (2, 1, 16)
    return (naive_attention(q, k, v, causal=True),)


def not_causal(q: Tensor, k: Tensor, v: Tensor, *rest: object, **options: object) -> tuple[Tensor]:
    return (naive_attention(q, k, v, causal=False),)


def doubled(q: Tensor, k: Tensor, v: Tensor, *rest: object, **options: object) -> tuple[Tensor]:
    return (2 * naive_attention(q, k, v, causal=True),)


@pytest.mark.parametrize(
    ("kernel", "runs"),
    [
        (attending, True),
        (missing(RuntimeError), False),
        (without_gradient, False),
        (not_causal, False),
        (doubled, False),
    ],
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


def naive(q: Tensor, k: Tensor, v: Tensor, sizes: list[int], causal: bool) -> Tensor:
    parts = zip(q.split(QUERIES), k.split(sizes), v.split(sizes), strict=True)
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
@pytest.mark.parametrize("flat", [True, False])
def test_the_kernel_in_self_attention_is_the_naive_twin(
    flat: bool, dtype: torch.dtype, causal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not flat:
        monkeypatch.setattr(kernels, "supports_flat", lambda x: False)
    layout = Layout.of(QUERIES).to("cuda")
    pattern = Pattern(layout, layout, 2, causal=causal)
    qkv = torch.randn(60, 3, 2, 32, generator=torch.Generator().manual_seed(1))
    assert kernels.supports_flat(qkv.to("cuda", dtype)) is flat and varlen.supports_varlen(
        qkv.to("cuda", dtype)
    )
    assert_near_with_gradients(
        lambda x: self_attend(x, pattern), lambda x: naive(*x.unbind(1), QUERIES, causal), [qkv], dtype
    )


@pytest.mark.gpu
@needs_a_gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("flat", [True, False])
def test_the_kernel_in_cross_attention_is_the_naive_twin(
    flat: bool, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not flat:
        monkeypatch.setattr(kernels, "supports_flat", lambda x: False)
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
