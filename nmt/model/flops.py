"""What a batch costs in floating-point operations: its matrix products, counted exactly.

Shapes: S source tokens and T target tokens of a batch; sentence b has s_b and t_b of them; D d_model, F d_ff,
V vocabulary.
"""

from __future__ import annotations

import numpy as np

from nmt.config import ModelConfig
from nmt.data.batches.batching import Batch


def training_flops(config: ModelConfig, target_vocab_size: int, batch: Batch) -> int:
    """Operations of a forward and a backward pass over a batch; one multiplication and addition counts two.

    The forward pass multiplies

        an encoder layer    2 S (4 D^2 + 2 D F) + 4 D sum_b s_b^2
        a decoder layer     2 T (6 D^2 + 2 D F) + 2 S (2 D^2) + 4 D sum_b (t_b^2 + t_b s_b)
        the softmax         2 T D V

    and the backward pass twice as much: one product for each factor's gradient. Attention of the targets to
    themselves counts as the whole square, as is customary (Chowdhery et al. 2022, appendix B), though half of
    it is hidden; padding counts nothing, nor does whatever is no matrix product.

    Args:
        config: of the model.
        target_vocab_size: V.
        batch: as the model gets it.
    """
    d, f = config.d_model, config.d_ff
    lengths = batch.source.lengths, batch.target.lengths
    source, target = (np.array(side[: batch.num_sentences], np.int64) for side in lengths)
    num_source, num_target = int(source.sum()), int(target.sum())
    encoder = 2 * num_source * (4 * d * d + 2 * d * f) + 4 * d * int(source @ source)
    decoder = 2 * num_target * (6 * d * d + 2 * d * f) + 4 * num_source * d * d
    decoder += 4 * d * int(target @ target + target @ source)
    softmax = 2 * num_target * d * target_vocab_size
    return 3 * (config.encoder_layers * encoder + config.decoder_layers * decoder + softmax)
