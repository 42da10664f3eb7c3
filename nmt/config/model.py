"""Options of the model. The defaults are the base Transformer of Vaswani et al. 2017."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from nmt.config import disabled
from nmt.config.checks import Section, above, between, bounded, share
from nmt.config.schema import registered_name
from nmt.errors import UserError


class Norm(Enum):
    """The place of layer normalisation: after the residual sum, as in the paper, or before the sub-layer."""

    post = "post"
    pre = "pre"


class NormKind(Enum):
    """The normalisation of a vector: by its mean and variance, or by its root mean square."""

    layer = "layer"
    """Layer normalisation, as in the paper (Ba et al. 2016)."""
    rms = "rms"
    """RMSNorm (Zhang and Sennrich 2019)."""


class Tie(Enum):
    """The matrices that are shared: both embeddings and the softmax, the two of the target, or none."""

    all = "all"
    target = "target"
    none = "none"


class Activation(Enum):
    """The non-linearity of the feed-forward layers."""

    relu = "relu"
    gelu = "gelu"
    silu = "silu"
    relu2 = "relu2"
    """The square of ReLU (So et al. 2021)."""


ENCODINGS = (
    "sinusoidal",
    "learned",
    "none",
    "rotary",
    "relative",
    "t5",
    "alibi",
    "integer",
    "normalised",
    "binary",
)
"""The built-in positional encodings."""


@dataclass
class PositionsConfig:
    """The positional encoding, by the name that `nmt.model.positions` registers."""

    name: str = registered_name("sinusoidal", *ENCODINGS)
    """Name of the encoding; configs/model/positions/ has one file for each."""
    options: dict[str, Any] = field(default_factory=dict)
    """Options of the encoding. Its class has their types and defaults."""
    decoder: str | None = registered_name(None, *ENCODINGS)
    """Name of another encoding for the decoder. null: the same."""
    decoder_options: dict[str, Any] = field(default_factory=dict)
    """Options of the encoding of the decoder."""


@dataclass
class ModelConfig(Section, key="model.", refused=disabled.REFUSED_IN_MODELS):
    """The architecture, size and regularisation of the model."""

    encoder_layers: int = bounded(6, between(1, 1000))
    """Layers of the encoder."""
    decoder_layers: int = bounded(6, between(1, 1000))
    """Layers of the decoder."""
    d_model: int = bounded(512, between(1, 100_000))
    """Width of embeddings and hidden states. A multiple of `heads`, unless both widths of heads are given."""
    d_ff: int = bounded(2048, between(1, 1_000_000))
    """Width inside the feed-forward layers."""
    heads: int = bounded(8, between(1, 10_000))
    """Attention heads."""
    key_width: int | None = bounded(None, between(1, 100_000))
    """Width of the queries and keys of a head, d_k in the paper. null: d_model / heads."""
    value_width: int | None = bounded(None, between(1, 100_000))
    """Width of the values of a head, d_v in the paper. null: d_model / heads."""
    norm: Norm = Norm.post
    """Layer normalisation after the residual sum (`post`, as in the paper) or before the sub-layer
    (`pre`)."""
    norm_kind: NormKind = NormKind.layer
    """Layer normalisation (`layer`, as in the paper) or RMSNorm (`rms`), which has no mean and no bias."""
    residual: bool = True
    """Residual connections around the sub-layers. false is for experiments: positions and gradients then pass
    through every sub-layer."""
    activation: Activation = Activation.relu
    """Non-linearity of the feed-forward layers."""
    gated: bool = False
    """Feed-forward layers multiply the activation by a second product of their input (Shazeer 2020): `silu`
    is then SwiGLU, `gelu` GEGLU, `relu` ReGLU. They have half as many weights more. Not in the paper."""
    tie: Tie = Tie.all
    """Shared matrices. `all`: both embeddings and the softmax; `target`: the embedding and the softmax of the
    target."""
    output_bias: bool = False
    """A bias for each piece is added to the logits. Not in the paper; models of Marian have it."""
    logit_cap: float | None = bounded(None, above(0, 10_000))
    """Bound c of the logits: c tanh(logit / c) takes the place of a logit (Gemma 2, 2024, section 2). null:
    no bound. Not in the paper."""
    positions: PositionsConfig = field(default_factory=PositionsConfig)
    bigram_rows: int = bounded(0, between(0, 100_000_000))
    """Rows of a table of vectors for each side; the vector of a token and the one before it, found by a hash,
    is added to its embedding (Huang et al. 2025, "Over-Tokenized Transformer"). 0: none. Not in the paper."""
    value_skip: bool = False
    """The values of the first self-attention are mixed into those of the later ones, with learned weights
    (Zhou et al. 2024, "Value Residual Learning"). Not in the paper."""
    embedding_skip: bool = False
    """The input of the first layer is added to that of each later layer, times a learned weight that is 0 at
    the start. Not in the paper."""
    zero_init: bool = False
    """The last matrix of each sub-layer is 0 at the start, so that the first update begins with layers that
    pass on their input (Zhang et al. 2019, Fixup). Not in the paper."""
    query_key_norm: bool = False
    """Queries and keys of each head are normalised before their product (Henry et al. 2020), by RMSNorm with
    learned weights. Not in the paper."""
    dropout: float = bounded(0.1, share())
    """Dropout on embeddings and sub-layer outputs (section 5.4 of the paper)."""
    ffn_dropout: float = bounded(0.0, share())
    """Dropout inside the feed-forward layers, after the activation. Not in the paper."""
    word_dropout: float = bounded(0.0, share())
    """Dropout of whole tokens of both sides, before positions are added (Gal and Ghahramani 2016). Not in the
    paper."""
    architecture: str = registered_name("transformer", "transformer", "rnn_attention")
    """Name of the architecture, as registered in `nmt.model.MODELS`."""
    options: dict[str, Any] = field(default_factory=dict)
    """Options of the architecture. Its class has their types and defaults."""
    attention: str = registered_name("scaled_dot", "scaled_dot", "dot", "additive")
    """Score function of attention, by the name that `nmt.model.attention` registers."""
    attention_window: int | None = bounded(None, between(1, 1_000_000))
    """Self-attention is limited to this many tokens on either side (section 4 of the paper). null: no
    limit."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.d_model % self.heads and None in (self.key_width, self.value_width):
            raise UserError(
                f"model.d_model={self.d_model}: must be a multiple of model.heads={self.heads}. Change one, "
                "or set model.key_width and model.value_width."
            )

    @property
    def head_widths(self) -> tuple[int, int]:
        """The widths of the keys and of the values of a head: d_k and d_v of the paper."""
        equal = self.d_model // self.heads
        return self.key_width or equal, self.value_width or equal

    @property
    def splits_d_model(self) -> bool:
        """Whether the keys and values of all heads together are as wide as d_model, as in the paper."""
        return all(self.heads * width == self.d_model for width in self.head_widths)
