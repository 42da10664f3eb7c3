"""Runs fused layers in Triton's interpreter; `test_fused` reads what it prints.

A program of its own: with TRITON_INTERPRET=1, Triton's interpreter runs all kernels.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any
from unittest.mock import Mock, patch

import torch
from torch import Tensor

from nmt.config import Kernel, ModelConfig
from nmt.data.batches.batching import Batch
from nmt.model.attention import Attention, Pattern
from nmt.model.backend import Backend
from nmt.model.dropout import Dropout, DropoutSource
from nmt.model.gpu import layers, loss_kernels, products
from nmt.model.gpu.triton_attention import TritonAttention
from nmt.model.transformer import Transformer

BATCH = Batch.of([[4, 5, 6, 7], [6], [8, 9]], [[5, 4], [4, 6, 7, 8, 9], [10]])


@dataclass(frozen=True)
class Case:
    d_model: int = 16
    d_ff: int = 24
    dropout: float = 0.0
    dtype: str = "float32"
    residual: str | None = None
    frozen: tuple[str, ...] = ()
    attention: bool = False  # whether the kernels of attention are used
    biases: bool = True  # whether they sum the gradients of biases
    relu_product: bool = True  # whether its kernel is used


CASES = {
    "fp32": Case(),
    "a width that is no power of 2": Case(d_model=24, d_ff=36),
    "dropout": Case(dropout=0.3),
    "fp16": Case(dtype="float16"),
    "fp16, 16 bits between sub-layers": Case(dtype="float16", residual="float16"),
    "frozen below and above": Case(frozen=("target_embedding", "encoder.0.", "decoder.1.")),
    "frozen biases and norms": Case(frozen=("target_embedding", "encoder.0.feed_forward.inner.")),
    "attention": Case(d_model=32, attention=True),
    "attention in fp16": Case(d_model=32, attention=True, dtype="float16", residual="float16"),
    "attention, frozen": Case(d_model=32, attention=True, frozen=("target_embedding", "decoder.1.")),
    "attention, without sums for biases": Case(d_model=32, attention=True, biases=False),
    "without the kernel for ReLU": Case(relu_product=False),
}


def run(case: Case) -> dict[str, Any]:
    """Returns hidden states and all gradients: of fused layers, of plain layers, and of those in fp64."""
    dtype = getattr(torch, case.dtype)
    residual = None if case.residual is None else getattr(torch, case.residual)
    return {
        "fused": passed(case, dtype, residual, is_fused=True),
        "plain": passed(case, dtype, residual, is_fused=False),
        "exact": passed(case, torch.float64, None, is_fused=False),
    }


def passed(
    case: Case, dtype: torch.dtype, residual: torch.dtype | None, *, is_fused: bool
) -> list[list[float]]:
    torch.manual_seed(1)
    config = ModelConfig(
        encoder_layers=2,
        decoder_layers=2,
        d_model=case.d_model,
        d_ff=case.d_ff,
        heads=2,
        dropout=case.dropout,
    )
    model = Transformer(config, 11, 11).train()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "norm" in name or name.endswith("bias"):
                weight.copy_(torch.randn(weight.shape) * 0.3 + (0.0 if name.endswith("bias") else 1.0))
    for name, weight in model.named_parameters():
        weight.requires_grad_(not name.startswith(case.frozen))
    if dtype is torch.float64:
        model = model.double()
    model.residual_dtype = residual
    model.dropout.threshold = 0  # of the embeddings, which have their own random numbers
    copies = model.copy_weights(dtype)
    for weight, copy in copies:
        copy.requires_grad_(weight.requires_grad)
    masks = Masks(case, model) if case.dropout else None
    assert layers.unsupported(model) is None
    if is_fused:
        model.backend = Interpreted(attends=case.attention)
        unmeasured = {Kernel.relu_product: case.relu_product, Kernel.attention_biases: case.biases}
        used = [kernel for kernel, is_used in unmeasured.items() if is_used]
        model.backend.layers = layers.FusedLayers(model, dtype, used)
    elif masks:
        for layer in (*model.encoder_layers, *model.decoder_layers):
            layer.dropout.forward = masks  # type: ignore[method-assign]
    model.seed_dropout(5)
    with (
        torch.autocast("cpu", dtype, enabled=dtype in (torch.float16, torch.bfloat16)),
        sums_of(case, is_fused),
    ):
        hidden = model(BATCH)
        hidden.double().square().sum().backward()
    for weight, copy in copies:
        if copy.grad is not None:
            gradient = copy.grad.to(weight.dtype)
            weight.grad = gradient if weight.grad is None else weight.grad + gradient
    assert all(weight.grad is None for weight in model.parameters() if not weight.requires_grad)
    gradients = [weight.grad for weight in model.parameters()]
    return [x.double().flatten().tolist() for x in (hidden.detach(), *gradients) if x is not None]


class Interpreted(Backend):
    """The backend of the CPU, with the attention of GPUs if that is tested."""

    def __init__(self, *, attends: bool) -> None:
        super().__init__(torch.device("cpu"))
        self._attends = attends

    def attention(self, pattern: Pattern, dtype: torch.dtype) -> Attention:
        return TritonAttention(pattern) if self._attends else super().attention(pattern, dtype)


@contextmanager
def sums_of(case: Case, is_fused: bool) -> Iterator[None]:
    """Checks that gradients are summed for biases, unless the kernels of attention do it."""
    sums = Mock(wraps=products._with_sum)
    with patch("nmt.model.gpu.products._with_sum", sums):
        yield
    assert (sums.call_count > 0) == (is_fused and not (case.attention and case.biases))


class Masks:
    """Dropout of plain layers with the masks of the kernels: read from the kernel by an input of ones."""

    def __init__(self, case: Case, model: Transformer) -> None:
        self._rate, self._source = case.dropout, model.randomness

    def __call__(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        assert residual is not None
        kept = mask_of(x.shape, self._rate, *self._source.draw_seed(x.device))
        return residual + x * kept.to(x) / (1 - self._rate)


def mask_of(shape: torch.Size, rate: float, seed: Tensor, mask: int) -> Tensor:
    """Returns the mask of the kernel: true where it keeps a value."""
    from nmt.model.gpu.layer_kernels import residual_norm

    width = shape[1]
    ones, zeros = torch.ones(width), torch.zeros(width)
    x = torch.zeros(shape)
    return residual_norm(torch.ones(shape), zeros, x, ones, zeros, 1e-5, rate, seed, mask)[1] > 0


def facts_of_rounding() -> dict[str, Any]:
    """Whether the kernel rounds its result as torch does, and only if the formats differ."""
    random = torch.Generator().manual_seed(3)
    y, x = (torch.randn(40, 24, generator=random) for _ in "yx")
    gain, shift = torch.rand(24, generator=random), torch.randn(24, generator=random)
    from nmt.model.gpu.layer_kernels import residual_norm

    seed = torch.tensor([0])
    out, _, _, rounded = residual_norm(y.half(), shift, x, gain, shift, 1e-5, 0.0, seed, 1)
    *_, none = residual_norm(y, shift, x, gain, shift, 1e-5, 0.0, seed, 1)
    return {
        "rounded": rounded.dtype is torch.float16 and torch.equal(rounded, out.half()),
        "none": list(none.shape),
    }


def facts_of_embedding() -> dict[str, Any]:
    """The kernel of the embeddings against torch's operators, with the mask that it shows for ones."""
    random = torch.Generator().manual_seed(4)
    weight = torch.randn(11, 24, generator=random, requires_grad=True)
    table = torch.randn(9, 24, generator=random)
    ids, places = torch.tensor([3, 10, 3, 0, 7]), torch.tensor([0, 1, 8, 0, 5])
    dropout = Dropout(0.4, DropoutSource())
    ones, zeros = torch.ones(11, 24), torch.zeros(9, 24)
    facts = {}
    for half in (False, True):
        dtype = torch.float16 if half else torch.float32
        dropout.source.seed(9)
        options = (2.0, dropout.rate, dropout.source.draw_seed(ids.device), dtype, torch.float16)
        kept = products.embed(ones, ids, zeros, places, *options)[0].float() > 0
        found, rounded = products.embed(weight, ids, table, places, *options)
        plain = (2.0 * weight[ids] + table[places]) * kept / (1 - dropout.rate)
        outer = torch.randn(5, 24, generator=random).to(dtype)
        gradients = [
            torch.autograd.grad(out, weight, outer.to(out.dtype), retain_graph=True)[0]
            for out in (found, plain)
        ]
        facts[str(dtype)] = {
            "error": (found - plain).abs().max().item(),
            "error_of_gradient": (gradients[0] - gradients[1]).abs().max().item(),
            "kept": kept.float().mean().item(),
            "rounded": half or torch.equal(rounded, found.detach().half()),
            "noted": len(rounded) > 0,
        }
    return facts


