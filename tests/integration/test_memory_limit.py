"""Under a memory limit: too large a batch is refused before the first update; `auto` finds one that fits."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from toy import write_toy

from nmt.bundle import read_config

ROOM = 600 * 2**20  # a token takes about 21 KB here, so about 29,000 fit
SCRIPT = """
import resource, sys
from pathlib import Path
here, data, runs, room, name, max_tokens, max_updates = sys.argv[1:]
sys.path.insert(0, here)
from toy import toy_config
import nmt.training.batch_size as batch_size
from nmt.errors import UserError
from nmt.training.run import train

def run(name, max_tokens, max_updates):
    # The kernels of oneDNN alone might use up the limit.
    options = dict(max_tokens=max_tokens, max_updates=int(max_updates), onednn_fp32=False)
    return train(toy_config(Path(data), Path(runs) / name, **options))

run("without-limit-" + name + max_updates, 512, 3)  # does not count what torch allocates once
taken = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmSize"))
limit = taken * 1024 + int(room)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
if (Path(runs) / name).exists():
    del batch_size.largest_max_tokens  # resuming does not search again
try:
    size = max_tokens if max_tokens == "auto" else int(max_tokens)
    print(max_updates + " updates" in run(name, size, max_updates))
except UserError as error:
    print(error)
"""


@pytest.mark.slow
def test_auto_finds_a_size_that_runs(tmp_path: Path) -> None:
    data = write_toy(tmp_path / "data", train=500, held_out=8)

    def run(name: str, max_tokens: int | str, max_updates: int) -> str:
        """Returns the last message of a training in a separate process, as users run it."""
        where = (Path(__file__).parent, data, tmp_path, ROOM)
        arguments = map(str, (*where, name, max_tokens, max_updates))
        command = [sys.executable, "-c", SCRIPT, *arguments]
        # Address space that threads reserve but rarely use would count against the limit.
        environment = {**os.environ, "MALLOC_ARENA_MAX": "1"}
        result = subprocess.run(command, capture_output=True, text=True, timeout=1200, env=environment)
        assert result.returncode == 0, result.stderr
        return result.stdout.removesuffix("\n")

    assert run("full", 60000, 3) == (
        "data.max_tokens=60000: a batch of 60000 target and 90000 source tokens does not fit into memory. "
        "data.max_tokens=30000 training.micro_batches=2 makes the same updates in smaller parts; "
        "data.max_tokens=auto finds the largest that fits. "
        "The batches of a run can't change: give another run_dir."
    )
    assert not (tmp_path / "full/checkpoints").exists()
    assert run("auto", "auto", 3) == "True"
    found = read_config(tmp_path / "auto/config.yaml").data.max_tokens
    assert isinstance(found, int) and 4_000 <= found <= 25_000
    assert run("auto", "auto", 6) == "True"
