"""The convolutional layer against torch's own convolution of each sentence."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from position_experiments.convolution import Convolution

from nmt.data.batches.batching import Layout


@pytest.mark.parametrize(
    ("kernel", "dilation", "causal"),
    [(1, 1, False), (3, 1, False), (5, 2, False), (2, 1, True), (4, 3, True)],
)
def test_equals_torch(kernel: int, dilation: int, causal: bool) -> None:
    torch.manual_seed(1)
    lengths, width = (1, 7, 0, 13, 4), 6
    layer = Convolution(width, kernel, dilation, causal=causal)
    x = torch.randn(sum(lengths), width, requires_grad=True)
    y = layer(x, Layout.of(lengths))
    # (D, k D) → (D out, D in, k)
    weight = layer.linear.weight.view(width, kernel, width).permute(0, 2, 1)
    reach = dilation * (kernel - 1)
    expected = []
    for sentence in x.split(lengths):
        if len(sentence):
            sides = (reach, 0) if causal else (reach // 2, reach // 2)
            outputs = F.conv1d(F.pad(sentence.T, sides), weight, layer.linear.bias, dilation=dilation)
            expected.append(outputs.T)
    torch.testing.assert_close(y, torch.cat(expected))
    (gradient,) = torch.autograd.grad(y.square().sum(), x, retain_graph=True)
    (plain,) = torch.autograd.grad(torch.cat(expected).square().sum(), x)
    torch.testing.assert_close(gradient, plain)


def test_literal_values() -> None:
    layer = Convolution(1, 3)
    with torch.no_grad():
        layer.linear.weight.copy_(torch.tensor([[1.0, 10.0, 100.0]]))
        layer.linear.bias.zero_()
    x = torch.tensor([[1.0], [2.0], [3.0], [4.0]])
    assert layer(x, Layout.of([3, 1])).flatten().tolist() == [210.0, 321.0, 32.0, 40.0]


@pytest.mark.parametrize(("dilations", "reach"), [((1, 1, 1), 3), ((1, 3, 9), 13)])
def test_how_far_a_stack_sees(dilations: tuple[int, ...], reach: int) -> None:
    """The path length of table 1: layers add up their reach, dilated layers multiply it."""
    torch.manual_seed(1)
    layers = [Convolution(4, 3, dilation) for dilation in dilations]
    x = torch.randn(41, 4, requires_grad=True)
    y, layout = x, Layout.of([41])
    for layer in layers:
        y = layer(y, layout)
    (gradient,) = torch.autograd.grad(y[20].sum(), x)
    seen = gradient.abs().sum(1).nonzero().flatten().tolist()
    assert seen == list(range(20 - reach, 20 + reach + 1))
