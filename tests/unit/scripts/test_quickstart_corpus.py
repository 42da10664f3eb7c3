"""The whole quickstart corpus: unique translations, the documented split, reproducible, as committed."""

import gzip
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "scripts"))

import make_quickstart_corpus as script
from quickstart_corpus import split, verbs
from quickstart_corpus.dice import Dice
from quickstart_corpus.english_verbs import forms
from quickstart_corpus.lexicon import TITLED_NAMES
from quickstart_corpus.meaning import Address, Clause, Person, Sentence
from quickstart_corpus.nouns import noun
from quickstart_corpus.sentences import is_sound
from quickstart_corpus.split import Corpus, Pair

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]
DATA = ROOT / "data" / "quickstart"


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return split.make_corpus()


def test_sizes(corpus: Corpus) -> None:
    assert (len(corpus.train), len(corpus.valid), len(corpus.test)) == (25_000, 500, 500)
    groups = Counter(pair.group for pair in corpus.test)
    assert groups == {"seen": 250, "unseen-object": 130, "unseen-clause": 120}


def test_each_english_sentence_has_one_german_one(corpus: Corpus) -> None:
    pairs = corpus.train + corpus.valid + corpus.test
    assert len({pair.english for pair in pairs}) == len(pairs)
    assert len({pair.german for pair in pairs}) == len(pairs)


def test_test_and_validation_sentences_are_not_in_training(corpus: Corpus) -> None:
    sources = {pair.english for pair in corpus.train}
    targets = {pair.german for pair in corpus.train}
    for pair in corpus.valid + corpus.test:
        assert pair.english not in sources
        assert pair.german not in targets


def test_held_out_combinations_are_in_the_test_only(corpus: Corpus) -> None:
    held_out = split.HELD_OUT_OBJECTS | split.HELD_OUT_CLAUSES
    assert not split.combinations(corpus.train + corpus.valid) & held_out
    known = split.combinations(corpus.train)
    kinds = {split.SEEN: frozenset[tuple[str, str]](), split.OBJECT_GROUP: split.HELD_OUT_OBJECTS}
    kinds[split.CLAUSE_GROUP] = split.HELD_OUT_CLAUSES
    used = Counter[tuple[str, str]]()
    for pair in corpus.test:
        unseen = split.combinations([pair]) - known
        assert unseen <= kinds[pair.group]
        assert len(unseen) == (pair.group != split.SEEN)
        used.update(unseen)
    assert set(used) == held_out, "every held-out combination is tested"


# "have" is an auxiliary too, so the text alone is ambiguous.
@pytest.mark.parametrize(("verb", "held_out"), sorted(split.HELD_OUT_OBJECTS - {("have", "horse")}))
def test_held_out_words_never_meet_in_the_training_text(verb: str, held_out: str) -> None:
    """Reads only the committed English text, not the meanings."""
    particle = verb.partition(" ")[2]
    found = next(entry for entry in verbs.ORDINARY if entry.name == verb)
    # English puts a pronoun before the particle ("picks him up"), a noun after it.
    after = rf"(?: \w+)? {particle}\b" if particle else ""
    spoken = re.compile(rf"\b(?:{'|'.join(forms(found))})\b{after}", re.IGNORECASE)
    named = re.compile(rf"\b(?:{held_out}|{noun(held_out).english_plural or held_out})\b", re.IGNORECASE)
    lines = [line for name in ("train", "valid") for line in _read(f"{name}.en.gz")]
    plain = [line.replace("in order to", "to").replace("o'clock", "") for line in lines]
    assert [line for line in plain if spoken.search(line) and named.search(line)] == []


@pytest.mark.parametrize(
    ("pattern", "auxiliaries"),
    [
        (r", ob [^,]*(?:hat|habe|hast|haben|habt|ist|bin|bist|sind|seid)", "perfect"),
        (
            r"[Ww]eil [^,]*(?:kann|muss|darf|will|sollte|möchte|können|müssen|dürfen|wollen|musste|konnte)",
            "modal",
        ),
        (r", dass [^,]*(?:wird|werde|wirst|werden|werdet)", "future"),
    ],
)
def test_held_out_clauses_are_not_in_the_training_text(pattern: str, auxiliaries: str) -> None:
    lines = [line for name in ("train", "valid") for line in _read(f"{name}.de.gz")]
    ends = re.compile(pattern + r"(?=[,.?!])")
    found = [line for line in lines if ends.search(line)]
    if auxiliaries == "perfect":  # "ob er müde ist", "ob er einen Hund hat" are present tense
        participle = re.compile(
            r"(?:\bge|[a-zäöü]ge)\w+(?:t|en) (?:hat|habe|hast|haben|habt|ist|bin|bist|sind|seid)\b"
        )
        found = [line for line in found if participle.search(line[line.index(", ob ") :])]
    assert found == []


