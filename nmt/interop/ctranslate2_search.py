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
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nmt.data.subwords.vocabulary import EOS_ID, FORBIDDEN_IDS
from nmt.decoding.scorers import LengthPenalty
from nmt.decoding.search import Hypothesis
from nmt.errors import UserError
from nmt.interop.ctranslate2_export import SPECIAL, vocabularies
from nmt.runtime import memory_errors

if TYPE_CHECKING:
    from nmt.data.subwords.tokenizer import Tokenizer

_NO_PENALTY = 1e-6  # with 0, the engine ends the search at the first complete hypothesis
_IMPOSSIBLE = -1e6  # the engine fills missing hypotheses with this log-probability or less
_BATCH_TOKENS = 2048


@dataclass(frozen=True)
class Settings:
    """The options of a search.

    Attributes:
        beam_size: see `DecodingConfig`.
        nbest: see `DecodingConfig`.
        length_penalty: see `DecodingConfig`.
        no_repeat_ngram: see `DecodingConfig`.
        placeholders: the ids of the placeholders. A hypothesis that has exactly those of its source is better
            than one that does not.
        scores: whether the scores are used. Greedy search takes 6 % less time without them; they are 0 then.
    """

    beam_size: int
    nbest: int
    length_penalty: float
    no_repeat_ngram: int
    placeholders: range
    scores: bool = True


class EngineSearch:
    """Searches with a loaded export. Several threads may use it at once.

    Args:
        engine: a `ctranslate2.Translator`.
        tokenizer: of the export.
        workers: the number of batches that the engine computes side by side.

    Attributes:
        engine: the same.
        workers: the same.
        source_names: the names of the source pieces in the engine, in the order of their ids.
        target_names: those of the target pieces.
    """

    def __init__(self, engine: Any, tokenizer: Tokenizer, workers: int) -> None:
        self.engine, self.workers = engine, workers
        self.source_names, self.target_names = vocabularies(tokenizer)
        self._target_ids = {name: number for number, name in enumerate(self.target_names)}

    def ids(self, pieces: Sequence[str]) -> tuple[int, ...]:
        """Returns the ids of pieces of the target side."""
        ids = self._target_ids
        return tuple([ids[piece] for piece in pieces])

    def run(
        self,
        batches: Sequence[Sequence[int]],
        sources: Sequence[Sequence[int]],
        prefixes: Sequence[Sequence[int]],
        limits: Sequence[int],
        settings: Settings,
    ) -> Iterator[tuple[Sequence[int], list[list[Hypothesis]]]]:
        """Yields the rows of each batch with the hypotheses of each of them, best first.

        Args:
            batches: the rows of each batch, the longest sentences first.
            sources: the ids of each sentence, without EOS.
            prefixes: the first ids of each translation.
            limits: the maximum number of tokens of each translation, EOS counted.
            settings: the options.

        Raises:
            UserError: the memory of the device is too small, or a probability is NaN.
        """
        call = _Call(self, sources, prefixes, limits, settings)
        with memory_errors(_memory_error):
            yield from call.run(batches)


