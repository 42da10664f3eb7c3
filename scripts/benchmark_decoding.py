"""Measures translating against Hugging Face transformers and CTranslate2, with the same weights.

    pip install -e .[bench]
    python scripts/benchmark_decoding.py models/ --train train.en train.de --valid val.en val.de \
        --text test.en test.de

`models/` has a folder for each model, such as `models/tiny`. A missing one is trained first, for `--minutes`
minutes; random weights would never end a sentence. All systems translate the same lines, from text to text,
with the same beam size, the length penalty 1 and the same number of threads. The penalties and the rules for
stopping differ between the systems, so the translations of a beam search differ a little.

- `nmt`: this program, as `nmt.load(...).translate(...)`.
- `nmt+ctranslate2`: this program with `backend=ctranslate2`; its export is made before the measurement.
- `transformers`: `MarianMTModel.generate`, in batches of 64 sentences of similar length.
- `ctranslate2`: one worker of one thread per thread, batches of 2,048 tokens; float32, and int8 on the CPU.

Each measurement runs in a separate process, after a warm-up. Each round measures all systems in turn. The
table has the median of the rounds, with the lowest and the highest value.

`--profile` adds the share of matrix products in the time of nmt with one thread, and their FLOP/s as a share
of those of one large product, the ceiling of the machine.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from statistics import median

import sacrebleu
from benchmark_data import in_process

from nmt.bundle import load_bundle
from nmt.runtime.machine import available_cores
from nmt.runtime.streams import log_to_stderr

SYSTEMS = ("nmt", "nmt+ctranslate2", "transformers", "ctranslate2")
INT8 = ("nmt+ctranslate2", "ctranslate2")
"""The systems that have int8."""
MODELS = {"tiny": "fp32", "base": "bf16"}
"""The models that can be trained here, with the precision of their training."""


@dataclass(frozen=True)
class Task:
    """One measurement: a system with a model, over all beam sizes."""

    system: str
    precision: str
    folder: Path
    beams: Sequence[int]
    lines: Sequence[str]
    threads: int
    workers: str


@dataclass(frozen=True)
class Row:
    """The result of a system over all rounds."""

    system: str
    model: str
    precision: str
    beam_size: int
    sentences_per_second: float
    lowest: float
    highest: float
    output_tokens_per_second: int
    bleu: float


def main() -> None:
    """Measures all systems, prints the table, and writes the rows."""
    parser = argparse.ArgumentParser(description="Measures translating.")
    parser.add_argument("models_folder", type=Path, help="folder with a run or a model folder for each model")
    parser.add_argument("--models", nargs="+", default=list(MODELS))
    parser.add_argument("--text", type=Path, nargs=2, required=True, metavar=("SOURCE", "REFERENCE"))
    parser.add_argument("--train", type=Path, nargs=2, metavar=("SOURCE", "TARGET"))
    parser.add_argument("--valid", type=Path, nargs=2, metavar=("SOURCE", "TARGET"))
    parser.add_argument("--minutes", type=float, default=30.0, help="duration of a training")
    parser.add_argument("--systems", nargs="+", default=list(SYSTEMS), choices=SYSTEMS)
    parser.add_argument(
        "--precisions", nargs="+", default=["fp32", "int8"], help="int8: only with CTranslate2"
    )
    parser.add_argument("--beams", type=int, nargs="+", default=[4, 1])
    parser.add_argument("--sentences", type=int, help="number of lines of the text; default: all")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=0, help="0: one per core")
    parser.add_argument("--workers", default="auto", help="decoding.workers of nmt")
    parser.add_argument("--profile", action="store_true", help="also profile nmt")
    parser.add_argument("--json", type=Path, help="file for the rows")
    arguments = parser.parse_args()
    log_to_stderr()
    rows = list(measure(arguments))
    print(table(rows))
    if arguments.profile:
        for model in arguments.models:
            lines = arguments.text[0].read_text(encoding="utf-8").splitlines()[: arguments.sentences]
            for beam in arguments.beams:
                found = in_process(partial(profile, arguments.models_folder / model, beam, lines))[0]
                print(f"{model}, beam {beam}, one thread: {found}")
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")


def measure(arguments: argparse.Namespace) -> Iterator[Row]:
    """Yields all rows, one model after the other."""
    from decoding_peers import require_exportable

    lines, references = (path.read_text(encoding="utf-8").splitlines() for path in arguments.text)
    lines, references = lines[: arguments.sentences], references[: arguments.sentences]
    threads = arguments.threads or available_cores()
    for model in arguments.models:
        folder = arguments.models_folder / model
        if not folder.exists():
            train(folder, model, arguments)
        bundle = load_bundle(folder)
        if len(arguments.systems) > 1:
            require_exportable(bundle)
        tasks = [
            Task(system, precision, folder, arguments.beams, lines, threads, arguments.workers)
            for precision in arguments.precisions
            for system in arguments.systems
            if precision != "int8" or system in INT8
        ]
        rounds = [[in_process(partial(run, task))[0] for task in tasks] for _ in range(arguments.rounds)]
        for number, task in enumerate(tasks):
            for place, beam in enumerate(arguments.beams):
                seconds = [results[number][place][0] for results in rounds]
                texts = rounds[0][number][place][1]
                tokens = sum(len(ids) + 1 for ids in bundle.tokenizer.encode_target(texts))
                rates = [len(lines) / each for each in seconds]
                score = sacrebleu.corpus_bleu(texts, [references]).score
                yield Row(
                    system=task.system,
                    model=model,
                    precision=task.precision,
                    beam_size=beam,
                    sentences_per_second=round(median(rates), 1),
                    lowest=round(min(rates), 1),
                    highest=round(max(rates), 1),
                    output_tokens_per_second=round(tokens / median(seconds)),
                    bleu=round(score, 2),
                )


def train(folder: Path, model: str, arguments: argparse.Namespace) -> None:
    """Trains a model with the paper's options for a limited time."""
    if arguments.train is None or arguments.valid is None:
        raise SystemExit(f"{folder}: does not exist. Give --train and --valid to train it.")
    options = ["data=local", f"model={model}", f"run_dir={folder}"]
    for split, files in (("train", arguments.train), ("valid", arguments.valid)):
        for side, path in zip(("source", "target"), files, strict=True):
            options.append(f"data.{split}.{side}={path.absolute()}")
    for side, path in zip(("source", "target"), arguments.train, strict=True):
        options.append(f"data.{side}_lang={path.suffix.removeprefix('.')}")
    options += [
        "data.tokenizer.vocab_size=8000",
        "data.max_tokens=2048",
        f"training.precision={MODELS.get(model, 'fp32')}",
        "training.schedule.warmup_updates=1000",
        f"training.max_minutes={arguments.minutes}",
        "training.max_updates=1000000",
    ]
    subprocess.run([sys.executable, "-m", "nmt.cli.train", *options], check=True)


