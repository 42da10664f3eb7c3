"""Constraints of lines: `Translator.translate`, its streams and its worker processes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toys import CopyModel, WordTokenizer, translator_of

from nmt.config import DecodingConfig
from nmt.decoding.translator import Translator
from nmt.errors import UserError


def translator(model: CopyModel | None = None, **options: float) -> Translator:
    return translator_of([model or CopyModel()], WordTokenizer(), DecodingConfig(**options))


words = st.sampled_from([f"w{number}" for number in range(6)])
lines = st.lists(st.lists(words, max_size=5).map(" ".join), min_size=1, max_size=6)
phrase_lists = st.lists(st.lists(words, min_size=1, max_size=2).map(" ".join), max_size=2)


@settings(max_examples=40)
@given(lines=lines, beam=st.integers(1, 5), offset=st.integers(1, 9), data=st.data())
def test_every_line_has_its_phrases(lines: list[str], beam: int, offset: int, data: st.DataObject) -> None:
    constraints = [data.draw(phrase_lists) for _ in lines]
    found = translator(
        beam_size=beam, max_length_offset=offset, max_length_factor=0, max_sentences=3
    ).translate(lines, constraints=constraints)
    for line, phrases, one in zip(lines, constraints, found, strict=True):
        text = one.hypotheses[0].text
        if line:
            assert one.unmet == ()
            assert all(f" {phrase} " in f" {text} " for phrase in phrases)
        else:
            assert text == "" and one.unmet == tuple(phrases)
    plain = translator(beam_size=beam, max_length_offset=offset, max_length_factor=0).translate(lines)
    assert [one for one, phrases in zip(found, constraints, strict=True) if not phrases] == [
        one for one, phrases in zip(plain, constraints, strict=True) if not phrases
    ]


def test_a_phrase_follows_a_prefix() -> None:
    [found] = translator().translate(["a b c"], prefixes=["x"], constraints=[["y z", "x"]])
    text = found.hypotheses[0].text
    assert text.startswith("x ") and "y z" in text and found.unmet == ()


def test_all_results_have_the_phrases() -> None:
    [found] = translator(nbest=4).translate(["a b c"], constraints=[["y z"]])
    assert len(found.hypotheses) == 4
    assert all("y z" in one.text for one in found.hypotheses)


def test_phrases_longer_than_the_model_allows_are_reported() -> None:
    model = CopyModel()
    model.max_target_len = 4
    [found] = translator(model).translate(["a b"], constraints=[["u v", "x y"]])
    assert found.unmet in [("u v",), ("x y",)]


def test_workers_change_nothing() -> None:
    lines = [f"w{number} w{number % 3} w1" for number in range(40)]
    constraints = [[f"w{number % 4} w9"] if number % 2 else [] for number in range(40)]
    alone, two = (
        translator(workers=workers, max_sentences=4).translate(lines, constraints=constraints)
        for workers in (1, 2)
    )
    assert alone == two and all(one.unmet == () for one in alone)


def test_mistakes() -> None:
    with pytest.raises(UserError, match="constraints of line 2: ' ' has no pieces. Remove it."):
        translator().translate(["a", "b"], constraints=[["c"], ["d", " "]])
    with pytest.raises(UserError, match="decoding.samples=3: samples can't have constraints."):
        translator(samples=3).translate(["a"], constraints=[["c"]])


def test_a_term_without_pieces_is_unmet() -> None:
    lines = ["a", "b", "", "c"]
    terms = [[], [" ", "x", ""], ["\t"], [" "]]
    found = translator().translate(lines, constraints=[[], [], ["y"], []], terms=terms)
    assert [one.unmet for one in found] == [(), (" ", ""), ("y", "\t"), (" ",)]
    assert "x" in found[1].hypotheses[0].text.split()
    assert found[3].hypotheses == translator().translate(["c"])[0].hypotheses
