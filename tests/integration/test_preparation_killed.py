"""Preparation under repeated kill -9, and two preparations at once: the result is always the same.

A failing test prints its seed; `NMT_SEED=N` repeats its moments of killing.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
from toy import write_toy

KILLS = 20
SEED = int(os.environ.get("NMT_SEED") or random.SystemRandom().randrange(1 << 32))

PREPARE = """
import sys
from pathlib import Path
from nmt.config import DataConfig, SplitConfig, TokenizerConfig, TrainSplitConfig
from nmt.data.preparation.prepare import prepare

if __name__ == "__main__":
    folder, cache, workers, shard_pairs = Path(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:])
    print("ready", flush=True)
    sys.stdin.read()
    split = {name: kind(source=str(folder / f"{name}.src"), target=str(folder / f"{name}.tgt"))
             for name, kind in (("train", TrainSplitConfig), ("valid", SplitConfig))}
    prepare(
        DataConfig(name="toy", source_lang="xx", target_lang="yy", **split, cache_dir=cache,
                   workers=workers, tokenizer=TokenizerConfig(vocab_size=400)),
        shard_pairs=shard_pairs,
    )
"""


def start(
    folder: Path, cache: Path, *, workers: int, shard_pairs: int, talk: int = subprocess.DEVNULL
) -> subprocess.Popen[bytes]:
    """Starts to prepare the toy corpus; with `talk=PIPE` only after its input is closed."""
    script = folder / "prepare_it.py"
    script.write_text(PREPARE)
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    command = [sys.executable, script, folder, cache, str(workers), str(shard_pairs)]
    with open(folder / "log", "ab") as log:
        return subprocess.Popen(command, env=environment, stdin=talk, stdout=talk, stderr=log)


def files(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def workers_of(pid: int) -> list[int]:
    """Returns the child processes of `pid`, which must still run."""
    found = []
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            if f"\nPPid:\t{pid}\n" in status.read_text():
                found.append(int(status.parent.name))
        except OSError:
            continue
    return found


def is_gone(pid: int) -> bool:
    try:
        return "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return True


def test_two_at_once_make_what_one_makes(tmp_path: Path) -> None:
    write_toy(tmp_path, train=2000)
    begin = partial(start, tmp_path, workers=1, shard_pairs=100)
    both = [begin(tmp_path / "both", talk=subprocess.PIPE) for _ in range(2)]
    for process in both:
        assert process.stdout and process.stdout.readline() == b"ready\n"
    for process in both:
        assert process.stdin
        process.stdin.close()
    assert [process.wait(120) for process in both] == [0, 0], (tmp_path / "log").read_text()
    assert begin(tmp_path / "one").wait(120) == 0
    assert files(tmp_path / "both") == files(tmp_path / "one")


@pytest.mark.slow
def test_killed_again_and_again(tmp_path: Path) -> None:
    print(f"NMT_SEED={SEED}")  # pytest shows it if the test fails
    moments = random.Random(SEED)
    write_toy(tmp_path, train=20_000)
    begin = partial(start, tmp_path, workers=2, shard_pairs=500)
    began = time.monotonic()
    assert begin(tmp_path / "whole").wait() == 0
    duration = time.monotonic() - began
    whole = files(tmp_path / "whole")
    kills = 0
    cache = tmp_path / "cache-0"
    while kills < KILLS:
        # If a run ends before the kill, the next one starts with an empty cache.
        process = begin(cache)
        time.sleep(duration * moments.uniform(0.1, 0.9))
        orphans = workers_of(process.pid)
        process.send_signal(signal.SIGKILL)
        kills += 1
        if process.wait() == 0:
            assert files(cache) == whole
            cache = tmp_path / f"cache-{kills}"
        deadline = time.monotonic() + 30
        while not all(map(is_gone, orphans)):
            assert time.monotonic() < deadline, "workers outlive the process that started them"
            time.sleep(0.01)
    assert begin(cache).wait() == 0
    assert files(cache) == whole
