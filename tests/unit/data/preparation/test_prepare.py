"""Preparation: independent of the number of processes, cached, resumed, repaired."""

from __future__ import annotations

import fcntl
import inspect
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from toy_corpus import SHARD, files, folder, pairs, stamps, write_corpus

from nmt.config import (
    CleaningConfig,
    DataConfig,
    SamplingConfig,
    TokenizerConfig,
)
from nmt.copying import strings
from nmt.data import cache
from nmt.data.cleaning import clean_text, cleaner
from nmt.data.preparation import encoding
from nmt.data.preparation import prepare as preparation
from nmt.data.preparation.prepare import Prepared, prepare
from nmt.data.subwords import segmentation, tokenizer, vocabulary, words
from nmt.errors import UserError
from nmt.runtime import arrays
from nmt.runtime import files as runtime_files


@pytest.fixture
def config(tmp_path: Path) -> DataConfig:
    return write_corpus(tmp_path)


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
    assert prepared.valid_store.num_pairs == 5
    assert (
        prepared.valid_store.pair(4)[0].tolist()
        == prepared.tokenizer.encode_source(prepared.valid.sources)[4]
    )
    assert prepared.test is None


def test_report(config: DataConfig) -> None:
    prepared = prepare(config, shard_pairs=SHARD)
    report = prepared.report
    cleaning = report["cleaning"]
    assert (cleaning["pairs"], cleaning["kept"]) == (300, 295)
    assert cleaning["dropped"] == {"empty": 1, "leaked": 1, "duplicate": 2, "length": 1}
    assert set(cleaning["words"]) == set(cleaning["dropped"])
    assert report["source_tokens"] == sum(len(source) for source, _ in pairs(prepared))
    assert report["mean_target_tokens"] == round(fmean(len(target) for _, target in pairs(prepared)), 4)
    assert report["source_vocab_size"] == prepared.tokenizer.source_vocab_size == 340
    assert report["tokenizer"] == prepared.tokenizer.fingerprint
    assert report["valid"]["sentences"] == 5
    assert prepare(config, shard_pairs=SHARD).report == report


def test_table_is_logged_once(config: DataConfig, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "nmt"):
        prepare(config, shard_pairs=SHARD)
    assert "dropped: one side is empty" in caplog.text
    caplog.clear()
    with caplog.at_level("INFO", "nmt"):
        prepare(config, shard_pairs=SHARD)
    assert [record.getMessage() for record in caplog.records] == [
        "toy: already prepared, 295 of 300 pairs retained"
    ]


def test_same_bytes_whatever_the_number_of_processes(config: DataConfig, tmp_path: Path) -> None:
    prepare(config, shard_pairs=SHARD)
    other = replace(config, cache_dir=str(tmp_path / "other"), workers=2)
    prepare(other, shard_pairs=SHARD)
    assert files(config) == files(other)
    assert len(files(config)) >= 2 * 5


def test_second_run_writes_nothing(config: DataConfig) -> None:
    first = prepare(config, shard_pairs=SHARD)
    before = stamps(config)
    second = prepare(config, shard_pairs=SHARD)
    assert stamps(config) == before
    assert (pairs(second), second.fingerprint) == (pairs(first), first.fingerprint)


@pytest.mark.parametrize(
    ("change", "made_again"),
    [
        ({"max_tokens": 99, "sampling": SamplingConfig(alpha=0.1), "block_pairs": 7, "workers": 2}, set()),
        ({"cleaning": CleaningConfig(max_pieces=50)}, {"ids"}),
        ({"tokenizer": TokenizerConfig(vocab_size=330)}, {"tokenizer", "ids"}),
        ({"cleaning": CleaningConfig(max_pieces=60, drop_duplicates=False)}, {"text", "tokenizer", "ids"}),
    ],
)
def test_an_option_makes_again_what_it_touches(
    config: DataConfig, change: dict[str, Any], made_again: set[str]
) -> None:
    prepare(config, shard_pairs=SHARD)
    before = stamps(config)
    prepare(replace(config, **change), shard_pairs=SHARD)
    after = stamps(config)
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
    config: DataConfig, module: Any, encoded_again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    assert prepare(config, shard_pairs=SHARD).fingerprint == first.fingerprint
    assert len({name.split("/")[1] for name in stamps(config) if "ids-" in name}) == 1 + encoded_again


def test_groups_to_report_do_not_matter(config: DataConfig, tmp_path: Path) -> None:
    first = prepare(config, shard_pairs=SHARD)
    before = stamps(config)
    (tmp_path / "groups").write_text("a\n" * 5)
    grouped = replace(config.valid, groups=str(tmp_path / "groups"))
    second = prepare(replace(config, valid=grouped), shard_pairs=SHARD)
    assert second.valid.groups == ["a"] * 5
    assert stamps(config) == before and second.fingerprint == first.fingerprint


