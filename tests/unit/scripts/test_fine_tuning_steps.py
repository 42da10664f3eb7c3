"""The measurement of fine-tuning: its topic, its texts, its steps and its table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fine_tuning import SPLITS, TOPIC, is_of_topic, main, split_by_topic, table


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("A man plays Tennis.", True),
        ("Two PLAYERS, one ball", True),
        ("A ballet dancer.", False),
        ("A man played cards.", False),
        ("Racing-cars on a street.", True),
        ("", False),
    ],
)
def test_words_of_the_topic(source: str, expected: bool) -> None:
    assert is_of_topic(source) == expected


def test_the_words_are_plain_and_occur_once() -> None:
    words = TOPIC.split()
    assert len(set(words)) == len(words) and all(word.isalpha() and word.islower() for word in words)


def test_no_pair_is_in_two_texts_and_none_is_lost() -> None:
    corpus = {
        split: [(f"a {'ball' if number % 3 == 0 else 'cup'} {split} {number}", "x") for number in range(60)]
        for split in SPLITS
    }
    texts = split_by_topic(corpus)
    pairs = [pair for part in texts.values() for pair in part]
    assert sorted(pairs) == sorted(pair for part in corpus.values() for pair in part)
    assert len(set(pairs)) == len(pairs)
    for (part, split), found in texts.items():
        assert all(is_of_topic(source) == (part == "topic") for source, _ in found)
        if part == "general":
            assert all(f" {split} " in source for source, _ in found)
    assert len(texts["topic", "train"]) == 15  # of 20, a quarter is held out
    assert all(" train " in source for source, _ in texts["topic", "train"])
    assert len(texts["topic", "valid"]) == 20 + 2 and len(texts["topic", "test"]) == 20 + 3


def scores(bleu: float) -> dict[str, Any]:
    return {"bleu": bleu, "chrf": 50.0}


def test_the_table_has_differences_from_the_start() -> None:
    found = {
        "before": {"topic": scores(20.0), "general": scores(30.0)},
        "tuned": {"topic": scores(25.5), "general": scores(28.75)},
    }
    assert table(found, "valid").splitlines()[2:] == [
        "| before | 20.00 |  | 50.00 | 30.00 |  | 50.00 |",
        "| tuned | 25.50 | +5.50 | 50.00 | 28.75 | -1.25 | 50.00 |",
    ]


def test_missing_files_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([str(tmp_path), str(tmp_path / "run")])
    assert ended.value.code == 2
    assert "needs train, val, test_2016_flickr, each as .en and .de" in capsys.readouterr().err
