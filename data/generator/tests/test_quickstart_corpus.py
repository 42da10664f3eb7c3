"""The quickstart corpus: as committed, one translation a sentence, held-out combinations, and its morphology.

Each rule of both grammars is used in the 26,000 committed pairs, so a change of one changes the text.
"""

import gzip
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from quickstart_corpus import __main__ as script
from quickstart_corpus import german_nouns, german_verbs, nouns, split, verbs
from quickstart_corpus.meaning import Person
from quickstart_corpus.numbers import english_number, german_number
from quickstart_corpus.split import Corpus
from quickstart_corpus.times import Clock, english_clock, german_clock
from quickstart_corpus.words import Case

PROJECT = Path(script.__file__).resolve().parents[1]
PERSONS = (Person.ME, Person.DU, Person.HE, Person.WE, Person.IHR, Person.SIE)


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return split.make_corpus()


@pytest.mark.slow
def test_committed_files_are_what_the_generator_writes() -> None:
    assert script.main(["--check"]) == 0
    assert sum((script.DEFAULT_OUTPUT / name).stat().st_size for name in script.FILES) < 2_000_000


@pytest.mark.slow
def test_each_sentence_has_one_translation_and_is_in_one_split(corpus: Corpus) -> None:
    pairs = corpus.train + corpus.valid + corpus.test
    assert (len(corpus.train), len(corpus.valid), len(corpus.test)) == (25_000, 500, 500)
    assert len({pair.english for pair in pairs}) == len({pair.german for pair in pairs}) == len(pairs)
    for text in (text for pair in pairs for text in (pair.english, pair.german)):
        assert re.fullmatch(r"[A-ZÄÖÜ][^.?!]*[.?!]", text) and "  " not in text and " ," not in text, text


@pytest.mark.slow
def test_held_out_combinations_are_in_the_test_only(corpus: Corpus) -> None:
    assert Counter(pair.group for pair in corpus.test) == {
        "seen": 250,
        "unseen-object": 130,
        "unseen-clause": 120,
    }
    held_out = split.HELD_OUT_OBJECTS | split.HELD_OUT_CLAUSES
    assert not split.combinations(corpus.train + corpus.valid) & held_out
    assert held_out <= split.combinations(corpus.test)


@pytest.mark.slow
def test_text_does_not_depend_on_the_hash_seed() -> None:
    program = (
        "from quickstart_corpus import split\n"
        "split.TRAIN, split.VALID, split.TEST = 2500, 10, 40\n"
        "split.UNSEEN_OBJECT, split.UNSEEN_CLAUSE = 15, 10\n"
        "corpus = split.make_corpus()\n"
        "for pair in corpus.train + corpus.valid + corpus.test:\n"
        "    print(pair.english, pair.german, pair.group)\n"
    )
    command = [sys.executable, "-X", "utf8", "-c", program]
    environments = [os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": str(PROJECT)} for seed in ("0", "7")]
    outputs = {
        subprocess.run(command, env=env, capture_output=True, check=True).stdout for env in environments
    }
    assert len(outputs) == 1


def test_check_names_the_file_that_differs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(script, "corpus_files", lambda: {"a.gz": "one\n", "b.gz": "zwei\n"})
    options = ["--output", str(tmp_path)]
    assert script.main(options) == 0
    # Another compression of the same text passes; other text, a damaged or a missing file fails.
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"one\n", compresslevel=1, mtime=9))
    assert script.main([*options, "--check"]) == 0
    for content in (gzip.compress(b"drei\n"), b"\x1f\x8b", None):
        (tmp_path / "b.gz").unlink() if content is None else (tmp_path / "b.gz").write_bytes(content)
        assert script.main([*options, "--check"]) == 1
        assert "b.gz" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("english", "cells"),
    [  # singular: nominative, accusative, dative, genitive; then plural
        ("student", "Student Studenten Studenten Studenten Studenten Studenten Studenten Studenten"),
        ("garden", "Garten Garten Garten Gartens Gärten Gärten Gärten Gärten"),
        ("daughter", "Tochter Tochter Tochter Tochter Töchter Töchter Töchtern Töchter"),
    ],
)
def test_nouns(english: str, cells: str) -> None:
    noun = nouns.noun(english)
    forms = [german_nouns.decline_noun(noun, case, plural) for plural in (False, True) for case in Case]
    assert " ".join(forms) == cells


@pytest.mark.parametrize(
    ("english", "present", "imperatives"),
    [  # ich, du, er, wir, ihr, Sie; then du, ihr, Sie
        ("read", "lese liest liest lesen lest lesen", "lies lest lesen"),
        ("open", "öffne öffnest öffnet öffnen öffnet öffnen", "öffne öffnet öffnen"),
        ("wash", "wasche wäschst wäscht waschen wascht waschen", "wasch wascht waschen"),
    ],
)
def test_verbs(english: str, present: str, imperatives: str) -> None:
    verb = next(verb for verb in verbs.ORDINARY if verb.name == english)
    assert " ".join(german_verbs.present(verb, person) for person in PERSONS) == present
    addressed = (Person.DU, Person.IHR, Person.SIE)
    assert " ".join(german_verbs.imperative(verb, person) for person in addressed) == imperatives


def test_numbers_and_times() -> None:
    assert (english_number(342), german_number(342)) == (
        "three hundred and forty-two",
        "dreihundertzweiundvierzig",
    )
    assert (english_clock(Clock(12, 30)), german_clock(Clock(12, 30))) == ("half past twelve", "halb eins")
