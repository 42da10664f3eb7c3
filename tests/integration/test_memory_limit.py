"""Under a memory limit: too large a batch is told before the first update, and `auto` finds one that fits."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from toy import write_toy

from nmt.bundle import read_config

SCRIPT = """
import gc, resource, sys; sys.path.insert(0, {here!r})
from pathlib import Path
from toy import toy_config
import nmt.training.batch_size as batch_size
from nmt.errors import UserError
from nmt.training.run import train

def run(name, max_tokens, max_updates=3):
    # oneDNN's kernels alone might take what room there is here.
    options = dict(max_tokens=max_tokens, max_updates=max_updates, onednn_fp32=False)
    return train(toy_config(Path({data!r}), Path({runs!r}) / name, **options))

run("first", 512)  # what torch and its libraries need once is not meant
taken = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmSize"))
limit = taken * 1024 + {room}
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
try:
    run("full", 25000)
except UserError as error:
    print(error)
gc.collect()
print("3 updates" in run("auto", "auto"))
del batch_size.largest_max_tokens  # going on does not search again
print("6 updates" in run("auto", "auto", max_updates=6))
"""


@pytest.mark.slow
def test_auto_finds_a_size_that_runs(tmp_path: Path) -> None:
    """A token takes about 21 KB here: 200 MiB hold some 9,500, and `auto` leaves a fifth free."""
    data = write_toy(tmp_path / "data", train=500, held_out=8)
    here = str(Path(__file__).parent)
    script = SCRIPT.format(here=here, data=str(data), runs=str(tmp_path), room=200 * 2**20)
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=1200)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == [
        "data.max_tokens=25000: a batch of 25000 target and 37500 source tokens does not fit into memory; "
        "data.max_tokens=12500 training.micro_batches=2 makes the same updates in smaller parts, and "
        "data.max_tokens=auto finds the largest that fits",
        "True",
        "True",
    ]
    assert not (tmp_path / "full/checkpoints").exists()
    found = read_config(tmp_path / "auto/config.yaml").data.max_tokens
    assert isinstance(found, int) and 2_000 <= found < 12_000
