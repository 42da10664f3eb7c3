"""Models: flat batches in, hidden states and logits out; `Seq2Seq` is their interface."""

from nmt.model.positions import POSITIONS, build_positions
from nmt.model.seq2seq import MODELS, Backend, DecoderState, Seq2Seq, build_model, model_class
from nmt.model.transformer import Transformer

__all__ = [
    "MODELS",
    "POSITIONS",
    "Backend",
    "DecoderState",
    "Seq2Seq",
    "Transformer",
    "build_model",
    "build_positions",
    "model_class",
]