def test_you_is_never_unclear() -> None:
    asleep = Clause(next(verb for verb in verbs.ORDINARY if verb.name == "sleep"), Person.DU)
    anna = Address("Anna", "Anna", Person.DU)
    becker = Address(TITLED_NAMES[0].english, TITLED_NAMES[0].german, Person.SIE)
    assert is_sound(Sentence(asleep, address=anna))
    assert not is_sound(Sentence(asleep))
    assert not is_sound(Sentence(asleep, address=becker))


def test_every_you_is_addressed(corpus: Corpus) -> None:
    for pair in corpus.train:
        if re.search(r"\byour?\b", pair.english, re.IGNORECASE):
            assert "," in pair.english, pair


def test_text_is_tidy(corpus: Corpus) -> None:
    pairs: list[Pair] = corpus.train + corpus.valid + corpus.test
    for text in (text for pair in pairs for text in (pair.english, pair.german)):
        assert re.fullmatch(r"[A-ZÄÖÜ][^.?!]*[.?!]", text), text
        assert "  " not in text and " ," not in text and ",," not in text, text
    words = [len(pair.german.split()) for pair in pairs]
    assert 7 <= sum(words) / len(words) <= 11


def test_committed_files_are_what_the_script_makes(corpus: Corpus) -> None:
    files = {name: _read(name) for name in script.FILES}
    for name, pairs in (("train", corpus.train), ("valid", corpus.valid), ("test", corpus.test)):
        assert files[f"{name}.en.gz"] == [pair.english for pair in pairs]
        assert files[f"{name}.de.gz"] == [pair.german for pair in pairs]
    assert files["test.groups.txt.gz"] == [pair.group for pair in corpus.test]
    assert sum((DATA / name).stat().st_size for name in script.FILES) < 2_000_000


def test_sampling_does_not_depend_on_the_hash_seed() -> None:
    """Compares the first sentences of processes that order their sets differently."""
    program = (
        "from quickstart_corpus import dice, sentences, english, german\n"
        "rolled = dice.Dice(5)\n"
        "for _ in range(300):\n"
        "    said = sentences.sample(rolled)\n"
        "    print(english.english(said), german.german(said))\n"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={
                **os.environ,
                "PYTHONHASHSEED": seed,
                "PYTHONPATH": str(ROOT / "scripts"),
                "PYTHONUTF8": "1",
            },
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "4242")
    }
    assert len(outputs) == 1


def test_the_choice_of_the_test_does_not_depend_on_the_hash_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compares a small corpus, created by the complete splitting code, of two processes."""
    program = (
        "from quickstart_corpus import split\n"
        "split.TRAIN, split.VALID, split.TEST = 2500, 10, 40\n"
        "split.UNSEEN_OBJECT, split.UNSEEN_CLAUSE = 15, 10\n"
        "made = split.make_corpus()\n"
        "for pair in made.train + made.valid + made.test:\n"
        "    print(pair.english, pair.german, pair.group)\n"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={
                **os.environ,
                "PYTHONHASHSEED": seed,
                "PYTHONPATH": str(ROOT / "scripts"),
                "PYTHONUTF8": "1",
            },
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("0", "7")
    }
    assert len(outputs) == 1


def test_check_names_the_file_that_differs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(script, "corpus_files", lambda: {"a.gz": "one\n", "b.gz": "zwei\n"})
    where = ["--output", str(tmp_path)]
    assert script.main(where) == 0
    assert script.main([*where, "--check"]) == 0
    # Another compression of the same text passes; other text, a damaged or a missing file fails.
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"one\n", compresslevel=1, mtime=9))
    assert script.main([*where, "--check"]) == 0
    (tmp_path / "b.gz").write_bytes(gzip.compress(b"drei\n"))
    assert script.main([*where, "--check"]) == 1
    assert "b.gz" in capsys.readouterr().err
    (tmp_path / "b.gz").write_bytes(b"\x1f\x8b")
    assert script.main([*where, "--check"]) == 1
    (tmp_path / "b.gz").unlink()
    assert script.main([*where, "--check"]) == 1


def test_dice_are_what_they_were() -> None:
    dice = Dice(1)
    assert [dice.pick(range(100)) for _ in range(5)] == [13, 84, 76, 25, 49]
    assert sorted(dice.shuffled("abcdef")) == list("abcdef")


def _read(name: str) -> list[str]:
    return gzip.decompress((DATA / name).read_bytes()).decode("utf-8").splitlines()
