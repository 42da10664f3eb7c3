"""The initial weights of a Transformer."""

from __future__ import annotations

from typing import cast

import torch
from torch import nn

from nmt.config import ModelConfig
from nmt.model.seq2seq import Linear


def initialise(model: nn.Module, config: ModelConfig) -> None:
    """Initialises matrices Xavier-uniform, biases with 0, embeddings with variance 1/D, for D = d_model.

    The paper does not specify an initialisation. The factor sqrt(D) on the embeddings gives them variance
    1. The projections to queries, keys and values have the gain 1/sqrt(2), as in fairseq and
    `torch.nn.MultiheadAttention`: with post-norm, the loss then falls clearly faster at the start. With
    `model.zero_init` the last matrix of each sub-layer is 0.
    """
    for name, parameter in model.named_parameters():
        if name.startswith(("encoder_positions.", "decoder_positions.")) or ".score." in name:
            continue  # their constructors initialise these
        if "bigrams" in name:
            nn.init.zeros_(parameter)
        elif "embedding" in name or name.startswith("output"):
            nn.init.normal_(parameter, std=config.d_model**-0.5)
        elif config.zero_init and name.endswith(("out.weight", "outer.weight")):
            nn.init.zeros_(parameter)
        elif parameter.dim() == 2:
            projection = "attention" in name and not name.endswith("out.weight")
            # A fused matrix is initialised part by part, as if its parts were separate matrices.
            owner = cast(Linear, model.get_submodule(name.rpartition(".")[0]))
            for part in torch.split(parameter, owner.stacked):
                nn.init.xavier_uniform_(part, gain=2**-0.5 if projection else 1.0)
        elif name.endswith("bias"):
            nn.init.zeros_(parameter)
