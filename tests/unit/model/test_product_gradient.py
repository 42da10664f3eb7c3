"""The gradient of a product, put together by the attentions that read its parts."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="Triton is not installed: it exists for Linux only")
from nmt.model.gpu.triton_attention import ProductGradient


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
