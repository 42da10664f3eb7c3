"""Counts what an update and a search launch on a GPU, on a machine without one.

    python scripts/gpu_ledger.py                        base and big at 25,000 target tokens, base at 3,125
    python scripts/gpu_ledger.py --json ledger.json     the same, also as JSON
    python scripts/gpu_ledger.py model=tiny training.clip_norm=1 --tokens 6250     options of nmt-train

The code of nmt runs on FakeTensors, which have shapes but no values. The ledger counts every operator that
would launch a kernel: its bytes, its floating-point operations and the time of a roofline, by part of the
model. It also counts what would make the host wait for the GPU. It measures nothing: real times are longer.

It needs a CPU build of torch and a C++ compiler.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dry_gpu import device

if TYPE_CHECKING:
    from dry_gpu.ledger import Ledger

VOCAB_SIZE = 37_000  # the joint vocabulary of the paper
DEFAULT = (("base", 25_000), ("big", 25_000), ("base", 3_125))


def main() -> int:
    """Prints the ledgers."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("options", nargs="*", metavar="KEY=VALUE", help="options of nmt-train")
    parser.add_argument("--tokens", type=int, help="target tokens of an update; default 25,000")
    parser.add_argument("--vocab-size", type=int, default=VOCAB_SIZE, help="pieces; default: %(default)s")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    parser.add_argument("--search", action="store_true", help="16 steps of a search in place of an update")
    parser.add_argument(
        "--operators", type=int, default=0, metavar="N", help="also list the N costliest operators"
    )
    arguments = parser.parse_intermixed_args()
    cases: list[tuple[list[str], int]]
    if arguments.options or arguments.tokens:
        cases = [(arguments.options, arguments.tokens or 25_000)]
    else:
        cases = [([f"model={model}"], tokens) for model, tokens in DEFAULT]
    try:
        with tempfile.TemporaryDirectory() as folder:
            device.pretend(device.build(Path(os.environ.get("DRY_GPU_CACHE", folder))))
    except (device.NoCompiler, device.HasCuda) as error:
        print(f"gpu_ledger.py: {error}", file=sys.stderr)
        return 2
    except subprocess.CalledProcessError:
        print("gpu_ledger.py: the stand-in device does not compile with this torch", file=sys.stderr)
        return 2
    size, search, top = arguments.vocab_size, arguments.search, arguments.operators
    rows = [row for case in cases for row in counted(*case, vocab_size=size, search=search, top=top)]
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return 0


def counted(
    options: list[str], tokens: int, *, vocab_size: int, search: bool, top: int
) -> list[dict[str, Any]]:
    """Counts one case, prints it, and returns its rows."""
    import torch
    from dry_gpu import workloads
    from dry_gpu.costs import GPUS, declared_costs
    from dry_gpu.ledger import Ledger

    from nmt.training.update.precision import product_dtype

    config = workloads.train_config("training.precision=bf16", *options)
    model = next((option[6:] for option in options if option.startswith("model=")), "base")
    with device.fake_tensors():
        if search:
            dtype = product_dtype(config.training.precision)
            precision = None if dtype is torch.float32 else dtype
            ledgers = workloads.search(config.model, vocab_size, precision, lambda: Ledger(GPUS))
            found = [("search, start", 0, ledgers[0]), ("search, 16 steps", 0, ledgers[1])]
        else:
            batch = workloads.sentences(tokens, vocab_size)
            ledger = Ledger(GPUS, declared_costs(batch))
            workloads.Update.of(config, vocab_size).run(batch, counted=ledger)
            found = [("update", batch.num_target_tokens, ledger)]
    rows = []
    for what, target_tokens, ledger in found:
        rows.append({"case": what, "options": options, **row_of(model, target_tokens, ledger)})
        print_ledger(f"{model}, {what}, {' '.join(options)}", rows[-1], ledger, top)
    return rows


def row_of(model: str, target_tokens: int, ledger: Ledger) -> dict[str, Any]:
    """Returns the figures of a ledger."""
    total = ledger.total
    milliseconds = {name: round(1e3 * seconds, 2) for name, seconds in total.seconds.items()}
    attention = {name: round(1e3 * seconds, 2) for name, seconds in ledger.attention.seconds.items()}
    h100 = next(iter(milliseconds))
    return {
        "model": model,
        "target_tokens": target_tokens,
        "launches": total.launches,
        "bytes": total.bytes,
        "bytes_outside_products": total.bytes_outside_products,
        "teraflops": round(total.flops / 1e12, 3),
        "roofline_ms": milliseconds[h100],
        "attention_ms": attention.get(h100, 0.0),
        "roofline_ms_by_gpu": milliseconds,
        "host_syncs": sum(ledger.host_syncs.values()),
        "host_syncs_at": dict(ledger.host_syncs),
        "host_to_device_copies": sum(ledger.copies.values()),
        "peak_bytes": ledger.peak_bytes,
        "parts": {
            part: {
                "launches": row.launches,
                "bytes_outside_products": row.bytes_outside_products,
                "teraflops": round(row.flops / 1e12, 3),
                "roofline_ms": round(1e3 * row.seconds[h100], 2),
            }
            for part, row in ledger.parts.items()
            if row.launches
        },
    }


def print_ledger(title: str, row: dict[str, Any], ledger: Ledger, top: int) -> None:
    """Prints the figures of a ledger as tables."""
    print(f"{title}: {row['target_tokens']:,} target tokens")
    print(f"  {'part':<14}{'launches':>9}{'GB outside products':>21}{'TFLOP':>8}{'roofline, ms':>14}")
    whole = {"total": row, **row["parts"]}
    for part, of_part in sorted(whole.items(), key=lambda item: item[0] == "total"):
        print(
            f"  {part:<14}{of_part['launches']:>9,}{of_part['bytes_outside_products'] / 1e9:>21.2f}"
            f"{of_part['teraflops']:>8.2f}{of_part['roofline_ms']:>14.2f}"
        )
    print(f"  of which attention kernels {row['attention_ms']:.2f} ms; peak {row['peak_bytes'] / 1e9:.2f} GB")
    rates = []
    for name, milliseconds in row["roofline_ms_by_gpu"].items():
        rate = f" ({row['target_tokens'] / milliseconds * 1e3:,.0f} tokens/s)" if row["target_tokens"] else ""
        rates.append(f"{name} {milliseconds:.1f} ms{rate}")
    print(f"  roofline: {', '.join(rates)}")
    print(f"  host synchronisations {row['host_syncs']}, copies to the GPU {row['host_to_device_copies']}")
    for place, count in [*ledger.host_syncs.items()]:
        print(f"    {count} x {place}")
    costliest = sorted(ledger.operators.items(), key=lambda item: -sum(item[1].seconds.values()))[:top]
    for name, of_operator in costliest:
        seconds = next(iter(of_operator.seconds.values()))
        gigabytes = of_operator.bytes / 1e9
        print(f"    {name:<32}{of_operator.launches:>7,}{gigabytes:>9.2f} GB{1e3 * seconds:>9.2f} ms")
    print(flush=True)


if __name__ == "__main__":
    sys.exit(main())