def run(task: Task) -> list[tuple[float, list[str]]]:
    """Returns seconds and translations for each beam size."""
    from decoding_peers import of_ctranslate2, of_engine, of_nmt, of_transformers

    with tempfile.TemporaryDirectory() as work:
        if task.system == "nmt":
            translate = of_nmt(task.folder, task.precision, task.threads, task.workers)
        elif task.system == "nmt+ctranslate2":
            translate = of_engine(task.folder, task.precision, task.threads, task.workers, Path(work))
        elif task.system == "transformers":
            translate = of_transformers(task.folder, task.precision, task.threads, Path(work))
        else:
            translate = of_ctranslate2(task.folder, task.precision, task.threads, Path(work))
        results = []
        for beam in task.beams:
            translate(task.lines[:8], beam)
            start = time.perf_counter()
            texts = translate(task.lines, beam)
            results.append((time.perf_counter() - start, texts))
        return results


PRODUCTS = ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm")
_LARGE = 2048  # rows and columns of the product that measures the ceiling


def profile(folder: Path, beam: int, lines: Sequence[str]) -> str:
    """Returns where nmt spends the time of a search in fp32 with one thread."""
    import torch
    from decoding_peers import of_nmt

    translate = of_nmt(folder, "fp32", 1, "1")
    translate(lines[:8], beam)
    activity = torch.profiler.ProfilerActivity.CPU
    with torch.profiler.profile(activities=[activity], with_flops=True) as recorded:
        start = time.perf_counter()
        translate(lines, beam)
        seconds = time.perf_counter() - start
    rows = [row for row in recorded.key_averages() if row.key in PRODUCTS]
    in_products = sum(row.self_cpu_time_total for row in rows) / 1e6
    rate = sum(row.flops for row in rows) / in_products
    torch.set_num_threads(1)
    large = torch.randn(_LARGE, _LARGE)
    times = []
    for _ in range(5):
        start = time.perf_counter()
        large @ large
        times.append(time.perf_counter() - start)
    ceiling = 2 * _LARGE**3 / median(times)
    return (
        f"{in_products / seconds:.0%} of {seconds:.1f} s in matrix products, "
        f"at {rate / 1e9:.0f} of {ceiling / 1e9:.0f} GFLOP/s ({rate / ceiling:.0%})"
    )


def table(rows: Sequence[Row]) -> str:
    """Returns the rows as text, with the speed of nmt in fp32 relative to each system."""
    lines = [
        f"{'model':<7}{'beam':>4}  {'system':<17}{'precision':<11}{'sentences/s':>12}{'lowest-highest':>18}"
        f"{'tokens/s':>10}{'BLEU':>7}{'nmt is faster by':>18}"
    ]
    for _, group in groupby(sorted(rows, key=lambda row: (row.model, row.beam_size)), _setting):
        of_group = list(group)
        own = [row for row in of_group if row.system == "nmt" and row.precision == "fp32"]
        for row in of_group:
            ratio = ""
            if own and row is not own[0]:
                ratio = f"{own[0].sentences_per_second / row.sentences_per_second:.2f}x"
            spread = f"{row.lowest:,.1f}-{row.highest:,.1f}"
            lines.append(
                f"{row.model:<7}{row.beam_size:>4}  {row.system:<17}{row.precision:<11}"
                f"{row.sentences_per_second:>12,.1f}{spread:>18}{row.output_tokens_per_second:>10,}"
                f"{row.bleu:>7.2f}{ratio:>18}"
            )
    return "\n".join(lines)


def _setting(row: Row) -> tuple[str, int]:
    return row.model, row.beam_size


if __name__ == "__main__":
    main()
