"""Copies of the weights in bf16 or fp16 for the matrix products of an update, on GPUs.

Autocast converts every weight in every micro-batch, and converts every gradient back before it is added: some
hundred small kernels, each of which takes longer to launch than to run. Here multi-tensor kernels convert all
weights once per update, and add all gradients once per micro-batch. Weights and gradients stay in fp32
otherwise, and the arithmetic is the same.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from nmt.model.seq2seq import Seq2Seq


class HalfWeights:
    """The copies of a model's weights, and the gradients of all its trained weights.

    The layers of the model receive the copies. Gradients are summed in the `grad` of each of its trained
    parameters. Copies of frozen weights get no gradient either.
    """

    def __init__(self, model: Seq2Seq, dtype: torch.dtype) -> None:
        self._weights: list[Tensor] = [weight for weight in model.parameters() if weight.requires_grad]
        self._sums = [weight.grad for weight in self._weights]
        numbers = {id(weight): number for number, weight in enumerate(self._weights)}
        self._pairs = model.copy_weights(dtype)
        for weight, copy in self._pairs:
            copy.requires_grad_(weight.requires_grad)
        # By the number of the weight.
        self._copy_of = {numbers[id(weight)]: copy for weight, copy in self._pairs if weight.requires_grad}
        self._has_gradient: set[int] = set()  # the numbers of the weights whose sum is not 0

    @torch.no_grad()
    def begin(self) -> None:
        """Begins an update: copies the weights. The sums of their gradients are 0."""
        torch._foreach_copy_([copy for _, copy in self._pairs], [weight for weight, _ in self._pairs])
        self._has_gradient.clear()
        self.detach()

    def leaves(self) -> list[list[Tensor]]:
        """Returns the tensors with a gradient, for each trained parameter: itself and its copy."""
        copies = self._copy_of
        return [
            [weight, *([copies[number]] if number in copies else [])]
            for number, weight in enumerate(self._weights)
        ]

    @torch.no_grad()
    def add_gradients(self, numbers: range | None = None) -> None:
        """Adds the gradients of a micro-batch to the sums, after its backward pass.

        The gradients of the parameters `numbers` are computed already; None: all.
        """
        # Autograd has left each gradient as it was computed, since there was none before.
        numbers = range(len(self._weights)) if numbers is None else numbers
        copied = [number for number in self._copy_of if number in numbers]
        self._add((number, self._weights[number].grad) for number in numbers)
        self._add((number, self._copy_of[number].grad) for number in copied)
        for tensor in (*(self._weights[n] for n in numbers), *(self._copy_of[n] for n in copied)):
            tensor.grad = None

    @property
    def has_gradient(self) -> frozenset[int]:
        """The numbers of the weights whose sum has gradients; set after passes that Python did not run."""
        return frozenset(self._has_gradient)

    @has_gradient.setter
    def has_gradient(self, numbers: frozenset[int]) -> None:
        self._has_gradient = set(numbers)

    def end(self) -> None:
        """Ends an update: the `grad` of each parameter is its sum again."""
        for weight, total in zip(self._weights, self._sums, strict=True):
            weight.grad = total

    def _add(self, gradients: Iterable[tuple[int, Tensor | None]]) -> None:
        """Adds gradients, by number of the weight, to the sums."""
        first: tuple[list[Tensor], list[Tensor]] = ([], [])
        later: tuple[list[Tensor], list[Tensor]] = ([], [])
        for number, gradient in gradients:
            total = self._sums[number]
            if gradient is None or total is None:
                continue
            totals, found = later if number in self._has_gradient else first
            totals.append(total)
            found.append(gradient)
            self._has_gradient.add(number)
        if first[0]:
            torch._foreach_copy_(*first)
        if later[0]:
            if later[0][0].dtype is not later[1][0].dtype:
                # A kernel for many tensors converts or adds; one that does both takes one tensor at a time.
                wide = [torch.empty_like(total) for total in later[0]]
                torch._foreach_copy_(wide, later[1])
                later = later[0], wide
            torch._foreach_add_(*later)

    def detach(self) -> None:
        """Drops the gradients of a micro-batch that were not added to the sums."""
        for tensor in (*self._weights, *self._copy_of.values()):
            tensor.grad = None
