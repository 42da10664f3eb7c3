"""Text in, text out: lines are tokenised, batched by length, translated or scored, and returned in order."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from nmt.config import DecodingConfig, Precision
from nmt.data.batches.batching import Batch
from nmt.data.subwords.tokenizer import BOS_ID, EOS_ID, PAD_ID, UNK_ID, Tokenizer
from nmt.decoding.ensemble import Ensemble
from nmt.decoding.processors import Prefix, PrefixOptions, SearchProcessor, configured_processors
from nmt.decoding.scoring import ScoredTarget, forced_score
from nmt.decoding.search import Hypothesis, beam_search
from nmt.decoding.windows import full_windows, ready_windows
from nmt.errors import UserError
from nmt.model import Seq2Seq
from nmt.runtime import memory_errors

_DTYPES = {Precision.bf16: torch.bfloat16, Precision.fp16: torch.float16}


@dataclass(frozen=True)
class ScoredText:
    """A translation and how probable the model finds it.

    Attributes:
        text: one line, without its end.
        score: log-probability divided by the length penalty.
        attention: (target pieces, source pieces) on the CPU, EOS counted on both sides: how much the choice
            of each target piece looks at each source piece. None if it was not asked for, or for a blank
            line.
    """

    text: str
    score: float
    attention: Tensor | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Translation:
    """What became of one line.

    Attributes:
        hypotheses: best first; one or more, at most `decoding.nbest`.
        truncated: 0, or the number of tokens of a source that was cut.
        cut_to: tokens of a source that are read: `decoding.max_source_tokens`, or fewer for the model.
        num_tokens: target tokens of the best hypothesis, EOS counted; 0 for a blank line.
    """

    hypotheses: tuple[ScoredText, ...]
    truncated: int = 0
    num_tokens: int = 0
    cut_to: int = 0


BLANK = Translation((ScoredText("", 0.0),))
"""What becomes of a line with nothing to translate: certainly the empty line."""


class Translator:
    """Models and their tokenizer, ready to translate.

    Args:
        models: one, or several that translate together; are moved to `device`.
        tokenizer: the one they were trained with.
        config: beam search and batches.
        device: where to compute.
        precision: of the matrix products; in fp32 the text is equal whatever lines stand beside a line.
        processors: for every search, applied after those that `config` asks for.
    """

    def __init__(
        self,
        models: Sequence[Seq2Seq],
        tokenizer: Tokenizer,
        config: DecodingConfig,
        *,
        device: torch.device,
        precision: Precision = Precision.fp32,
        processors: Sequence[SearchProcessor] = (),
    ) -> None:
        self._ensemble = Ensemble([model.to(device) for model in models])
        self.tokenizer = tokenizer
        self.config = config
        self.device = device
        self.dtype = _DTYPES.get(precision)
        limits = [model.max_source_len for model in models], [model.max_target_len for model in models]
        sources, targets = ([limit for limit in side if limit is not None] for side in limits)
        # Tokens of a source that are read: `decoding.max_source_tokens`, or fewer for the models.
        self.max_source_tokens = min([config.max_source_tokens, *sources])
        self._max_target_tokens = min(targets, default=None)
        self.processors = (*configured_processors(config), *processors)

    def translate(
        self,
        lines: Sequence[str],
        advance: Callable[[int], object] = lambda num_lines: None,
        *,
        prefixes: Sequence[str] | None = None,
        attention: bool = False,
    ) -> list[Translation]:
        """Translates lines of any content.

        Args:
            lines: a line that is blank or has no pieces is not shown to the model and becomes the empty line.
            advance: told the number of lines in each finished batch, such as a progress bar's `update`.
            prefixes: for each line the text that its translation begins with; an empty one leaves it free.
                The pieces of the prefix are fixed, also where processors forbid them; a translation may be
                longer than `decoding.max_length_factor` and `decoding.max_length_offset` allow if its prefix
                is. A model with a maximum length cuts a longer prefix. A blank line becomes the empty line
                all the same.
            attention: whether to return the attention of every hypothesis.

        Returns:
            A translation for each line, in order.

        Raises:
            UserError: the model's probabilities are NaN, or it has no attention to return, or a batch does
                not fit the device's memory.
        """
        assert prefixes is None or len(prefixes) == len(lines), "one prefix for each line"
        pieces = self._encode_sources(lines)
        begun = None if prefixes is None else self.tokenizer.encode_target([*map(_unless_blank, prefixes)])
        rows = [row for row, ids in enumerate(pieces) if ids]
        sources = [self._cut(pieces[row]) for row in rows]
        advance(len(lines) - len(rows))
        found: list[list[Hypothesis]] = [[] for _ in sources]
        lengths = [len(source) + 1 for source in sources]
        with _evaluating(self._ensemble.models):
            for batch in batches_by_length(lengths, self.config.max_tokens, self.config.max_sentences):
                starts = None if begun is None else [begun[rows[place]] for place in batch]
                results = self._search([sources[place] for place in batch], starts, attention=attention)
                for place, hypotheses in zip(batch, results, strict=True):
                    found[place] = hypotheses
                advance(len(batch))

        texts = iter(self.tokenizer.decode_target([one.ids for hypotheses in found for one in hypotheses]))
        translations = [BLANK] * len(lines)
        for row, length, hypotheses in zip(rows, lengths, found, strict=True):
            translations[row] = Translation(
                hypotheses=tuple(
                    ScoredText(next(texts), one.score, _without_padding(one.attention, length))
                    for one in hypotheses
                ),
                truncated=self._num_truncated(pieces[row]),
                num_tokens=len(hypotheses[0].ids) + 1,
                cut_to=self.max_source_tokens,
            )
        return translations

    def stream(self, lines: Iterable[str], window: int, *, wait: bool = True) -> Iterator[Translation]:
        """Translates lines as they come.

        Args:
            lines: any number.
            window: lines read before the first of them is returned; the more, the better the batches.
            wait: False: don't wait for a full window when some lines are there, so that a slow writer gets
                each answer before its next line.

        Yields:
            A translation for each line, in order.
        """
        for part in full_windows(lines, window) if wait else ready_windows(lines, window):
            yield from self.translate(part)

    def score(
        self, pairs: Sequence[tuple[str, str]], advance: Callable[[int], object] = lambda num_pairs: None
    ) -> list[ScoredTarget]:
        """Scores given translations by the log-probability of each of their tokens.

        The tokenizer cuts a target into tokens. A search can choose other tokens for the same text, and their
        probability differs. Processors and forbidden ids have no effect here.

        Args:
            pairs: source and target, of any content. The model doesn't read a source that is blank or has no
                pieces: since `translate` returns the empty line for it, that has the probability 1 and any
                other target 0. A target that is blank or has no pieces is EOS alone.
            advance: called with the number of pairs in each finished batch.

        Returns:
            A score for each pair, in order.

        Raises:
            UserError: the model's probabilities are NaN, or a batch does not fit the device's memory.
        """
        pieces = self._encode_sources([source for source, _ in pairs])
        targets = self.tokenizer.encode_target([_unless_blank(target) for _, target in pairs])
        rows = [row for row, ids in enumerate(pieces) if ids]
        sources = [self._cut(pieces[row]) for row in rows]
        advance(len(pairs) - len(rows))
        scored = [ScoredTarget.of_blank_source(target) for target in targets]
        lengths = [max(len(ids), len(targets[row])) + 1 for row, ids in zip(rows, sources, strict=True)]
        with _evaluating(self._ensemble.models):
            for batch in batches_by_length(lengths, self.config.max_tokens, self.config.max_sentences):
                results = self._forced_score(
                    [sources[place] for place in batch], [targets[rows[place]] for place in batch]
                )
                for place, log_probs in zip(batch, results, strict=True):
                    row = rows[place]
                    scored[row] = ScoredTarget(log_probs, self._num_truncated(pieces[row]))
                advance(len(batch))
        return scored

    def _encode_sources(self, lines: Sequence[str]) -> list[list[int]]:
        """Ids of each line, whole; a blank line has none."""
        return self.tokenizer.encode_source([_unless_blank(line) for line in lines])

    def _cut(self, ids: list[int]) -> list[int]:
        return ids[: self.max_source_tokens - 1]  # EOS is the last token

    def _num_truncated(self, ids: list[int]) -> int:
        """`Translation.truncated` of a source with these ids."""
        num_tokens = len(ids) + 1
        return num_tokens if num_tokens > self.max_source_tokens else 0

    def _max_lengths(self, batch: Batch, prefixes: Sequence[Sequence[int]] | None) -> list[int]:
        """For each source the most tokens of its translation, EOS included."""
        factor, offset = self.config.max_length_factor, self.config.max_length_offset
        lengths = [int(length * factor) + offset for length in batch.source.lengths]
        if prefixes is not None:
            lengths = [max(length, len(ids) + 1) for length, ids in zip(lengths, prefixes, strict=True)]
        most = self._max_target_tokens
        return lengths if most is None else [min(length, most) for length in lengths]

    def _search(
        self, sources: Sequence[Sequence[int]], prefixes: Sequence[Sequence[int]] | None, *, attention: bool
    ) -> list[list[Hypothesis]]:
        processors = self.processors
        if prefixes is not None:
            processors = (Prefix(PrefixOptions(tuple(map(tuple, prefixes))), self.processors),)
        with self._computing():
            batch = Batch.of(sources, [()] * len(sources)).to(self.device)
            return beam_search(
                self._ensemble.step,
                self._ensemble.start(batch),
                num_sentences=len(sources),
                max_lengths=self._max_lengths(batch, prefixes),
                config=self.config,
                bos_id=BOS_ID,
                eos_id=EOS_ID,
                forbidden=(PAD_ID, BOS_ID, UNK_ID),
                processors=processors,
                sources=sources,
                attention=attention,
                device=self.device,
            )

    def _forced_score(
        self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
    ) -> list[tuple[float, ...]]:
        with self._computing():
            batch = Batch.of(sources, [()] * len(sources)).to(self.device)
            return forced_score(
                self._ensemble.step,
                self._ensemble.start(batch),
                targets,
                bos_id=BOS_ID,
                eos_id=EOS_ID,
                device=self.device,
            )

    @contextlib.contextmanager
    def _computing(self) -> Iterator[None]:
        """Without gradients, in the precision asked for; too little memory and NaN become a `UserError`."""
        autocast = torch.autocast(self.device.type, self.dtype, enabled=self.dtype is not None)
        try:
            with memory_errors(self._too_large), torch.inference_mode(), autocast:
                yield
        except FloatingPointError as error:
            raise UserError(
                "the model's probabilities are not numbers (NaN): its weights are damaged, or its values are "
                "too large for fp16, and precision=fp32 helps"
            ) from error

    def _too_large(self) -> UserError:
        return UserError(
            f"a batch does not fit the memory of {self.device}: lower decoding.max_tokens="
            f"{self.config.max_tokens} or decoding.max_sentences={self.config.max_sentences}"
        )


def batches_by_length(lengths: Sequence[int], max_tokens: int, max_sentences: int) -> list[list[int]]:
    """Groups sentences of like length, the longest first: what does not fit the memory shows at once.

    Args:
        lengths: tokens of each sentence.
        max_tokens: of a batch, padding included; a sentence that alone has more gets its own batch.
        max_sentences: of a batch.

    Returns:
        The indices of each batch; every index is in exactly one.
    """
    batches: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        room = min(max_sentences, max_tokens // lengths[batches[-1][0]]) if batches else 0
        if batches and len(batches[-1]) < room:
            batches[-1].append(index)
        else:
            batches.append([index])
    return batches


def _without_padding(attention: Tensor | None, length: int) -> Tensor | None:
    """(|Y|, S) attention to a source of `length` pieces; S is that of the longest source in its batch."""
    return None if attention is None else attention[:, :length].clone()


def _unless_blank(line: str) -> str:
    return line if line.strip() else ""


@contextlib.contextmanager
def _evaluating(models: Sequence[Seq2Seq]) -> Iterator[None]:
    """Without dropout; a model in training goes back to it."""
    were_training = [model.training for model in models]
    for model in models:
        model.eval()
    try:
        yield
    finally:
        for model, was_training in zip(models, were_training, strict=True):
            model.train(was_training)
