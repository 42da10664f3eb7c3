"""The models. `Seq2Seq` is their interface: it maps flat batches to hidden states."""

from nmt.model.devices import BACKENDS, backend_of, put_on
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
    ignored_options,
    model_class,
)
from nmt.model.transformer import Transformer

__all__ = [
    "BACKENDS",
    "MODELS",
    "POSITIONS",
    "DecoderState",
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
    "ignored_options",
    "model_class",
    "put_on",
]

MODELS["transformer"] = Transformer
MODELS["rnn_attention"] = RecurrentModel
