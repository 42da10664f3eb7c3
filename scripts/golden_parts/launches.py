"""Runs the GPU ledger of a checkout and writes what it counts as JSON; `gpu` starts it.

python launches.py TREE OUT.json ARGUMENTS...
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from importlib import import_module
from pathlib import Path
from typing import Any


def main() -> None:
    """Counts, and writes launches with shapes, sums, and sums by part of the model."""
    tree, out, *arguments = sys.argv[1:]
    sys.path.insert(0, str(Path(tree, "scripts")))
    rows = Path(out).with_suffix(".rows.json")
    sys.argv = ["gpu_ledger.py", *arguments, "--json", str(rows)]
    device: Any = import_module("dry_gpu.device")
    ledger = import_module("gpu_ledger")
    launches: list[str] = []
    pretend = device.pretend

    def pretend_and_listen(*library: Any) -> None:
        pretend(*library)  # before torch is used
        _listen(launches)

    device.pretend = pretend_and_listen
    status = ledger.main()
    if status:
        sys.exit(status)
    texts = {"launches": "\n".join(f"{count} {line}" for line, count in sorted(Counter(launches).items()))}
    texts["order"] = "\n".join(launches)
    for row in json.loads(rows.read_text()):
        case = row["case"].replace(" ", "-").replace(",", "")
        parts, waits = row.pop("parts"), row.pop("host_syncs_at")
        texts[f"{case}-sums"] = json.dumps(row, indent=1)
        texts[f"{case}-parts"] = json.dumps(parts, indent=1)
        texts[f"{case}-waits"] = "\n".join(
            f"{count} {name.split(' at ')[0]}" for name, count in sorted(waits.items())
        )
    Path(out).write_text(json.dumps(texts))


def _listen(launches: list[str]) -> None:
    """Lists each launch that a ledger records: the operator and the shapes of its tensors."""
    import torch
    from torch.utils._pytree import tree_map

    Ledger = import_module("dry_gpu.ledger").Ledger
    dispatch, record = Ledger.__torch_dispatch__, Ledger.record
    shapes = ""

    def shown(x: Any) -> Any:
        return f"{str(x.dtype)[6:]}{list(x.shape)}" if isinstance(x, torch.Tensor) else x

    def dispatching(self: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        nonlocal shapes
        shapes = " ".join(map(str, tree_map(shown, args)))
        return dispatch(self, func, types, args, kwargs)

    def recording(self: Any, part: str, name: str, cost: Any) -> None:
        launches.append(f"{name} {shapes}")
        record(self, part, name, cost)

    Ledger.__torch_dispatch__, Ledger.record = dispatching, recording


if __name__ == "__main__":
    main()
