"""A training does not import slow modules that it does not use."""

from __future__ import annotations

import subprocess
import sys

from commands import Toy, environment

CODE = """
import sys
from nmt.cli.train import main
try:
    main()
finally:
    needless = {"torch._dynamo", "torch.distributed.tensor", "datasets", "pyarrow"}
    print(sorted(needless & sys.modules.keys()), file=sys.stderr)
"""


def test_nothing_is_imported_that_an_update_has_no_use_for(toy: Toy) -> None:
    """Importing torch's compiler takes as long as importing torch; its sharded tensors take half as long."""
    options = toy.small("run_dir=start", "training.max_updates=1")
    result = subprocess.run(
        [sys.executable, "-c", CODE, *options],
        cwd=toy.folder,
        env=environment(toy.cache),
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert result.returncode == 0, result.stderr
    assert result.stderr.splitlines()[-1] == "[]"
