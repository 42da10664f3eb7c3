"""The batches of sentences that a translator searches or reads, and the results of a search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nmt.copying.strings import TagPair
from nmt.decoding.alignment.links import Alignment
from nmt.decoding.constraints.phrases import PhraseIds
from nmt.decoding.search import Hypothesis


@dataclass(frozen=True)
class Sentences:
    """Sentences that the model reads.

    Attributes:
        texts: the text of each, with placeholders.
        sources: its source ids.
        prefixes: the first target ids of each; None: none has any.
        phrases: the constraints of each; empty for a sentence without constraints.
        fixed: the ids of the translation of each, into which tags are to be placed; None: the sentences are
            to be translated.
        pairs: with `fixed`, the pairs of tags of each.
    """

    texts: Sequence[str]
    sources: Sequence[Sequence[int]]
    prefixes: Sequence[Sequence[int]] | None
    phrases: Sequence[PhraseIds]
    fixed: Sequence[Sequence[int]] | None = None
    pairs: Sequence[Sequence[TagPair]] = ()

    def take(self, places: Sequence[int]) -> Sentences:
        """Returns the sentences at these places."""
        return Sentences(
            [self.texts[place] for place in places],
            [self.sources[place] for place in places],
            None if self.prefixes is None else [self.prefixes[place] for place in places],
            [self.phrases[place] for place in places],
            None if self.fixed is None else [self.fixed[place] for place in places],
            [self.pairs[place] for place in places] if self.pairs else (),
        )


@dataclass(frozen=True)
class Wanted:
    """What a search returns besides the translations, and how strict it is.

    Attributes:
        attention: whether to return the attention of the model.
        alignments: whether to return the attention of the heads that align words.
        scores: whether the scores of the hypotheses are used; if not, they may be 0.
        stricter: whether to forbid repeated sequences of tokens, for sentences whose translation was a loop.
    """

    attention: bool = False
    alignments: bool = False
    scores: bool = True
    stricter: bool = False


@dataclass(frozen=True)
class SearchJob:
    """A batch to search."""

    sentences: Sentences
    wanted: Wanted


@dataclass(frozen=True)
class Found:
    """The hypotheses of a sentence, best first, and the links of each."""

    hypotheses: list[Hypothesis]
    alignments: Sequence[Alignment]


@dataclass(frozen=True)
class ForcedJob:
    """A batch of given pairs to score or to align: source ids and target ids."""

    sources: Sequence[Sequence[int]]
    targets: Sequence[Sequence[int]]


def batches_by_length(lengths: Sequence[int], max_tokens: int, max_sentences: int) -> list[list[int]]:
    """Groups sentences of similar length into batches.

    The longest sentences come first, so that a batch that does not fit into memory fails at once.

    Args:
        lengths: number of tokens of each sentence.
        max_tokens: maximum number of tokens of a batch, padding counted. A longer sentence is a batch alone.
        max_sentences: maximum number of sentences of a batch.

    Returns:
        The sentence indices of each batch; every index is in exactly one batch.
    """
    batches: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        room = min(max_sentences, max_tokens // lengths[batches[-1][0]]) if batches else 0
        if batches and len(batches[-1]) < room:
            batches[-1].append(index)
        else:
            batches.append([index])
    return batches
