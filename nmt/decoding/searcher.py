"""The interface of a searcher: it maps sentences of ids to hypotheses. It does not know text.

`nmt.decoding.torch_searcher` searches with models in PyTorch; engines that read exports are searchers too.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Self, TypeVar

from nmt.config import DecodingConfig, Numbers
from nmt.copying.strings import TagPair
from nmt.copying.translation import Placeholders
from nmt.data.subwords.tokenizer import Tokenizer
from nmt.decoding.search import Hypothesis
from nmt.errors import UserError

Job = TypeVar("Job")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Sentence:
    """A sentence to search.

    Attributes:
        source: its source ids, without EOS.
        prefix: the first target ids; may be empty.
        phrases: the ids of each phrase that the translation must contain; may be empty.
        finished: the ids of a finished translation into which tags are to be placed; None: the sentence is to
            be translated.
        tag_pairs: with `finished`, the pairs of tags.
    """

    source: Sequence[int]
    prefix: Sequence[int] = ()
    phrases: Sequence[Sequence[int]] = ()
    finished: Sequence[int] | None = None
    tag_pairs: Sequence[TagPair] = ()


@dataclass(frozen=True)
class SearchRequest:
    """What a search returns besides the ids of hypotheses, and how strict it is.

    Attributes:
        attention: whether to return the attention of the model.
        alignments: whether to return the attention of the heads that align words. It excludes `attention`.
        scores: whether the scores of the hypotheses are used; if not, they may be 0.
        stricter: whether to forbid repeated sequences of tokens, for sentences whose translation was a loop.
    """

    attention: bool = False
    alignments: bool = False
    scores: bool = True
    stricter: bool = False


class Searcher(ABC):
    """Searches the translations of sentences, in batches of similar length.

    Attributes:
        config: the options of decoding.
        max_source_tokens: the maximum number of tokens of a source, EOS counted.
        places_tags: whether it can place tags in finished translations (`Sentence.finished`).
        has_attention: whether it can return the attention of the model.
    """

    config: DecodingConfig
    max_source_tokens: int
    places_tags = False
    has_attention = False

    @property
    def source_limit(self) -> str:
        """The reason for `max_source_tokens`, for messages about cut sources: the option, or the model."""
        if self.max_source_tokens < self.config.max_source_tokens:
            return "the limit of the model; give shorter sentences"
        return "decoding.max_source_tokens"

    @property
    def sentences_per_batch(self) -> int:
        """The largest number of sentences per batch."""
        return self.config.sentences_per_batch

    @property
    def num_processes(self) -> int:
        """The number of processes that may call it side by side; 1: it needs none to use the machine."""
        return 1

    @abstractmethod
    def with_options(self, config: DecodingConfig) -> Self:
        """Returns a searcher with other options and the same model, which is not loaded again.

        Raises:
            UserError: an option is wrong or not available.
        """

    @abstractmethod
    def prepare(self, request: SearchRequest, *, constraints: bool) -> None:
        """Prepares the searches of a call, so that an error is raised before the work.

        Raises:
            UserError: the searcher has no attention, alignments or constraints, and the call asks for them.
        """

    @abstractmethod
    def search(
        self,
        sentences: Sequence[Sentence],
        request: SearchRequest,
        advance: Callable[[int], object] = lambda num_sentences: None,
    ) -> Iterator[tuple[int, list[Hypothesis]]]:
        """Yields the index and the hypotheses of each sentence, batch by batch.

        Args:
            sentences: the sentences.
            request: what to return besides the ids.
            advance: called with the number of sentences of each finished batch.

        Returns:
            For each sentence one hypothesis or more, best first, at most `decoding.num_results` of them.

        Raises:
            UserError: a probability is NaN, or a batch does not fit into memory.
        """

    def run(
        self, work: Callable[[Job], Result], jobs: Sequence[Job], batches: Sequence[Sequence[int]]
    ) -> Iterator[tuple[int, Result]]:
        """Yields the index and the result of each job; a searcher may do several jobs side by side.

        There is a job for each batch of sentences.
        """
        yield from enumerate(map(work, jobs))


def placeholders_of(tokenizer: Tokenizer, config: DecodingConfig) -> Placeholders:
    """Returns the placeholders of a tokenizer; none with `decoding.placeholders=false`.

    Raises:
        UserError: `decoding.numbers=copy` needs placeholders, and the vocabulary has none.
    """
    copies_numbers = config.numbers is Numbers.copy
    if copies_numbers and not tokenizer.placeholders:
        raise UserError(
            "decoding.numbers=copy: the model has no placeholders. Set decoding.numbers=check, or use a "
            "model that was trained with data.placeholders=true."
        )
    return Placeholders(
        tokenizer.placeholders,
        tokenizer.source_symbols,
        lambda: tokenizer.target.names,
        config.placeholders,
        copies_numbers,
    )
