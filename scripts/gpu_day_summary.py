"""Writes summary.md of a folder that `gpu_day.sh` has filled.

python scripts/gpu_day_summary.py OUT
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def main() -> None:
    """Writes the summary."""
    out = Path(sys.argv[1])
    (out / "summary.md").write_text("\n".join(summary(out)) + "\n", encoding="utf-8")


def summary(out: Path) -> list[str]:
    """Returns the lines of the summary."""
    environment = last_line(out / "environment.txt")
    lines = [
        f"# {environment.get('gpu') or 'No GPU'}",
        "",
        ", ".join(f"{k} {v}" for k, v in environment.items()),
    ]
    lines += ["", "| Step | Seconds | Status |", "|---|---|---|"]
    for line in (out / "steps.tsv").read_text(encoding="utf-8").splitlines():
        name, status, seconds = line.split("\t")
        lines.append(f"| {name} | {seconds} | {'ok' if status == '0' else f'failed ({status})'} |")
    lines += ["", f"Tests: {(text_lines(out / 'tests.txt') or ['not run'])[-1]}"]
    lines += training_table(out)
    return [*lines, *decoding_table(out)]


def decoding_table(out: Path) -> list[str]:
    """Returns the speeds of translating."""
    lines = [
        "| System | Precision | Beam | Sentences/s | Lowest-highest | BLEU |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows(out / "decoding.json"):
        spread = f"{row['lowest']:,}-{row['highest']:,}"
        cells = (row["system"], row["precision"], str(row["beam_size"]), f"{row['sentences_per_second']:,}")
        lines.append(f"| {' | '.join((*cells, spread, str(row['bleu'])))} |")
    return lines


def training_table(out: Path) -> list[str]:
    """Returns the speeds of training, beside the roofline of the ledger."""
    roofline = {}
    for row in rows(out / "ledger.json"):
        roofline[row["model"], round(row["target_tokens"], -3)] = (
            row["target_tokens"] / row["roofline_ms"] * 1e3
        )
    lines = [
        "",
        "| Batch | System | Target tokens/s | Peak GB | MFU | Roofline (H100), tokens/s |",
        "|---|---|---|---|---|---|",
    ]
    for name in ("training", "training-variants", "training-small-batches"):
        for row in rows(out / f"{name}.json"):
            speed, tokens = row["target_tokens_per_second"], row["max_tokens"]
            counted = roofline.get((row["model"], round(tokens, -3)))
            cells = (
                *(f"{tokens:,}", row["system"], f"{speed:,}", f"{row['peak_bytes'] / 1e9:.1f}"),
                *(f"{row['mfu']:.2f}", f"{counted:,.0f}" if counted else ""),
            )
            lines.append(f"| {' | '.join(cells)} |")
    return [*lines, ""]


def rows(path: Path) -> list[dict[str, Any]]:
    """Returns the rows of a JSON file; none if the step has failed."""
    found: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    return found


def text_lines(path: Path) -> list[str]:
    """Returns the lines of a text file; none if it does not exist."""
    return path.read_text(encoding="utf-8").strip().splitlines() if path.exists() else []


def last_line(path: Path) -> dict[str, Any]:
    """Returns the JSON in the last line of a file; empty if there is none."""
    try:
        found: dict[str, Any] = json.loads(text_lines(path)[-1])
    except (IndexError, ValueError):
        return {}
    return found


if __name__ == "__main__":
    main()
