"""Strings that models do not know: which lines lose them, and where the translation has them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from toys import CopyModel, tokenizer_with

from nmt.config import DecodingConfig, ModelConfig
from nmt.copying.strings import TAG
from nmt.data.subwords.tokenizer import Tokenizer
from nmt.decoding.facts import TextFacts
from nmt.decoding.markup import StringPlacer, given_texts
from nmt.decoding.torch_searcher import TorchSearcher
from nmt.decoding.translation import ScoredText, Translation
from nmt.decoding.translator import Translator
from nmt.errors import UserError

KNOWN = TextFacts("en", "de", tags=0.01, variables=0.01, addresses=0.01)
UNKNOWN = TextFacts("en", "de", tags=0.0, variables=0.004, addresses=0.0)
LINE = "Open <b>this</b> file {name} of me@a.b"
BARE = "Open this file of "


class Backwards:
    """Translates a line word by word from the end, in capitals; notes what it is asked for."""

    def __init__(self, facts: TextFacts | None, aligns: bool = True, placeholders: int = 0, **options: Any):
        def prepare(request: Any, constraints: bool) -> None:
            if not aligns:
                raise UserError("no alignments")

        searcher: Any = SimpleNamespace(config=DecodingConfig(**options), prepare=prepare)
        tokenizer: Any = SimpleNamespace(placeholders=range(placeholders), source_symbols={"<2de>": 4})
        self.tags = StringPlacer.of_tags(facts, searcher, tokenizer)
        self.words = StringPlacer.of_words(facts, searcher, tokenizer)
        self.calls: list[tuple[Sequence[str], bool, bool]] = []

    def search(self, lines: Sequence[str], attention: bool, alignments: bool) -> list[Translation]:
        self.calls.append((lines, attention, alignments))
        results = []
        for line in lines:
            words = line.split()
            last = len(words) - 1
            words = [word for word in words if word != "<2de>"]
            links = tuple((last - place, place) for place in range(len(words))) if alignments else ()
            text = " ".join(reversed(words)).upper()
            weights = torch.zeros(1, 1) if attention else None
            results.append(Translation((ScoredText(text, -1.0, weights, links), ScoredText("X", -2.0))))
        return results

    def translate(self, lines: Sequence[str], given: Any = None, **flags: bool) -> list[ScoredText]:
        options = {"markup": False, "attention": False, "alignments": False, **flags}
        given = given or [()] * len(lines)

        def without_tags(lines: Sequence[str], attention: bool, alignments: bool) -> list[Translation]:
            flags = {**options, "attention": attention, "alignments": alignments}
            return self.words.translate(self.search, lines, given, **flags)

        found = self.tags.translate(without_tags, lines, given, **options)
        return [one.hypotheses[0] for one in found]


def test_tags_that_a_model_does_not_know_are_placed_by_links() -> None:
    model = Backwards(UNKNOWN)
    found = model.translate([LINE, "a b"])
    assert [one.text for one in found] == ["OF FILE {name} <b>THIS</b> OPEN me@a.b", "B A"]
    assert model.calls == [([BARE, "a b"], False, True)]
    assert [one.alignment for one in found] == [(), ()]


@pytest.mark.parametrize(
    ("facts", "options", "expected"),
    [
        (KNOWN, {}, LINE),
        (None, {}, LINE),
        (TextFacts("en", "de"), {}, LINE),
        (UNKNOWN, {"place_tags": False}, LINE),
        (UNKNOWN, {"placeholders": 4}, LINE),
        (replace(UNKNOWN, tags=0.01), {}, "Open <b>this</b> file of "),
        (replace(UNKNOWN, variables=0.01), {}, "Open this file {name} of "),
        (replace(UNKNOWN, addresses=0.01), {}, "Open this file of me@a.b"),
        (replace(UNKNOWN, addresses=None), {}, "Open this file of me@a.b"),
    ],
)
def test_what_is_removed(facts: TextFacts | None, options: dict[str, Any], expected: str) -> None:
    model = Backwards(facts, **options)
    model.translate([LINE])
    assert model.calls == [([expected], False, expected != LINE)]


def test_markup_is_removed_whatever_a_model_knows_but_not_for_placeholders() -> None:
    for facts in (KNOWN, None):
        model = Backwards(facts, place_tags=False)
        assert model.translate([LINE], markup=True)[0].text == "ME@A.B OF FILE {name} <b>THIS</b> OPEN"
    assert (
        Backwards(KNOWN, placeholders=4).translate([LINE], markup=True)[0].text.startswith("ME@A.B OF {NAME}")
    )


def test_lines_without_tags_are_searched_as_before() -> None:
    model = Backwards(UNKNOWN)
    model.translate(["a < b", "<2de> 3 > 2"])
    model.translate(["a"], attention=True)
    model.translate(["a"], alignments=True)
    expected = [(["a < b", "<2de> 3 > 2"], False, False), (["a"], True, False), (["a"], False, True)]
    assert model.calls == expected


def test_the_tag_of_a_language_remains() -> None:
    model = Backwards(UNKNOWN)
    [found] = model.translate(["<2de> A <b>dog</b>"], alignments=True)
    assert model.calls[0][0] == ["<2de> A dog"]
    assert (found.text, found.alignment) == ("<b>DOG</b> A", ((2, 0), (1, 1)))


def test_a_line_whose_translation_is_given_tags_remains() -> None:
    model = Backwards(UNKNOWN)
    model.translate([LINE] * 3, [["<b>Das"], ["", "x"], ["Das", "{name}"]])
    assert model.calls[0][0] == ["Open <b>this</b> file of ", BARE, "Open this file {name} of me@a.b"]


def test_a_line_with_very_many_tags_remains() -> None:
    model = Backwards(UNKNOWN)
    nested = ["<b>" * count + "a" + "</b>" * count for count in (125, 126, 20_000)]
    found = model.translate(nested)
    assert model.calls[0][0] == ["a", *nested[1:]]
    assert found[0].text == "<b>" * 125 + "A" + "</b>" * 125


def test_links_are_between_the_words_with_tags() -> None:
    model = Backwards(UNKNOWN)
    line = 'Open <a href="x y">this</a> <br/> file'
    [found, plain] = model.translate([line, "a b"], alignments=True)
    assert found.text == '<br/> FILE <a href="x y">THIS</a> OPEN'
    words = {word: number for number, word in enumerate(found.text.split())}
    assert found.alignment == ((5, words["FILE"]), (3, words['y">THIS</a>']), (0, words["OPEN"]))
    assert plain.alignment == ((1, 0), (0, 1))


def test_without_alignments_a_tag_is_at_the_same_share_of_the_line() -> None:
    model = Backwards(UNKNOWN, aligns=False)
    assert model.translate([LINE])[0].text == "OF <b>FILE</b> THIS {name} OPEN me@a.b"
    assert model.translate(["a <b>b</b> c d"])[0].text == "D <b>C</b> B A"


def test_a_string_that_is_a_word_is_linked_to_itself() -> None:
    model = Backwards(UNKNOWN)
    [found] = model.translate(["<2de> Open <b>{a} {b}</b> of, https://a.b"], alignments=True)
    assert model.calls[0][0] == ["<2de> Open of, "]
    assert found.text == "OF, OPEN <b>{a} {b}</b> https://a.b"
    assert found.alignment == ((4, 0), (1, 1), (2, 2), (3, 3), (5, 4))


def test_attention_does_not_change_the_translation() -> None:
    model = Backwards(UNKNOWN)
    [found] = model.translate(["<b>Open</b> this"], attention=True)
    assert (found.text, found.attention is not None) == ("THIS <b>OPEN</b>", True)
    assert model.calls == [(["Open this"], False, True), (["Open this"], True, False)]


def test_each_hypothesis_has_the_tags() -> None:
    found = Backwards(UNKNOWN).tags.translate(
        Backwards(UNKNOWN).search, ["<b>a</b> b"], [()], markup=False, attention=False, alignments=False
    )
    assert [one.text for one in found[0].hypotheses] == ["B <b>A</b>", "<b>X</b>"]


def test_what_is_given_of_translations() -> None:
    found = given_texts(["a", "b"], ["c", ""], None, [["d", "e"], []])
    assert [*found] == [["c", "d", "e"], [""]]


class WithoutAttention(CopyModel):
    config = ModelConfig()
    attention_shape = None


def copier(facts: TextFacts, **options: Any) -> Translator:
    tokenizer: Tokenizer = tokenizer_with("<2de>", placeholders=False)
    model: Any = WithoutAttention(tokenizer.source.size)
    config = DecodingConfig(beam_size=2, **options)
    searcher = TorchSearcher([model], tokenizer, config, device=torch.device("cpu"))
    return Translator(searcher, tokenizer, facts=facts)


@given(
    st.lists(
        st.lists(
            st.sampled_from(["<b>", "</b>", "<i>", "words", "of me", " ", ". See ", " {x}"]), max_size=9
        ),
        max_size=4,
    )
)
def test_a_model_that_copies_has_all_tags_and_all_words(parts: list[list[str]]) -> None:
    lines = ["".join(line) for line in parts]
    facts = replace(UNKNOWN, several_sentences=0.0, characters=200)
    found = [one.hypotheses[0].text for one in copier(facts).translate(lines)]
    for line, text in zip(lines, found, strict=True):
        assert sorted(TAG.findall(text)) == sorted(TAG.findall(line))
        assert TAG.sub("", text).split() == TAG.sub("", line).split()


def test_sentences_are_divided_before_variables_are_removed() -> None:
    facts = replace(UNKNOWN, several_sentences=0.0, characters=200)
    [found] = copier(facts).translate(["<b>See {x}. {y} words.</b> See."])
    assert found.hypotheses[0].text == "<b>See {x}. {y} words.</b> See."
    assert [part.text for part in found.parts] == ["See {x}.", "{y} words.", "See."]


def test_a_part_of_a_line_has_its_tags() -> None:
    model = copier(UNKNOWN)
    texts = [one.hypotheses[0].text for one in model.translate_parts(["words <b>of</b> me", "see"])]
    assert texts == ["words <b>of</b> me", "see"]
