"""Attention over flat streams: interpreted and compared with a naive version, compiled; its gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from interpreted_attention import CASES
from torch import Tensor
from triton_programs import compiled, interpreted

from nmt.data.batches.batching import Layout
from nmt.model.attention import Pattern

pytest.importorskip("triton", reason="Triton is not installed: it exists for Linux only")
from nmt.model.gpu import triton_attention
from nmt.model.gpu.triton_attention import ProductGradient


@pytest.fixture(scope="module")
def records() -> dict[tuple[str, str], dict[str, Any]]:
    return {(record["case"], record["dtype"]): record for record in interpreted("interpreted_attention.py")}


@pytest.mark.slow  # in Triton's interpreter
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("case", CASES)
def test_values_and_gradients(case: str, dtype: str, records: dict[tuple[str, str], dict[str, Any]]) -> None:
    record = records[case, dtype]
    rounding = 1e-6 if dtype == "float32" else 1e-3
    assert record["error"] <= 2 * record["error_of_plain"] + rounding * (record["size"] + 1)
    assert record["size"] > 0.5


@pytest.mark.parametrize(
    ("problem", "words"),
    [
        (RuntimeError("Failed to find C compiler. Please.\nmore"), "Failed to find C compiler. Please"),
        (KeyError(), "KeyError"),
        (None, "its results are wrong"),
    ],
)
def test_kernels_that_do_not_run_are_reported_once_and_not_used(
    problem: Exception | None,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def attend(qkv: Tensor, *others: object, **options: object) -> Tensor:
        if problem is not None:
            raise problem
        return qkv[:, 0] * 2

    monkeypatch.setattr(triton_attention, "attend_joined", attend)
    triton_attention.runs.cache_clear()
    for _ in range(2):
        assert not triton_attention.runs(torch.device("cpu"), torch.float16, 16)
    triton_attention.runs.cache_clear()
    [message] = caplog.messages
    assert message.startswith("the attention kernels of nmt do not run on cpu with heads of 16 (" + words)
    assert "\n" not in message


def test_sums_that_do_not_run_do_not_switch_the_kernels_off(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def attend(qkv: Tensor, pattern: Pattern, gradient: object = None) -> Tensor:
        if gradient is not None:
            raise RuntimeError("no sums")
        first, both = qkv[:1, 2], qkv[:, 2].mean(0, keepdim=True)
        return torch.cat([first, both])

    monkeypatch.setattr(triton_attention, "attend_joined", attend)
    place = torch.device("cpu"), torch.float16, 16
    for trial, expected in ((triton_attention.runs, True), (triton_attention.sums_biases, False)):
        trial.cache_clear()
        assert trial(*place) is expected
        trial.cache_clear()
    [message] = caplog.messages
    assert message.startswith(
        "the sums of attention kernels of nmt do not run on cpu with heads of 16 (no sums"
    )


@pytest.mark.parametrize(
    "capability, width",
    [pytest.param(80, 64, marks=pytest.mark.slow), (90, 16), pytest.param(90, 128, marks=pytest.mark.slow)],
)
def test_the_kernels_compile_for_gpus(capability: int, width: int) -> None:
    from nmt.model.gpu import attention_kernels as kernels

    types = {
        **dict.fromkeys(("q", "k", "v", "out", "grad", "grad_q", "grad_k", "grad_v"), "*bf16"),
        **dict.fromkeys(("sums", "along", "added_q", "added_k", "added_v"), "*fp32"),
        **dict.fromkeys(("q_sentences", "k_sentences", "q_seqlens", "k_seqlens"), "*i32"),
        **dict.fromkeys(("scale", "plain_scale"), "fp32"),
    }
    shape = {"HEADS": 8, "WIDTH": width, "TILE": kernels._TILE, "BLOCK": kernels._BLOCK}
    for causal in (True, False):
        for function in (kernels._attend, kernels._gradient_of_queries, kernels._gradient_of_keys):
            sums = {} if function is kernels._attend else {"SUMS": causal}
            kernel = compiled(function, types, {"CAUSAL": causal, **sums, **shape}, capability)
            assert kernel.metadata.shared < 99_000  # what the smallest of these GPUs has


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_computes_the_same_in_every_run() -> None:
    layout = Layout.of([3, 40, 17, 130] * 20).to("cuda")
    generator = torch.Generator("cuda").manual_seed(1)
    shape = (len(layout.positions), 3, 8, 64)
    qkv = torch.randn(shape, generator=generator, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    found = []
    for _ in range(2):
        out = triton_attention.attend_joined(qkv, Pattern(layout, layout, 8, 64, 0.125, causal=True))
        (grad,) = torch.autograd.grad(out, qkv, torch.ones_like(out))
        found.append((out, grad))
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def written(gradient: ProductGradient, part: int) -> Tensor:
    """Writes a part: two tokens with two heads of three values, whose sums are in one tile."""
    grad, sums = gradient.begin(part, torch.zeros(2, 2, 3))
    grad.copy_(torch.arange(12.0).view(2, 2, 3) + 100 * part)
    sums.copy_(torch.arange(6.0).view(1, 6) + 1000 * part)
    return grad


def test_one_gradient_of_all_parts() -> None:
    gradient = ProductGradient(2)
    for part in range(2):
        written(gradient, part)
    received = gradient.whole.view(2, 12)  # as autograd passes it on, in another shape
    grad, added = gradient.take(received) or (None, None)
    assert grad is not None and added is not None
    assert grad.tolist() == [[*range(6), *range(100, 106)], [*range(6, 12), *range(106, 112)]]
    assert added.tolist() == [*range(6), *range(1000, 1006)]
    assert gradient.take(received) is None  # it has been taken


def test_a_gradient_for_each_part() -> None:
    gradient = ProductGradient(2)
    grads = [written(gradient, part) for part in (1, 0)]
    grad, _ = gradient.take(*reversed(grads)) or (None, None)
    assert grad is not None and grad.shape == (2, 12) and grad.data_ptr() == grads[1].data_ptr()


def test_other_gradients_are_not_taken() -> None:
    def begun() -> tuple[ProductGradient, list[Tensor]]:
        gradient = ProductGradient(2)
        return gradient, [written(gradient, part) for part in range(2)]

    gradient, grads = begun()
    assert gradient.take(*reversed(grads)) is None
    gradient, grads = begun()
    assert gradient.take(grads[0], grads[1] + 1) is None  # something else reads the second part, too
    gradient, _ = begun()
    assert gradient.take(gradient.whole.clone()) is None
    incomplete = ProductGradient(2)
    written(incomplete, 0)
    assert incomplete.take(incomplete.whole) is None
    assert ProductGradient(1).take(torch.zeros(2, 3)) is None


def test_a_second_backward_pass_writes_to_other_memory() -> None:
    gradient = ProductGradient(1)
    first = written(gradient, 0)
    kept = first.clone()
    second = written(gradient, 0)
    second.zero_()
    assert torch.equal(first, kept)
    assert gradient.take(first) is None


def test_no_tokens() -> None:
    gradient = ProductGradient(2)
    for part in range(2):
        grad, sums = gradient.begin(part, torch.zeros(0, 2, 3))
        assert grad.shape == (0, 2, 3) and sums.shape == (0, 6)
    whole, added = gradient.take(gradient.whole) or (None, None)
    assert whole is not None and added is not None and whole.shape == (0, 12) and added.tolist() == [0.0] * 12
