"""What follows a search: the choice among its candidates, and the recognition of loops.

Minimum Bayes risk decoding chooses the candidate that agrees best with the others. The candidates of a
sentence are samples or an n-best list. The expected utility of a candidate is the mean of its utility against
every candidate as the reference, itself included (Eikema & Aziz 2020, section 5).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Utility:
    """A measure of how good a hypothesis is if another text is the reference.

    Attributes:
        score: takes hypotheses, references and sources, line for line; returns the utility of each
            hypothesis. Higher is better.
        one_by_one: whether the time is that of the pairs. Then worker processes can share the work. Otherwise
            few calls with many pairs are faster, as for a metric that runs a command.
    """

    score: Callable[[Sequence[str], Sequence[str], Sequence[str]], Sequence[float]]
    one_by_one: bool = True


_SENTENCES_PER_CHOICE = 16  # sentences of one job, if worker processes share the work


def chosen_candidates(
    candidates: Sequence[Sequence[str]],
    sources: Sequence[str],
    utility: Utility,
    run: Callable[..., Iterable[tuple[int, list[tuple[int, float]]]]],
) -> list[tuple[int, float]]:
    """Returns the index of the chosen candidate of each sentence, and its expected utility.

    `run` does jobs side by side; see `Searcher.run`.
    """
    size = _SENTENCES_PER_CHOICE if utility.one_by_one else len(sources)
    rows = range(len(sources))
    chunks = [rows[begin : begin + size] for begin in range(0, len(sources), size or 1)]

    def choose(chunk: range) -> list[tuple[int, float]]:
        texts = [candidates[row] for row in chunk]
        expected = expected_utilities(texts, [sources[row] for row in chunk], utility)
        best = best_candidates(expected)
        return [(index, values[index]) for index, values in zip(best, expected, strict=True)]

    chosen = dict(run(choose, chunks, chunks))
    return [choice for number in range(len(chunks)) for choice in chosen[number]]


def expected_utilities(
    candidates: Sequence[Sequence[str]], sources: Sequence[str], utility: Utility
) -> list[list[float]]:
    """Returns the expected utility of each candidate of each sentence.

    Equal candidates are compared once, and count as often as they occur.
    """
    counts = [Counter(texts) for texts in candidates]
    triples = [
        (hypothesis, reference, source)
        for count, source in zip(counts, sources, strict=True)
        for hypothesis in count
        for reference in count
    ]
    if not triples:
        return [[] for _ in candidates]
    values = iter(utility.score(*(list(column) for column in zip(*triples, strict=True))))
    expected = []
    for texts, count in zip(candidates, counts, strict=True):
        means = {
            hypothesis: sum(next(values) * times for times in count.values()) / len(texts)
            for hypothesis in count
        }
        expected.append([means[text] for text in texts])
    return expected


def best_candidates(expected: Sequence[Sequence[float]]) -> list[int]:
    """Returns for each sentence the index of its best candidate, the first one among equal values."""
    return [max(range(len(values)), key=lambda index: (values[index], -index)) for values in expected]


def is_stuck(ids: Sequence[int]) -> bool:
    """Returns whether a translation repeats tokens as no measured reference does (docs/recipes.md)."""
    return has_loop(ids, times=3, tokens=6) or has_loop(ids, times=2, tokens=8)


def has_loop(ids: Sequence[Hashable], times: int, tokens: int) -> bool:
    """Returns whether a sequence has a loop: equal tokens `times` times in a row, `tokens` or more in all."""
    if len(set(ids)) > len(ids) - (times - 1):
        return False  # too few tokens occur twice
    for period in range(1, len(ids) // times + 1):
        needed, end = max(times * period, tokens) - period, len(ids) - period
        for place in range(needed - 1, end, needed):  # any `needed` equal pairs in a row include one of these
            first = last = place
            while first >= 0 and last - first < needed and ids[first] == ids[first + period]:
                first -= 1
            while last < end and last - first <= needed and ids[last] == ids[last + period]:
                last += 1
            if last - first > needed:
                return True
    return False
