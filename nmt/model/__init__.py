"""The models. `Seq2Seq` is their interface: it maps flat batches to hidden states."""

from collections.abc import Collection
from typing import TypeVar

import torch

from nmt.config import Kernel
from nmt.model.backend import Backend
from nmt.model.dropout import Dropout
from nmt.model.gpu import GpuBackend
from nmt.model.positions import POSITIONS, build_positions
from nmt.model.recurrent import RecurrentModel
from nmt.model.seq2seq import (
    MODELS,
    DecoderState,
    Linear,
    ModelOutput,
    Seq2Seq,
    as_output,
    build_model,
    check_model,
    check_tie,
    ignored_options,
    model_class,
)
from nmt.model.transformer import Transformer
from nmt.runtime.plugins import Registry

__all__ = [
    "BACKENDS",
    "MODELS",
    "POSITIONS",
    "DecoderState",
    "Dropout",
    "Linear",
    "ModelOutput",
    "RecurrentModel",
    "Seq2Seq",
    "Transformer",
    "as_output",
    "backend_of",
    "build_model",
    "build_positions",
    "check_model",
    "check_tie",
    "ignored_options",
    "model_class",
    "put_on",
]

MODELS["transformer"] = Transformer
MODELS["rnn_attention"] = RecurrentModel

M = TypeVar("M", bound=Seq2Seq)

BACKENDS: Registry[type[Backend]] = Registry("backend of the device")
"""Type of the device → its backend. All other devices have `Backend` itself."""

BACKENDS["cuda"] = GpuBackend


def put_on(model: M, device: torch.device, kernels: Collection[Kernel] = ()) -> M:
    """Moves a model to a device, and chooses how that device computes it.

    The model is changed in place. If it has a backend of that device already, this one stays. `kernels` are
    those of `training.unmeasured_kernels`.

    Returns:
        The model.
    """
    model = model.to(device)
    device = model.output_weight.device  # with its number
    if model.backend.device != device or not isinstance(model.backend, _backend_class(device)):
        model.backend = backend_of(device, kernels)
    return model


def backend_of(device: torch.device, kernels: Collection[Kernel] = ()) -> Backend:
    """Returns a backend for a model whose weights are, or will be, on a device; see `put_on`."""
    return _backend_class(device)(device, kernels)


def _backend_class(device: torch.device) -> type[Backend]:
    return BACKENDS.get(device.type, Backend)
