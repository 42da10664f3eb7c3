"""Number formats of training."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from nmt.training.update import precision
from nmt.training.update.precision import speed_up_fp32_products


@pytest.fixture(autouse=True)
def setting() -> Iterator[None]:
    """Puts back afterwards what is on for the whole process."""
    before = torch.backends.mkldnn.matmul.fp32_precision
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

    monkeypatch.setattr(precision, "_error_of_products", error)
    assert speed_up_fp32_products(True) is False
    assert asked and set(asked) == {"bf16"}
    assert matmul.fp32_precision == "none"


def test_what_one_run_switches_on_the_next_switches_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "_error_of_products", lambda shape: 3e-7)
    assert speed_up_fp32_products(True) is True
    assert torch.backends.mkldnn.matmul.fp32_precision == "bf16"
    assert speed_up_fp32_products(False) is False
    assert torch.backends.mkldnn.matmul.fp32_precision == "none"


def test_the_measured_error_is_that_of_the_number_format() -> None:
    shape = (256, 512, 1024)
    assert precision._error_of_products(shape) < 1e-6
    with torch.autocast("cpu", torch.bfloat16):
        assert precision._error_of_products(shape) > 1e-3
