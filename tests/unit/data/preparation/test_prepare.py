"""Preparation: independent of the number of processes, cached, resumed, repaired."""

from __future__ import annotations

import fcntl
import inspect
import multiprocessing
import os
import shutil
import signal
import threading
from collections.abc import Callable
from dataclasses import replace
from itertools import chain, count
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from toy_corpus import SHARD, files, folder, pairs, stamps, write_corpus, write_pairs
from waiting import wait_until

from nmt.config import (
    CleaningConfig,
    DataConfig,
    SamplingConfig,
    SetConfig,
    SplitConfig,
    TokenizerConfig,
)
from nmt.copying import strings
from nmt.data import cache
from nmt.data.cleaning import clean_text, cleaner
from nmt.data.preparation import encoding, samples
from nmt.data.preparation.prepare import Prepared, prepare
from nmt.data.subwords import segmentation, tokenizer, vocabulary, words
from nmt.errors import UserError
from nmt.runtime import arrays
from nmt.runtime import files as runtime_files


def test_against_naive(config: DataConfig, tmp_path: Path) -> None:
    prepared = prepare(config, shard_pairs=SHARD)
    lines = [(tmp_path / f"train.{side}").read_text().split("\n")[:-1] for side in ("xx", "yy")]
    kept = [
        pair for i, pair in enumerate(zip(*lines, strict=True)) if i not in (10, 30, 40, 200, 201)
    ]  # row 20 is the first of its duplicates
    expected = zip(
        prepared.tokenizer.encode_source([source for source, _ in kept]),
        prepared.tokenizer.encode_target([target for _, target in kept]),
        strict=True,
    )
    assert pairs(prepared) == list(expected)
    assert prepared.valid_stores[""].num_pairs == 5
    assert (
        prepared.valid_stores[""].pair(4)[0].tolist()
        == prepared.tokenizer.encode_source(prepared.valid[""].sources)[4]
    )
    assert prepared.test == {}


def test_report(config: DataConfig, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "nmt"):
        prepared = prepare(config, shard_pairs=SHARD)
    assert "dropped: one side is empty" in caplog.text
    report = prepared.report
    cleaning = report["cleaning"]
    assert (cleaning["pairs"], cleaning["kept"]) == (300, 295)
    assert cleaning["dropped"] == {"empty": 1, "leaked": 1, "duplicate": 2, "length": 1}
    assert set(cleaning["words"]) == set(cleaning["dropped"])
    assert report["source_tokens"] == sum(len(source) for source, _ in pairs(prepared))
    assert report["mean_target_tokens"] == round(fmean(len(target) for _, target in pairs(prepared)), 4)
    assert report["source_vocab_size"] == prepared.tokenizer.source.size == 340
    assert report["tokenizer"] == prepared.tokenizer.fingerprint
    assert report["valid"]["sentences"] == 5
    before = stamps(config)
    caplog.clear()
    with caplog.at_level("INFO", "nmt"):
        second = prepare(config, shard_pairs=SHARD)
    assert stamps(config) == before
    assert (second.report, pairs(second), second.fingerprint) == (
        report,
        pairs(prepared),
        prepared.fingerprint,
    )
    assert caplog.messages == ["toy: already prepared, 295 of 300 pairs retained"]


def test_same_bytes_whatever_the_number_of_processes(config: DataConfig, prepared_folder: Path) -> None:
    prepare(replace(config, workers=2), shard_pairs=SHARD)
    assert files(config) == files(write_corpus(prepared_folder))
    assert len(files(config)) >= 2 * 5


