"""A search processor that fixes the length of translations, to separate the place of EOS from the rest."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from nmt.decoding.processors import PROCESSORS, SearchInput, SearchProcessor


@dataclass(frozen=True)
class FixedLengthOptions:
    """Options of `FixedLength`."""

    pieces: int = 1
    """Pieces of every translation, EOS not counted."""


class FixedLength(SearchProcessor):
    """Forbids EOS before a translation has `pieces` pieces, and everything else then."""

    Options = FixedLengthOptions
    options: FixedLengthOptions

    def __init__(self, options: FixedLengthOptions | None = None, eos_id: int = -1) -> None:
        super().__init__(options)
        self._eos_id = eos_id

    def start(self, search: SearchInput) -> FixedLength:
        """See `SearchProcessor.start`."""
        return FixedLength(self.options, search.eos_id)

    def __call__(self, log_probs: Tensor, ids: Tensor) -> Tensor:
        """See `SearchProcessor`."""
        is_eos = torch.arange(log_probs.shape[2], device=log_probs.device) == self._eos_id
        complete = ids.shape[2] - 1 >= self.options.pieces
        return log_probs.masked_fill(~is_eos if complete else is_eos, -torch.inf)


def register() -> None:
    """Registers the processor; not done by the import, since an import must not change other programs."""
    PROCESSORS["fixed_length"] = FixedLength
