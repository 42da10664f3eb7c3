"""Bins of sentences by their sources: literal labels, and a partition of any sources."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.evaluation.analysis.bins import bins_of, words_of
from nmt.evaluation.scores import rows_of

LABELS = [
    ("", {"length": "none", "rare_words": "none", "numbers": "without", "negation": "without"}),
    ("One", {"length": "1-5", "rare_words": "1"}),
    ("one two three four five six", {"length": "6-10", "rare_words": "0"}),
    ("the The THE", {"rare_words": "1000 or more"}),
    ("the seven", {"rare_words": "5-9"}),
    ("It is 7", {"numbers": "with"}),
    ("I don't", {"negation": "with"}),
    ("I don’t", {"negation": "with"}),
    ("I know nothing.", {"negation": "with"}),
    ("The knot is nothingness", {"negation": "without"}),
    ('Is it "here?"', {"questions": "with"}),
    ("See a.org/?x=1", {"questions": "without"}),
    (" ".join(["word"] * 101), {"length": "101 or more"}),
]


@pytest.mark.parametrize("source, expected", LABELS)
def test_labels(source: str, expected: dict[str, str]) -> None:
    bins = bins_of([source], "en_GB", {"one": 1, "the": 5000, "seven": 7})
    assert {name: bins[name].labels[0] for name in expected} == expected


NEGATIVE = [
    ("de", "Ich habe keine Zeit", "Ich habe Zeit"), ("fr", "Je n’y vais plus", "J’y vais"),
    ("es", "No lo sé", "Lo sé"), ("it", "Non lo so", "Lo so"), ("pt", "Não sei", "Sei"),
    ("nl", "Ik weet het niet", "Ik weet het"), ("sv", "Jag vet inte", "Jag vet"),
    ("da", "Det er ikke her", "Det er her"), ("nb", "Det er ikke her", "Det er her"),
    ("pl", "Nie wiem", "Wiem"),
    ("cs", "Nic nevidím", "Vidím"),
    ("ru", "Я не знаю", "Я знаю"), ("uk", "Я не знаю", "Я знаю"), ("tr", "Bu ev değil", "Bu ev"),
    ("ko", "나는 모르지 않는다", "나는 안다"), ("zh", "我不知道", "我知道"),
    ("ja", "知りません", "知っています"),
]  # fmt: skip


@pytest.mark.parametrize("lang, negative, positive", NEGATIVE)
def test_negation(lang: str, negative: str, positive: str) -> None:
    assert bins_of([negative, positive], lang)["negation"].labels == ["with", "without"]


def test_what_is_not_known_has_no_bins() -> None:
    assert bins_of([]) == {}
    assert set(bins_of(["a"], "xx")) == {"length", "numbers", "questions"}
    assert bins_of(["知道"], "zh", {})["length"].title == "source characters"
    assert words_of("Don’t e-mail 3 CATS") == ["don’t", "e-mail", "cats"]


@given(st.lists(st.text(max_size=60), min_size=1), st.sampled_from(["en", "ja", "xx", ""]), st.booleans())
def test_bins_are_a_partition(sources: list[str], lang: str, counted: bool) -> None:
    counts = {word: len(word) ** 4 for source in sources for word in words_of(source)} if counted else None
    for bins in bins_of(sources, lang, counts).values():
        rows = rows_of(bins.labels)
        assert sorted(row for part in rows.values() for row in part) == [*range(len(sources))]
        assert set(rows) <= set(bins.order) and len(set(bins.order)) == len(bins.order)