def facts_of_relu() -> dict[str, Any]:
    """The product before a ReLU against torch's operators, of whole tiles and others, and its trial."""
    from nmt.model.gpu.relu_product import relu_product, runs

    cpu = torch.device("cpu")
    trials = [
        runs(cpu, torch.float32),
        runs(cpu, torch.float16),
        layers.runs(cpu),
        loss_kernels.runs(cpu, False) and loss_kernels.runs(cpu, True),
    ]
    random = torch.Generator().manual_seed(6)
    errors = {}
    for rows, inner, width in (
        (0, 8, 8),
        (1, 3, 5),
        (128, 64, 128),
        (130, 72, 264),
        (300, 8, 40),
        (200, 80, 32),
    ):
        for dtype in (torch.float32, torch.float16):
            grad, weight, out = (
                torch.randn(shape, generator=random).to(dtype)
                for shape in ((rows, inner), (inner, width), (rows, width))
            )
            found, sums = relu_product(grad, weight, out.relu_())
            exact = (grad.double() @ weight.double()) * (out > 0)
            assert found.dtype is dtype and sums.shape == (-(-rows // 128), width)
            kept = bool((found[out == 0] == 0).all())
            error = max([0.0, *(found - exact).abs().flatten().tolist()])
            errors[f"{rows} {inner} {width} {dtype}"] = {
                "kept": kept,
                "error": error,
                "error_of_sums": (sums.sum(0) - exact.sum(0)).abs().max().item(),
            }
    return {"errors": errors, "trials": trials}


def facts_of_masks() -> dict[str, Any]:
    shape = torch.Size((600, 96))
    seeds = [torch.tensor([seed]) for seed in (7, 8)]
    first, again, other = (mask_of(shape, 0.2, seeds[seed], 3) for seed in (0, 0, 1))
    next_mask = mask_of(shape, 0.2, seeds[0], 4)
    rows = mask_of(torch.Size((300, 96)), 0.2, seeds[0], 3)
    kept = first.float()
    return {
        "share": kept.mean().item(),
        "share_of_columns": [kept.mean(0).min().item(), kept.mean(0).max().item()],
        "same": bool((first == again).all()),
        "same_in_a_smaller_batch": bool((first[:300] == rows).all()),
        "agreement_with_another_seed": (first == other).float().mean().item(),
        "agreement_with_another_mask": (first == next_mask).float().mean().item(),
        "agreement_of_neighbouring_rows": (first[1:] == first[:-1]).float().mean().item(),
        "agreement_of_neighbouring_columns": (first[:, 1:] == first[:, :-1]).float().mean().item(),
    }


if __name__ == "__main__":
    for name, case in CASES.items():
        print(json.dumps({"case": name, **asdict(case), **run(case)}))
    print(json.dumps({"case": "embedding", **facts_of_embedding()}))
    print(json.dumps({"case": "rounding", **facts_of_rounding()}))
    print(json.dumps({"case": "relu", **facts_of_relu()}))
    print(json.dumps({"case": "masks", **facts_of_masks()}))
