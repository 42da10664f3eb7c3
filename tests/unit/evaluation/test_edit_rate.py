"""TER of long lines: the same values as sacreBLEU, in bounded time."""

from __future__ import annotations

import random
import time

import pytest
from sacrebleu.metrics.lib_ter import translation_edit_rate
from sacrebleu.metrics.ter import TER

from nmt.evaluation.metrics import metrics_for
from nmt.evaluation.metrics.edit_rate import edits

NUMBERS = [str(number) for number in range(40)]


@pytest.mark.parametrize(
    ("hypothesis", "reference", "expected"),
    [
        ([], [], 0),
        ([], NUMBERS, 40),
        (NUMBERS, [], 40),
        (NUMBERS, NUMBERS, 0),
        (NUMBERS[10:20] + NUMBERS[:10] + NUMBERS[20:], NUMBERS, 1),  # ten words move at once
        (NUMBERS[20:] + NUMBERS[:20], NUMBERS, 40),  # twenty can't
        (NUMBERS[1:] + NUMBERS[:1], NUMBERS, 1),
        (NUMBERS[::-1], NUMBERS, 39),
        (["a"] * 40, ["a"] * 30, 10),
        (["a"], NUMBERS * 5, 200),  # the reference is so much longer that the rows would not overlap
        (NUMBERS * 5, ["7"], 199),
    ],
)
def test_edits(hypothesis: list[str], reference: list[str], expected: int) -> None:
    assert edits(hypothesis, reference) == expected
    assert translation_edit_rate(hypothesis, reference)[0] == expected


@pytest.mark.parametrize("seed", range(12))
def test_random_lines_have_the_edits_of_sacrebleu(seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(15):
        words = [str(draw.randrange(draw.choice([2, 5, 30, 500]))) for _ in range(draw.randrange(45))]
        hypothesis = list(words)
        for _ in range(draw.randrange(6)):  # moves, deletions, insertions
            at, to, length = (
                draw.randrange(len(words) + 1),
                draw.randrange(len(words) + 1),
                draw.randrange(14),
            )
            moving, hypothesis[at : at + length] = hypothesis[at : at + length], draw.choice([[], ["3"]])
            hypothesis[to:to] = draw.choice([moving, moving, []])
        hypothesis *= draw.choice([1, 1, 1, 3])
        assert edits(hypothesis, words) == translation_edit_rate(hypothesis, words)[0]


def test_twelve_unrelated_lines_of_990_words_take_seconds() -> None:
    draw = random.Random(1)
    texts = [
        [" ".join(draw.choice(["the", "of", *NUMBERS * 20]) for _ in range(990)) for _ in range(12)]
        for _ in range(2)
    ]
    start = time.process_time()
    score = metrics_for("de")["ter"].score(texts[0], [texts[1]], [])
    assert time.process_time() - start < 20  # sacreBLEU needs 200 s; this is less than one
    assert 80 < score < 120


@pytest.mark.parametrize("lang", ["de", "zh"])
def test_short_and_long_lines_of_a_set_count_together(lang: str) -> None:
    hypotheses = ["the cat sat", " ".join(NUMBERS[5:] + NUMBERS[:5]), ""]
    references = [
        ["the cat sat down", " ".join(NUMBERS), "a b"],
        ["sat the cat", " ".join(NUMBERS[:20]), "a"],
    ]
    theirs = TER(normalized=lang == "zh", asian_support=lang == "zh").corpus_score(hypotheses, references)
    ours = metrics_for(lang)["ter"].score(hypotheses, references, [])
    assert ours == theirs.score
