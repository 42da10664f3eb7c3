"""Aligns the words of translations and of given sentence pairs with the attention of a translator's models.

Shapes: Y tokens of a target, EOS included; S source tokens; L decoder layers, H heads.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from nmt.config import DecodingConfig
from nmt.data.batches.batching import Batch
from nmt.data.subwords.tokenizer import BOS_ID, EOS_ID, Tokenizer
from nmt.decoding.alignment.links import Alignment, AlignmentHeads, heads_of, word_links
from nmt.decoding.ensemble import Ensemble
from nmt.decoding.scoring import forced_attention
from nmt.decoding.search import Hypothesis
from nmt.decoding.step import StepOutput
from nmt.model import DecoderState, Seq2Seq
from nmt.runtime.lazy import cached_property


class Aligner:
    """Links words with the attention of the models.

    Args:
        models: one, or several whose attention is averaged.
        tokenizer: of the models.
        config: its options `alignment_*` are used.
        stored: for each model the heads that were stored with it, or None.
    """

    def __init__(
        self,
        models: Sequence[Seq2Seq],
        tokenizer: Tokenizer,
        config: DecodingConfig,
        stored: Sequence[AlignmentHeads | None],
    ) -> None:
        self._models, self._tokenizer, self._config, self._stored = models, tokenizer, config, stored

    @cached_property
    def ensemble(self) -> Ensemble:
        """The models; the attention of a step belongs to the token that the step reads.

        Raises:
            UserError: a model has no attention to the source, or no such head.
        """
        return Ensemble(self._models, heads_of(self._models, self._stored, self._config))

    def prepare(self) -> None:
        """Finds the heads, so that an error comes before the work, and in no worker process."""
        _ = self.ensemble

    def links_of(self, source: str, num_pieces: int, hypotheses: Sequence[Hypothesis]) -> list[Alignment]:
        """Returns the links of hypotheses that were found with `ensemble` and attention.

        Args:
            source: the raw line.
            num_pieces: the number of its pieces that the models have read.
            hypotheses: of that line.
        """
        source_words = self._tokenizer.source_word_numbers(source)[:num_pieces]
        found = []
        for one in hypotheses:
            assert one.attention is not None
            words = self._tokenizer.decoded_word_numbers(one.ids)
            found.append(self._links(one.attention, source_words, words))
        return found

    def links_of_pair(self, source: str, num_pieces: int, target: str, attention: Tensor) -> Alignment:
        """Returns the links of a given pair.

        Args:
            source: the raw line.
            num_pieces: as for `links_of`.
            target: the raw line.
            attention: (Y, S), from `forced_attention`.
        """
        source_words = self._tokenizer.source_word_numbers(source)[:num_pieces]
        return self._links(attention, source_words, self._tokenizer.target_word_numbers(target))

    def _links(
        self, attention: Tensor, source_words: Sequence[int], target_words: Sequence[int]
    ) -> Alignment:
        # The first step reads BOS.
        return word_links(attention[1:], source_words, target_words, self._config.alignment_threshold)

    def forced(
        self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], device: torch.device
    ) -> list[Tensor]:
        """Returns (Y, S) for each pair of ids: the attention of `ensemble` for each token."""
        batch = Batch.of(sources, [()] * len(sources)).to(device)
        state = self.ensemble.start(batch)
        return forced_attention(
            self.ensemble.step, state, targets, bos_id=BOS_ID, eos_id=EOS_ID, device=device
        )


def attention_of_heads(
    model: Seq2Seq,
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    device: torch.device,
) -> list[Tensor]:
    """Returns (Y, L, H, S) for each pair of ids: the attention of all heads for each token."""

    def step(ids: Tensor, state: DecoderState, /, *, attention: bool = False) -> StepOutput[DecoderState]:
        return StepOutput(*model.step_with_heads(ids, state))

    batch = Batch.of(sources, [()] * len(sources)).to(device)
    return forced_attention(step, model.start(batch), targets, bos_id=BOS_ID, eos_id=EOS_ID, device=device)
