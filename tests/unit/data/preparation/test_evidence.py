"""Evidence of wrong data: each kind is noticed, and clean text causes no warning."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

import pytest
from toy_corpus import write_pairs

from nmt.config import CleaningConfig, DataConfig, SplitConfig, TrainSplitConfig
from nmt.data.corpora.corpus import Corpus
from nmt.data.corpora.held_out import HeldOut
from nmt.data.corpora.sources import Source
from nmt.data.corpora.text import bundled_folder, has_exchanged_names, read_lines
from nmt.data.preparation import evidence as module
from nmt.data.preparation.evidence import FORMS, LINE_CHECKS, evidence
from nmt.data.preparation.prepare import prepare

Sides = tuple[Sequence[str], Sequence[str]]


def quickstart(split: str, count: int = 1000) -> Sides:
    sides = [
        list(read_lines(bundled_folder() / "quickstart" / f"{split}.{lang}.gz")) for lang in ("en", "de")
    ]
    return sides[0][:count], sides[1][:count]


def facts(*names: str) -> dict[str, list[dict[str, str]]]:
    return {side: [{"name": name}] for side, name in zip(("source", "target"), names, strict=False)}


def warnings_of(
    train: Sides,
    valid: Sides | None = None,
    test: Sides | None = None,
    *,
    languages: tuple[str, str] = ("en", "de"),
    names: tuple[str, ...] = ("train.en", "train.de"),
) -> list[str]:
    """Returns the warnings about sides in memory; `names` are those of their files."""
    corpus = Corpus("toy", facts(*names), lambda _: iter([(list(train[0]), list(train[1]))]), "data.train")
    held_out = {
        name: HeldOut(
            *(name, list(sides[0]), list(sides[1]), None, facts(f"{name}.en", f"{name}.de"), None),
            *languages,
        )
        for name, sides in (("valid", valid), ("test", test))
        if sides is not None
    }
    return evidence([Source("", corpus, CleaningConfig(), languages)], held_out)


@pytest.mark.parametrize("count", [100, 1000, 10_000])
def test_clean_text_has_no_warnings(count: int) -> None:
    train, valid, test = (quickstart(split, count) for split in ("train", "valid", "test"))
    assert warnings_of(train, valid, test) == []
    backwards = [(target, source) for source, target in (train, valid, test)]
    assert warnings_of(*backwards, languages=("de", "en"), names=("train.de", "train.en")) == []


def tokenised(line: str) -> str:
    return re.sub(r"([.,!?;:])(?=\s|$)", r" \1", line)


def moses(line: str) -> str:
    return tokenised(line).replace("'", " &apos;").replace('"', "&quot; ").replace("-", " @-@ ")


def subwords(line: str) -> str:
    return " ".join(f"{word[:3]}@@ {word[3:]}" if len(word) > 5 else word for word in line.split())


def sentencepiece(line: str) -> str:
    return " ".join(f"▁{word[:3]} {word[3:]}".strip() for word in line.split())


def mojibake(line: str) -> str:
    return line.encode().decode("cp1252", errors="replace")


def lower(line: str) -> str:
    return line.lower()


def some(change: Callable[[str], str]) -> Callable[[str], str]:
    """Changes a line in 50."""
    counter = iter(range(10**9))
    return lambda line: change(line) if next(counter) % 50 == 0 else line


KINDS: dict[str, tuple[Callable[[str], str], str]] = {
    "moses": (some(lambda line: moses(f"it's a well-known {line}")), "escapes or marks of Moses' tokenizer"),
    "joints": (some(lambda line: f"{line} a @-@ b"), "escapes or marks of Moses' tokenizer"),
    "tokenised": (tokenised, "100% of the full stops and commas have a space before them"),
    "quoted cells": (some(lambda line: f'"He said ""{line}"" twice"'), "quotation marks of cells of CSV"),
    "subword-nmt": (some(subwords), "pieces of subword-nmt"),
    "sentencepiece": (some(sentencepiece), "pieces of SentencePiece"),
    "entities": (some(lambda line: f"{line} AT&amp;T"), "HTML entities"),
    "numeric entities": (some(lambda line: f"{line}it&#39;s"), "HTML entities"),
    "escaped quotes": (some(lambda line: f"{line} a &quot;b&quot; c"), "HTML entities"),
    "latin-1": (
        some(lambda line: f"{line} ñ 한국".encode().decode("latin-1")),
        "UTF-8 decoded in another encoding",
    ),
    "mojibake": (some(lambda line: mojibake(f"{line} schön")), "UTF-8 decoded in another encoding"),
    "lost characters": (some(lambda line: f"{line} sch\ufffdn"), "replacement character U+FFFD"),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("side", [0, 1])
def test_processed_sides(kind: str, side: int) -> None:
    change, problem = KINDS[kind]
    sides = [*quickstart("train")]
    sides[side] = [change(line) for line in sides[side]]
    [warning] = warnings_of((sides[0], sides[1]))
    assert warning.startswith(f"data.train.{('source', 'target')[side]}: ") and problem in warning
    assert re.search(r"\. (Give|Replace|Decode|Convert)", warning)
    assert "{lang}" not in warning


@pytest.mark.parametrize(
    ("kind", "side", "form"),
    [
        ("lower", 0, "source: 100% of it is in lower case"),
        ("lower", 1, "target: 100% of it is in lower case"),
        ("upper", 1, "target: 100% of it is in capitals"),
        ("decomposed", 1, "target: 100% of it is decomposed (Unicode NFD)"),
    ],
)
def test_a_test_set_in_another_form(kind: str, side: int, form: str) -> None:
    changes: dict[str, Callable[[str], str]] = {
        "lower": str.lower,
        "upper": str.upper,
        "decomposed": lambda line: unicodedata.normalize("NFD", line),
    }
    test = [*quickstart("test")]
    test[side] = [changes[kind](line) for line in test[side]]
    found = warnings_of(quickstart("train"), quickstart("valid"), (test[0], test[1]))
    assert [one for one in found if form in one and "of the training text" in one]
    assert all(one.startswith(f"data.test.{('source', 'target')[side]}: ") for one in found)


def test_training_text_in_lower_case() -> None:
    train = [[line.lower() for line in side] for side in quickstart("train")]
    found = warnings_of((train[0], train[1]), quickstart("valid"))
    assert [one.partition(" Take")[0] for one in found] == [
        "data.valid.source: 0% of it is in lower case, and 100% of the training text.",
        "data.valid.target: 0% of it is in lower case, and 100% of the training text.",
    ]


def test_source_equal_to_target() -> None:
    source, target = quickstart("train")
    some_equal = [
        one if number % 4 else other for number, (one, other) in enumerate(zip(target, source, strict=True))
    ]
    [warning] = warnings_of((source, some_equal))
    assert warning.startswith("data.train: 227 of 927 long pairs have the same text on both sides. ")
    found = warnings_of((source, source))
    assert "927 of 927 long pairs have the same text" in found[0]
    assert warnings_of((source, source), languages=("en", "en-GB")) == []
    names = [f"{first} Berg {number}" for first in ("Ana", "Eva", "Ida") for number in range(100)]
    assert warnings_of((names, names)) == []


def test_sides_that_are_not_translations() -> None:
    source, target = quickstart("train")
    [warning] = warnings_of((source, [*target[1:], target[0]]))
    assert re.match(
        r"data\.train: the lengths of the sides are unrelated \(correlation -?0\.[0-2]\d\)", warning
    )


def test_exchanged_sides_of_two_scripts() -> None:
    source = [f"The value {number} is returned by this function." for number in range(200)]
    target = [f"함수 f{number} 은 값을 반환합니다 (returns)." for number in range(200)]
    languages = ("en", "ko")
    assert warnings_of((source, target), languages=languages) == []
    [warning] = warnings_of((target, source), languages=languages, names=("a.x", "a.y"))
    assert warning == (
        "data.train: the sides are exchanged: the source is in the script of ko, the target in the script of "
        "en. Exchange the sides, or data.source_lang and data.target_lang."
    )
    [warning] = warnings_of((source, source[::-1]), languages=languages)[:1]
    assert warning.startswith(
        "data.train.target: 0% of the lines have letters of the script of ko. Set data.target_lang to "
    )


def test_exchanged_scripts_of_one_language() -> None:
    latin = [f"Vrednost {number} je vraćena iz funkcije." for number in range(200)]
    cyrillic = [f"Вредност {number} је враћена из функције." for number in range(200)]
    languages = ("sr-Latn", "sr-Cyrl")
    assert warnings_of((latin, cyrillic), languages=languages) == []
    [warning] = warnings_of((cyrillic, latin), languages=languages)
    assert warning.startswith("data.train: the sides are exchanged: ")
    assert warnings_of((latin, latin[::-1]), languages=("pt-PT", "pt-BR")) == warnings_of(
        (latin, latin[::-1]), languages=("pt-PT", "pt-BR"), names=("a.pt-br", "a.pt-pt")
    )


def test_exchanged_sides_by_identification() -> None:
    pytest.importorskip("lingua")
    source, target = quickstart("train")
    [warning] = warnings_of((target, source), names=("a.x", "a.y"))
    assert warning.startswith("data.train: the sides are exchanged: the source is in de, the target in en. ")
    others = quickstart("train", 2000)[0][1000:]
    assert warnings_of((source, others))[0].startswith(
        "data.train.target: 98% of the lines are in en, not in de. "
    )
    # What the text says counts, not the names of the files.
    assert warnings_of((source, target), names=("train.de", "train.en")) == []


def test_exchanged_sides_by_the_names_of_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_identified", lambda text: None)
    source, target = quickstart("train")
    [warning] = warnings_of((target, source), names=("train.de", "train.en"))
    assert warning.startswith("data.train: by the names of the files the sides are exchanged. ")
    assert warnings_of((source, target)) == []


@pytest.mark.parametrize(
    ("sources", "targets", "expected"),
    [
        (["a.de"], ["a.en"], True),
        (["news.de.gz", "web_de.txt"], ["news.en.gz", "web_en.txt"], True),
        (["news.de", "web.en"], ["news.en", "web.de"], False),
        (["en-de.de"], ["en-de.en"], False),
        (["source.txt"], ["target.txt"], False),
        ([], [], False),
    ],
)
def test_names_of_exchanged_files(sources: list[str], targets: list[str], expected: bool) -> None:
    assert has_exchanged_names(sources, targets, ("en", "de")) is expected


def test_other_kinds_of_data_name_the_side() -> None:
    source, target = quickstart("train")
    [warning] = warnings_of((source, [f"{line} AT&amp;T" for line in target]), names=())
    assert warning.startswith("data.train: target side: 1,000 of 1,000 lines have HTML entities")


@pytest.mark.parametrize(
    "line",
    [
        "AT&T and R&D", "a & b", "x &amp y", "Größe “quoted” – it’s", "Привет, мир", "a@b.c",
        "Ні.", "Ні! Ні!", "ALLÔ…", "SANTÉ\N{NO-BREAK SPACE}!", '"a" and "b"', '"a, b"',
        '""', 'say """a"""',
    ],
)  # fmt: skip
def test_lines_without_traces(line: str) -> None:
    assert not any(check.has(line) for check in LINE_CHECKS)


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "cp1251"])
@pytest.mark.parametrize("text", ["für", "it’s", "Ні, Том", "한국", "où ?"])
def test_text_that_was_decoded_wrongly(text: str, encoding: str) -> None:
    wrong = "".join(bytes([byte]).decode(encoding, errors="ignore") for byte in text.encode())
    if wrong.encode(encoding) == text.encode():  # the encoding has characters for all bytes
        assert any(check.has(wrong) for check in LINE_CHECKS)


def test_short_text_shows_nothing() -> None:
    wrong = [f"▁{number}" for number in range(99)]
    assert warnings_of((wrong, wrong)) == []
    assert [form.share(wrong) for form in FORMS] == [None] * 3


def test_preparation_logs_the_warnings(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    words = Random(1)
    train = [(f"{words.random()} is it", f"{words.random()} ist &quot; es") for _ in range(120)]
    config = DataConfig(
        name="toy",
        source_lang="xx",
        target_lang="yy",
        train=TrainSplitConfig(**write_pairs(tmp_path, "train", train)),
        valid=SplitConfig(**write_pairs(tmp_path, "valid", [("a", "b")])),
        cache_dir=str(tmp_path / "cache"),
        workers=1,
    )
    warnings = prepare(config).report["warnings"]
    beginning = "data.train.target: 120 of 120 lines have escapes or marks of Moses' tokenizer"
    assert [one.startswith(beginning) for one in caplog.messages].index(True) == 0
    assert warnings[0] == caplog.messages[0]
    caplog.clear()
    prepare(config, checked=True)
    assert not any(one.startswith(beginning) for one in caplog.messages)
