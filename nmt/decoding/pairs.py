"""Given translations: scores them, aligns their words, and shows the attention of all heads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from nmt.copying.strings import MaskedPair
from nmt.copying.translation import RawWords, raw_links
from nmt.data.batches.batching import Batch
from nmt.data.subwords.tokenizer import Tokenizer
from nmt.data.subwords.vocabulary import BOS_ID, EOS_ID
from nmt.decoding.alignment import Alignment, word_links
from nmt.decoding.head_choice import HeadChoice, Pair
from nmt.decoding.line import empty_if_blank, encoded_sources
from nmt.decoding.scoring import ScoredTarget
from nmt.decoding.searcher import SearchRequest, placeholders_of
from nmt.decoding.torch_searcher import TorchSearcher, evaluation_mode
from nmt.errors import UserError
from nmt.model import Seq2Seq
from nmt.runtime.arrays import Array


@dataclass(frozen=True)
class PairAttention:
    """The attention weights of all layers and heads in a sentence pair; those of a query sum to 1.

    S source and T target tokens, L layers, H heads. The arrays are float32.

    Attributes:
        source: the S pieces of the source, EOS last.
        target: the T pieces that the decoder reads, BOS first.
        predicted: the T pieces that the decoder is to predict, EOS last: `target`, shifted by one.
        cross: (L, H, T, S), from each target token to the source.
        encoder: (L, H, S, S), from each source token to the source; None: a recurrent model.
        decoder: (L, H, T, T), from each target token to those before it and to itself; None as `encoder`.
    """

    source: tuple[str, ...]
    target: tuple[str, ...]
    predicted: tuple[str, ...]
    cross: Array = field(repr=False)
    encoder: Array | None = field(default=None, repr=False)
    decoder: Array | None = field(default=None, repr=False)


class PairReader:
    """Reads given pairs of sources and translations with the models of a searcher, whose options apply."""

    def __init__(self, searcher: TorchSearcher, tokenizer: Tokenizer) -> None:
        self.searcher, self.tokenizer = searcher, tokenizer
        self._placeholders = placeholders_of(tokenizer, searcher.config)

    def score(
        self, pairs: Sequence[tuple[str, str]], advance: Callable[[int], object] = lambda num_pairs: None
    ) -> list[ScoredTarget]:
        """Scores given translations by the log-probabilities of their tokens.

        The tokenizer splits a target into tokens. A search may find other tokens for the same text, with
        another probability. Processors and forbidden ids have no effect here.

        Args:
            pairs: source and target, of any content. The model does not read a source that is blank or has no
                pieces. `translate` returns the empty line for it, so an empty target has the probability 1,
                any other target 0. A target that is blank or has no pieces is EOS alone.
                With placeholders, the URLs, tags and variables that both sides have in common are replaced,
                as in training.
            advance: called with the number of pairs of each finished batch.

        Returns:
            A score for each pair, in order.

        Raises:
            UserError: the probabilities of the model are NaN, or a batch does not fit into the memory of the
                device.
        """
        encoded = self._encoded(self._placeholders.masked_pairs(pairs))
        scores = [ScoredTarget.of_blank_source(target) for _, target in encoded]
        rows, cut = self._searched(encoded, advance)
        for index, log_probs in self.searcher.score(cut, advance):
            num_tokens = len(encoded[rows[index]][0]) + 1
            truncated = num_tokens if num_tokens > self.searcher.max_source_tokens else 0
            scores[rows[index]] = ScoredTarget(log_probs, truncated)
        return scores

    def align(
        self, pairs: Sequence[tuple[str, str]], advance: Callable[[int], object] = lambda num_pairs: None
    ) -> list[Alignment]:
        """Aligns the words of given translations: returns the links of each; see `ScoredText.alignment`.

        A blank source or target has no links. `advance` gets the number of pairs of each finished batch.

        Raises:
            UserError: as for `Translator.translate` with `alignments`.
        """
        self.searcher.prepare(SearchRequest(alignments=True), constraints=False)
        masked = self._placeholders.masked_pairs(pairs)
        rows, cut = self._searched(self._encoded(masked), advance)
        alignments: list[Alignment] = [()] * len(pairs)
        threshold = self.searcher.config.alignment_threshold
        for index, attention in self.searcher.attention(cut, advance):
            source, target, strings = masked[rows[index]]
            source_words = self.tokenizer.source_word_numbers(source)[: len(cut[index][0])]
            target_words = self.tokenizer.target.word_numbers(target)
            # The first step reads BOS.
            links = word_links(attention[1:], source_words, target_words, threshold)
            raw_pair = pairs[rows[index]]
            if raw_pair != (source, target):
                texts = zip((source, target), raw_pair, strict=True)
                links = raw_links(links, *(RawWords.of(text, raw, strings) for text, raw in texts))
            alignments[rows[index]] = links
        return alignments

    def attentions(
        self,
        pairs: Iterable[tuple[str, str]],
        max_weights: int,
        left_out: Callable[[UserError], object] = lambda error: None,
    ) -> Iterator[PairAttention]:
        """Yields the attention of each pair; `left_out` gets the errors of those that have none."""
        for pair in pairs:
            try:
                yield self.attention(*pair, max_weights)
            except UserError as error:
                left_out(error)

    def attention(self, source: str, target: str, max_weights: int | None = None) -> PairAttention:
        """Returns the attention weights of one model in a pair, whose translation is given (teacher forcing).

        Raises:
            UserError: the source is blank, a side is too long, the weights are more than `max_weights`, or
                the model has no attention to the source.
        """
        [model] = self.searcher.ensemble.models
        [(source_ids, target_ids)] = self._encoded(self._placeholders.masked_pairs([(source, target)]))
        longest, most = self.searcher.max_source_tokens, self.searcher.max_target_tokens
        if not source_ids:
            raise UserError("attention: the source is blank. Give a sentence.")
        for name, ids, limit in (("source", source_ids, longest), ("target", target_ids, most)):
            if limit is not None and len(ids) >= limit:
                raise UserError(
                    f"attention: the {name} has {len(ids) + 1:,} tokens, and at most {limit:,} are allowed. "
                    "Give a shorter one."
                )
        if max_weights is not None:
            num_weights = _num_weights(model, len(source_ids) + 1, len(target_ids) + 1)
            if num_weights > max_weights:
                raise UserError(
                    f"attention: all heads have {num_weights:,} weights in this pair, and at most "
                    f"{max_weights:,} are shown. Give a shorter one."
                )
        batch = Batch.of([source_ids], [target_ids]).to(self.searcher.device)
        with evaluation_mode([model]), self.searcher.inference():
            weights = model.attention_weights(batch)
        cross, *others = (
            None if part is None else part.float().cpu().numpy()
            for part in (weights.cross, weights.encoder, weights.decoder)
        )
        assert cross is not None
        pieces = self.tokenizer.target.pieces_of([BOS_ID, *target_ids, EOS_ID])
        read = self.tokenizer.source.pieces_of([*source_ids, EOS_ID])
        return PairAttention(tuple(read), tuple(pieces[:-1]), tuple(pieces[1:]), cross, *others)

    def choose_heads(self, pairs: Sequence[tuple[str, str]]) -> HeadChoice | None:
        """Chooses the heads that align words, for one model; see `TorchSearcher.choose_heads`."""
        return self.searcher.choose_heads(self._encoded(self._placeholders.masked_pairs(pairs)))

    def _encoded(self, pairs: Sequence[MaskedPair]) -> list[Pair]:
        """Returns the ids of the sources, uncut, and of the targets; none for a blank line."""
        targets = self.tokenizer.encode_target([empty_if_blank(pair.target) for pair in pairs])
        sources = encoded_sources(self.tokenizer, [pair.source for pair in pairs])
        return [*zip(sources, targets, strict=True)]

    def _searched(
        self, pairs: Sequence[Pair], advance: Callable[[int], object]
    ) -> tuple[list[int], list[Pair]]:
        """Returns the numbers of the pairs that the model reads, and these pairs with their sources cut."""
        rows = [row for row, (source, _) in enumerate(pairs) if source]
        advance(len(pairs) - len(rows))
        longest = self.searcher.max_source_tokens - 1  # one less, for EOS
        return rows, [(pairs[row][0][:longest], pairs[row][1]) for row in rows]


def _num_weights(model: Seq2Seq, source_len: int, target_len: int) -> int:
    """Returns the largest number of weights that a model has in a pair, without those behind the mask."""
    layers, heads = model.attention_shape or (0, 0)
    cells = source_len**2 + target_len * (target_len + 1) // 2 + target_len * source_len
    return max(layers, model.config.encoder_layers) * heads * cells
