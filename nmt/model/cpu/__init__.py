"""The backend of the CPU, which also serves devices without one of their own."""

from __future__ import annotations

import torch

from nmt.model.backend import Attention, Backend, Pattern
from nmt.model.cpu.padded import PaddedAttention


class CpuBackend(Backend):
    """Attention over padded groups of sentences. Everything else is computed by the model itself."""

    group_overhead = 32_000
    """See `PaddedGroups`; measured on a CPU."""

    def attention(self, pattern: Pattern, dtype: torch.dtype) -> Attention:
        """See `Backend.attention`."""
        return PaddedAttention(pattern, self.group_overhead)
