"""Restricted self-attention (section 4 of the paper) in blocks, in time O(L r) for windows of r tokens.

A sentence of L tokens is cut into n blocks of r tokens. The queries of a block see only keys of their block
and of its neighbours. So a block is computed as a short sentence of r queries and 2 r (causal) or 3 r keys.

Shapes: B sentences, L tokens of the longest, H heads, n blocks per sentence, E width of a head.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from nmt.model.kernels.padding import Group, Pattern


class Window:
    """The blocks of one padded group.

    Args:
        pattern: the pattern of the batch; gives r = `window`, and `causal`.
        group: the sentences of the group.
    """

    def __init__(self, pattern: Pattern, group: Group) -> None:
        assert pattern.window is not None
        self._pattern, self._lengths = pattern, group.queries
        self._size, self._length = pattern.window, int(group.queries.max())
        self._blocks = -(-self._length // self._size)
        self._sides = 2 if pattern.causal else 3

    def queries(self, x: Tensor) -> Tensor:
        """(B * H, L, E) → (B * n * H, r, E)."""
        return self._cut(F.pad(x, (0, 0, 0, self._padding)))

    def keys(self, x: Tensor) -> Tensor:
        """(B * H, L, E) → (B * n * H, 2 r or 3 r, E), each block with its neighbours."""
        after = 0 if self._pattern.causal else self._size
        x = F.pad(x, (0, 0, self._size, self._padding + after))
        total = self._blocks * self._size
        shifted = [x[:, side * self._size :][:, :total] for side in range(self._sides)]
        return torch.cat([self._cut(each) for each in shifted], 1)

    def joined(self, x: Tensor) -> Tensor:
        """(B * n * H, r, E) → (B * H, L, E)."""
        heads, blocks = self._pattern.heads, self._blocks
        x = x.view(-1, blocks, heads, self._size, x.shape[-1]).transpose(1, 2)
        return x.reshape(-1, blocks * self._size, x.shape[-1])[:, : self._length]

    def mask(self, dtype: torch.dtype) -> Tensor:
        """Returns the mask, (B * n * H, r, 2 r or 3 r): -inf where a query must not see a key, else 0."""
        size = self._size
        block = np.arange(self._blocks)[:, None, None] * size
        query = block + np.arange(size)[:, None]
        key = block - size + np.arange(self._sides * size)
        seen = (np.abs(query - key) <= size) & (key >= 0)
        if self._pattern.causal:
            seen &= key <= query
        lengths = self._lengths[:, None, None, None]
        # Padded queries see all keys: the softmax of a row without a visible key would be NaN.
        masked = ~((seen & (key < lengths)) | (query >= lengths))  # (B, n, r, keys)
        masked = np.repeat(masked.reshape(-1, *masked.shape[2:]), self._pattern.heads, axis=0)
        return self._pattern.mask_of(masked, dtype)

    def places(self) -> tuple[Tensor, Tensor]:
        """Returns the positions of the queries, (r,), and keys, (2 r or 3 r,), counted from the first key."""
        device = self._pattern.queries.positions.device
        queries = torch.arange(self._size, 2 * self._size, device=device)
        return queries, torch.arange(self._sides * self._size, device=device)

    @property
    def _padding(self) -> int:
        return self._blocks * self._size - self._length

    def _cut(self, x: Tensor) -> Tensor:
        """(B * H, n * r, E) → (B * n * H, r, E)."""
        heads, width = self._pattern.heads, x.shape[-1]
        x = x.reshape(-1, heads, self._blocks, self._size, width).transpose(1, 2)
        return x.reshape(-1, self._size, width)