def test_other_text_is_prepared_anew(config: DataConfig, tmp_path: Path) -> None:
    first = prepare(config, shard_pairs=SHARD)
    with open(tmp_path / "train.xx", "a") as source, open(tmp_path / "train.yy", "a") as target:
        print("one more", file=source)
        print("ERO ENO", file=target)
    second = prepare(config, shard_pairs=SHARD)
    assert second.train.num_pairs == first.train.num_pairs + 1
    assert second.fingerprint != first.fingerprint


@pytest.mark.parametrize("stage", ["text", "ids", "tokenizer"])
def test_flipped_bit_is_found_and_that_file_made_again(
    config: DataConfig, stage: str, caplog: pytest.LogCaptureFixture
) -> None:
    first = pairs(prepare(config, shard_pairs=SHARD))
    good = files(config)
    names = {"text": "00002.safetensors", "ids": "00001.safetensors", "tokenizer": "joint.spm"}
    damaged = folder(config, stage) / names[stage]
    before = stamps(config)
    content = bytearray(damaged.read_bytes())
    content[-3] ^= 16
    stat = damaged.stat()
    damaged.write_bytes(content)
    os.utime(damaged, ns=(stat.st_atime_ns, stat.st_mtime_ns))  # damage by the disk leaves the time
    if stage == "text":
        shutil.rmtree(folder(config, "ids"))  # otherwise the text is not read
    again = prepare(config, shard_pairs=SHARD)
    assert f"{damaged} is damaged" in caplog.text
    assert files(config) == good
    assert pairs(again) == first
    if stage == "ids":
        written = {name for name, stamp in stamps(config).items() if stamp != before[name]}
        assert {Path(name).name for name in written} == {damaged.name}


