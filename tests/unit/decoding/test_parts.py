"""Lines in parts: which lines are divided, and the text, scores and links of their translations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from toys import CPU, CopyModel, WordTokenizer

from nmt.config import DecodingConfig
from nmt.decoding.facts import TextFacts
from nmt.decoding.joining import joined
from nmt.decoding.parts import Parts, Splitter, joined_text, phrases_of_parts
from nmt.decoding.torch_searcher import TorchSearcher
from nmt.decoding.translation import BLANK, ScoredText, TranslatedPart, Translation, problems
from nmt.decoding.translator import Translator

MARKS = "aAbé ..!?\"'()“”«»。！？」「1-…;:,\U0001f600\x00xIDr日本한א؟।ß„\u3000\t\r\u2029\u2028\u0301<b>/"
SINGLE = TextFacts("en", "de", several_sentences=0.01, characters=40)
SEVERAL = TextFacts("en", "de", several_sentences=0.3, characters=40)


def splitter(
    facts: TextFacts = SINGLE, option: bool | Literal["auto"] = "auto", max_tokens: int = 1024
) -> Splitter:
    return Splitter(
        facts, option, ("<2de>",), lambda texts: [len(text.split()) + 1 for text in texts], max_tokens
    )


def translator(
    facts: TextFacts | None = SINGLE, tokenizer: Any = None, model: CopyModel | None = None, **options: Any
) -> Translator:
    """Returns a translator whose model copies."""
    tokenizer = tokenizer or WordTokenizer()
    config = DecodingConfig(**{"beam_size": 2, **options})
    searcher = TorchSearcher([model or CopyModel()], tokenizer, config, device=CPU)
    return Translator(searcher, tokenizer, facts=facts)


def texts(found: Sequence[Translation]) -> list[str]:
    return [translation.hypotheses[0].text for translation in found]


@pytest.mark.parametrize(
    ("facts", "option", "divided"),
    [
        (SINGLE, "auto", [False, True, True]),
        (SEVERAL, "auto", [False, False, True]),
        (TextFacts("en", "de"), "auto", [False, False, False]),
        (TextFacts("en", "de"), True, [False, True, True]),
        (SEVERAL, True, [False, True, True]),
        (SINGLE, False, [False, False, False]),
    ],
)
def test_the_option_and_the_training_decide(
    facts: TextFacts, option: bool | Literal["auto"], divided: list[bool]
) -> None:
    lines = ["One sentence of many words that is longer than forty.", "One. Two.", "One of many words. " * 3]
    assert [len(splitter(facts, option).parts(line).spans) > 1 for line in lines] == divided


@pytest.mark.parametrize(
    ("line", "parts", "separators"),
    [
        ("One.  Two.\tThree. ", ["One.", "Two.", "Three."], ("", "  ", "\t", "")),
        ("<2de> One. Two.", ["<2de> One.", "<2de> Two."], ("", " ", "")),
        ("\u2028One. Two\u2029", ["One.", "Two"], ("\u2028", " ", "\u2029")),
        (" One.\u3000Two. ", ["One.", "Two."], ("", " ", "")),
        (" One. ", [" One. "], ("", "")),
        ("", [""], ("", "")),
        ("<p>One.</p><p>Two.</p>", ["<p>One.</p>", "<p>Two.</p>"], ("", "", "")),
    ],
)
def test_parts_and_the_text_between_them(line: str, parts: list[str], separators: tuple[str, ...]) -> None:
    found = splitter().parts(line)
    assert (found.texts, found.separators) == (parts, separators)


def test_the_target_language_decides_about_spaces() -> None:
    chinese = replace(SINGLE, target_lang="zh_Hans")
    assert splitter(chinese).parts("One.  Two.\tThree.\u2028Four.").separators == ("", "", "\t", "\u2028", "")
    assert splitter(replace(SINGLE, source_lang="ja")).parts("彼が来た。私は帰った。").separators == (
        "",
        " ",
        "",
    )
    tagged = replace(SINGLE, targets={"<2de>": "ja"})
    assert splitter(tagged).parts("<2de> One. Two.").separators == ("", "", "")
    assert splitter(tagged).parts("One. Two.").separators == ("", " ", "")
    assert splitter(replace(SINGLE, target_lang="th")).parts("One. Two.").separators == ("", " ", "")


def test_too_long_sentences_are_divided_at_marks() -> None:
    facts = TextFacts("en", "de")
    line = "a b c, d e f; g h, i j k: l m now. Short one, really."
    found = splitter(facts, True, max_tokens=8).parts(line)
    assert found.texts == ["a b c, d e f;", "g h, i j k:", "l m now.", "Short one, really."]
    assert found.too_long == 1
    no_mark = " ".join("abcdefghij")
    assert splitter(facts, True, max_tokens=8).parts(no_mark).texts == [no_mark]
    assert splitter(facts, True, max_tokens=8).parts(f"{no_mark}, so. Yes.").texts == [
        f"{no_mark},",
        "so.",
        "Yes.",
    ]
    thai = TextFacts("th", "de")
    assert splitter(thai, True, max_tokens=4).parts("ก ข ค ง จ").texts == ["ก ข", "ค ง", "จ"]
    numbers = splitter(facts, True, max_tokens=5).parts("It is 3,500 or 4:30 to me")
    assert numbers.texts == ["It is 3,500 or 4:30 to me"]


def test_clauses_are_as_long_as_lines_of_the_training() -> None:
    facts = TextFacts("en", "de", several_sentences=0.0, characters=11)
    line = ", ".join(f"abc{number}" for number in range(9)) + "."
    assert splitter(facts, True, max_tokens=8).parts(line).texts == [
        "abc0, abc1,", "abc2, abc3,", "abc4, abc5,", "abc6, abc7,", "abc8.",
    ]  # fmt: skip


@given(st.text(st.sampled_from(MARKS + "\n"), max_size=60), st.integers(2, 9), st.booleans())
def test_a_divided_line_is_joined_byte_for_byte(line: str, most: int, tagged: bool) -> None:
    line = f"<2de> {line}" if tagged else line
    parts = splitter(option=True, max_tokens=most).parts(line)
    sources = [line[begin:end] for begin, end in parts.spans]
    assert parts.tag + joined_text(sources, parts.gaps) == line
    assert parts.texts == [parts.tag + source for source in sources]
    assert all(not gap.strip() for gap in parts.gaps) or len(parts.spans) == 1
    assert len(parts.separators) == len(parts.spans) + 1


@given(st.lists(st.lists(st.sampled_from(["one", "two."]), max_size=6).map(" ".join), max_size=8))
def test_parts_are_translated_and_joined_in_order(lines: list[str]) -> None:
    counted: list[int] = []
    found = translator(split_sentences=True).translate(lines, counted.append)
    assert texts(found) == lines
    assert sum(counted) == len(lines) and min(counted) >= 0
    for line, translation in zip(lines, found, strict=True):
        assert " ".join(part.source for part in translation.parts) in (line, "")
        assert [part.text for part in translation.parts] == [part.source for part in translation.parts]


def test_parts_share_batches_with_other_lines() -> None:
    model = CopyModel()
    found = translator(model=model).translate(["One two. Three four.", "Five six."])
    assert texts(found) == ["One two. Three four.", "Five six."]
    assert model.batches == [(3, 3, 3)]
    assert found[0].num_tokens == 6 and found[1].parts == ()


def test_links_are_those_of_the_words_of_the_line() -> None:
    def translated(text: str, links: tuple[tuple[int, int], ...]) -> Translation:
        return Translation((ScoredText(text, -1.0, alignment=links),), num_tokens=3)

    parts = Parts("<2de> A b. C d.", ((6, 10), (11, 15)), "<2de> ", ("", " ", ""))
    found = joined(parts, [translated("x y", ((1, 0), (2, 1))), translated("z", ((0, 0),))])
    assert found.hypotheses[0].text == "x y z"
    assert found.hypotheses[0].alignment == ((1, 0), (2, 1), (0, 2))
    # Without white space, the last word of a part and the first one of the next are one word.
    parts = Parts("甲 乙。丙 丁。", ((0, 4), (4, 8)), "", ("", "", ""))
    found = joined(parts, [translated("x y", ((0, 0), (1, 1))), translated("z w", ((0, 0), (1, 1)))])
    assert found.hypotheses[0].text == "x yz w"
    assert found.hypotheses[0].alignment == ((0, 0), (1, 1), (2, 2))


def test_the_best_combinations_and_their_scores() -> None:
    def translated(*scored: tuple[str, float]) -> Translation:
        return Translation(tuple(ScoredText(text, score) for text, score in scored), num_tokens=2)

    parts = Parts("A. B. C.", ((0, 2), (3, 5), (6, 8)), "", ("", " ", " ", ""))
    three = [
        translated(("a", -1.0), ("aa", -1.5), ("aaa", -4.0)),
        translated(("b", -2.0), ("bb", -2.25)),
        translated(("c", -3.0)),
    ]
    found = joined(parts, three)
    assert [(one.text, one.score) for one in found.hypotheses] == [
        ("a b c", -2.0),
        ("a bb c", pytest.approx(-6.25 / 3)),
        ("aa b c", pytest.approx(-6.5 / 3)),
    ]
    assert found.parts == (
        TranslatedPart("A.", "a", -1.0), TranslatedPart("B.", "b", -2.0), TranslatedPart("C.", "c", -3.0),
    )  # fmt: skip
    copied = replace(three[2], num_tokens=0)  # the model has not translated it, so it has no score
    assert joined(parts, [*three[:2], copied]).hypotheses[0].score == -1.5


def test_samples_are_combined_once_each() -> None:
    samples = [
        Translation(tuple(ScoredText(f"{name}{n}", -float(n)) for n in range(6)), num_tokens=2)
        for name in "ab"
    ]
    parts = Parts("A. B.", ((0, 2), (3, 5)), "", ("", " ", ""))
    found = joined(parts, samples, seed=1).hypotheses
    pairs = [one.text.split() for one in found]
    assert sorted(first for first, _ in pairs) == [f"a{n}" for n in range(6)]
    assert sorted(second for _, second in pairs) == [f"b{n}" for n in range(6)]
    assert any(first[1] != second[1] for first, second in pairs)
    assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
    assert joined(parts, samples, seed=1).hypotheses == found


def test_the_attention_of_parts_is_that_of_their_own_tokens() -> None:
    def translated(text: str, weights: list[list[float]] | None) -> Translation:
        attention = None if weights is None else torch.tensor(weights)
        pieces = () if weights is None else (text, "</s>")
        return Translation((ScoredText(text, -1.0, attention, (), pieces),), 0, 2, source_pieces=pieces)

    parts = Parts("A. 1. B.", ((0, 2), (3, 5), (6, 8)), "", ("", " ", " ", ""))
    weights = [[0.5, 0.5], [0.0, 1.0]]
    found = joined(parts, [translated("a", weights), translated("1.", None), translated("b", weights)])
    best = found.hypotheses[0]
    assert best.attention is not None and best.attention.tolist() == [
        [0.5, 0.5, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.5, 0.5], [0.0, 0.0, 0.0, 1.0],
    ]  # fmt: skip
    assert best.pieces == found.source_pieces == ("a", "</s>", "b", "</s>")


def test_prefixes_constraints_and_terms() -> None:
    lines = ["one day. two days."] * 5
    prefixes = ["", "new", "New times. Old", "", ""]
    found = translator(split_sentences=True).translate(
        lines,
        prefixes=prefixes,
        constraints=[[], [], [], ["must"], []],
        terms=[[], [], [], [], ["days.", "days.", "one"]],
        terminology=lambda text: ["TWO"] if "two" in text else [],
    )
    assert [len(translation.parts) for translation in found] == [2, 2, 0, 2, 2]
    assert [part.text for part in found[0].parts][0] == "one day."
    assert "TWO" in found[0].parts[1].text.split()
    assert found[1].parts[0].text.startswith("new") and not found[1].parts[1].text.startswith("new")
    assert texts(found)[2].startswith("New times. Old")
    assert texts(found)[3:] == ["one day. two days. must TWO", "one day. days. two days. TWO"]
    assert all(not translation.unmet for translation in found)


def test_a_constraint_belongs_to_the_sentence_that_it_suits_best() -> None:
    asked: list[list[tuple[int, str]]] = []
    costs = {("x", 1): 3.0, ("x", 2): 0.5, ("x", 3): 1.0, ("y", 1): 9.0, ("y", 3): 9.0}

    def translate(numbers: Sequence[int], terms: Sequence[Sequence[str]]) -> list[Translation]:
        asked.append([(number, "".join(phrase)) for number, phrase in zip(numbers, terms, strict=True)])
        return [
            Translation((ScoredText("", -number - costs.get((phrase, number), 0.0)),))
            if (phrase, number) != ("y", 2)
            else Translation((ScoredText("", 0.0),), unmet=("y",))
            for number, phrase in asked[-1]
        ]

    divided = [*map(Parts.undivided, ("a", "b")), splitter().parts("One. Two. Three.")]
    divided = [divided[0], divided[2], divided[1]]
    found = phrases_of_parts([["q"], ["x", "y", "x"], []], divided, translate)
    assert found == [["q"], ["y"], ["x"], ["x"], []]
    assert asked == [[(number, phrase) for phrase in ("", "x", "y") for number in (1, 2, 3)]]
    assert phrases_of_parts([["q"], [], ["r"]], divided, translate) == [["q"], [], [], [], ["r"]]
    assert phrases_of_parts(None, divided, translate) is None and len(asked) == 1


def test_an_impossible_phrase_is_reported_with_the_number_of_its_line() -> None:
    with pytest.raises(ValueError, match="constraints of line 2: ' ' has no pieces. Remove it."):
        translator().translate(["One. Two. Three.", "Four."], constraints=[[], [" "]])


def test_lost_sentences_are_problems() -> None:
    class Losing(WordTokenizer):
        def decode_target(self, ids: Sequence[Sequence[int]]) -> list[str]:
            return [text.partition(".")[0] for text in super().decode_target(ids)]

    lines = ["One. Two. Three.", "One.", "Four. Five"]
    whole = translator(tokenizer=Losing(), split_sentences=False).translate(lines)
    assert [translation.lost for translation in whole] == [(3, 1), None, (2, 1)]
    assert problems(whole[0], 7) == [
        "line 7: has 3 sentences, but its translation 1 (decoding.split_sentences)"
    ]
    assert [translation.lost for translation in translator(tokenizer=Losing()).translate(lines)] == [None] * 3
    assert translator(None).translate(lines[:1])[0].lost is None
    empty = joined(Parts("A. B.", ((0, 2), (3, 5)), "", ("", " ", "")), [BLANK, BLANK])
    assert splitter().lost(Parts.undivided("A. B."), empty) == (2, 0)


def test_cut_and_divided_sentences_are_problems() -> None:
    [found] = translator(max_source_tokens=5).translate(["a b c, d e f g h i now. Ok so."])
    assert [part.source for part in found.parts] == ["a b c,", "d e f g h i now.", "Ok so."]
    assert problems(found, 1) == [
        "line 1: a sentence of more than 5 tokens divided at commas (decoding.max_source_tokens)",
        "line 1: cut to 5 of 8 tokens (decoding.max_source_tokens)",
    ]
    [cut] = translator(TextFacts("en", "de"), max_source_tokens=5).translate(["a b c, d e f g."])
    assert cut.parts == () and cut.truncated == 8


def test_an_unknown_value_is_refused() -> None:
    with pytest.raises(ValueError, match="decoding.split_sentences=never: must be auto, true or false."):
        DecodingConfig(split_sentences="never")


def test_facts_of_results() -> None:
    from nmt.config import DataConfig

    data = DataConfig(source_lang="en", target_lang="de")
    facts = {"data": {"text": {"several_sentences": 0.25, "characters": 120}}}
    assert TextFacts.of(data, facts) == TextFacts("en", "de", 0.25, 120)
    for damaged in ({}, {"data": {}}, {"data": {"text": []}}, {"data": {"text": {"several_sentences": "x"}}}):
        assert TextFacts.of(data, damaged) == TextFacts("en", "de")
