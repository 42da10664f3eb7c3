"""Preparation under kill -9, again and again: it always goes on, and the result is always the same."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

KILLS = 20

PREPARE = """
import sys
from pathlib import Path
from nmt.config import DataConfig, SplitConfig, TokenizerConfig, TrainSplitConfig
from nmt.data.preparation import prepare

if __name__ == "__main__":
    folder, cache = Path(sys.argv[1]), sys.argv[2]
    split = {name: kind(source=str(folder / f"{name}.xx"), target=str(folder / f"{name}.yy"))
             for name, kind in (("train", TrainSplitConfig), ("valid", SplitConfig))}
    prepare(
        DataConfig(name="toy", source_lang="xx", target_lang="yy", **split, cache_dir=cache, workers=2,
                   tokenizer=TokenizerConfig(vocab_size=600)),
        shard_pairs=500,
    )
"""


def write_corpus(folder: Path) -> None:
    generator = random.Random(3)
    words = ["".join(generator.choices("abcdefghij", k=generator.randint(1, 8))) for _ in range(2000)]
    for name, count in (("train", 20_000), ("valid", 50)):
        lines = [" ".join(generator.choices(words, k=generator.randint(3, 20))) for _ in range(count)]
        (folder / f"{name}.xx").write_text("\n".join(lines) + "\n")
        (folder / f"{name}.yy").write_text("\n".join(line[::-1] + " x" for line in lines) + "\n")


def files(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def workers_of(pid: int) -> list[int]:
    """Processes started by `pid`, read while it lives."""
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


@pytest.mark.slow
def test_killed_again_and_again(tmp_path: Path) -> None:
    write_corpus(tmp_path)
    script = tmp_path / "prepare_it.py"
    script.write_text(PREPARE)
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[2])}

    def start(cache: Path) -> subprocess.Popen[bytes]:
        command = [sys.executable, str(script), str(tmp_path), str(cache)]
        return subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)

    began = time.monotonic()
    assert start(tmp_path / "whole").wait() == 0
    duration = time.monotonic() - began
    whole = files(tmp_path / "whole")
    kills = 0
    cache = tmp_path / "cache-0"
    while kills < KILLS:
        # A run that came to its end before the kill starts the next cache.
        process = start(cache)
        time.sleep(duration * (0.1 + 0.8 * (kills * 7 % KILLS) / KILLS))
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
    assert start(cache).wait() == 0
    assert files(cache) == whole