def test_what_another_process_has_checked_is_not_read_again(
    config: DataConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = pairs(prepare(config, shard_pairs=SHARD))
    read: list[str] = []
    original = cache.file_sum
    monkeypatch.setattr(cache, "file_sum", lambda path: (read.append(path.name), original(path))[1])
    assert pairs(prepare(config, shard_pairs=SHARD, checked=True)) == first
    assert read == []
    prepare(config, shard_pairs=SHARD)
    assert {"joint.spm", "00000.safetensors"} <= set(read)
    shutil.rmtree(folder(config, "ids"))  # now `checked` is wrong: missing parts are created
    assert pairs(prepare(config, shard_pairs=SHARD, checked=True)) == first


@pytest.mark.parametrize("content", [b"", b"{", b'{"facts": {}, "files": {}, "fingerprint": "0"}'])
def test_damaged_manifest(config: DataConfig, content: bytes) -> None:
    prepare(config, shard_pairs=SHARD)
    good = files(config)
    (folder(config, "ids") / "manifest.json").write_bytes(content)
    prepare(config, shard_pairs=SHARD)
    assert files(config) == good


def test_missing_shard_is_made_again(config: DataConfig) -> None:
    prepare(config, shard_pairs=SHARD)
    good = files(config)
    (folder(config, "ids") / "00003.safetensors").unlink()
    prepare(config, shard_pairs=SHARD)
    assert files(config) == good


@pytest.mark.parametrize("shards_done", [0, 1, 3])
@pytest.mark.parametrize("stage", ["text", "ids"])
def test_goes_on_with_what_is_there(
    config: DataConfig, stage: str, shards_done: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every shard is written once, at whatever point the preparation stops."""
    kind: Any = {"text": clean_text.Cleaner, "ids": encoding.Encoder}[stage]
    work = kind.__call__
    calls = 0

    def stopping(state: Any, task: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == shards_done + 1:
            raise KeyboardInterrupt
        return work(state, task)

    monkeypatch.setattr(kind, "__call__", stopping)
    with pytest.raises(KeyboardInterrupt):
        prepare(config, shard_pairs=SHARD)
    part = list(Path(str(config.cache_dir)).glob(f"prepared/{stage}-*.part"))
    assert len(part) == (1 if shards_done else 0)
    kept = {path.name: path.stat().st_ino for folder in part for path in folder.glob("*.safetensors")}
    assert len(kept) == shards_done
    monkeypatch.undo()
    prepare(config, shard_pairs=SHARD)
    inodes = {path.name: path.stat().st_ino for path in folder(config, stage).iterdir()}
    assert kept.items() <= inodes.items()
    again = files(config)
    shutil.rmtree(str(config.cache_dir))
    prepare(config, shard_pairs=SHARD)
    assert files(config) == again


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


def test_second_process_waits_for_the_first(config: DataConfig, caplog: pytest.LogCaptureFixture) -> None:
    prepare(config, shard_pairs=SHARD)
    ids = folder(config, "ids")
    hidden = ids.with_name("hidden")
    ids.rename(hidden)
    results: list[Prepared] = []
    with caplog.at_level("INFO", "nmt"), open(f"{ids}.lock", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        second = threading.Thread(target=lambda: results.append(prepare(config, shard_pairs=SHARD)))
        second.start()
        deadline = time.monotonic() + 30
        while "another process that is preparing" not in caplog.text:
            assert time.monotonic() < deadline
            time.sleep(0.005)
        inodes = {path.name: path.stat().st_ino for path in hidden.iterdir()}
        hidden.rename(ids)  # as the first process does at the end
        fcntl.flock(lock, fcntl.LOCK_UN)
        second.join(30)
    assert results[0].train.num_pairs == 295
    assert {path.name: path.stat().st_ino for path in ids.iterdir()} == inodes


KILLED = """
import os, signal, sys
from pathlib import Path
from statistics import fmean
sys.path[:0] = {path!r}
from toy_corpus import SHARD, write_corpus
from nmt.data.preparation.prepare import prepare

count = 0
def counted(real):
    def rename(*names):
        global count
        count += 1
        if count == {stop}:
            os.kill(os.getpid(), signal.SIGKILL)
        real(*names)
    return rename
os.replace, os.rename = counted(os.replace), counted(os.rename)
prepare(write_corpus(Path({folder!r})), shard_pairs=SHARD)
"""


@pytest.mark.parametrize("stop", [1, 3, 7, 8, 11, 14, 18])
def test_killed_and_started_again(config: DataConfig, tmp_path: Path, stop: int) -> None:
    """The process is killed just before it renames the file or folder number `stop`."""
    root = Path(__file__).resolve().parents[4]
    paths = [str(root), str(root / "tests")]
    script = KILLED.format(path=paths, stop=stop, folder=str(tmp_path))
    done = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    prepare(config, shard_pairs=SHARD)
    again = files(config)
    shutil.rmtree(str(config.cache_dir))
    prepare(config, shard_pairs=SHARD)
    assert files(config) == again


def test_sample_for_the_tokenizer(config: DataConfig) -> None:
    prepare(config, shard_pairs=SHARD)
    opened = clean_text.Texts(folder(config, "text"))
    everything = list(opened.sample(10**9))
    assert len(everything) == 296  # before the limit on pieces
    sample = list(opened.sample(50))
    assert len(sample) == len(set(sample)) == 50
    assert [pair for pair in everything if pair in set(sample)] == sample
    assert sample == list(opened.sample(50))


def test_text_to_learn_from_is_bounded(config: DataConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare(config, shard_pairs=SHARD)
    opened = clean_text.Texts(folder(config, "text"))
    everything = list(preparation._sample([opened], config))
    assert len(everything) == 296
    num_bytes = sum(len(f"{line}\n".encode()) for pair in everything for line in pair)
    monkeypatch.setattr(preparation, "_SAMPLE_BYTES", num_bytes // 3)
    assert 95 <= len(list(preparation._sample([opened], config))) <= 99


@pytest.mark.parametrize("workers", [1, 2])
def test_the_first_of_near_duplicates_stays(config: DataConfig, tmp_path: Path, workers: int) -> None:
    for side in ("xx", "yy"):
        path = tmp_path / f"train.{side}"
        lines = path.read_text().split("\n")[:-1]
        lines[90] = lines[50] + " 12!"  # in another shard
        lines[91] = lines[50].upper()
        lines[92] = lines[91]  # equal to a dropped line
        path.write_text("".join(f"{line}\n" for line in lines))
    config = replace(config, workers=workers, cleaning=replace(config.cleaning, drop_near_duplicates=True))
    report = prepare(config, shard_pairs=SHARD).report["cleaning"]
    assert (report["dropped"]["duplicate"], report["dropped"]["near_duplicate"]) == (3, 2)
    first = lines[50], (tmp_path / "train.xx").read_text().split("\n")[50]
    assert report["examples"]["near_duplicate"][0] == [f"{first[1]} 12!", f"{first[0]} 12!"]
    every = replace(config, cleaning=replace(config.cleaning, drop_duplicates=False))
    assert prepare(every, shard_pairs=SHARD).report["cleaning"]["dropped"]["near_duplicate"] == 5
