"""The choice of the library that computes fp32 matrix products on the CPU: oneDNN or torch's default.

torch is imported when a function is called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

_FAST, _PLAIN = "bf16", "none"
_SHAPES = [(256, 512, 1024), (1000, 128, 128), (64, 2048, 512)]
_FP32_ERROR = 1e-6  # fp32 has an error of 2e-7 to 6e-7, TF32 of 3e-4, bf16 of 2e-3


def speed_up_fp32_products(wanted: bool) -> bool:
    """Lets oneDNN compute the fp32 matrix products of this process on the CPU, if that costs no accuracy.

    With bf16 allowed, oneDNN uses its own kernels. A processor with matrix units (AMX) then rounds to bf16.
    Other processors still compute in fp32, up to twice as fast as torch's default. The error is measured: if
    it is larger than that of fp32, the setting is reverted. With `wanted=False`, it is torch's default.

    Returns:
        Whether oneDNN computes them.
    """
    import torch

    settings = _settings()
    available: Callable[[], bool] = torch.backends.mkldnn.is_available
    if settings is None or not available():
        return False
    settings.fp32_precision = _FAST if wanted else _PLAIN
    if wanted and max(map(_error_of_products, _SHAPES)) > _FP32_ERROR:
        wanted, settings.fp32_precision = False, _PLAIN
    return wanted


@contextmanager
def fast_fp32_products() -> Iterator[None]:
    """Lets oneDNN compute the fp32 products of the body, if that costs no accuracy.

    The accuracy is measured once per process. The setting is that of the process: other threads compute in
    the same way during the body, which changes the last bits of their results at most.
    """
    settings = _settings()
    with _precision(_FAST) if settings is not None and _is_accurate() else nullcontext():
        yield


@contextmanager
def plain_fp32_products() -> Iterator[None]:
    """Computes the fp32 products of the body without oneDNN.

    The small batched products of attention are as fast in plain fp32. oneDNN compiles a kernel for every new
    shape of them. In training this compilation took five times as long as the products, and a gigabyte of
    memory. In a search, where every step has another shape, it also copies the operands.
    """
    plain = getattr(_settings(), "fp32_precision", None) in (None, _PLAIN, "ieee")
    with nullcontext() if plain else _precision("ieee"):
        yield


@contextmanager
def _precision(name: str) -> Iterator[None]:
    settings = _settings()
    before, settings.fp32_precision = settings.fp32_precision, name
    try:
        yield
    finally:
        settings.fp32_precision = before


def _settings() -> Any:
    """Returns the settings of oneDNN's products; None if this version of torch has none."""
    import torch

    matmul: Any = getattr(torch.backends.mkldnn, "matmul", None)
    return matmul if hasattr(matmul, "fp32_precision") else None


@cache
def _is_accurate() -> bool:
    before = _settings().fp32_precision
    accurate = speed_up_fp32_products(True)
    _settings().fp32_precision = before
    return accurate


def _error_of_products(shape: tuple[int, int, int]) -> float:
    """Returns the relative root mean square error of an (m, k) by (k, n) product."""
    import torch

    m, k, n = shape
    generator = torch.Generator().manual_seed(1)
    x: Tensor = torch.randn(m, k, generator=generator)
    weight: Tensor = torch.randn(n, k, generator=generator)
    exact = x.double() @ weight.double().T
    error = torch.nn.functional.linear(x, weight).double() - exact
    return float(error.norm() / exact.norm())
