"""Training objectives: `Objective`, the registry `OBJECTIVES`, label smoothing with R-Drop or SimCut.

A new objective derives from `Objective` or `LabelSmoothing` and is registered: `OBJECTIVES["mine"] = Mine`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from inspect import Parameter, signature
from typing import Any

import torch
from torch import Tensor

from nmt.config import ModelConfig, Precision, TrainingConfig, typed_options
from nmt.data.batches.batching import Batch, Layout
from nmt.data.subwords.vocabulary import EOS_ID
from nmt.errors import UserError
from nmt.model import Dropout, ModelOutput, Seq2Seq, as_output, model_class
from nmt.runtime.plugins import Registry
from nmt.training.update.loss import Losses, training_loss
from nmt.training.update.precision import autocast, product_dtype


def build_objective(options: TrainingConfig) -> Objective:
    """Builds the objective that `training.objective.name` selects.

    Raises:
        UserError: no objective of that name is registered, or it does not take its options.
    """
    owner = f"training.objective.name={options.objective.name}"
    kind = OBJECTIVES.find(options.objective.name, owner)
    section = "training.objective.options"
    return kind(typed_options(kind.Options, options.objective.options, section, owner), options)


@dataclass(frozen=True)
class LossInput:
    """The input of a loss besides the output of the model.

    Attributes:
        model: the model; its output matrix and bias turn hidden states into logits.
        batch: the batch, on the device.
        target: (N,) int64, the ids to predict; `IGNORED_ID` only with `ignores`.
        passes: the number of forward passes in the output, one after the other. Of each, the first N rows
            are used.
        scale: the loss scale, by which the objective is multiplied.
        dtype: of matrix products.
        ignores: whether `target` has ids `IGNORED_ID`.
        initial_gradient: see `training_loss`.
    """

    model: Seq2Seq
    batch: Batch
    target: Tensor
    passes: int
    scale: float
    dtype: torch.dtype
    ignores: bool
    initial_gradient: Tensor | None


class Objective(ABC):
    """Base class of the objectives: the loss of a batch, in training and in validation.

    Args:
        options: an instance of `Options`.
        training: the `training` section.

    Attributes:
        needs: keyword arguments for the model's `forward`, which ask for more than hidden states, such as
            `{"attention_layers": (-2,)}` of `Transformer`.
        passes: the number of forward passes of a batch in training, with different dropout; 1 before update
            `training.consistency_from`.
    """

    needs: Mapping[str, Any] = {}
    passes: int = 1

    @dataclass(frozen=True)
    class Options:
        """The options, with types and defaults; `training.objective.options` sets them."""

    def __init__(self, options: Any, training: TrainingConfig) -> None:
        self.options, self.training = options, training

    def check(self, model: ModelConfig) -> None:
        """Checks that a model has what the objective needs, before the data are prepared.

        Raises:
            UserError: it does not.
        """
        name = f"training.objective.name={self.training.objective.name}"
        parameters = signature(model_class(model).forward).parameters
        takes_any = any(each.kind is Parameter.VAR_KEYWORD for each in parameters.values())
        missing = self.needs.keys() - parameters.keys()
        if missing and not takes_any:
            raise UserError(
                f"{name}: needs {min(missing)}, which model.architecture={model.architecture} does not have. "
                "Choose another objective or architecture."
            )
        for layer in self.needs.get("attention_layers", ()):
            if not -model.decoder_layers <= layer < model.decoder_layers:
                raise UserError(
                    f"{name}: needs the attention of decoder layer {layer}, counted from 0, but "
                    f"model.decoder_layers={model.decoder_layers}. Choose another layer."
                )

    def passes_after(self, update: int, last: int) -> int:
        """Returns the number of passes of a micro-batch in all updates after `update`, up to `last`."""
        single = min(max(0, self.training.consistency_from - 1 - update), last - update)
        return (last - update) * self.passes - single * (self.passes - 1)

    def repeated(self, batch: Batch, model: Seq2Seq) -> Batch:
        """Returns the batch for two passes: the pairs, followed by a copy of all of them."""
        return batch.twice()

    def __call__(
        self,
        model: Seq2Seq,
        batch: Batch,
        *,
        precision: Precision,
        passes: int = 1,
        scale: float = 1.0,
        is_static: bool = False,
        initial_gradient: Tensor | None = None,
    ) -> Losses:
        """Runs the forward pass of a batch, and sums the losses of its target tokens.

        Args:
            model: in training mode, or in evaluation mode for a validation.
            batch: on the device of the model.
            precision: of matrix products.
            passes: the number of forward passes: 1, or 2 in training.
            scale: the loss scale; a power of two.
            is_static: whether the number of tokens without padding may change after a CUDA graph has recorded
                this. Padding is then `IGNORED_ID`.
            initial_gradient: see `training_loss`.
        """
        with autocast(batch.target_out.device, precision):
            output = as_output(model(batch if passes == 1 else self.repeated(batch, model), **self.needs))
        return self.losses(
            output,
            LossInput(
                model,
                batch,
                batch.target_out if is_static else batch.target_out[: batch.num_target_tokens],
                passes,
                scale,
                product_dtype(precision),
                is_static,
                initial_gradient,
            ),
        )

    @abstractmethod
    def losses(self, output: ModelOutput, inputs: LossInput) -> Losses:
        """Returns the sums over the target tokens; autograd differentiates `Losses.objective`."""


class LabelSmoothing(Objective):
    """Cross-entropy with label smoothing (section 5.4 of the paper), R-Drop, SimCut; see `training_loss`."""

    def __init__(self, options: Any, training: TrainingConfig) -> None:
        super().__init__(options, training)
        self.passes = 2 if training.rdrop or training.simcut else 1

    def check(self, model: ModelConfig) -> None:
        """See `Objective.check`."""
        super().check(model)
        if self.training.simcut and not model_class(model).cuts_tokens:
            raise UserError(
                f"training.simcut={self.training.simcut}: model.architecture={model.architecture} does not "
                "set embeddings to zero. Set training.simcut=0."
            )

    def repeated(self, batch: Batch, model: Seq2Seq) -> Batch:
        """Returns the pairs and a copy of them; with SimCut, `training.simcut_rate` of its tokens are cut.

        As in the code of its authors, the marks at the ends of sentences are not cut.
        """
        both = super().repeated(batch, model)
        if not self.training.simcut:
            return both
        rows = Dropout(self.training.simcut_rate, model.randomness, rows=True)

        def cut(ids: Tensor, layout: Layout) -> Layout:
            first, second = ids.chunk(2)
            zeroed = rows(torch.ones(len(second), 1, device=ids.device))[:, 0] == 0
            return replace(layout, cut=torch.cat([torch.zeros_like(zeroed), zeroed & (second > EOS_ID)]))

        return replace(
            both, source=cut(both.source_ids, both.source), target=cut(both.target_in, both.target)
        )

    def losses(self, output: ModelOutput, inputs: LossInput) -> Losses:
        """Returns the loss; it computes the gradient together with it, for some tokens at a time."""
        return training_loss(
            output.hidden,
            inputs.model.output_weight,
            inputs.target,
            inputs.model.output_bias,
            smoothing=self.training.label_smoothing,
            rdrop=self.training.rdrop if inputs.passes == 2 else 0.0,
            simcut=self.training.simcut if inputs.passes == 2 else 0.0,
            scale=inputs.scale,
            dtype=inputs.dtype,
            ignores=inputs.ignores,
            initial_gradient=inputs.initial_gradient,
            cap=inputs.model.config.logit_cap,
            kernel=inputs.model.backend.loss_kernel,
        )


OBJECTIVES: Registry[type[Objective]] = Registry("objective")
"""The objectives by the name that `training.objective.name` selects."""

OBJECTIVES["label_smoothing"] = LabelSmoothing
