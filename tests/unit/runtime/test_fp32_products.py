"""The library that computes fp32 products, and its accuracy."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from nmt.runtime import fp32_products
from nmt.runtime.fp32_products import fast_fp32_products, plain_fp32_products, speed_up_fp32_products


@pytest.fixture(autouse=True)
def setting() -> Iterator[None]:
    """Begins each test with torch's default, which another test of this process may have changed."""
    before = torch.backends.mkldnn.matmul.fp32_precision
    torch.backends.mkldnn.matmul.fp32_precision = "none"
    yield
    torch.backends.mkldnn.matmul.fp32_precision = before


def test_fast_products_are_as_exact_as_fp32() -> None:
    speed_up_fp32_products(True)
    x, weight = torch.randn(300, 700), torch.randn(500, 700)
    torch.testing.assert_close(
        torch.nn.functional.linear(x, weight).double(), x.double() @ weight.double().T, rtol=1e-5, atol=2e-4
    )


def test_what_is_less_exact_than_fp32_is_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    matmul = torch.backends.mkldnn.matmul
    asked = []

    def error(shape: tuple[int, int, int]) -> float:
        asked.append(matmul.fp32_precision)
        return 2e-3 if shape[0] == 64 else 3e-7

    monkeypatch.setattr(fp32_products, "_error_of_products", error)
    assert speed_up_fp32_products(True) is False
    assert asked and set(asked) == {"bf16"}
    assert matmul.fp32_precision == "none"


def test_what_one_run_switches_on_the_next_switches_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fp32_products, "_error_of_products", lambda shape: 3e-7)
    assert speed_up_fp32_products(True) is True
    assert torch.backends.mkldnn.matmul.fp32_precision == "bf16"
    assert speed_up_fp32_products(False) is False
    assert torch.backends.mkldnn.matmul.fp32_precision == "none"


def test_the_measured_error_is_that_of_the_number_format() -> None:
    shape = (256, 512, 1024)
    assert fp32_products._error_of_products(shape) < 1e-6
    with torch.autocast("cpu", torch.bfloat16):
        assert fp32_products._error_of_products(shape) > 1e-3


def test_both_context_managers_restore_the_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    matmul = torch.backends.mkldnn.matmul
    monkeypatch.setattr(fp32_products, "_is_accurate", lambda: True)
    matmul.fp32_precision = "none"
    with fast_fp32_products():
        assert matmul.fp32_precision == "bf16"
        with plain_fp32_products():
            assert matmul.fp32_precision == "ieee"
        assert matmul.fp32_precision == "bf16"
    assert matmul.fp32_precision == "none"
    with plain_fp32_products():
        assert matmul.fp32_precision == "none"


def test_inexact_products_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fp32_products, "_error_of_products", lambda shape: 2e-3)
    fp32_products._is_accurate.cache_clear()
    try:
        with fast_fp32_products():
            assert torch.backends.mkldnn.matmul.fp32_precision == "none"
    finally:
        fp32_products._is_accurate.cache_clear()
