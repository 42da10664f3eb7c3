"""Trains the rows of table 3 of the Transformer's paper at a smaller size, for docs/table3.md.

    python scripts/table3.py runs/table3                              the quickstart's corpus, three seeds
    python scripts/table3.py runs/table3 --seeds 1 --rows base,A      some rows, one seed
    python scripts/table3.py runs/table3 --report docs/               writes the table into the guides
    python scripts/table3.py runs/mine data=local data.source_lang=en data.target_lang=de ...

Every row changes the base model as in the paper: Vaswani et al. 2017, "Attention Is All You Need", table 3.
Layers and widths are multiplied by the size of the base here over that of the paper: with --layers 6
--d-model 512 --d-ff 2048 they are the paper's own. Each row and seed is one training, FOLDER/ROW/SEED, on one
thread. Options of nmt-train may follow; they apply to all trainings. The table goes to standard output, all
else to standard error. Complete trainings are skipped and others are resumed: run the same command again.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from page_tables import Table, with_tables
from position_experiments import layers
from position_experiments.korean import translated
from position_experiments.results import Record, Spread, chosen, write_results
from tqdm import tqdm

import nmt
from nmt.runtime.files import parse_json, read_text, replaced
from nmt.runtime.model_files import RESULTS

FILE = "table3.jsonl"
"""The file in the folder of the documentation that has the results, one training per line."""
GUIDES: Mapping[str, Callable[[str], str]] = {"table3.md": str, "table3.ko.md": translated}
"""Guide → what translates the labels of its tables."""

COMMON = (
    "recipe=none",
    "data.max_tokens=2048",
    "training.micro_batches=1",
    "model.norm=post",
    "training.max_updates=600",
    "training.schedule.name=linear",
    "training.schedule.warmup_updates=100",
    "training.schedule.peak=2e-3",
    "training.clip_norm=1",
    "training.devices=1",
    "training.threads=1",
    "training.averaging.kind=last",
    "training.averaging.count=1",
    "training.validate_every=1000000",  # the last update is always validated
    "training.criterion=loss",
    "training.validate_metrics=[]",  # the final model is translated with anyway
)
"""Options of all trainings."""


@dataclass(frozen=True)
class Size:
    """The size of the base model: 6, 512 and 2,048 in the paper, always with 8 heads."""

    layers: int = 3
    d_model: int = 128
    d_ff: int = 512


@dataclass(frozen=True)
class Row:
    """A row of the table.

    Attributes:
        group: `base`, or the letter of the paper.
        changed: what differs from the base, in the paper's numbers.
        perplexity: of the paper, per piece, on newstest2013.
        bleu: of the paper, on newstest2013.
        millions: of weights, in the paper; None: it gives no number, since the base has as many.
    """

    group: str
    changed: Mapping[str, Any]
    perplexity: float
    bleu: float
    millions: int | None = None

    @property
    def name(self) -> str:
        """The name of its folder, such as `A-heads-1`."""
        return "-".join([self.group, *(f"{key}-{value}" for key, value in self.changed.items())])

    def here(self, size: Size) -> dict[str, Any]:
        """Returns what differs from the base, in numbers for a base of this size."""
        factors = {
            "layers": size.layers / 6,
            "d_model": size.d_model / 512,
            "d_ff": size.d_ff / 2048,
            "key_width": size.d_model / 512,
        }
        return {
            key: max(1, round(value * factors[key])) if key in factors else value
            for key, value in self.changed.items()
        }

    def options(self, size: Size) -> list[str]:
        """Returns the options of nmt-train for the model of the row."""
        values = {**asdict(size), "heads": 8, "dropout": 0.1, "label_smoothing": 0.1, **self.here(size)}
        return [f"{option}={value}" for key, value in values.items() for option in OPTIONS[key]]


OPTIONS: Mapping[str, Sequence[str]] = {
    "layers": ("model.encoder_layers", "model.decoder_layers"),
    "d_model": ("model.d_model",),
    "d_ff": ("model.d_ff",),
    "heads": ("model.heads",),
    "key_width": ("model.key_width",),
    "dropout": ("model.dropout",),
    "label_smoothing": ("training.label_smoothing",),
    "positions": ("model.positions.name",),
}
SYMBOLS = {
    "layers": "N",
    "heads": "h",
    "key_width": "d_k",
    "dropout": "P_drop",
    "label_smoothing": "ε_ls",
    "positions": "positions",
}
"""The paper's symbols for what a row changes."""

