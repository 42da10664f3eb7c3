"""A convolutional layer over flat batches, for comparison with self-attention (table 1 of the paper).

Shapes: N tokens of a stream, D width, k kernel.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from nmt.data.batches.batching import Layout


class Convolution(nn.Module):
    """A convolution over the tokens of each sentence; outside the sentence the input is 0.

    With the dilation d the output of token n depends on the tokens n, n ± d, n ± 2 d and so on, k tokens in
    all. A causal layer looks back only: at n, n - d, n - 2 d and so on. Layers with the dilations 1, k, k²
    and so on connect tokens at a distance n after O(log_k(n)) layers, those without dilation after O(n / k).

    The layer is linear: the activation, the residual connection and the normalisation are up to the caller.

    Args:
        d_model: D, of input and output.
        kernel: k; odd, unless the layer is causal.
        dilation: distance between the inputs of an output.
        causal: whether to look back only, as a decoder must.
    """

    def __init__(self, d_model: int, kernel: int, dilation: int = 1, *, causal: bool = False) -> None:
        super().__init__()
        assert kernel >= 1 and dilation >= 1
        assert causal or kernel % 2, "the kernel of a layer that is not causal must be odd"
        first = 1 - kernel if causal else -(kernel // 2)
        self.offsets = [dilation * (first + place) for place in range(kernel)]
        self.linear = nn.Linear(kernel * d_model, d_model)

    def forward(self, x: Tensor, layout: Layout) -> Tensor:
        """Computes the convolution of each sentence.

        Args:
            x: (N, D).
            layout: the sentences of the stream.

        Returns:
            (N, D).
        """
        positions = layout.positions
        rows = torch.arange(len(x), device=x.device)
        counts = torch.tensor(layout.lengths, device=x.device)
        lengths = counts.repeat_interleave(counts, output_size=len(x))
        padded = torch.cat([x, x.new_zeros(1, x.shape[1])])  # the last row is what is outside a sentence
        inputs = []
        for offset in self.offsets:
            place = positions + offset
            inside = (place >= 0) & (place < lengths)
            inputs.append(padded[torch.where(inside, rows + offset, len(x))])
        y: Tensor = self.linear(torch.cat(inputs, 1))
        return y
