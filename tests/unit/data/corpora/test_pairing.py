"""Mispaired lists of files are found by their names, without false alarms for common names."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from nmt.config import DataConfig, SplitConfig
from nmt.data.corpora.corpus import open_corpus
from nmt.data.corpora.text import mispaired


def paths(names: str) -> list[Path]:
    return [Path(name) for name in names.split()]


@pytest.mark.parametrize(
    ("sources", "targets", "source", "target"),
    [
        ("a.en b.en", "b.de a.de", "a.en", "a.de"),
        ("a.en b.en c.en", "a.de c.de b.de", "b.en", "b.de"),
        ("news.en-de.en.gz ted.en-de.en.gz", "ted.en-de.de.gz news.en-de.de.gz", "news.en-de.en.gz", None),
        (
            "europarl-v7.de-en.en cc.de-en.en",
            "cc.de-en.de europarl-v7.de-en.de",
            "europarl-v7.de-en.en",
            None,
        ),
        ("a/train.en b/train.en", "b/train.de a/train.de", "a/train.en", "a/train.de"),
        ("en/a.txt en/b.txt", "de/b.txt de/a.txt", "en/a.txt", "de/a.txt"),
        ("english/a english/b", "german/b german/a", "english/a", "german/a"),
        ("a.english b.english", "b.german a.german", "a.english", "a.german"),
        ("a.src b.src", "b.tgt a.tgt", "a.src", "a.tgt"),
        ("a_en.txt b_en.txt", "b_de.txt a_de.txt", "a_en.txt", "a_de.txt"),
        ("part-1.en part-2.en part-10.en", "part-1.de part-10.de part-2.de", "part-2.en", "part-2.de"),
        ("A.EN B.EN", "b.de a.de", "A.EN", "a.de"),
        ("a.en.gz b.en", "b.de a.de", "a.en.gz", "a.de"),
    ],
)
def test_lists_in_another_order(sources: str, targets: str, source: str, target: str | None) -> None:
    found = mispaired(paths(sources), paths(targets), ("en", "de"))
    assert found is not None
    assert found[0] == Path(source)
    assert target is None or found[1] == Path(target)


@pytest.mark.parametrize(
    ("sources", "targets"),
    [
        ("train.en", "train.de"),
        ("corpus.src", "corpus.tgt"),
        ("news.en-de.en.gz", "news.en-de.de.gz"),
        ("europarl-v7.de-en.en commoncrawl.de-en.en", "europarl-v7.de-en.de commoncrawl.de-en.de"),
        ("a.en b.en", "a.de b.de"),
        ("train.en valid.de", "train.de valid.en"),
        ("english.txt more.txt", "german.txt mehr.txt"),
        ("one two", "three four"),
        ("a.en a.en", "b.de c.de"),  # the same source twice
        ("a/train.en b/train.en", "a/train.de b/train.de"),
        ("x/1.en y/2.en", "z/1.de z/2.de"),
        ("en.txt en2.txt", "de.txt de2.txt"),
        ("a.en", "b.de"),
        ("train.zh_CN dev.zh_CN", "train.de dev.de"),
    ],
)
def test_no_false_alarms(sources: str, targets: str) -> None:
    assert mispaired(paths(sources), paths(targets), ("en", "de")) is None


def test_a_warning_names_the_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a.en", "b.en", "a.de", "b.de"):
        Path(name).write_text("one line\n")
    data = DataConfig(name="t", source_lang="en", target_lang="de")
    monkeypatch.setattr(logging.getLogger("nmt"), "propagate", True)
    open_corpus(SplitConfig(source=["a.en", "b.en"], target=["a.de", "b.de"]), data, "data.train")
    open_corpus(SplitConfig(source="*.en", target="*.de"), data, "data.train")
    assert caplog.messages == []
    open_corpus(SplitConfig(source=["a.en", "b.en"], target=["b.de", "a.de"]), data, "data.train")
    [message] = caplog.messages
    assert message == (
        "data.train: a.en is paired with b.de, but its name matches a.de. Give both lists in the same order."
    )