class _Call:
    """One call of `EngineSearch.run`; see there for the arguments."""

    def __init__(
        self,
        search: EngineSearch,
        sources: Sequence[Sequence[int]],
        prefixes: Sequence[Sequence[int]],
        limits: Sequence[int],
        settings: Settings,
    ) -> None:
        self._engine, self._workers = search.engine, search.workers
        self._sources, self._prefixes, self._limits = sources, prefixes, limits
        self._settings, self._power = settings, settings.length_penalty or _NO_PENALTY
        self._source_names, self._target_names = search.source_names, search.target_names
        self._rank = _Ranking(settings, search.ids)

    def run(self, batches: Sequence[Sequence[int]]) -> Iterator[tuple[Sequence[int], list[list[Hypothesis]]]]:
        """See `EngineSearch.run`."""
        if self._settings.no_repeat_ngram or any(self._prefixes):
            for rows in batches:
                yield rows, [*self._exactly(rows).values()]
            return
        waiting: deque[tuple[Sequence[int], list[Any]]] = deque()
        for rows in batches:
            if len(waiting) > self._workers + 1:
                yield self._finished(*waiting.popleft())
            waiting.append((rows, self._start(rows)))
        while waiting:
            yield self._finished(*waiting.popleft())

    def _start(self, rows: Sequence[int]) -> list[Any]:
        """Gives a batch to the engine; returns a list of results that may not be there yet."""
        longest = max(self._limits[row] for row in rows)
        found: list[Any] = self._engine.translate_batch(
            [self._pieces(row) for row in rows],
            asynchronous=True,
            max_decoding_length=max(1, longest - 1),
            return_scores=self._settings.scores or self._settings.beam_size > 1,
            **self._options(),
        )
        return found

    def _finished(
        self, rows: Sequence[int], pending: Sequence[Any]
    ) -> tuple[Sequence[int], list[list[Hypothesis]]]:
        """Waits for a batch; returns its rows and their hypotheses."""
        found: dict[int, list[Hypothesis]] = {}
        again = []
        forbidden, end = {SPECIAL[one] for one in FORBIDDEN_IDS}, [SPECIAL[EOS_ID]]
        for row, one in zip(rows, pending, strict=True):
            result = one.result()
            hypotheses, scores = result.hypotheses, result.scores or [0.0]
            last = max(map(len, hypotheses))  # the step at which the search ended
            if last > self._limits[row] - 2 or any(not forbidden.isdisjoint(pieces) for pieces in hypotheses):
                again.append(row)
                continue
            complete = [
                (pieces[:-1], score * len(pieces) ** self._power)
                for pieces, score in zip(hypotheses, scores, strict=True)
                if pieces[-1:] == end
            ]
            found[row] = self._rank(complete, self._sources[row])
        if again:
            found |= self._exactly(again)
        return rows, [found[row] for row in rows]

    def _exactly(self, rows: Sequence[int]) -> dict[int, list[Hypothesis]]:
        """Returns the hypotheses of each row, searched with its maximum length.

        The log-probabilities are computed again, because those of the search do not contain the prefix, nor
        EOS at the maximum length, and are without the share of the forbidden pieces.
        """
        by_limit: defaultdict[int, list[int]] = defaultdict(list)
        for row in rows:
            by_limit[self._limits[row]].append(row)
        candidates: dict[int, list[tuple[str, ...]]] = {}
        for limit, group in by_limit.items():
            candidates |= self._candidates(group, limit)
        pairs = [(row, list(pieces)) for row in rows for pieces in candidates[row]]
        scored = self._engine.score_batch(
            [self._pieces(row) for row, _ in pairs],
            [pieces for _, pieces in pairs],
            max_input_length=0,
            max_batch_size=_BATCH_TOKENS,
            batch_type="tokens",
        )
        complete: dict[int, list[tuple[list[str], float]]] = {row: [] for row in rows}
        for (row, pieces), one in zip(pairs, scored, strict=True):
            complete[row].append((pieces, math.fsum(one.log_probs)))
        return {row: self._rank(complete[row], self._sources[row]) for row in rows}

    def _candidates(self, rows: Sequence[int], limit: int) -> dict[int, list[tuple[str, ...]]]:
        """Returns the pieces of the hypotheses of rows that have the same maximum length, each once."""
        names = self._target_names
        found = {row: [tuple(names[one] for one in self._prefixes[row][: limit - 1])] for row in rows}
        open_rows = [row for row, [begin] in found.items() if len(begin) < limit - 1]
        if not open_rows:
            return found
        results = self._engine.translate_batch(
            [self._pieces(row) for row in open_rows],
            [list(found[row][0]) for row in open_rows],
            max_decoding_length=limit - 1,
            max_batch_size=_BATCH_TOKENS,
            batch_type="tokens",
            return_scores=True,
            no_repeat_ngram_size=self._settings.no_repeat_ngram,
            suppress_sequences=[[SPECIAL[one]] for one in FORBIDDEN_IDS],
            **self._options(),
        )
        end = SPECIAL[EOS_ID]
        for row, result in zip(open_rows, results, strict=True):
            likely = [
                tuple(pieces[:-1] if pieces[-1:] == [end] else pieces)
                for pieces, score in zip(result.hypotheses, result.scores, strict=True)
                if score * len(pieces) ** self._power > _IMPOSSIBLE
            ]
            found[row] = list(dict.fromkeys(likely))
        return found

    def _pieces(self, row: int) -> list[str]:
        """Returns the pieces of the source of a row."""
        names = self._source_names
        return [names[one] for one in self._sources[row]]

    def _options(self) -> dict[str, Any]:
        """Returns the arguments of `translate_batch` that all its calls have."""
        beam = self._settings.beam_size
        complete = beam if beam == 1 else beam + max(1, beam // 4)
        return {
            "beam_size": beam,
            "num_hypotheses": complete,
            "patience": 1 if beam == 1 else (complete + 0.25) / beam,  # the engine rounds their product
            "length_penalty": self._power,
            "min_decoding_length": 0,  # 1 would forbid EOS as the first token
            "max_input_length": 0,
            "return_end_token": True,
        }


class _Ranking:
    """Orders complete hypotheses as nmt does.

    Args:
        settings: the options of the search.
        ids: returns the ids of pieces.
    """

    def __init__(self, settings: Settings, ids: Callable[[Sequence[str]], tuple[int, ...]]) -> None:
        self._settings, self._ids = settings, ids
        self._penalty = LengthPenalty(settings.length_penalty).penalty

    def __call__(
        self, complete: Sequence[tuple[Sequence[str], float]], source: Sequence[int]
    ) -> list[Hypothesis]:
        """Returns the best hypotheses, best first.

        Args:
            complete: the pieces of each hypothesis, and its log-probability with EOS.
            source: the ids of the source.

        Raises:
            UserError: a log-probability is NaN.
        """
        scored = [
            (log_prob / self._penalty(len(pieces) + 1), log_prob, pieces) for pieces, log_prob in complete
        ]
        if any(score != score for score, _, _ in scored):
            raise UserError("the probabilities of the export are NaN: its weights are damaged.")
        scored.sort(key=_by_score, reverse=True)
        placeholders = self._settings.placeholders
        if wanted := sorted(one for one in source if one in placeholders):
            # Stable: among those that have all placeholders, and among the others, the order remains.
            scored.sort(key=lambda one: sorted(i for i in self._ids(one[2]) if i in placeholders) != wanted)
        return [
            Hypothesis(self._ids(pieces), score, log_prob)
            for score, log_prob, pieces in scored[: self._settings.nbest]
        ]


def _by_score(one: tuple[float, float, Sequence[str]]) -> float:
    return one[0]


def _memory_error() -> UserError:
    return UserError(
        "decoding.max_tokens: a batch does not fit into memory. Lower it, such as decoding.max_tokens=1024."
    )
