"""Numbers in the translator: those that a translation lacks, and numbers that are copied by placeholders."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_corpus import learnt
from toys import CPU, CopyModel, CopyState, tokenizer_with

from nmt.config import DecodingConfig, Numbers
from nmt.copying.strings import NUM_PLACEHOLDERS, PLACEHOLDERS, Next, find, mask, mask_texts, restore
from nmt.decoding.facts import TextFacts
from nmt.decoding.torch_searcher import TorchSearcher
from nmt.decoding.translation import ProblemLog, Translation, problems
from nmt.decoding.translator import Translator
from nmt.errors import UserError

tokenizer = partial(tokenizer_with, "<2zh>")


class Fives(CopyModel):
    """Copies the source, but writes each digit 7 as 5."""

    def start(self, batch: Any) -> CopyState:
        state = super().start(batch)
        names = list(tokenizer().source.names)
        five = {
            names.index(name): names.index(changed)
            for name in names
            if (changed := name.replace("7", "5")) != name and changed in names
        }
        return CopyState([[five.get(id, id) for id in source] for source in state.sources], 0)


def translator(
    model: CopyModel | None = None, facts: TextFacts | None = None, placeholders: bool = True, **options: Any
) -> Translator:
    pieces = tokenizer(placeholders)
    model = model or CopyModel(pieces.source.size)
    config = DecodingConfig(**{"beam_size": 2, **options})
    return Translator(TorchSearcher([model], pieces, config, device=CPU), pieces, facts=facts)


def fives(**options: Any) -> Translator:
    return translator(Fives(tokenizer().source.size), **options)


def texts(found: Sequence[Translation]) -> list[str]:
    return [translation.hypotheses[0].text for translation in found]


def test_a_changed_number_is_a_problem() -> None:
    lines = ["see 71 words", "see 61 words", "see words", "71", "some 17 or 71"]
    found = fives().translate(lines)
    assert texts(found) == ["see 51 words", "see 61 words", "see words", "71", "some 15 or 51"]
    assert [translation.numbers for translation in found] == [("71",), (), (), (), ("17", "71")]
    assert problems(found[0], 3) == [
        'line 3: the translation lacks or changes the number "71" (decoding.numbers)'
    ]
    assert [one.numbers for one in fives(numbers=Numbers.ignore).translate(lines)] == [()] * 5


def test_the_digit_of_a_tag_is_no_number_of_the_line() -> None:
    pieces = learnt([("some words 1", "and 1")] * 20, vocab_size=300, user_symbols=["<77>"])
    config, model = DecodingConfig(beam_size=1), CopyModel(pieces.source.size)
    found = Translator(TorchSearcher([model], pieces, config, device=CPU), pieces).translate(["<77> some"])
    assert found[0].numbers == ()


def test_numbers_of_a_line_in_parts_are_joined() -> None:
    facts = TextFacts("en", "de", several_sentences=0.0, characters=20)
    [found] = fives(facts=facts).translate(["I see 71 words. I see words. You see 72 words."])
    assert len(found.parts) == 3 and found.numbers == ("71", "72")


def test_the_log_has_one_line_for_all_numbers(caplog: pytest.LogCaptureFixture) -> None:
    found = fives().translate(["see 71 words"] * 12 + ["words"])
    with caplog.at_level(logging.WARNING, "nmt"):
        problem_log = ProblemLog()
        problem_log.end()
        for number, translation in enumerate(found, 1):
            problem_log.add(translation, number)
        assert caplog.messages == []
        problem_log.end()
    assert caplog.messages == [
        "numbers of 12 of 13 lines: their translations lack or change some. Lines: 1, 2, 3, 4, 5, 6, 7, 8, "
        "9, 10, ... (decoding.numbers)"
    ]


# Copies


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("in 1985, or 3.5 %", ["1985", "3.5"]),
        ("1,234.56 and 1\u202f234", ["1,234.56", "1\u202f234"]),
        ("2024-05-01 12:30 10\u201320 5/6", ["2024-05-01", "12:30", "10\u201320", "5/6"]),
        ("B2B 1st 80er v1.2 x_5 5km", []),
        ("1985年に3個", ["1985", "3"]),
        ("3万5千 12万3456円 1.5亿, 5, 3만 5,000원 2", ["5", "2"]),
        ("٢٠٢٠ في", ["٢٠٢٠"]),
        ("-5, (6)", ["5", "6"]),
        ("https://a.b/5 <b>7</b> {8}", ["https://a.b/5", "<b>", "7", "</b>", "{8}"]),
        ("no digits", []),
    ],
)
def test_numbers_are_strings_if_asked(text: str, numbers: list[str]) -> None:
    assert [text[start:end] for start, end in find(text, numbers=True)] == numbers


def test_strings_come_before_numbers_if_there_are_too_few_placeholders() -> None:
    text = " ".join(f"{number} {{a}}" for number in range(NUM_PLACEHOLDERS))
    strings = [original.text for original in mask(text, numbers=True).strings]
    assert strings == ["{a}"] * NUM_PLACEHOLDERS
    digits = " ".join(str(number) for number in range(NUM_PLACEHOLDERS + 5))
    masked = mask(digits, numbers=True)
    assert masked.skipped == 0 and masked.text.endswith(" 64 65 66 67 68")


def test_the_model_decides_what_is_next_to_a_number() -> None:
    masked = mask("1985年 (3)", numbers=True)
    assert masked.text == f"{PLACEHOLDERS[0]} 年 ({PLACEHOLDERS[1]})"
    assert {original.before for original in masked.strings} == {Next.other}
    assert restore(f"im Jahr {PLACEHOLDERS[0]} am {PLACEHOLDERS[1]}.", masked.strings) == (
        "im Jahr 1985 am 3.",
        0,
    )
    assert mask_texts(["das Jahr 1985", "1985"], masked.strings) == [
        f"das Jahr {PLACEHOLDERS[0]}",
        "1985",
    ]


@pytest.mark.parametrize("options", [{}, {"nbest": 2}, {"samples": 2}, {"beam_size": 1}])
def test_copied_numbers_remain(options: dict[str, Any]) -> None:
    lines = ["see 71 words", "some 1,707.7 of {a} and 77", "<2zh> words 7", "77"]
    found = fives(numbers=Numbers.copy, **options).translate(lines)
    for line, translation in zip(lines, found, strict=True):
        assert translation.numbers == () and translation.appended == 0
        for hypothesis in translation.hypotheses:
            assert all(hypothesis.text.count(part) == line.count(part) for part in ("71", "1,707.7", "77"))
    [prefixed] = fives(numbers=Numbers.copy).translate(["see 71 words"], prefixes=["me 71"])
    assert texts([prefixed])[0].startswith("me 71") and texts([prefixed])[0].count("71") == 1


def test_copies_need_placeholders() -> None:
    with pytest.raises(UserError, match=r"^decoding\.numbers=copy: the model has no placeholders\. Set "):
        translator(placeholders=False, numbers=Numbers.copy)
    with pytest.raises(UserError, match=r"^decoding\.numbers=copy: copies numbers by placeholders, and "):
        DecodingConfig(numbers=Numbers.copy, placeholders=False)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from("7 71 1,5 {a} words B7 7年 (7) 7% <b> </b>".split()), max_size=9))
def test_every_copied_number_is_there_once(parts: list[str]) -> None:
    line = " ".join(parts)
    masked = mask(line, numbers=True)
    text, appended = restore(masked.text, masked.strings)
    assert appended == 0 and text.replace(" ", "") == line.replace(" ", "")
