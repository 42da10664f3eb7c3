"""The gradient of a product, put together by the attentions that read parts of the product.

The gradient of a linear layer's bias is the sum of the product's gradient over tokens. The kernels of
attention hold that gradient when they compute it, so they also sum it. And if several attentions read one
product, each of them writes to its part of one tensor.

Shapes: N tokens, H heads, E width of a head, C parts of a product with H * E columns each.
"""

from __future__ import annotations

import torch
from torch import Tensor


class ProductGradient:
    """The gradient of a product, (N, C * H * E), and its sums over groups of tokens.

    Args:
        num_parts: C.
    """

    def __init__(self, num_parts: int) -> None:
        self._num_parts = num_parts
        self._begun: set[int] = set()
        self._whole: Tensor | None = None
        self._sums: Tensor | None = None

    @property
    def whole(self) -> Tensor:
        """(N, C, H, E), to which all parts are written."""
        assert self._whole is not None
        return self._whole

    def begin(self, part: int, x: Tensor, num_groups: int) -> tuple[Tensor, Tensor]:
        """Returns where the gradient of a part and its sums are to be written.

        Every backward pass has memory of its own, also if one of them did not reach `take`.

        Args:
            part: number of the part.
            x: (N, H, E), the part.
            num_groups: P, into which the tokens are divided.

        Returns:
            (N, H, E) like `x`, and (P, H * E) fp32.
        """
        if self._whole is None or self._sums is None or part in self._begun:
            self._begun.clear()
            self._whole = x.new_empty(len(x), self._num_parts, *x.shape[1:])
            self._sums = x.new_empty(num_groups, self._num_parts, x.shape[1:].numel(), dtype=torch.float32)
        self._begun.add(part)
        return self._whole[:, part], self._sums[:, part]

    def take(self, *grads: Tensor) -> tuple[Tensor, Tensor] | None:
        """Returns the gradient and its sum over tokens, and forgets both.

        Args:
            grads: what the backward pass of the product receives: one gradient of all parts, or one for each.

        Returns:
            (N, C * H * E), and (C * H * E,) fp32. None if `grads` are not what was written, for example
            because something else reads the product, too.
        """
        whole, sums = self._whole, self._sums
        complete = len(self._begun) == self._num_parts
        self._whole = self._sums = None
        if whole is None or sums is None or not complete:
            return None
        written = [whole.flatten(1)] if len(grads) == 1 else whole.unbind(1)
        if len(written) != len(grads) or not all(map(_are_one, written, grads)):
            return None
        return whole.flatten(1), sums.sum(0).flatten()


def note_gradient(x: Tensor, gradient: ProductGradient, part: int = 0) -> None:
    """Notes where the gradient of `x` belongs: in `gradient`, from `part` on."""
    setattr(x, _GRADIENT, (gradient, part))


def gradient_of(x: Tensor) -> tuple[ProductGradient, int] | None:
    """Returns what `note_gradient` has noted for `x`, or for the tensor of N tokens of which it is a view."""
    found: tuple[ProductGradient, int] | None = getattr(x, _GRADIENT, None)
    base = x._base
    is_whole = base is not None and len(x) == len(base) and x.numel() == base.numel() and x.is_contiguous()
    if found is None and is_whole:
        found = getattr(base, _GRADIENT, None)
    return found


_GRADIENT = "_nmt_gradient"


def _are_one(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors are the same memory, in whatever shape."""
    if a.untyped_storage()._cdata != b.untyped_storage()._cdata or a.numel() != b.numel():
        return False
    b = b if b.shape == a.shape else b.view(a.shape)
    return a.storage_offset() == b.storage_offset() and a.stride() == b.stride()
