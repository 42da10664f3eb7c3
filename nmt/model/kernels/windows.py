"""Restricted self-attention (section 4 of the paper) in blocks: the work grows with length times window.

A sentence is cut into blocks as long as the window, r tokens. The queries of a block see keys of their block
and of its neighbours alone, so a block is a short sentence of r queries and 2 r (causal) or 3 r keys. Shapes:
B sentences, H heads, n blocks of each, E width of a head.
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
        pattern: `window` and `causal` are used.
        group: its sentences.
    """

    def __init__(self, pattern: Pattern, group: Group) -> None:
        assert pattern.window is not None
        self._pattern, self._lengths = pattern, group.queries
        self._size, self._length = pattern.window, int(group.queries.max())
        self._blocks = -(-self._length // self._size)
        self._sides = 2 if pattern.causal else 3

    def queries(self, x: Tensor) -> Tensor:
        """(B * H, L, E) → (B * n * H, r, E)."""
        return self._cut(F.pad(x, (0, 0, 0, self._filling)))

    def keys(self, x: Tensor) -> Tensor:
        """(B * H, L, E) → (B * n * H, 2 r or 3 r, E): each block with its neighbours."""
        after = 0 if self._pattern.causal else self._size
        x = F.pad(x, (0, 0, self._size, self._filling + after))
        total = self._blocks * self._size
        shifted = [x[:, side * self._size :][:, :total] for side in range(self._sides)]
        return torch.cat([self._cut(each) for each in shifted], 1)

    def joined(self, x: Tensor) -> Tensor:
        """(B * n * H, r, E) → (B * H, L, E)."""
        heads, blocks = self._pattern.heads, self._blocks
        x = x.view(-1, blocks, heads, self._size, x.shape[-1]).transpose(1, 2)
        return x.reshape(-1, blocks * self._size, x.shape[-1])[:, : self._length]

    def mask(self, dtype: torch.dtype) -> Tensor:
        """(B * n * H, r, 2 r or 3 r): 0, or -inf where a query does not see a key."""
        size = self._size
        block = np.arange(self._blocks)[:, None, None] * size
        query = block + np.arange(size)[:, None]
        key = block - size + np.arange(self._sides * size)
        seen = (np.abs(query - key) <= size) & (key >= 0)
        if self._pattern.causal:
            seen &= key <= query
        lengths = self._lengths[:, None, None, None]
        # Filling sees everything: the softmax of a row without a key would not be a number.
        banned = ~((seen & (key < lengths)) | (query >= lengths))  # (B, n, r, keys)
        banned = np.repeat(banned.reshape(-1, *banned.shape[2:]), self._pattern.heads, axis=0)
        return self._pattern.mask_of(banned, dtype)

    def places(self) -> tuple[Tensor, Tensor]:
        """Positions of a block's queries and keys, counted from its first key."""
        device = self._pattern.queries.positions.device
        queries = torch.arange(self._size, 2 * self._size, device=device)
        return queries, torch.arange(self._sides * self._size, device=device)

    @property
    def _filling(self) -> int:
        return self._blocks * self._size - self._length

    def _cut(self, x: Tensor) -> Tensor:
        """(B * H, n * r, E) → (B * n * H, r, E)."""
        heads, width = self._pattern.heads, x.shape[-1]
        x = x.reshape(-1, heads, self._blocks, self._size, width).transpose(1, 2)
        return x.reshape(-1, self._size, width)
