"""The measurement of fine-tuning: its topic, its texts, its steps and its table."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import fine_tuning
import pytest
from fine_tuning import SPLITS, TOPIC, VARIANTS, is_of_topic, main, split_by_topic, table

from nmt.runtime.files import parse_json


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


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    folder = tmp_path / "multi30k"
    folder.mkdir()
    for name in SPLITS.values():
        for language in ("en", "de"):
            text = "".join(
                f"{word} {number}\n" for number in range(8) for word in ("a ball", "a cup")
            ).encode()
            if language == "de":
                (folder / f"{name}.{language}.gz").write_bytes(gzip.compress(text))
            else:
                (folder / f"{name}.{language}").write_bytes(text)
    return folder


def test_its_steps(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The commands in their order, with stand-ins that write what the next step reads."""
    commands = []

    def run(*command: str) -> None:
        commands.append(command)
        options = dict(option.split("=", 1) for option in command[1:])
        folder = Path(options.get("run_dir") or options["output"])
        folder.mkdir(parents=True)
        groups = {part: scores(float(len(commands))) for part in ("topic", "general")}
        results = {"test": {"groups": groups}, "before": {"test": {"groups": groups}}}
        (folder / "results.json").write_text(json.dumps(results))

    monkeypatch.setattr(fine_tuning, "_run", run)
    arguments = [str(corpus), str(tmp_path / "run"), "--split", "valid", "--json", str(tmp_path / "out.json")]
    assert main([*arguments, "seed=2"]) == 0
    names = ["nmt-train", "nmt-export", "nmt-import", *["nmt-train"] * len(VARIANTS)]
    assert [command[0] for command in commands] == names
    trainings = [command for command in commands if command[0] == "nmt-train"]
    assert all(command[-1] == "seed=2" for command in trainings)
    for command in trainings[1:]:
        assert f"start_from={tmp_path / 'run/imported'}" in command
        mixed = "data.train.corpora.general.weight=0.1" in command
        assert mixed == any(option.startswith("data.train.corpora.general.source=") for option in command)
        text = tmp_path / "run/text"
        assert f"data.test.source=[{text / 'topic.valid.en'},{text / 'general.valid.en'}]" in command
    written = parse_json((tmp_path / "out.json").read_text())
    assert list(written["scores"]) == ["before", *VARIANTS] and written["split"] == "valid"
    output = capsys.readouterr()
    assert output.out.startswith("| valid | Topic BLEU |") and "general train: 8 pairs" in output.err


def test_missing_files_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([str(tmp_path), str(tmp_path / "run")])
    assert ended.value.code == 2
    assert "needs train, val, test_2016_flickr, each as .en and .de" in capsys.readouterr().err
