"""The Triton kernels of the loss: interpreted and compared with the plain version; compiled for GPUs."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
import torch
from triton_programs import compiled, interpreted

from nmt.config import Kernel
from nmt.model.gpu import GpuBackend
from nmt.training.update.loss import training_loss

pytest.importorskip("triton", reason="Triton is not installed: it exists for Linux only")
from interpreted_loss_kernel import CASES


@pytest.fixture(scope="module")
def records() -> dict[tuple[str, float], Any]:
    found = interpreted("interpreted_loss_kernel.py")
    return {(record["case"], record.get("rdrop", 0.0)): record for record in found}


@pytest.mark.slow  # in Triton's interpreter
@pytest.mark.parametrize("rdrop", [0.0, 5.0])
@pytest.mark.parametrize("case", CASES)
def test_values_and_gradients(case: str, rdrop: float, records: dict[tuple[str, float], Any]) -> None:
    record = records[case, rdrop]
    for found, plain, expected in zip(record["found"], record["plain"], record["expected"], strict=True):
        size = max(map(abs, expected), default=0.0)
        error, error_of_plain = (
            max((abs(a - b) for a, b in zip(values, expected, strict=True)), default=0.0)
            for values in (found, plain)
        )
        assert error <= 2 * error_of_plain + 2e-6 * (size + 1)


@pytest.mark.slow
@pytest.mark.parametrize("values", [9000, 20000])
def test_masked_logits_have_no_gradient(values: int, records: dict[tuple[str, float], Any]) -> None:
    found = records[f"{values} masked", 0.0]["found"]
    assert found == pytest.approx([0.0, 1 / 4000 - 0.9, 1 / 4000, math.log(4000), 0.0, 0.0], abs=1e-6)


@pytest.mark.parametrize(
    ("loss_rows", "capability", "dtype"),
    [*((False, *case) for case in ((75, "fp16"), (80, "bf16"), (90, "fp32"))),
     *((True, *case) for case in ((75, "fp32"), (80, "fp16"), (90, "bf16")))],
)  # fmt: skip
def test_the_kernels_compile_for_gpus(loss_rows: bool, capability: int, dtype: str) -> None:
    from nmt.model.gpu import loss_kernels

    types = {
        **dict.fromkeys(("logits", "first", "second"), f"*{dtype}"),
        **{"ids": "*i64", "figures": "*fp32", "peak": "fp32", "weight": "fp32", "scale": "fp32"},
    }
    for function, num_values in (
        (loss_kernels._cross_entropy, 8000),
        (loss_kernels._cross_entropy, 37000),
        (loss_kernels._rdrop, 37000),
    ):
        constants, warps = loss_kernels.sizes(num_values, loss_rows)
        if function is loss_kernels._rdrop:
            constants, warps = {"BLOCK": loss_kernels._BLOCK}, loss_kernels._WARPS
        constants["UNIT"] = math.gcd(num_values, 16) if loss_rows else 1
        kernel = compiled(function, types, constants, capability, aligned=True, num_warps=warps)
        # 16 bytes at a time, also of rows that do not begin at multiples of 16 logits.
        for access in ("ld", "st") if loss_rows else ():
            assert re.search(rf"{access}\.global\S*\.v4\.b32", kernel.asm["ptx"])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("rdrop", [0.0, 5.0])
@pytest.mark.parametrize("kernels", [[], [Kernel.loss_rows]], ids=["measured", "rows"])
def test_the_kernels_on_a_gpu(kernels: list[Kernel], rdrop: float, dtype: torch.dtype) -> None:
    """With logits of 16 bits, single gradients of R-Drop are far from the exact ones.

    In bf16 each value is compared with the plain functions on the same logits, and all of them together with
    the exact ones.
    """
    torch.manual_seed(1)
    hidden, weight = torch.randn(600 * (2 if rdrop else 1), 64), torch.randn(9001, 64)
    target = torch.randint(9001, (590,))
    found, plain, expected = [], [], []
    for device, results, kind in (
        ("cuda", found, dtype),
        ("cuda", plain, dtype),
        ("cpu", expected, torch.float64),
    ):
        backend = GpuBackend(torch.device("cuda", 0), kernels)
        kernel = backend.loss_kernel if results is found else None
        leaves = [x.to(dtype).to(device, kind).requires_grad_() for x in (hidden, weight)]
        losses = training_loss(
            *leaves, target.to(device), smoothing=0.1, rdrop=rdrop, scale=8.0, kernel=kernel
        )
        gradients = torch.autograd.grad(losses.objective, leaves)
        results += [x.detach().double().cpu() for x in (*losses, *gradients)]
    for a, b, exact in zip(found, plain, expected, strict=True):
        tolerance = {torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 5e-2}[dtype]
        near = b if dtype is torch.bfloat16 else exact
        torch.testing.assert_close(a, near, rtol=tolerance, atol=tolerance * float(near.abs().max()))
        assert float((a - exact).norm()) <= tolerance * float(exact.norm())
