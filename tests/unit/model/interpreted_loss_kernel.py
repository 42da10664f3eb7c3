"""Runs the Triton kernels of the loss in Triton's interpreter; `test_loss_kernel` reads what it prints.

A program of its own: with TRITON_INTERPRET=1, Triton's interpreter runs all kernels.
"""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import torch
from torch import Tensor

from nmt.data.batches.batching import IGNORED_ID
from nmt.model.gpu.loss_kernels import cross_entropy_, replace_logits
from nmt.training.update.loss import Losses, training_loss

CASES: dict[str, dict[str, Any]] = {
    "small": {"rows": 5, "values": 37},
    "one row, one value": {"rows": 1, "values": 1},
    "a whole block": {"rows": 3, "values": 4096},
    "one value more than a block": {"rows": 3, "values": 4097},
    "many blocks": {"rows": 2, "values": 9001},
    "the longest row in registers": {"rows": 2, "values": 16384},
    "a row that is read twice": {"rows": 2, "values": 16385},
    "rows that begin at multiples of 8": {"rows": 2, "values": 20008},
    "a row that is read twice, targets to ignore": {"rows": 3, "values": 17000, "left_out": [1]},
    "no smoothing": {"rows": 4, "values": 50, "smoothing": 0.0},
    "a loss scale": {"rows": 4, "values": 50, "scale": 1024.0},
    "ignored tokens": {"rows": 4, "values": 50, "ignored": 3},
    "targets to ignore": {"rows": 4, "values": 50, "left_out": [0, 2]},
    "fp16, targets to ignore": {"rows": 4, "values": 300, "left_out": [3], "dtype": "float16"},
    "no tokens": {"rows": 0, "values": 50, "ignored": 2},
    "large logits": {"rows": 4, "values": 50, "size": 100.0},
    "fp16": {"rows": 4, "values": 300, "dtype": "float16"},
    "fp16 with a loss scale": {"rows": 4, "values": 300, "dtype": "float16", "scale": 64.0},
    "bf16": {"rows": 4, "values": 300, "dtype": "bfloat16"},
    "each row read twice": {"rows": 3, "values": 300, "loss_rows": False},
    "each row read twice, many blocks": {"rows": 2, "values": 9001, "loss_rows": False, "left_out": [1]},
}


def run(case: dict[str, Any], rdrop: float) -> dict[str, Any]:
    """Returns the results of the kernels, of the plain version, and of the plain version in fp64."""
    generator = torch.Generator().manual_seed(1)
    rows, ignored = case["rows"], case.get("ignored", 0)
    passes = 2 if rdrop else 1
    dtype = getattr(torch, case.get("dtype", "float32"))
    hidden = torch.randn((rows + ignored) * passes, 8, generator=generator) * case.get("size", 1.0)
    weight = torch.randn(case["values"], 8, generator=generator)
    target = torch.randint(case["values"], (rows,), generator=generator)
    options = {"smoothing": case.get("smoothing", 0.1), "rdrop": rdrop, "scale": case.get("scale", 1.0)}
    if "left_out" in case and not rdrop:
        target[case["left_out"]] = IGNORED_ID
        options["ignores"] = True
    inputs = [x.to(dtype) for x in (hidden, weight)]
    plain = figures(inputs, target, options)
    kernel = partial(replace_logits, case.get("loss_rows", True))
    found = figures(inputs, target, options | {"kernel": kernel})
    expected = figures([x.double() for x in inputs], target, options)
    return {"found": found, "plain": plain, "expected": expected}


def figures(inputs: list[Tensor], target: Tensor, options: dict[str, Any]) -> list[list[float]]:
    """Returns the three sums, and the gradients of hidden states and weights."""
    leaves = [x.clone().requires_grad_() for x in inputs]
    losses: Losses = training_loss(leaves[0], leaves[1], target, **options)
    gradients = torch.autograd.grad(losses.objective, leaves)
    return [x.detach().double().flatten().tolist() for x in (*losses, *gradients)]


def masked(values: int) -> list[float]:
    """Returns the gradient of a row with logits of -inf but for 4,000, and the figures of the kernel."""
    logits, numbers = torch.zeros(1, values), torch.zeros(3, 1)
    logits[0, :-4000] = -torch.inf
    cross_entropy_(logits, torch.tensor([values - 3000]), numbers, 0.9, 1.0)
    return [*logits[0, [0, values - 3000, values - 1]].tolist(), *numbers[:, 0].tolist()]


if __name__ == "__main__":
    for name, case in CASES.items():
        for rdrop in (0.0, 5.0):
            print(json.dumps({"case": name, "rdrop": rdrop, **run(case, rdrop)}))
    for values in (9000, 20000):
        print(json.dumps({"case": f"{values} masked", "found": masked(values)}))
