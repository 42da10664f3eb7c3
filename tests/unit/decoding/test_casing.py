"""Lines in capitals and title case: what the model reads, and the case of the translation."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from toy_corpus import learnt
from toys import CPU, CopyModel

from nmt.config import Casing, DataConfig, DecodingConfig, Segmentation
from nmt.config.data import CorpusConfig, TrainSplitConfig
from nmt.copying.strings import PLACEHOLDERS
from nmt.data.letter_case import Case, CaseFacts
from nmt.data.subwords.tokenizer import Tokenizer
from nmt.decoding.casing import Recaser, Recasing
from nmt.decoding.facts import TextFacts
from nmt.decoding.torch_searcher import TorchSearcher
from nmt.decoding.translation import Translation
from nmt.decoding.translator import Translator

SENTENCES = CaseFacts(capitals=0.001, title=0.002, initial=0.99, mixed=0.99)
WITHOUT_CAPITALS = CaseFacts(0.0, 0.0, 0.0, 0.0)
NEWS = CaseFacts(capitals=0.02, title=0.002, initial=0.9, mixed=0.95)
FACTS = TextFacts("en", "de", case=SENTENCES)
WORDS = "A dog runs in the old town of Paris and sees a man. The NATO is there, and the man sees it too, Ann."


@cache
def tokenizer(low: bool = False) -> Tokenizer:
    lines = [f"{WORDS} I am here {number}. Tom and I, or Max and I see it." for number in range(20)]
    lines = [line.lower() for line in lines] if low else [*lines, *["a dog and the man see it"] * 20]
    symbols = ["<2tr>", *PLACEHOLDERS]
    pairs = [(line, line) for line in lines]
    return learnt(pairs, vocab_size=480, user_symbols=symbols, segmentation=Segmentation.bpe)


def recasing(line: str, facts: TextFacts = FACTS, option: Casing = Casing.auto) -> Recasing | None:
    low = facts.case is not None and facts.case.mixed == 0
    return Recaser(facts, option, tokenizer(low)).recasing(line)


def searched(line: str, facts: TextFacts = FACTS, option: Casing = Casing.auto) -> str:
    found = recasing(line, facts, option)
    return line if found is None else found.source(line)


def translator(facts: TextFacts | None = FACTS, **options: Any) -> Translator:
    """Returns a translator that writes the line that its model reads, in the case of the raw line."""
    pieces = tokenizer(facts is not None and facts.case is WITHOUT_CAPITALS)
    config = DecodingConfig(**{"beam_size": 2, **options})
    searcher = TorchSearcher([CopyModel(pieces.source.size)], pieces, config, device=CPU)
    return Translator(searcher, pieces, facts=facts)


def texts(found: Sequence[Translation]) -> list[str]:
    return [translation.hypotheses[0].text for translation in found]


@pytest.mark.parametrize(
    ("line", "read"),
    [
        ("A DOG RUNS IN THE OLD TOWN.", "A dog runs in the old town."),
        ("THE DOG RUNS IN PARIS. A MAN SEES IT", "The dog runs in Paris. A man sees it"),
        ("NATO SEES THE MAN", "NATO sees the man"),  # a piece of the vocabulary
        ("NATO", "NATO"),
        ("RUNS!", "Runs!"),
        ("RUNS 5!", "Runs 5!"),
        ("A MAN AND I", "A man and I"),
        ("I'M HERE", "I'm here"),
        ("THE B2B DOG", "The B2B dog"),
        ("The Old Dog Runs in Paris", "The old dog runs in Paris"),
        ("The Man and the iPhone See NATO", "The man and the iPhone see NATO"),
        ("The old dog runs in Paris", "The old dog runs in Paris"),
        ("the dog", "the dog"),
        ("Ann Tom and Max Paris Dog", "Ann Tom and Max Paris Dog"),  # names
        ("Paris NATO Paris", "Paris NATO Paris"),
        ("<2tr> A DOG RUNS", "<2tr> A dog runs"),
        (f"SEE {PLACEHOLDERS[0]} RUNS", f"See {PLACEHOLDERS[0]} runs"),
        ("", ""),
    ],
)
def test_what_a_model_of_sentences_reads(line: str, read: str) -> None:
    assert searched(line) == read


@pytest.mark.parametrize(
    ("line", "read"),
    [
        ("A DOG RUNS. IT SEES PARIS", "a dog runs. it sees paris"),
        ("NATO", "nato"),
        ("The Old Dog Runs in Paris", "the old dog runs in paris"),
        ("The old dog", "the old dog"),  # it has not learnt any capital
        ("the old dog", "the old dog"),
        ("<2tr> A dog", "<2tr> a dog"),
        ("B2B", "b2b"),
    ],
)
def test_what_a_model_without_capitals_reads(line: str, read: str) -> None:
    assert searched(line, replace(FACTS, case=WITHOUT_CAPITALS)) == read


def test_only_the_cases_that_are_too_rare_in_training_are_changed() -> None:
    news = replace(FACTS, case=NEWS)
    assert searched("A DOG RUNS", news) == "A DOG RUNS"
    assert searched("The Old Dog Runs in Paris", news) == "The old dog runs in Paris"
    assert searched("A DOG RUNS", news, Casing.always) == "A dog runs"
    assert searched("A DOG RUNS", option=Casing.never) == "A DOG RUNS"
    unknown = TextFacts("en", "de")  # of a model of an earlier version
    assert searched("A DOG RUNS", unknown) == "A DOG RUNS"
    assert searched("A DOG RUNS", unknown, Casing.always) == "A dog runs"


def test_german_capitals_of_a_sharp_s() -> None:
    lines = ["die große straße und die masse der gasse"] * 30
    pieces = learnt([(line, line) for line in lines], vocab_size=340, segmentation=Segmentation.bpe)
    facts = TextFacts("de", "en", case=replace(SENTENCES, initial=0.0))
    recaser = Recaser(facts, Casing.auto, pieces)
    line = "DIE GROSSE STRASSE UND DIE MASSE DER GASSE"
    found = recaser.recasing(line)
    assert found is not None and found.source(line) == "die große straße und die masse der gasse"


@pytest.mark.parametrize(
    ("case", "text", "literals", "written"),
    [
        (Case.capitals, "ein Hund auf der Straße", (), "EIN HUND AUF DER STRAẞE"),
        (Case.capitals, "ein Kater und eine Kater-Art", ["Kater"], "EIN Kater UND EINE Kater-ART"),
        (Case.capitals, "Ein Kerl sieht es", ["Ein Kerl", "Kerl", " "], "Ein Kerl SIEHT ES"),
        (Case.capitals, "einkater", ["kater"], "EINKATER"),
        (Case.capitals, "a.b (c)", ["(c)", "a.b"], "a.b (c)"),
        (Case.title, "ein Hund auf dem Dach", (), "Ein Hund auf dem Dach"),
        (Case.title, "ein Hund", ["ein"], "ein Hund"),
        (None, "ein Hund", (), "ein Hund"),
    ],
)
def test_the_case_of_the_translation(
    case: Case | None, text: str, literals: Sequence[str], written: str
) -> None:
    assert Recasing(case, None, "", True, "en", "de").target(text, literals) == written


def test_the_language_of_a_tag_decides() -> None:
    facts = replace(FACTS, targets={"<2tr>": "tr"})
    for line, capitals in (("A DOG RUNS", "ISI I"), ("<2tr> A DOG RUNS", "ISI İ")):
        found = recasing(line, facts)
        assert found is not None and found.target("ısı i") == capitals
    corpora = {
        "a": CorpusConfig(tag="<2tr>", target_lang="tr"),
        "b": CorpusConfig(tag="<2xx>", target_lang="de"),
        "c": CorpusConfig(tag="<2xx>", target_lang="fr"),
        "d": CorpusConfig(),
    }
    data = DataConfig(source_lang="en", target_lang="de", train=TrainSplitConfig(corpora=corpora))
    shares = {"capitals": 0.1, "title": 0, "initial": 0.5, "mixed": 1}
    known = TextFacts.of(data, {"data": {"text": {"case": shares}}})
    assert known == TextFacts("en", "de", case=CaseFacts(0.1, 0.0, 0.5, 1.0), targets={"<2tr>": "tr"})


@pytest.mark.parametrize(
    "data", [{}, {"text": {}}, {"text": None}, {"text": {"case": None}}, {"text": {"case": {"title": "x"}}}]
)
def test_models_without_these_facts(data: Any) -> None:
    config = DataConfig(source_lang="en", target_lang="de")
    assert TextFacts.of(config, {"data": data}) == TextFacts("en", "de")


def test_lines_come_back_in_their_case() -> None:
    lines = ["A DOG RUNS", "The dog", "The Old Dog Runs in the Town", "NATO", "102", ""]
    lines.append("SEE {x} AND <b>IT</b>")
    expected = [*lines[:2], "The old dog runs in the town", *lines[3:]]
    assert texts(translator().translate(lines)) == expected
    assert texts(translator(facts=None).translate(lines)) == lines
    assert texts(translator(replace(FACTS, target_lang="en")).translate(lines[2:3])) == lines[2:3]
    [small, large] = translator().translate(["a dog runs", "A DOG RUNS"])
    [never] = translator(case=Casing.never).translate(["A DOG RUNS"])
    assert small.num_tokens == large.num_tokens < never.num_tokens


@pytest.mark.parametrize("options", [{"nbest": 2}, {"samples": 2}, {"mbr": None, "beam_size": 1}])
def test_every_hypothesis_is_in_capitals(options: dict[str, Any]) -> None:
    [found] = translator(**options).translate(["A DOG RUNS"])
    assert all(one.text == one.text.upper() for one in found.hypotheses)


def test_prefixes_and_constraints_remain() -> None:
    found = translator().translate(
        ["A DOG RUNS", "A DOG RUNS", "A DOG RUNS"],
        prefixes=["The man", "", ""],
        constraints=[[], ["sees it"], ["SEES"]],
    )
    prefixed, constrained, capitals = texts(found)
    assert prefixed.startswith("The man") and prefixed[7:] == prefixed[7:].upper()
    rest = constrained.replace("sees it", "")
    assert "sees it" in constrained and rest == rest.upper()
    assert "SEES" in capitals and [one.unmet for one in found] == [()] * 3


@given(st.lists(st.sampled_from([*WORDS.split(), "NATO", "{x}", "DOG", "İ", "ß", "5", "'"])).map(" ".join))
def test_no_line_loses_words(line: str) -> None:
    for text in (line, line.upper(), line.title()):
        for facts in (FACTS, replace(FACTS, case=WITHOUT_CAPITALS)):
            read = searched(text, facts)
            assert len(read.split()) == len(text.split())
            assert read.casefold().replace("i̇", "i") == text.casefold().replace("i̇", "i")


@pytest.mark.parametrize("part", ["A DOG ", "AB", "Dog ", "A'", "Old Dog. ", "İ ", "ΆΙ ", "E\u0301"])
def test_the_time_is_in_proportion_to_the_length(part: str) -> None:
    start, text = time.process_time(), part * (100_000 // len(part))
    for facts in (FACTS, replace(FACTS, case=WITHOUT_CAPITALS), replace(FACTS, target_lang="en")):
        searched(text, facts)
    for case in Case:
        for lang in ("en", "el"):
            Recasing(case, {}, "", True, "en", lang).target(text.lower(), ["dog", "a"])
    assert time.process_time() - start < 4
