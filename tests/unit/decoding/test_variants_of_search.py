"""Loops that are decoded again, the coverage penalty, and diverse n-best lists."""

from __future__ import annotations

import logging
import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from test_with_the_model import untrained
from toy_search import EOS, NextLogProbs, alphas, run, tables
from toys import CopyModel, CopyState, WordTokenizer, some_lines, translator_of

from nmt.config import DecodingConfig
from nmt.data.subwords.tokenizer import Tokenizer
from nmt.data.subwords.vocabulary import EOS_ID
from nmt.decoding.candidates import has_loop
from nmt.decoding.processors import Diversity, DiversityOptions, configured_processors
from nmt.decoding.search import Hypothesis, ranked_by_coverage
from nmt.decoding.translation import ProblemLog, problems
from nmt.decoding.translator import Translator
from nmt.errors import UserError

# Loops


@given(st.lists(st.integers(0, 2), max_size=30), st.integers(2, 4), st.integers(1, 8))
def test_loops_by_definition(ids: list[int], times: int, tokens: int) -> None:
    naive = any(
        ids[start : start + size] == (ids[start : start + period] * size)[:size]
        for period in range(1, len(ids) + 1)
        for size in [max(tokens, times * period)]
        for start in range(len(ids) - size + 1)
    )
    assert has_loop(ids, times, tokens) is naive


class Stuck(CopyModel):
    """Copies its source; after the word `stuck` it repeats this word until the maximum length."""

    word = -1

    def step(self, ids: torch.Tensor, state: CopyState) -> Any:
        log_probs, state = super().step(ids, state)
        stuck = ids == self.word
        log_probs[stuck] = -9.0
        log_probs[..., self.word][stuck] = -0.0625
        log_probs[..., EOS_ID][stuck] = -3.0
        return log_probs, state


def stuck_translator(**options: Any) -> Translator:
    tokenizer, model = WordTokenizer(), Stuck()
    [[model.word]] = tokenizer.encode_source(["stuck"])
    config = DecodingConfig(**{"beam_size": 1, "max_length_offset": 20, **options})
    return translator_of([model], tokenizer, config)  # type: ignore[arg-type, list-item]


LINES = ["one two", "one stuck two", "", " ".join(["stuck"] * 9), "three"]


def test_a_loop_is_translated_again(caplog: pytest.LogCaptureFixture) -> None:
    plain, retried = stuck_translator().translate(LINES), stuck_translator(retry_loops=True).translate(LINES)
    assert plain[1].hypotheses[0].text.split()[1:] == ["stuck"] * 22
    assert not any(one.retried for one in plain)
    assert [one.retried for one in retried] == [False, True, False, False, False]  # line 4 has a loop itself
    assert retried[1].hypotheses[0].text == "one stuck stuck stuck"  # a fourth one repeats three
    assert [one.hypotheses for one in retried[2:]] == [one.hypotheses for one in plain[2:]]
    assert problems(retried[1], 2) == [
        "line 2: the translation repeated the same tokens again and again; translated again without "
        "repetition (decoding.retry_loops)"
    ]
    problem_log = ProblemLog()
    with caplog.at_level(logging.WARNING, "nmt"):
        for number, translation in enumerate(retried, 1):
            problem_log.add(translation, number)
        problem_log.end()
    assert caplog.messages == [
        "loops of 1 of 5 lines: translated again without repetition. Lines: 2 (decoding.retry_loops)"
    ]


def test_auto_retries_no_samples() -> None:
    [retried] = stuck_translator(retry_loops="auto").translate(LINES[1:2])
    [sampled] = stuck_translator(retry_loops="auto", samples=2, top_k=1).translate(LINES[1:2])
    assert retried.retried and not sampled.retried
    assert sampled.hypotheses[0].text.split()[1:] == ["stuck"] * 22


def test_a_retried_line_is_the_same_alone_and_in_workers() -> None:
    lines = [*LINES * 3, *["five six"] * 80]
    alone = [stuck_translator(retry_loops=True).translate([line])[0] for line in LINES]
    found = stuck_translator(retry_loops=True, workers=2, max_sentences=8).translate(lines)
    assert found[: len(LINES) * 3] == alone * 3


# Coverage


def hypothesis(score: float, *rows: list[float]) -> Hypothesis:
    return Hypothesis((5,) * (len(rows) - 1), score, score, torch.tensor(rows))


def test_coverage_by_hand() -> None:
    ignoring = hypothesis(-1.0, [0.9, 0.0, 0.1], [0.5, 0.25, 0.25])  # sums: 1.4, 0.25; the EOS does not count
    covering = hypothesis(-1.5, [0.5, 0.5, 0.0], [0.5, 0.5, 0.0])
    best, second = ranked_by_coverage([ignoring, covering], 2, 0.5, 2)
    assert (best.ids, best.score) == (covering.ids, -1.5)
    assert second.score == pytest.approx(-1.0 + 0.5 * math.log(0.25))
    [only] = ranked_by_coverage([ignoring, covering], 2, 0.1, 1)
    assert only.score == pytest.approx(-1.0 + 0.1 * math.log(0.25))
    [nothing] = ranked_by_coverage([hypothesis(-1.0, [1.0, 0.0])], 2, 1.0, 1)
    assert -90 < nothing.score < -80


