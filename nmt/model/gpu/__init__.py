"""The backend of NVIDIA GPUs."""

from __future__ import annotations

from functools import partial

import torch

from nmt.config import Kernel
from nmt.model.attention import Attention, Pattern, score_class
from nmt.model.backend import Backend, LossKernel
from nmt.model.gpu.attention import HALF, attention_without_padding, triton_kind
from nmt.model.gpu.half_weights import HalfWeights
from nmt.model.gpu.kernel import has_triton
from nmt.model.seq2seq import Seq2Seq
from nmt.runtime.streams import log


class GpuBackend(Backend):
    """Attention without padding; in training in bf16 and fp16 also copies of weights, and fused layers."""

    group_overhead = 3_200_000
    """Estimated: work is cheap on a GPU, and calls are expensive."""

    _pads = False

    @property
    def loss_kernel(self) -> LossKernel | None:
        """See `Backend.loss_kernel`."""
        if not has_triton():
            return None
        from nmt.model.gpu import loss_kernels  # a local import: it needs Triton

        loss_rows = Kernel.loss_rows in self.kernels
        runs = loss_kernels.runs(self.device, loss_rows)
        return partial(loss_kernels.replace_logits, loss_rows) if runs else None

    def attention(self, pattern: Pattern, dtype: torch.dtype) -> Attention:
        """See `Backend.attention`."""
        attention = attention_without_padding(pattern, self.device, dtype)
        if attention is not None:
            return attention
        if dtype in HALF and not self._pads:
            self._pads = True
            log.info("attention pads sentences: its score, encoding or width has no kernel without padding")
        return super().attention(pattern, dtype)

    def half_weights(self, model: Seq2Seq, dtype: torch.dtype) -> HalfWeights | None:
        """See `Backend.half_weights`."""
        if dtype not in HALF:
            return None
        if has_triton():
            from nmt.model.gpu.layers import fused_layers  # a local import: it needs Triton

            self.layers = fused_layers(model, self.device, dtype, self.kernels)
        else:
            log.info("the layers are computed by the operators of torch: Triton is not installed")
        return HalfWeights(model, dtype)

    def captures(self, model: Seq2Seq) -> bool:
        """See `Backend.captures`."""
        if self.layers is None or not self.layers.is_complete:
            return False
        width, _ = model.config.head_widths  # `layers` require equal ones
        has_scale = score_class(model.config).factor(width) is not None
        return has_scale and triton_kind(self.device, torch.bfloat16, width) is not None
