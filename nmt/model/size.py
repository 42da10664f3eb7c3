"""The number of weights of a Transformer, and the floating-point operations of a batch, by its configuration.

Shapes: S source tokens and T target tokens of a batch; sentence b has s_b and t_b of them; D d_model, F d_ff,
V vocabulary; A width of the keys and of the values of all heads together, 2 D by default.
"""

from __future__ import annotations

import numpy as np

from nmt.config import ModelConfig, Norm, NormKind, Tie
from nmt.data.batches.batching import Batch


def num_weights(config: ModelConfig, source_vocab_size: int, target_vocab_size: int) -> int:
    """Returns the number of weights of the model that `config` describes; a shared matrix counts once.

    The weights of learnt positional encodings and of attention scores are not counted.
    """
    d_model, d_ff = config.d_model, config.d_ff
    keys, values = (config.heads * width for width in config.head_widths)
    attention = 2 * (d_model + 1) * keys + (2 * d_model + 1) * values + d_model
    if config.query_key_norm:
        attention += 2 * config.head_widths[0]
    norm = d_model if config.norm_kind is NormKind.rms else 2 * d_model
    feed_forward = 2 * d_model * d_ff + d_ff + d_model
    if config.gated:
        feed_forward += (d_model + 1) * d_ff
    encoder = config.encoder_layers * (attention + feed_forward + 2 * norm)
    decoder = config.decoder_layers * (2 * attention + feed_forward + 3 * norm)
    last_norms = 2 * norm if config.norm is Norm.pre else 0
    sources = 0 if config.tie is Tie.all else source_vocab_size
    targets = target_vocab_size * (2 if config.tie is Tie.none else 1)
    bias = target_vocab_size if config.output_bias else 0
    later = config.encoder_layers + config.decoder_layers - 2
    skips = later * (config.value_skip + config.embedding_skip)
    rows = sources + targets + 2 * config.bigram_rows
    return encoder + decoder + last_norms + skips + rows * d_model + bias


def training_flops(config: ModelConfig, target_vocab_size: int, batch: Batch) -> int:
    """Returns the operations of a forward and a backward pass over a batch.

    A multiplication with an addition counts as two operations. The forward pass takes

        an encoder layer    2 S (2 D A + 2 D F) + 2 A sum_b s_b^2
        a decoder layer     2 T (3 D A + 2 D F) + 2 S D A + 2 A sum_b (t_b^2 + t_b s_b)
        the softmax         2 T D V

    With `model.gated`, 3 D F takes the place of 2 D F. The backward pass takes twice as many: one product for
    the gradient of each factor. Self-attention of the decoder counts as the full square t_b x t_b, although
    the causal mask hides half of it. This is customary (Chowdhery et al. 2022, appendix B). Padding is not
    counted, and no operations except matrix products.
    """
    d, f = config.d_model, config.d_ff
    inner = (3 if config.gated else 2) * d * f
    lengths = batch.source.lengths, batch.target.lengths
    source, target = (np.array(side[: batch.num_sentences], np.int64) for side in lengths)
    num_source, num_target = int(source.sum()), int(target.sum())
    a = config.heads * sum(config.head_widths)
    encoder = 2 * num_source * (2 * d * a + inner) + 2 * a * int(source @ source)
    decoder = 2 * num_target * (3 * d * a + inner) + 2 * num_source * d * a
    decoder += 2 * a * int(target @ target + target @ source)
    softmax = 2 * num_target * d * target_vocab_size
    return 3 * (config.encoder_layers * encoder + config.decoder_layers * decoder + softmax)
