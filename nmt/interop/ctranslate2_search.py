"""Beam search by CTranslate2, with nmt's length penalty, maximum lengths and scores.

The engine divides the log-probability of a hypothesis by |Y|^alpha, and ends the search of a sentence when a
certain number of hypotheses is complete. Here it returns all of them. Their log-probabilities are recovered
and divided by GNMT's penalty, ((5 + |Y|) / 6)^alpha, so the order and the scores are those of nmt.

The search differs from that of `nmt.decoding.search` in two points. It retains `beam_size` open hypotheses at
each step, whereas in nmt complete ones also take a place. It ends with a number of complete hypotheses; nmt
continues while an open one may still be better. With a quarter more complete ones than `beam_size`, 1,014 of
1,014 validation sentences of Multi30k have the translation of nmt; with `beam_size`, 1,009 have it.

The engine has one maximum length for a call. A batch gets the largest one of its sentences. A sentence whose
search would have met its smaller maximum is searched again with that one. So is a sentence with a piece that
must not be written; nmt forbids these pieces, but to forbid them in the engine changes its probabilities.

The engine can't mask ids by the state of a hypothesis, so it may write byte pieces that are not UTF-8. Then
the sentence is searched again without the sequence of pieces that is wrong wherever it occurs: a character
and the byte that does not follow it, or a part of a character and the piece that does not complete it. After
`_ROUNDS` such searches all bytes beyond ASCII are forbidden.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nmt.config import DecodingConfig
from nmt.data.subwords.vocabulary import EOS_ID, FORBIDDEN_IDS
from nmt.decoding.scorers import LengthPenalty
from nmt.decoding.search import Hypothesis
from nmt.decoding.search_batches import batches_by_length
from nmt.decoding.searcher import Searcher, SearchRequest, Sentence
from nmt.decoding.utf8 import Utf8
from nmt.errors import UserError
from nmt.interop.ctranslate2_export import SPECIAL, vocabularies
from nmt.runtime.machine import memory_errors

if TYPE_CHECKING:
    from nmt.data.subwords.tokenizer import Tokenizer
    from nmt.interop.record import Record

BACKEND = "backend=ctranslate2"
"""The option that chooses the engine, for error messages."""
_REFUSED = ("samples", "mbr", "diversity", "coverage_penalty", "processors")
"""Options of decoding that the engine does not have, or computes differently."""
_STRICT = 3  # tokens of `NoRepeatNgram` where a translation was a loop
_NO_PENALTY = 1e-6  # with 0, the engine ends the search at the first complete hypothesis
_IMPOSSIBLE = -1e6  # the engine fills missing hypotheses with this log-probability or less
_ROUNDS = 4  # searches with a growing list of forbidden sequences
_BATCH_TOKENS = 2048  # the fastest number on a CPU. Ctrl-C waits for the end of a batch
_GROWTH = 1.03  # a step of the size of a batch, until there are few enough
_LIMITS = {"max_input_length": 0, "max_batch_size": _BATCH_TOKENS, "batch_type": "tokens"}
"""Arguments of calls of the engine: sources of any length, in batches of its own."""


def check_decoding(decoding: DecodingConfig) -> None:
    """Refuses options of decoding that the engine does not have; the `UserError` names the option."""
    for key in _REFUSED:
        if value := getattr(decoding, key):
            shown = ",".join(value) if isinstance(value, dict) else value
            none = {"mbr": "null", "processors": "{}"}.get(key, "0")
            raise UserError(
                f"decoding.{key}={shown}: {BACKEND} does not have it. Set decoding.{key}={none}, or use "
                "backend=nmt."
            )


@dataclass(frozen=True)
class _Job:
    """A sentence in the pieces of the engine; `index` is its place among the sentences of the call.

    Attributes:
        limit: the maximum number of tokens of its translation, EOS counted.
        placeholders: the ids of the placeholders of its source, in their order. A hypothesis that has exactly
            these is better than one that does not.
    """

    index: int
    source: list[str]
    prefix: tuple[str, ...]
    limit: int
    placeholders: list[int]


class CTranslate2Searcher(Searcher):
    """Searches with a loaded export, a `ctranslate2.Translator`, which several threads may use at once.

    `workers` is the number of batches that the engine computes side by side.
    """

    def __init__(
        self, engine: Any, tokenizer: Tokenizer, config: DecodingConfig, record: Record, workers: int
    ) -> None:
        self._engine, self._record, self._workers = engine, record, workers
        self._placeholders = tokenizer.placeholders
        self._source_names, self._target_names = vocabularies(tokenizer)
        self._target_ids = {name: number for number, name in enumerate(self._target_names)}
        self._utf8 = Utf8(self._target_names)
        self._byte_names = {self._target_names[id] for id in self._utf8.parts}
        self._configure(config)

    def _configure(self, config: DecodingConfig) -> None:
        check_decoding(config)
        self.config = config
        self.max_source_tokens = min(config.max_source_tokens, self._record.max_source_tokens)
        self._power = config.length_penalty or _NO_PENALTY
        self._penalty = LengthPenalty(config.length_penalty).penalty

    def with_options(self, config: DecodingConfig) -> CTranslate2Searcher:
        """See `Searcher.with_options`."""
        searcher = copy(self)
        searcher._configure(config)
        return searcher

    def prepare(self, request: SearchRequest, *, constraints: bool) -> None:
        """See `Searcher.prepare`."""
        for name, is_requested in (
            ("attention", request.attention),
            ("alignments", request.alignments),
            ("constraints", constraints),
        ):
            if is_requested:
                raise UserError(f"{name}: {BACKEND} has none. Use backend=nmt.")

    def search(
        self,
        sentences: Sequence[Sentence],
        request: SearchRequest,
        advance: Callable[[int], object] = lambda num_sentences: None,
    ) -> Iterator[tuple[int, list[Hypothesis]]]:
        """See `Searcher.search`."""
        lengths = [len(sentence.source) + 1 for sentence in sentences]
        batches = equal_batches(lengths, self.config, self._workers)
        jobs = ([self._job(index, sentences[index]) for index in batch] for batch in batches)
        no_repeat = _STRICT if request.stricter else self.config.no_repeat_ngram
        results: Iterator[tuple[list[_Job], dict[int, list[Hypothesis]]]]
        if no_repeat or any(sentence.prefix for sentence in sentences):
            results = ((batch, self._exactly(batch, no_repeat)) for batch in jobs)
        else:
            results = self._pipelined(jobs, request.scores)
        with memory_errors(_memory_error):
            for batch, hypotheses in results:
                yield from ((job.index, hypotheses[job.index]) for job in batch)
                advance(len(batch))

    def _job(self, index: int, sentence: Sentence) -> _Job:
        source, prefix, config = sentence.source, sentence.prefix, self.config
        placeholders = self._placeholders if config.placeholders else range(0)
        # A prefix may be longer than the options allow, but not than the model does.
        limit = max(config.max_target_tokens(len(source) + 1), len(prefix) + 1)
        return _Job(
            index,
            [self._source_names[id] for id in source],
            tuple(self._target_names[id] for id in prefix),
            min(limit, self._record.max_target_tokens),
            sorted(id for id in source if id in placeholders),
        )

    def _pipelined(
        self, batches: Iterator[list[_Job]], scores: bool
    ) -> Iterator[tuple[list[_Job], dict[int, list[Hypothesis]]]]:
        """Yields each batch with its hypotheses by index, while the engine computes the next ones."""
        waiting: deque[tuple[list[_Job], list[Any]]] = deque()
        for batch in batches:
            if len(waiting) > self._workers + 1:
                jobs, pending = waiting.popleft()
                yield jobs, self._finished(jobs, pending)
            waiting.append((batch, self._start(batch, scores)))
        for jobs, pending in waiting:
            yield jobs, self._finished(jobs, pending)

    def _start(self, jobs: Sequence[_Job], scores: bool) -> list[Any]:
        """Gives a batch to the engine; returns a list of results that may not be there yet.

        Greedy search takes 6 % less time without scores; they are 0 then.
        """
        pending: list[Any] = self._engine.translate_batch(
            [job.source for job in jobs],
            asynchronous=True,
            max_decoding_length=max(1, max(job.limit for job in jobs) - 1),
            return_scores=scores or self.config.beam_size > 1,
            max_input_length=0,
            **self._options(),
        )
        return pending

    def _finished(self, jobs: Sequence[_Job], pending: Sequence[Any]) -> dict[int, list[Hypothesis]]:
        """Waits for a batch; returns the hypotheses of each sentence by its index."""
        hypotheses: dict[int, list[Hypothesis]] = {}
        again = []
        forbidden, end = {SPECIAL[id] for id in FORBIDDEN_IDS}, [SPECIAL[EOS_ID]]
        for job, future in zip(jobs, pending, strict=True):
            result = future.result()
            scores = result.scores or [0.0]
            last = max(map(len, result.hypotheses))  # the step at which the search ended
            if last > job.limit - 2 or any(
                not forbidden.isdisjoint(pieces) or self._wrong(pieces) for pieces in result.hypotheses
            ):
                again.append(job)
                continue
            complete = [
                (pieces[:-1], score * len(pieces) ** self._power)
                for pieces, score in zip(result.hypotheses, scores, strict=True)
                if pieces[-1:] == end
            ]
            hypotheses[job.index] = self._ranked(job, complete)
        return hypotheses | self._exactly(again, 0) if again else hypotheses

    def _exactly(self, jobs: Sequence[_Job], no_repeat: int) -> dict[int, list[Hypothesis]]:
        """Returns the hypotheses of each sentence by its index, searched with its maximum length.

        The log-probabilities are computed again, because those of the search do not contain the prefix, nor
        EOS at the maximum length, and are without the share of the forbidden pieces.
        """
        by_limit: defaultdict[int, list[_Job]] = defaultdict(list)
        for job in jobs:
            by_limit[job.limit].append(job)
        candidates: dict[int, list[tuple[str, ...]]] = {}
        for limit, group in by_limit.items():
            candidates |= self._candidates(group, limit, no_repeat)
        pairs = [(job, [*pieces]) for job in jobs for pieces in candidates[job.index]]
        scored = self._engine.score_batch(
            [job.source for job, _ in pairs], [pieces for _, pieces in pairs], **_LIMITS
        )
        complete: dict[int, list[tuple[Sequence[str], float]]] = {job.index: [] for job in jobs}
        for (job, pieces), result in zip(pairs, scored, strict=True):
            complete[job.index].append((pieces, math.fsum(result.log_probs)))
        return {job.index: self._ranked(job, complete[job.index]) for job in jobs}

    def _candidates(
        self, jobs: Sequence[_Job], limit: int, no_repeat: int
    ) -> dict[int, list[tuple[str, ...]]]:
        """Returns the pieces of the hypotheses of sentences that have the same maximum length, each once."""
        candidates = {job.index: [self._whole(job.prefix[: limit - 1])] for job in jobs}
        unfinished = [job for job in jobs if len(job.prefix) < limit - 1]
        suppressed = [[SPECIAL[id]] for id in FORBIDDEN_IDS]
        for number in range(_ROUNDS + 1):
            if not unfinished:
                return candidates
            if number == _ROUNDS:
                suppressed += [[name] for name in sorted(self._byte_names)]
            results = self._engine.translate_batch(
                [job.source for job in unfinished],
                [[*job.prefix] for job in unfinished],
                max_decoding_length=limit - 1,
                return_scores=True,
                no_repeat_ngram_size=no_repeat,
                suppress_sequences=suppressed,
                **_LIMITS,
                **self._options(),
            )
            again, wrong = [], list[list[str]]()
            for job, result in zip(unfinished, results, strict=True):
                likely = [
                    pieces
                    for pieces, score in zip(result.hypotheses, result.scores, strict=True)
                    if score * len(pieces) ** self._power > _IMPOSSIBLE
                ]
                given = len(job.prefix)  # a prefix may have any pieces
                errors = [error for pieces in likely if (error := self._wrong(pieces[given:]))]
                if errors and number < _ROUNDS:
                    again.append(job)
                    wrong += errors
                whole = [(*job.prefix, *self._whole(pieces[given:])) for pieces in likely]
                candidates[job.index] = [*dict.fromkeys(whole)]
            unfinished = again
            suppressed += [error for error in wrong if error not in suppressed]
        return candidates

    def _wrong(self, pieces: Sequence[str]) -> list[str]:
        """Returns the first pieces, EOS included, that are not UTF-8; empty: there are none."""
        if self._byte_names.isdisjoint(pieces):
            return []
        return [self._target_names[id] for id in self._utf8.wrong([self._target_ids[one] for one in pieces])]

    def _whole(self, pieces: Sequence[str]) -> tuple[str, ...]:
        """Returns the pieces of a hypothesis without EOS, up to the first that is not UTF-8."""
        pieces = pieces[:-1] if pieces[-1:] == [SPECIAL[EOS_ID]] else pieces
        return tuple(pieces[: len(self._utf8.whole([self._target_ids[one] for one in pieces]))])

    def _options(self) -> dict[str, Any]:
        """Returns the arguments of `translate_batch` that all its calls have."""
        beam = self.config.beam_size
        complete = beam if beam == 1 else beam + max(1, beam // 4)
        return {
            "beam_size": beam,
            "num_hypotheses": complete,
            "patience": 1 if beam == 1 else (complete + 0.25) / beam,  # the engine rounds their product
            "length_penalty": self._power,
            "min_decoding_length": 0,  # 1 would forbid EOS as the first token
            "return_end_token": True,
        }

    def _ranked(self, job: _Job, complete: Sequence[tuple[Sequence[str], float]]) -> list[Hypothesis]:
        """Returns the best hypotheses of a sentence, ordered as nmt does.

        Each is given by its pieces and its log-probability with EOS. If one is NaN, this raises `UserError`.
        """
        hypotheses = [
            Hypothesis(
                tuple([self._target_ids[piece] for piece in pieces]),
                log_prob / self._penalty(len(pieces) + 1),
                log_prob,
            )
            for pieces, log_prob in complete
        ]
        if any(math.isnan(hypothesis.score) for hypothesis in hypotheses):
            raise UserError("the probabilities of the export are NaN: its weights are damaged.")

        def order(hypothesis: Hypothesis) -> tuple[bool, float]:
            placeholders = sorted(id for id in hypothesis.ids if id in self._placeholders)
            return bool(job.placeholders) and placeholders != job.placeholders, -hypothesis.score

        return sorted(hypotheses, key=order)[: self.config.nbest]


def equal_batches(lengths: Sequence[int], config: DecodingConfig, workers: int) -> list[list[int]]:
    """Groups sentences into batches of about equal work, the same number for each worker.

    `lengths` are numbers of source tokens. Returns the indices of the sentences of each batch.
    """
    size = 1_000_000 if config.max_sentences == "auto" else int(config.max_sentences)
    most = _BATCH_TOKENS if config.max_tokens == "auto" else min(int(config.max_tokens), _BATCH_TOKENS)
    batches = batches_by_length(lengths, most, size)
    count = workers * math.ceil(len(batches) / workers)
    tokens = sum(lengths) / count if count else most
    while (tokens := tokens * _GROWTH) < most:
        if len(equal := batches_by_length(lengths, math.ceil(tokens), size)) <= count:
            return equal
    return batches


def _memory_error() -> UserError:
    return UserError(
        "decoding.max_tokens: a batch does not fit into memory. Lower it, such as decoding.max_tokens=1024."
    )
