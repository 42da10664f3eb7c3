"""Attention without padding: flash attention with stand-ins; on a GPU the real kernel, and those of nmt."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from test_attention import assert_same_with_gradients, random
from torch import Tensor
from toy_positions import KINDS

from nmt.config import ModelConfig
from nmt.data.batches.batching import Layout
from nmt.model.attention import SCORES, Pattern, ScaledDot
from nmt.model.backend import Backend
from nmt.model.cpu.variants import VariantAttention
from nmt.model.gpu import GpuBackend, attention
from nmt.model.gpu.attention import FlashAttention, attend_flash, attention_without_padding
from nmt.model.positions import POSITIONS, Shape
from nmt.model.reference import naive_attention
from nmt.model.transformer import Transformer


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

    monkeypatch.setattr(attention, "flash_kernel", lambda: operator)
    queries, keys = Layout.of([2, 3]), Layout.of([4, 1])
    q, k, v = (torch.zeros(5, 2, 8) for _ in "qkv")
    pattern = Pattern(queries, keys, 2, 8, 0.5, causal=causal, window=window)
    assert attend_flash(q, k, v, pattern) is q
    [(given, named)] = calls
    assert all(a is b for a, b in zip(given, (q, k, v, queries.cu_seqlens, keys.cu_seqlens), strict=False))
    is_causal, left, right = expected
    assert given[5:] == (3, 4, 0.0, is_causal, False)
    assert named == {"scale": 0.5, "window_size_left": left, "window_size_right": right}


def test_this_torch_has_the_operator_with_these_arguments() -> None:
    kernel = attention.flash_kernel()
    assert kernel is not None
    arguments = [(one.name, str(one.type)) for one in kernel._schema.arguments]  # type: ignore[attr-defined]
    assert [name for name, _ in arguments[:10]] == [
        *("query", "key", "value", "cum_seq_q", "cum_seq_k", "max_q", "max_k", "dropout_p", "is_causal"),
        "return_debug_mask",
    ]
    assert {"scale", "window_size_left", "window_size_right"} <= {name for name, _ in arguments}


HEADS, WIDTH, LAYER = 2, 8, 1
GPU = torch.device("cuda", 0)
LAYOUT = Layout.of([7, 2])


@pytest.mark.parametrize("triton", [False, True])
@pytest.mark.parametrize(
    ("score", "encoding", "width", "dtype", "expected"),
    [
        ("scaled_dot", None, 16, torch.bfloat16, "TritonAttention"),
        ("dot", "rotary", 64, torch.float16, "TritonAttention"),
        ("scaled_dot", "sinusoidal", 24, torch.bfloat16, "FlashAttention"),
        ("scaled_dot", None, 12, torch.bfloat16, "PaddedAttention"),
        ("scaled_dot", None, 264, torch.bfloat16, "PaddedAttention"),
        ("scaled_dot", None, 16, torch.float32, "PaddedAttention"),
        ("additive", None, 16, torch.bfloat16, "VariantAttention"),
        ("scaled_dot", "alibi", 16, torch.bfloat16, "VariantAttention"),
        ("scaled_dot", "relative", 16, torch.bfloat16, "VariantAttention"),
    ],
)
def test_the_attention_of_a_gpu(
    score: str,
    encoding: str | None,
    width: int,
    dtype: torch.dtype,
    expected: str,
    triton: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What has no kernel pads the sentences; in 16 bits the log says so, once."""
    monkeypatch.setattr(attention, "flash_runs", lambda *_: True)
    monkeypatch.setattr(attention, "has_triton", lambda: triton)
    if triton:
        pytest.importorskip("triton")
        monkeypatch.setattr("nmt.model.gpu.triton_attention.runs", lambda *_: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    caplog.set_level("INFO")
    positions = None
    if encoding is not None:
        kind = POSITIONS[encoding]
        positions = kind(kind.Options(), Shape(HEADS * width, HEADS, 1, False, 1.0))
    scale = SCORES[score].factor(width)
    pattern = Pattern(LAYOUT, LAYOUT, HEADS, width, scale, positions=positions)
    if expected == "TritonAttention" and not triton:
        expected = "FlashAttention"
    backend = GpuBackend(GPU)
    found = [backend.attention(pattern, dtype) for _ in range(2)]
    assert all(type(each).__name__ == expected for each in found)
    pads = expected in ("PaddedAttention", "VariantAttention")
    assert len(caplog.messages) == (pads and dtype is not torch.float32)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    assert attention_without_padding(pattern, GPU, dtype) is None


def test_kernels_of_gpus_are_for_heads_of_one_width() -> None:
    pattern = Pattern(LAYOUT, LAYOUT, HEADS, WIDTH, 0.5, value_width=2 * WIDTH)
    assert type(GpuBackend(GPU).attention(pattern, torch.bfloat16)) is VariantAttention
    layers = pytest.importorskip("nmt.model.gpu.layers", reason="needs Triton", exc_type=ImportError)
    for widths, refused in (((None, None), False), ((8, 8), False), ((4, None), True), ((4, 4), True)):
        model = Transformer(ModelConfig(1, 1, 16, 16, 2, *widths), 9, 9)
        assert ("model.key_width or model.value_width" in (layers.unsupported(model) or "")) is refused


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("encoding", [None, "turning", "rotary"])
@pytest.mark.parametrize("window", [None, 2])
def test_self_attention(
    encoding: str | None, window: int | None, causal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[int, int]] = []

    def kernel(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        cu_seq_q: Tensor,
        cu_seq_k: Tensor,
        *others: object,
        scale: float,
        window_size_left: int,
        window_size_right: int,
    ) -> tuple[Tensor]:
        """The reference with the signature of the kernel."""
        calls.append((window_size_left, window_size_right))
        query = query * (scale * query.shape[-1] ** 0.5)
        ends = (cu_seq_q[:-1], cu_seq_q[1:], cu_seq_k[:-1], cu_seq_k[1:])
        rules: Any = {"causal": window_size_right == 0}
        rules["window"] = window_size_left if window_size_left >= 0 else None
        outputs = [
            naive_attention(query[first:last], key[left:right], value[left:right], **rules)
            for first, last, left, right in zip(*ends, strict=True)
        ]
        return (torch.cat(outputs).view_as(query),)

    monkeypatch.setattr(attention, "flash_kernel", lambda: kernel)
    positions = None
    if encoding is not None:
        kind = KINDS.get(encoding) or POSITIONS[encoding]
        positions = kind(kind.Options(), Shape(HEADS * WIDTH, HEADS, 2, causal, 1.0)).double()
    pattern = Pattern(LAYOUT, LAYOUT, HEADS, WIDTH, 0.5, causal=causal, positions=positions, window=window)
    qkv, score = random(9, 3, HEADS, WIDTH), ScaledDot(HEADS, WIDTH)
    fast = FlashAttention(pattern).self_attend(qkv, score, LAYER)
    if window is not None:
        assert calls == [(window, 0 if causal else window)]
    score.scale = 0.5
    slow = Backend(torch.device("cpu")).attention(pattern, qkv.dtype).self_attend(qkv, score, LAYER)
    assert_same_with_gradients(fast, slow, [qkv], atol=1e-11)


def missing(error: type[Exception]) -> Callable[..., tuple[Tensor]]:
    def kernel(*arguments: object, **options: object) -> tuple[Tensor]:
        raise error("USE_FLASH_ATTENTION was not enabled for build.\nA second line.")

    return kernel


def attending(*, causal: bool = True, factor: float = 1.0, grad: bool = True) -> Callable[..., tuple[Tensor]]:
    """A kernel that computes `factor` times the attention, with a backward pass if `grad`."""

    def kernel(q: Tensor, k: Tensor, v: Tensor, *rest: object, **options: object) -> tuple[Tensor]:
        assert q.shape == (2, 1, 16)
        out = factor * naive_attention(q, k, v, causal=causal)
        return (out if grad else out.detach(),)

    return kernel


@pytest.mark.parametrize(
    ("kernel", "runs"),
    [
        (attending(), True),
        (missing(RuntimeError), False),
        (attending(grad=False), False),
        (attending(causal=False), False),
        (attending(factor=2.0), False),
    ],
)
@pytest.mark.parametrize("grad", [True, False])
def test_a_kernel_that_does_not_run_is_reported_once_and_not_used(
    kernel: Callable[..., Tensor],
    runs: bool,
    grad: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(attention, "flash_kernel", lambda: kernel)
    attention.flash_runs.cache_clear()
    with torch.inference_mode(not grad), torch.autocast("cpu", torch.bfloat16):
        for _ in range(2):
            assert attention.flash_runs(torch.device("cpu"), torch.bfloat16, 16) is runs
    attention.flash_runs.cache_clear()
    start = "this build of torch has no flash attention for bfloat16 with heads of 16 on cpu ("
    assert len(caplog.messages) == (not runs)
    assert all(line.startswith(start) and "\n" not in line for line in caplog.messages)


def test_a_kernel_without_memory_is_not_a_missing_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "flash_kernel", lambda: missing(torch.OutOfMemoryError))
    attention.flash_runs.cache_clear()
    with pytest.raises(torch.OutOfMemoryError):
        attention.flash_runs(torch.device("cpu"), torch.bfloat16, 16)


needs_a_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
QUERIES, KEYS = [3, 40, 17], [5, 20, 33]
SCORE = ScaledDot(2, 32)


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
@pytest.mark.parametrize(
    ("kind", "causal"), [("self_attend", True), ("self_attend", False), ("cross_attend", False)]
)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("flat", [True, False])
def test_the_kernel_is_the_naive_twin(
    flat: bool, dtype: torch.dtype, kind: str, causal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not flat:
        monkeypatch.setattr(attention, "has_triton", lambda: False)
    is_self, generator = kind == "self_attend", torch.Generator().manual_seed(1)
    sizes = QUERIES if is_self else KEYS
    queries, keys = Layout.of(QUERIES).to("cuda"), Layout.of(sizes).to("cuda")
    pattern = Pattern(queries, queries if is_self else keys, 2, 32, 32**-0.5, causal=causal)
    found = GpuBackend(GPU).attention(pattern, dtype)
    assert type(found).__name__ == ("TritonAttention" if flat else "FlashAttention")
    shapes = ((60, 3),) if is_self else ((60,), (58, 2))

    def slow(*x: Tensor) -> Tensor:
        q, k, v = x[0].unbind(1) if is_self else (x[0], *x[1].unbind(1))
        return naive(q, k, v, sizes, causal)

    assert_near_with_gradients(
        lambda *x: getattr(found, kind)(*x, SCORE, 0),
        slow,
        [torch.randn(*shape, 2, 32, generator=generator) for shape in shapes],
        dtype,
    )


@pytest.mark.gpu
@needs_a_gpu
def test_the_grouped_path_on_a_gpu_is_the_naive_twin() -> None:
    """In fp32, which the kernel does not support."""
    layout = Layout.of(QUERIES).to("cuda")
    pattern = Pattern(layout, layout, 2, 32, 32**-0.5, causal=True)
    qkv = torch.randn(60, 3, 2, 32, generator=torch.Generator().manual_seed(1))
    found = GpuBackend(GPU).attention(pattern, torch.float32).self_attend(qkv.to("cuda"), SCORE, 0).cpu()
    torch.testing.assert_close(found, naive(*qkv.unbind(1), QUERIES, True), rtol=1e-3, atol=1e-3)
