"""Options of the model; the defaults are the base Transformer of Vaswani et al. 2017."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from nmt.config.checks import between, check, share
from nmt.errors import UserError


class Norm(Enum):
    """Where layer normalisation stands: after the residual sum, as in the paper, or before the sub-layer."""

    post = "post"
    pre = "pre"


class Tie(Enum):
    """Which weights are one: both embeddings and the softmax, the target's two, or none."""

    all = "all"
    target = "target"
    none = "none"


class Activation(Enum):
    """Non-linearity of the feed-forward layers."""

    relu = "relu"
    gelu = "gelu"
    silu = "silu"


@dataclass
class PositionsConfig:
    """Positional encoding, by the name it is registered under in `nmt.model.positions`."""

    name: str = "sinusoidal"
    options: dict[str, Any] = field(default_factory=dict)
    """Options of that encoding; its class has their types and defaults."""
    decoder: str | None = None
    """Another encoding for the decoder; null: the same."""
    decoder_options: dict[str, Any] = field(default_factory=dict)


@dataclass
class ModelConfig:
    """Shape and regularisation of the model."""

    encoder_layers: int = 6
    decoder_layers: int = 6
    d_model: int = 512
    d_ff: int = 2048
    heads: int = 8
    norm: Norm = Norm.post
    activation: Activation = Activation.relu
    tie: Tie = Tie.all
    positions: PositionsConfig = field(default_factory=PositionsConfig)
    dropout: float = 0.1
    """On embeddings and sub-layer outputs (section 5.4 of the paper)."""
    ffn_dropout: float = 0.0
    """Inside the feed-forward layers, after the activation; not in the paper."""
    word_dropout: float = 0.0
    """On whole tokens of both sides, before their positions (Gal and Ghahramani 2016); not in the paper."""
    architecture: str = "transformer"
    """The name under which it is registered in `nmt.model.MODELS`."""
    options: dict[str, Any] = field(default_factory=dict)
    """Options of that architecture alone; its class has their types and defaults."""
    attention: str = "scaled_dot"
    """Score of attention, by the name it is registered under in `nmt.model.attention`."""
    attention_window: int | None = None
    """Self-attention sees at most so many tokens to either side (section 4 of the paper); null: all."""

    def __post_init__(self) -> None:
        """Checks the values."""
        for key, high in (
            ("encoder_layers", 1000),
            ("decoder_layers", 1000),
            ("d_model", 100_000),
            ("d_ff", 1_000_000),
            ("heads", 10_000),
        ):
            check(f"model.{key}", getattr(self, key), between(1, high))
        for key in ("dropout", "ffn_dropout", "word_dropout"):
            check(f"model.{key}", getattr(self, key), share())
        if self.attention_window is not None:
            check("model.attention_window", self.attention_window, between(1, 1_000_000))
        if self.d_model % self.heads:
            raise UserError(
                f"model.d_model={self.d_model} is no multiple of model.heads={self.heads}: change one of them"
            )