ROWS = (
    Row("base", {}, 4.92, 25.8, 65),
    Row("A", {"heads": 1}, 5.29, 24.9),
    Row("A", {"heads": 4}, 5.00, 25.5),
    Row("A", {"heads": 16}, 4.91, 25.8),
    Row("A", {"heads": 32}, 5.01, 25.4),
    Row("B", {"key_width": 16}, 5.16, 25.1, 58),
    Row("B", {"key_width": 32}, 5.01, 25.4, 60),
    Row("C", {"layers": 2}, 6.11, 23.7, 36),
    Row("C", {"layers": 4}, 5.19, 25.3, 50),
    Row("C", {"layers": 8}, 4.88, 25.5, 80),
    Row("C", {"d_model": 256}, 5.75, 24.5, 28),
    Row("C", {"d_model": 1024}, 4.66, 26.0, 168),
    Row("C", {"d_ff": 1024}, 5.12, 25.4, 53),
    Row("C", {"d_ff": 4096}, 4.75, 26.2, 90),
    Row("D", {"dropout": 0.0}, 5.77, 24.6),
    Row("D", {"dropout": 0.2}, 4.95, 25.5),
    Row("D", {"label_smoothing": 0.0}, 4.67, 25.3),
    Row("D", {"label_smoothing": 0.2}, 5.47, 25.7),
    Row("E", {"positions": "learned"}, 4.92, 25.7),
)
"""Table 3 without its last row, `big`, which changes five things at once."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the trainings that are not complete and prints the table."""
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").partition("\n")[0], formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="folder of the runs")
    parser.add_argument("--seeds", type=int, default=3, help="trainings of each row; 0: only the table")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="trainings at the same time")
    groups = dict.fromkeys(row.group for row in ROWS)
    parser.add_argument("--rows", default=",".join(groups), help="groups of rows, such as base,A")
    parser.add_argument("--layers", type=int, default=Size.layers, help="N of the base")
    parser.add_argument("--d-model", type=int, default=Size.d_model, help="d_model of the base")
    parser.add_argument("--d-ff", type=int, default=Size.d_ff, help="d_ff of the base")
    parser.add_argument("--report", type=Path, metavar="DOCS", help="write results and table there")
    parser.add_argument("options", nargs="*", metavar="key=value", help="options of all trainings")
    given = parser.parse_intermixed_args(arguments)
    size = Size(given.layers, given.d_model, given.d_ff)
    settings = {"size": asdict(size), "options": given.options}
    if (problem := check_settings(given.folder, settings)) is not None:
        parser.error(problem)
    wanted = given.rows.split(",")
    if unknown := set(wanted) - set(groups):
        parser.error(f"--rows {','.join(sorted(unknown))}: must be among {','.join(groups)}")
    rows = [row for row in ROWS if row.group in wanted]
    # Seed by seed, so that the table of an interrupted sweep has every row.
    runs = [(row, seed) for seed in range(1, given.seeds + 1) for row in rows]
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    failed = run_all(given.folder, runs, size, given.options, given.jobs)
    records = collected(given.folder)
    print(table(records))
    if given.report is not None:
        write_results(given.report / FILE, records)
        for name, label in GUIDES.items():
            guide = given.report / name
            guide.write_text(with_results(guide.read_text("utf-8"), records, label), "utf-8")
    return 1 if failed else 0


def check_settings(folder: Path, settings: Mapping[str, Any]) -> str | None:
    """Stores the settings of a sweep in its folder; returns the problem if the folder has others."""
    path = folder / "settings.json"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with replaced(path) as temporary:
            temporary.write_text(json.dumps(settings, indent=2) + "\n", "utf-8")
    elif parse_json(read_text(path, 1 << 20)) != settings:
        return f"{path}: its trainings have another size or other options. Give these, or another folder."
    return None


