"""Lines without letters are copied: which they are, and what a copy is in every form of output."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from toys import CopyModel, tokenizer_with, translator_of

from nmt.config import DecodingConfig, TranslateConfig
from nmt.decoding.translation import BLANK, ScoredText, Translation
from nmt.decoding.translator import Translator
from nmt.documents.rows import JsonLines, Lines, Request

COPIED = """
102|2024-05-01|---|...|12:30|1,000.50|-5 %|€ 20|$|(+49) 30 123|1.2.3|#1|5 ÷ 2 = 2.5|½|²|№ 5|℃|♪ ♪|→
😀|👍🏽|🇩🇪|👨‍👩‍👧|٣٫٥|१२३|１０２|𝟙𝟚|Ⅳ|〇|，|。。。
「」|\u0301|1\u0301|\ue000|  102  |5\t6|\u00a05\u202f000|€\u200b5
"""
TRANSLATED = """
5 km|Kapitel 3|1º|2ª|XIV|x|ß|五|一九八五|1985年|3개|٣ كتب|é|e\u0301|ー|ʼ|:-D|ツ
3 µm|5€/h|3rd|102\x07|102\u2028
"""


def listed(text: str) -> list[str]:
    lines = text.strip("\n").replace("\n", "|").split("|")
    return [line.encode("latin-1", "backslashreplace").decode("unicode_escape") for line in lines]


tokenizer = partial(tokenizer_with, "<2de>")


def translator(model: CopyModel | None = None, placeholders: bool = True, **options: Any) -> Translator:
    pieces = tokenizer(placeholders)
    model = model or CopyModel(pieces.source.size)
    return translator_of([model], pieces, DecodingConfig(**{"beam_size": 2, **options}))


class Aligning(CopyModel):
    attention_shape = (1, 1)


def copy_of(text: str, links: Any = ()) -> Translation:
    return Translation((ScoredText(text, 0.0, alignment=links),))


@pytest.mark.parametrize("line", listed(COPIED))
def test_a_line_without_letters_is_copied_as_it_is(line: str) -> None:
    for placeholders in (True, False):
        model = CopyModel(tokenizer(placeholders).source.size)
        assert translator(model, placeholders).translate([line]) == [copy_of(line)]
        assert model.batches == []


@pytest.mark.parametrize("line", listed(TRANSLATED))
def test_a_line_with_letters_is_translated(line: str) -> None:
    model = CopyModel(tokenizer().source.size)
    [found] = translator(model).translate([line])
    assert len(model.batches) == 1 and found.num_tokens > 1


def test_lines_with_nothing_to_see_are_empty_as_before() -> None:
    blank = ["", " ", "\t\u3000", "\u200b", "\ufeff", "\u200d", " \u00ad\u200f\u2060 ", "\x00\x07", "\u3164"]
    model = CopyModel(tokenizer().source.size)
    assert translator(model).translate(blank, prefixes=["words"] * len(blank)) == [BLANK] * len(blank)
    assert model.batches == [] and translator().translate(["\u06dd"]) == [copy_of("\u06dd")]


def test_strings_and_digits_are_a_copy_but_words_next_to_them_are_not() -> None:
    model = CopyModel(tokenizer().source.size)
    lines = ["https://a.b 102", "<b>5</b> %", "{x}: 3.5", "me@x.yz (1)"]
    assert translator(model).translate(lines) == [*map(copy_of, lines)]
    assert model.batches == []
    translator(model).translate(["{x} of 3.5"])
    assert len(model.batches) == 1
    # Without placeholders in the vocabulary, an address has letters.
    plain = CopyModel(tokenizer(False).source.size)
    translator(plain, False).translate(["https://a.b 102"])
    assert len(plain.batches) == 1


def test_the_option_switches_the_rule_off() -> None:
    model = CopyModel(tokenizer().source.size)
    [digits, string] = translator(model, copy_without_letters=False).translate(["102", "{x}"])
    assert digits.num_tokens > 1 and string == copy_of("{x}")
    assert model.batches != []


def test_a_tag_is_no_part_of_the_copy() -> None:
    copies = translator(Aligning()).translate(["<2de> 102 - 3", "<2de>  ---"], alignments=True)
    assert copies == [copy_of("102 - 3", ((1, 0), (2, 1), (3, 2))), copy_of("---", ((1, 0),))]
    [alone] = translator().translate(["<2de>"])
    assert alone.num_tokens > 0  # text for the model, as before


def test_prefixes_and_constraints_are_for_the_model() -> None:
    found = translator().translate(["102", "102", "102"], prefixes=["words", "", " "])
    assert found[0].hypotheses[0].text.startswith("words")
    assert found[1:] == [copy_of("102")] * 2
    constrained = translator().translate(["102", "102"], constraints=[["others"], []])
    assert "others" in constrained[0].hypotheses[0].text and constrained[1] == copy_of("102")


@pytest.mark.parametrize("options", [{"nbest": 2}, {"samples": 3}, {"beam_size": 1}, {"retry_loops": True}])
def test_a_copy_is_one_hypothesis_in_lists_and_samples(options: dict[str, Any]) -> None:
    words, copy = translator(**options).translate(["some words", "102"])
    assert len(words.hypotheses) == options.get("samples", options.get("nbest", 1))
    assert copy == copy_of("102")


def test_a_copy_in_plain_lines_and_json() -> None:
    config = TranslateConfig("m", scores=True, alignments="a", decoding=DecodingConfig())
    [copy] = translator(Aligning()).translate(["<2de> 102 %"], alignments=True)
    assert Lines(config).write(Request("<2de> 102 %"), copy, 1) == b"0.0000\t102 %\n"
    written = JsonLines(config).write(Request("<2de> 102 %", others={"id": 7}, tags=("<2de>",)), copy, 1)
    assert json.loads(written) == {
        "id": 7,
        "translation": "102 %",
        "score": 0.0,
        "alignment": [[0, 0], [1, 1]],
    }
    several = TranslateConfig("m", decoding=DecodingConfig(beam_size=3, nbest=3))
    assert Lines(several).write(Request("102"), copy, 4) == b"4\t0.0000\t102 %\n4\t-inf\t\n4\t-inf\t\n"


@given(st.text(st.characters(exclude_categories=["L", "C", "Z"]), min_size=1))
def test_no_text_without_letters_is_changed(line: str) -> None:
    assert translator().translate([line]) == [copy_of(line)]
