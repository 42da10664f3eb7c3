"""The adapter to the CUDA kernel, by stand-ins of its two signatures; the kernel where there is a GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from nmt.data.batching import Layout
from nmt.model import varlen
from nmt.model.attention import Pattern, self_attend

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
    monkeypatch.setattr(varlen, "_varlen_attn", kernel)
    queries, keys = Layout.of([2, 3]), Layout.of([4, 1])
    q, k = torch.zeros(5, 2, 8), torch.zeros(5, 2, 8)
    assert varlen.attend_varlen(q, k, k, queries, keys, causal=causal) is q
    (call,) = calls
    assert expected.items() <= call.items()
    assert call["cu_seq_q"] is queries.cu_seqlens and call["cu_seq_k"] is keys.cu_seqlens
    assert call["max"] == (3, 4)


def test_this_torch_takes_the_argument() -> None:
    import inspect

    if varlen._varlen_attn is not None:
        assert varlen.causal_argument(True).keys() <= inspect.signature(varlen._varlen_attn).parameters.keys()


def test_the_cpu_is_never_offered_it() -> None:
    assert not varlen.supports_varlen(torch.zeros(1, 2, 8, dtype=torch.bfloat16))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("causal", [True, False])
def test_the_kernel_is_the_grouped_path(causal: bool) -> None:
    layout = Layout.of([3, 40, 17]).to("cuda")
    pattern = Pattern(layout, layout, 2, causal=causal)
    qkv = torch.randn(60, 3, 2, 32, device="cuda", requires_grad=True)
    slow = self_attend(qkv, pattern)
    half = qkv.detach().bfloat16().requires_grad_()
    fast = self_attend(half, pattern)
    torch.testing.assert_close(fast.float(), slow, rtol=0.03, atol=0.03)
    grad = torch.randn_like(slow)
    slow.backward(grad)
    fast.backward(grad.bfloat16())
    torch.testing.assert_close(half.grad.float(), qkv.grad, rtol=0.05, atol=0.05)
