"""The Triton kernels of the loss: interpreted and compared with the plain version; compiled for GPUs."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from nmt.config import Kernel
from nmt.model.gpu import GpuBackend
from nmt.training.update.loss import training_loss

pytest.importorskip("triton", reason="Triton is not installed: it exists for Linux only")
from interpreted_loss_kernel import CASES


@pytest.fixture(scope="module")
def interpreted() -> dict[tuple[str, float], Any]:
    program = Path(__file__).with_name("interpreted_loss_kernel.py")
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    result = subprocess.run(
        [sys.executable, program], capture_output=True, text=True, timeout=300, env=environment
    )
    assert result.returncode == 0, result.stderr
    records = map(json.loads, result.stdout.splitlines())
    return {(record["case"], record.get("rdrop", 0.0)): record for record in records}


@pytest.mark.parametrize("rdrop", [0.0, 5.0])
@pytest.mark.parametrize("case", CASES)
def test_values_and_gradients(case: str, rdrop: float, interpreted: dict[tuple[str, float], Any]) -> None:
    record = interpreted[case, rdrop]
    for found, plain, expected in zip(record["found"], record["plain"], record["expected"], strict=True):
        size = max(map(abs, expected), default=0.0)
        error, error_of_plain = (
            max((abs(a - b) for a, b in zip(values, expected, strict=True)), default=0.0)
            for values in (found, plain)
        )
        assert error <= 2 * error_of_plain + 2e-6 * (size + 1)


@pytest.mark.parametrize("values", [9000, 20000])
def test_masked_logits_have_no_gradient(values: int, interpreted: dict[tuple[str, float], Any]) -> None:
    found = interpreted[f"{values} masked", 0.0]["found"]
    assert found == pytest.approx([0.0, 1 / 4000 - 0.9, 1 / 4000, math.log(4000), 0.0, 0.0], abs=1e-6)


@pytest.mark.parametrize("capability", [75, 80, 90])
@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32"])
@pytest.mark.parametrize("loss_rows", [False, True])
def test_the_kernels_compile_for_gpus(loss_rows: bool, capability: int, dtype: str) -> None:
    if dtype == "bf16" and capability < 80:
        pytest.skip("GPUs of compute capability 7.5 have no bf16")
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from nmt.model.gpu import loss_kernels

    rest = {"ids": "*i64", "figures": "*fp32", "figure_stride": "i32", "num_units": "i32", "peak": "fp32"}
    one = {"logits": f"*{dtype}", "row_units": "i32", **rest, "scale": "fp32"}
    two = {
        **{"first": f"*{dtype}", "first_units": "i32", "second": f"*{dtype}", "second_units": "i32"},
        **{**rest, "weight": "fp32", "scale": "fp32"},
    }
    for function, signature, num_values in (
        (loss_kernels._cross_entropy, one, 8000),
        (loss_kernels._cross_entropy, one, 37000),
        (loss_kernels._rdrop, two, 37000),
    ):
        unit, (constants, warps) = math.gcd(num_values, 16), loss_kernels.sizes(num_values, loss_rows)
        if function is loss_kernels._rdrop:
            constants, warps = {"BLOCK": loss_kernels._BLOCK}, loss_kernels._WARPS
        constants["UNIT"] = unit if loss_rows else 1
        # As Triton itself marks them: memory of torch begins at multiples of 16.
        pointers = (place for place, kind in enumerate(signature.values()) if "*" in kind)
        aligned = {(place,): [["tt.divisibility", 16]] for place in pointers}
        compiled = triton.compile(
            ASTSource(function, {**signature, **dict.fromkeys(constants, "constexpr")}, constants, aligned),
            target=GPUTarget("cuda", capability, 32),
            options={"num_warps": warps},
        )
        assert len(compiled.asm["cubin"]) > 1000
        # 16 bytes at a time, also of rows that do not begin at multiples of 16 logits.
        for access in ("ld", "st") if loss_rows else ():
            assert re.search(rf"{access}\.global\S*\.v4\.b32", compiled.asm["ptx"])


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