def test_malformed_lines_are_dropped_on_both_sides_and_counted(
    config: DataConfig, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The good pairs are the same as without the malformed ones, in whichever shard these are."""
    expected = list(chain.from_iterable(zip(*block, strict=True) for block in prepare(config).cleaned()))
    assert len(expected) == 295
    sides = [Path(config.train.source), Path(config.train.target)]
    lines = [path.read_bytes().splitlines(keepends=True) for path in sides]
    for place, side in ((300, 0), (299, 1), (130, 1), (130, 0), (7, 0)):
        for number in (0, 1):
            lines[number].insert(place, b"Stra\xdfe\n" if number == side else b"street\n")
    for path, side in zip(sides, lines, strict=True):
        path.write_bytes(b"".join(side))
    with pytest.raises(UserError, match=r"train.xx:8: not valid UTF-8 .*Or give data.max_malformed=0.001"):
        prepare(config)
    with pytest.raises(
        UserError, match="data.max_malformed=0.01: 5 of 305 rows of .* malformed, a share of 0.016"
    ):
        prepare(replace(config, max_malformed=0.01), shard_pairs=SHARD)
    caplog.clear()
    for workers in (1, 2):
        options = replace(
            config, max_malformed=0.02, workers=workers, cache_dir=str(tmp_path / f"w{workers}")
        )
        prepared = prepare(options, shard_pairs=SHARD)
        cleaning = prepared.report["cleaning"]
        assert (cleaning["pairs"], cleaning["kept"], cleaning["dropped"]["malformed"]) == (305, 295, 5)
        where = str(sides[0])
        assert cleaning["examples"]["malformed"][0] == [f"{where}:8", "is not valid UTF-8."]
        assert list(chain.from_iterable(zip(*block, strict=True) for block in prepared.cleaned())) == expected
        assert caplog.text.count("data.train: 5 malformed rows are dropped. The first:") == workers
        next(Path(str(options.cache_dir)).glob("prepared/text-*/00001.safetensors")).write_bytes(b"damaged")
        assert prepare(options, shard_pairs=SHARD).report["cleaning"] == cleaning
    assert files(replace(config, cache_dir=str(tmp_path / "w1"))) == files(options)


def test_malformed_lines_of_validation(
    config: DataConfig, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = Path(config.valid.target)
    content = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([content[0], b"\xff\n", *content[2:]]))
    options = replace(config, max_malformed=0.2)
    assert prepare(options).report["valid"]["sentences"] == 4
    assert "data.valid: 1 malformed rows are dropped" in caplog.text
    (tmp_path / "labels").write_text("a\n" * 5)
    options = replace(options, valid=replace(config.valid, groups=str(tmp_path / "labels")))
    with pytest.raises(
        UserError, match=r"valid.yy:2: not valid UTF-8 .byte 0xff.*data.valid.groups has a label for"
    ):
        prepare(options)


@pytest.mark.parametrize(
    ("change", "made_again"),
    [
        ({"max_tokens": 99, "sampling": SamplingConfig(alpha=0.1), "block_pairs": 7, "workers": 2}, set()),
        ({"cleaning": CleaningConfig(max_pieces=50)}, {"ids"}),
        ({"tokenizer": TokenizerConfig(vocab_size=330)}, {"tokenizer", "ids"}),
        (
            {"cleaning": CleaningConfig(max_pieces=60, drop_duplicates=False)},
            {"text", "facts", "tokenizer", "ids"},
        ),
    ],
)
def test_an_option_makes_again_what_it_touches(
    prepared_config: DataConfig, change: dict[str, Any], made_again: set[str]
) -> None:
    before = stamps(prepared_config)
    prepare(replace(prepared_config, **change), shard_pairs=SHARD)
    after = stamps(prepared_config)
    assert {name: after[name] for name in before} == before
    assert {name.split("/")[1].split("-")[0] for name in after.keys() - before.keys()} == made_again


@pytest.mark.parametrize(
    ("module", "encoded_again"),
    [
        *((module, True) for module in (encoding, strings, tokenizer, vocabulary, words, cleaner, arrays)),
        (segmentation, False),
    ],
)
def test_changed_code_of_the_encoder_encodes_again(
    prepared_config: DataConfig, module: Any, encoded_again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = prepared_config
    first = prepare(config, shard_pairs=SHARD)
    before = stamps(config)
    original = inspect.getsource

    def changed(definition: Any) -> str:
        return original(definition) + "# corrected\n" * (definition is module)

    monkeypatch.setattr(inspect, "getsource", changed)
    second = prepare(config, shard_pairs=SHARD)
    new = {name.split("/")[1].split("-")[0] for name in stamps(config).keys() - before.keys()}
    assert new == ({"ids"} if encoded_again else set())
    assert (second.fingerprint, pairs(second)) == (first.fingerprint, pairs(first))
    assert len({name.split("/")[1] for name in stamps(config) if "ids-" in name}) == 1 + encoded_again


def test_groups_to_report_do_not_matter(prepared_config: DataConfig, tmp_path: Path) -> None:
    config = prepared_config
    first = prepare(config, shard_pairs=SHARD)
    before = stamps(config)
    (tmp_path / "groups").write_text("a\n" * 5)
    grouped = replace(config.valid, groups=str(tmp_path / "groups"))
    second = prepare(replace(config, valid=grouped), shard_pairs=SHARD)
    assert second.valid[""].groups == ["a"] * 5
    assert stamps(config) == before and second.fingerprint == first.fingerprint


def test_other_text_is_prepared_anew(prepared_config: DataConfig, tmp_path: Path) -> None:
    config = prepared_config
    first = prepare(config, shard_pairs=SHARD)
    with open(tmp_path / "train.xx", "a") as source, open(tmp_path / "train.yy", "a") as target:
        print("one more", file=source)
        print("ERO ENO", file=target)
    second = prepare(config, shard_pairs=SHARD)
    assert second.train.num_pairs == first.train.num_pairs + 1
    assert second.fingerprint != first.fingerprint


def test_what_another_process_has_checked_is_not_read_again(
    prepared_config: DataConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = prepared_config
    first = pairs(prepare(config, shard_pairs=SHARD))
    read: list[str] = []
    original = cache.file_sum
    monkeypatch.setattr(cache, "file_sum", lambda path: (read.append(path.name), original(path))[1])
    assert pairs(prepare(config, shard_pairs=SHARD, checked=True)) == first
    assert read == []
    prepare(config, shard_pairs=SHARD)
    assert {"source.spm", "00000.safetensors"} <= set(read)
    shutil.rmtree(folder(config, "ids"))  # now `checked` is wrong: missing parts are created
    assert pairs(prepare(config, shard_pairs=SHARD, checked=True)) == first


def test_nothing_left_after_cleaning(config: DataConfig, tmp_path: Path) -> None:
    for side in ("xx", "yy"):
        (tmp_path / f"train.{side}").write_text("the same\n" * 7)
    with pytest.raises(UserError, match=r"^data\.train: no pairs remain.*same text 7 100") as error:
        prepare(config, shard_pairs=SHARD)
    assert "\n" not in str(error.value)
    with pytest.raises(UserError, match="no pairs remain"):
        prepare(config, shard_pairs=SHARD)


def test_nothing_left_after_encoding(config: DataConfig) -> None:
    with pytest.raises(UserError, match="longer than 1 pieces"):
        prepare(replace(config, cleaning=CleaningConfig(max_pieces=1)), shard_pairs=SHARD)


def test_cache_that_cannot_be_written(config: DataConfig, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"data\.cache_dir="):
        prepare(replace(config, cache_dir=str(tmp_path / "file")), shard_pairs=SHARD)


def test_full_disk(config: DataConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulates a full file system: the write of the third shard fails half-way."""
    real, writes = os.fsync, 0

    def fsync(handle: int) -> None:
        nonlocal writes
        writes += 1
        if writes == 5:
            raise OSError(28, "No space left on device")
        real(handle)

    monkeypatch.setattr(runtime_files.os, "fsync", fsync)
    with pytest.raises(UserError, match=r"no space is left.*data\.cache_dir=FOLDER"):
        prepare(config, shard_pairs=SHARD)
    monkeypatch.undo()
    left = [Path(name).name for name in stamps(config) if not name.endswith(".sum")]
    assert sorted(left) == ["00000.safetensors", "00001.safetensors"]
    assert prepare(config, shard_pairs=SHARD).train.num_pairs == 295


def test_second_process_waits_for_the_first(
    prepared_config: DataConfig, caplog: pytest.LogCaptureFixture
) -> None:
    config = prepared_config
    ids = folder(config, "ids")
    hidden = ids.with_name("hidden")
    ids.rename(hidden)
    results: list[Prepared] = []
    with caplog.at_level("INFO", "nmt"), open(f"{ids}.lock", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        second = threading.Thread(target=lambda: results.append(prepare(config, shard_pairs=SHARD)))
        second.start()
        wait_until(lambda: "another process that is preparing" in caplog.text)
        inodes = {path.name: path.stat().st_ino for path in hidden.iterdir()}
        hidden.rename(ids)  # as the first process does at the end
        fcntl.flock(lock, fcntl.LOCK_UN)
        second.join(30)
    assert results[0].train.num_pairs == 295
    assert {path.name: path.stat().st_ino for path in ids.iterdir()} == inodes


@pytest.mark.parametrize("stop", [1, 3, 7, 8, 11, 14, 18])
def test_killed_and_started_again(config: DataConfig, prepared_folder: Path, stop: int) -> None:
    """The process is killed just before it renames the file or folder number `stop`."""

    def killed() -> None:
        numbers = count(1)

        def counted(rename: Callable[..., None]) -> Callable[..., None]:
            def stopping(*names: Any) -> None:
                if next(numbers) == stop:
                    os.kill(os.getpid(), signal.SIGKILL)
                rename(*names)

            return stopping

        os.replace, os.rename = counted(os.replace), counted(os.rename)
        prepare(config, shard_pairs=SHARD)

    process = multiprocessing.get_context("fork").Process(target=killed)
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    prepare(config, shard_pairs=SHARD)
    assert files(config) == files(write_corpus(prepared_folder))


def test_sample_for_the_tokenizer(prepared_config: DataConfig) -> None:
    opened = clean_text.Texts(folder(prepared_config, "text"))
    everything = list(opened.sample(10**9))
    assert len(everything) == 296  # before the limit on pieces
    sample = list(opened.sample(50))
    assert len(sample) == len(set(sample)) == 50
    assert [pair for pair in everything if pair in set(sample)] == sample
    assert sample == list(opened.sample(50))


def test_text_to_learn_from_is_bounded(prepared_config: DataConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    config = prepared_config
    opened = clean_text.Texts(folder(config, "text"))
    everything = list(samples.pairs_for_pieces([opened], config))
    assert len(everything) == 296
    num_bytes = sum(len(f"{line}\n".encode()) for pair in everything for line in pair)
    monkeypatch.setattr(samples, "_SAMPLE_BYTES", num_bytes // 3)
    assert 95 <= len(list(samples.pairs_for_pieces([opened], config))) <= 99


def test_facts_about_the_case_of_the_training_sources(config: DataConfig, tmp_path: Path) -> None:
    path = tmp_path / "train.xx"
    lines = path.read_text().split("\n")[:-1]
    lines = [f"{number} {line}".lower() for number, line in enumerate(lines)]
    for row in range(100, 130):
        lines[row] = f"Ab bc {row} cd."
    for row in range(130, 140):
        lines[row] = f"AB BC {row} CD"
    lines[140:144] = [f"The Old Man {row} Is Here" for row in range(4)]
    path.write_text("".join(f"{line}\n" for line in lines))
    report = prepare(config, shard_pairs=SHARD).report
    total = report["cleaning"]["kept"]
    assert total < len(lines)
    counts = {"capitals": 10, "title": 4, "initial": 44, "mixed": 44}
    assert report["text"]["case"] == {name: round(count / total, 6) for name, count in counts.items()}
    assert prepare(config, shard_pairs=SHARD).report == report


def test_the_first_of_near_duplicates_stays(config: DataConfig, tmp_path: Path) -> None:
    for side in ("xx", "yy"):
        path = tmp_path / f"train.{side}"
        lines = path.read_text().split("\n")[:-1]
        lines[90] = lines[50] + " 12!"  # in another shard
        lines[91] = lines[50].upper()
        lines[92] = lines[91]  # equal to a dropped line
        path.write_text("".join(f"{line}\n" for line in lines))
    config = replace(config, workers=2, cleaning=replace(config.cleaning, drop_near_duplicates=True))
    report = prepare(config, shard_pairs=SHARD).report["cleaning"]
    assert (report["dropped"]["duplicate"], report["dropped"]["near_duplicate"]) == (3, 2)
    first = lines[50], (tmp_path / "train.xx").read_text().split("\n")[50]
    assert report["examples"]["near_duplicate"][0] == [f"{first[1]} 12!", f"{first[0]} 12!"]
    every = replace(config, cleaning=replace(config.cleaning, drop_duplicates=False))
    assert prepare(every, shard_pairs=SHARD).report["cleaning"]["dropped"]["near_duplicate"] == 5


def test_named_sets(config: DataConfig, tmp_path: Path) -> None:
    """Neither the names of the sets nor their order change the training data."""
    whole = prepare(config, shard_pairs=SHARD)
    before = stamps(config)
    lines = {side: (tmp_path / f"valid.{side}").read_text().splitlines() for side in ("xx", "yy")}
    sets = {}
    for name, rows in (("b", slice(2, 5)), ("a", slice(2))):
        text = write_pairs(tmp_path, name, list(zip(lines["xx"][rows], lines["yy"][rows], strict=True)))
        sets[name] = SetConfig(**text, target_lang="zz" if name == "a" else None)
    divided = prepare(replace(config, valid=SplitConfig(sets=sets)), shard_pairs=SHARD)
    assert stamps(config) == before and divided.fingerprint == whole.fingerprint
    assert {name: text.sources for name, text in divided.valid.items()} == {
        "b": lines["xx"][2:], "a": lines["xx"][:2],
    }  # fmt: skip
    assert [store.num_pairs for store in divided.valid_stores.values()] == [3, 2]
    facts = divided.report["valid"]["sets"]
    assert [(name, facts[name]["sentences"], facts[name]["target_lang"]) for name in facts] == [
        ("b", 3, "yy"), ("a", 2, "zz"),
    ]  # fmt: skip
    assert divided.report["cleaning"] == whole.report["cleaning"]
