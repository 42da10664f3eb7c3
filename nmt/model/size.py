"""The number of weights of a Transformer, computed from its configuration."""

from __future__ import annotations

from nmt.config import ModelConfig, Norm, Tie


def num_weights(config: ModelConfig, source_vocab_size: int, target_vocab_size: int) -> int:
    """Returns the number of weights of the model that `config` describes; a shared matrix counts once.

    The weights of learnt positional encodings are not counted.
    """
    d_model, d_ff = config.d_model, config.d_ff
    attention = 4 * d_model * (d_model + 1)
    norm = 2 * d_model
    feed_forward = 2 * d_model * d_ff + d_ff + d_model
    encoder = config.encoder_layers * (attention + feed_forward + 2 * norm)
    decoder = config.decoder_layers * (2 * attention + feed_forward + 3 * norm)
    last_norms = 2 * norm if config.norm is Norm.pre else 0
    sources = 0 if config.tie is Tie.all else source_vocab_size
    targets = target_vocab_size * (2 if config.tie is Tie.none else 1)
    bias = target_vocab_size if config.output_bias else 0
    return encoder + decoder + last_norms + (sources + targets) * d_model + bias