def real(tokenizer: Tokenizer, **options: Any) -> Translator:
    model = untrained(tokenizer, 4)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "cross" in name and weight.dim() == 2:
                weight.mul_(6.0)  # sharp attention
    return translator_of([model], tokenizer, DecodingConfig(**options))


def test_coverage_ranks_the_beam(tokenizer: Tokenizer) -> None:
    lines = some_lines(3, 20)
    listed = real(tokenizer, beam_size=4, nbest=4).translate(lines, attention=True)
    found = real(tokenizer, beam_size=4, nbest=2, coverage_penalty=5.0).translate(lines, attention=True)
    changed = 0
    for plain, covered in zip(listed, found, strict=True):
        ranked = []
        for one in plain.hypotheses:
            assert one.attention is not None
            total = sum(math.log(min(float(column), 1.0)) for column in one.attention.sum(0)[:-1])
            ranked.append((one.score + 5.0 * total, one.text))
        ranked.sort(key=lambda pair: -pair[0])
        assert [one.text for one in covered.hypotheses] == [text for _, text in ranked[:2]]
        for one, (score, _) in zip(covered.hypotheses, ranked, strict=False):
            assert one.score == pytest.approx(score, abs=1e-4)
        changed += covered.hypotheses[0].text != plain.hypotheses[0].text
    assert changed


def test_alignments_do_not_change_what_coverage_chooses(tokenizer: Tokenizer) -> None:
    options = {"beam_size": 4, "nbest": 2, "coverage_penalty": 0.7, "alignment_heads": [[0, 1]]}
    lines, heads = some_lines(3, 12), {"alignment_heads": [[0, 1]]}
    plain = real(tokenizer, **options).translate(lines)
    aligned = real(tokenizer, **options).translate(lines, alignments=True)
    free = real(tokenizer, beam_size=4, nbest=4, **heads).translate(lines, alignments=True)
    for one, other, all_of in zip(plain, aligned, free, strict=True):
        links = {text.text: text.alignment for text in all_of.hypotheses}
        for first, second in zip(one.hypotheses, other.hypotheses, strict=True):
            assert (first.text, first.score) == (second.text, second.score)
            assert first.alignment == () and second.attention is None
            assert second.alignment == links[second.text]


# Diversity


@given(table=tables, rate=st.sampled_from([0.25, 1.0]), alpha=alphas, length=st.integers(1, 4))
def test_ranks_are_subtracted(table: NextLogProbs, rate: float, alpha: float, length: int) -> None:
    def lowered(sentence: int, ids: tuple[int, ...]) -> list[float]:
        values = table(sentence, ids)
        order = sorted(range(len(values)), key=lambda new: (-values[new], new))
        return [value - rate * order.index(new) for new, value in enumerate(values)]

    options = {"beam_size": 5, "nbest": 5, "length_penalty": alpha}
    processors = [Diversity(DiversityOptions(rate, 5))]
    assert run(table, [length] * 2, processors=processors, **options) == run(lowered, [length] * 2, **options)


def test_a_diverse_list_has_more_beginnings() -> None:
    """Two beginnings; the first has four good extensions, which fill a beam without diversity."""

    def table(sentence: int, ids: tuple[int, ...]) -> list[float]:
        if not ids:
            return [-99.0, -99.0, -0.1, -1.0, -99.0, -99.0]
        if len(ids) == 1:
            return [-99.0, -99.0, -0.1, -0.2, -0.3, -0.4]
        return [-99.0, -0.1, -99.0, -99.0, -99.0, -99.0]

    def beginnings(rate: float) -> list[int]:
        processors = configured_processors(DecodingConfig(diversity=rate))
        options = {"beam_size": 4, "nbest": 4, "length_penalty": 0.0}
        [found] = run(table, [4], processors=processors, **options)
        assert all(len(one.ids) == 2 for one in found) and EOS == 1
        return sorted(one.ids[0] for one in found)

    assert beginnings(0.0) == [2, 2, 2, 2]
    assert beginnings(1.0) == [2, 2, 2, 3]


# Options


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"diversity": -1.0}, "decoding.diversity=-1.0: must be between 0 and 1,000."),
        ({"coverage_penalty": -0.5}, "decoding.coverage_penalty=-0.5: must be between 0 and 1,000."),
        ({"samples": 3, "retry_loops": True}, "decoding.retry_loops=true: is for beam search"),
        ({"samples": 3, "diversity": 0.5}, "decoding.diversity=0.5: is for beam search"),
    ],
)
def test_wrong_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        DecodingConfig(**options)
