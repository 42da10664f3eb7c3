"""The backend of NVIDIA GPUs."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from functools import cache

import torch
from torch import Tensor

from nmt.config import Kernel
from nmt.model.attention import score_class
from nmt.model.backend import Attention, LossKernel, Pattern
from nmt.model.cpu import CpuBackend
from nmt.model.gpu import layers
from nmt.model.gpu.attention import attention_without_padding, supports_triton
from nmt.model.gpu.half_weights import HalfWeights
from nmt.model.gpu.kernel import has_triton, right
from nmt.model.gpu.layers import FusedLayers
from nmt.model.seq2seq import Seq2Seq
from nmt.model.transformer import Transformer
from nmt.runtime import log

_HALF = (torch.bfloat16, torch.float16)


class GpuBackend(CpuBackend):
    """Attention without padding; in training in bf16 and fp16 also copies of weights, and fused layers.

    Args:
        device: the GPU.
        kernels: those of `training.unmeasured_kernels`.
    """

    group_overhead = 3_200_000
    """See `PaddedGroups`; estimated: work is cheap on a GPU, and calls are expensive."""

    def __init__(self, device: torch.device, kernels: Collection[Kernel] = ()) -> None:
        super().__init__(device)
        self._kernels = frozenset(kernels)
        self._pads = False

    @property
    def loss_kernel(self) -> LossKernel | None:
        """See `Backend.loss_kernel`."""
        runs = loss_runs(self.device, Kernel.loss_rows in self._kernels)
        return self._replace_logits if runs else None

    def _replace_logits(
        self, logits: Sequence[Tensor], ids: Tensor, figures: Tensor, peak: float, rdrop: float, scale: float
    ) -> None:
        """See `LossKernel`."""
        from nmt.model.gpu import loss_kernels  # a local import: it needs Triton

        loss_rows = Kernel.loss_rows in self._kernels
        if rdrop:
            loss_kernels.rdrop_(logits[0], logits[1], ids, figures, peak, rdrop / 4, scale, loss_rows)
        else:
            loss_kernels.cross_entropy_(logits[0], ids, figures, peak, scale, loss_rows)

    def attention(self, pattern: Pattern, dtype: torch.dtype) -> Attention:
        """See `Backend.attention`."""
        attention = attention_without_padding(pattern, self.device, dtype)
        if attention is not None:
            return attention
        if dtype in _HALF and not self._pads:
            self._pads = True
            log.info("attention pads sentences: its score, encoding or width has no kernel without padding")
        return super().attention(pattern, dtype)

    def half_weights(self, model: Seq2Seq, dtype: torch.dtype) -> HalfWeights | None:
        """See `Backend.half_weights`."""
        if dtype not in _HALF:
            return None
        reason = layers.unsupported(model)
        if reason is not None:
            log.info("the layers are computed by the operators of torch: %s", reason)
        elif isinstance(model, Transformer) and layers.runs(self.device):
            self.layers = FusedLayers(model, dtype, self._kernels)
        return HalfWeights(model, dtype)

    def captures(self, model: Seq2Seq) -> bool:
        """See `Backend.captures`."""
        if not isinstance(self.layers, FusedLayers) or not isinstance(model, Transformer):
            return False
        config, dtype = model.config, torch.bfloat16
        width = config.d_model // config.heads
        has_scale = score_class(config).factor(width) is not None
        return self.layers.is_complete and has_scale and supports_triton(self.device, dtype, width)


@cache
def loss_runs(device: torch.device, loss_rows: bool) -> bool:
    """Whether the kernels of the loss run on a device, tried once with `cross_entropy_`."""
    if not has_triton():
        return False

    def is_right() -> bool:
        from nmt.model.gpu.loss_kernels import cross_entropy_  # a local import: it needs Triton

        logits = torch.zeros(2, 8, dtype=torch.float16, device=device)
        figures = torch.zeros(3, 2, device=device)
        cross_entropy_(logits, torch.tensor([3, -1], device=device), figures, 0.5, 8.0, loss_rows)
        exact = torch.tensor([[1.0, 1.0, 1.0, -3.0, 1.0, 1.0, 1.0, 1.0], [0.0] * 8], device=device)
        nll = figures.new_tensor([math.log(8), 0.0])
        return torch.equal(logits.float(), exact) and torch.allclose(figures[0], nll)

    return right("kernels of the loss", device, is_right)