def run_all(
    folder: Path, runs: Sequence[tuple[Row, int]], size: Size, options: Sequence[str], jobs: int
) -> list[str]:
    """Runs the trainings that are not complete, several at a time; returns the names of those that failed."""
    failed = []
    pending = [(row, seed) for row, seed in runs if not (folder / row.name / str(seed) / RESULTS).exists()]
    os.environ["OMP_NUM_THREADS"] = "1"  # of the processes of the pool
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, context) as pool, tqdm(total=len(pending), unit="trainings") as bar:
        names = {}
        for row, seed in pending:
            name = f"{row.name}/{seed}"
            given = [*COMMON, *row.options(size), f"seed={seed}", *options, f"run_dir={folder / name}"]
            names[pool.submit(train, given)] = name
        try:
            for finished in as_completed(names):
                if (error := finished.exception()) is not None:
                    failed.append(names[finished])
                    tqdm.write(f"{names[finished]}: {error}", sys.stderr)
                bar.update()
        except KeyboardInterrupt:  # the trainings save their states
            for process in multiprocessing.active_children():
                process.terminate()
            pool.shutdown(cancel_futures=True)
            raise
    return failed


def train(options: Sequence[str]) -> None:
    """Trains one model, in a process of the pool."""
    nmt.train(options)


def collected(folder: Path) -> list[Record]:
    """Returns the figures of all complete trainings of a folder, in the order of the table."""
    records: list[Record] = []
    size = Size(**parse_json(read_text(folder / "settings.json", 1 << 20))["size"])
    for row in ROWS:
        for path in sorted(folder.glob(f"{row.name}/*/{RESULTS}")):
            results = parse_json(read_text(path, 1 << 24))
            lines = (path.parent / "metrics.jsonl").read_text("utf-8").splitlines()
            validations = [figures for line in lines if (figures := json.loads(line))["kind"] == "valid"]
            records.append(
                {
                    "row": row.name,
                    "here": row.here(size),
                    "seed": int(path.parent.name),
                    "parameters": results["training"]["parameters"],
                    "updates": results["training"]["updates"],
                    "perplexity": validations[-1]["ppl"],
                    "bleu": results["valid"]["bleu"],
                }
            )
    return records


def rows_of_table(records: Sequence[Record]) -> list[list[str]]:
    """Returns the cells of the table; rows without a training are left out."""
    cells = []
    for row in ROWS:
        those = chosen(records, row=row.name)
        if those:
            figures = [Spread([each[key] for each in those]) for key in ("perplexity", "bleu")]
            paper = f"{row.perplexity:.2f}", f"{row.bleu:.1f}", str(row.millions or "")
            measured = f"{those[0]['parameters'] / 1e6:.2f}", figures[0].text(3), figures[1].text(1)
            cells.append([row.group, _words(row.changed), _words(those[0]["here"]), *measured, *paper])
    return cells


def table(records: Sequence[Record]) -> str:
    """Returns the table with its head."""
    lines = [HEAD, "|" + "---|" * (HEAD.count("|") - 1)]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows_of_table(records))])


HEAD = "| | Paper | Here | Weights, 10⁶ | Perplexity | BLEU | Paper: perplexity | BLEU | Weights, 10⁶ |"


def sequential_table(records: Sequence[Record]) -> list[list[str]]:
    """Returns the third column of table 1: the sequential operations of a layer, by its number of tokens."""
    return [
        [kind, paper, *(f"{layers.sequential_operations(kind, length):,}" for length in (16, 64, 256))]
        for kind, paper in zip(layers.KINDS, ("O(1)", "O(1)", "O(n)", "O(1)"), strict=True)
    ]


def largest_table(records: Sequence[Record]) -> list[list[str]]:
    """Returns the size of the largest tensor of one head, by score and d_k, for a sentence of 256 tokens."""
    return [
        [f"`{score}`", *(f"{layers.largest_tensor(score, width, 256):,}" for width in (16, 64, 256))]
        for score in layers.SCORES
    ]


def with_results(text: str, records: Sequence[Record], label: Callable[[str], str]) -> str:
    """Returns the text of a guide with its tables; only the first needs records of trainings."""
    return with_tables(
        text, lambda name: Table([[label(cell) for cell in row] for row in TABLES[name](records)])
    )


TABLES = {"table3": rows_of_table, "sequential": sequential_table, "largest": largest_table}


def _words(changed: Mapping[str, Any]) -> str:
    return ", ".join(f"{SYMBOLS.get(key, key)} {value}" for key, value in changed.items())


if __name__ == "__main__":
    sys.exit(main())
