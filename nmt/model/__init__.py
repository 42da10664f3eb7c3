"""The Transformer: flat batches in, hidden states and logits out."""

from nmt.model.incremental import DecoderState
from nmt.model.positions import POSITIONS, build_positions
from nmt.model.transformer import Transformer

__all__ = ["POSITIONS", "DecoderState", "Transformer", "build_positions"]
