"""Measures the data stage: speed and memory of preparation, start and batching.

    python scripts/benchmark_data.py --pairs 1000000 --json data.json

The corpus is synthetic: words of syllables by Zipf's law, one word in fifty unique, log-normal lengths, about
25 pieces per side.

- `prepare_ratio_to_sentencepiece`: pairs per second of cleaning and encoding, divided by those of
  SentencePiece alone, which encodes the same text with the same number of processes. Neither includes the
  training of the tokenizer. The two run in turn, `--rounds` times. The ratio is the median of
  `prepare_ratios`.
- `prepare_peak_bytes`: peak anonymous memory of all processes together during cleaning and encoding;
  `tokenizer_peak_bytes`: the same for a preparation that also trains the tokenizer.
- `cached_start_seconds`: the time to open prepared data, including checksums.
- `first_update_seconds`: from the start of `nmt-train`, on prepared data, to the end of the first update of a
  tiny model with batches of 2,048 target tokens; `..._workers`: with one process and one such micro-batch per
  worker.
- `loader_target_tokens_per_second`, `loader_added_bytes`: the stream of batches alone, in one process, and
  the anonymous memory that it adds.
- `filling`: share of the tokens that are not padding, of both sides, without the last batch of an epoch;
  `filling_of_budget`: target tokens divided by `data.max_tokens`, of the same batches.
- `loader_target_tokens_per_second_sampled`: the same speed with subword regularisation (BPE-dropout 0.1);
  `..._unspaced`: with unigram sampling (0.2) of text without spaces; `..._workers`: with one process that
  makes blocks (`data.loaders`) per worker.
- `epoch_order_seconds`: the time to compute the order of an epoch of 40 million pairs.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from nmt.config import (
    CleaningConfig,
    DataConfig,
    SamplingConfig,
    Segmentation,
    SplitConfig,
    TokenizerConfig,
    TrainSplitConfig,
)
from nmt.data.preparation.prepare import prepare
from nmt.data.shuffle import Shuffle
from nmt.data.subwords.tokenizer import Tokenizer
from nmt.runtime.machine import available_cores
from nmt.runtime.streams import log_to_stderr
from nmt.runtime.workers import run_ordered

if TYPE_CHECKING:
    from nmt.data.batches.batching import Batch

EPOCH_PAIRS = 40_000_000
VOCABULARY = 16_000
CHUNK_LINES = 50_000
SAMPLED_PAIRS = 200_000  # prepared again, with BPE
RARE_SHARE = 0.02  # share of the words that occur once
SLICE = 4096  # lines encoded at a time, as in the preparation

_RATE = "loader_target_tokens_per_second"


@dataclass(frozen=True)
class Chunk:
    """Consecutive lines of the corpus: their first and last byte in both files."""

    source: tuple[int, int]
    target: tuple[int, int]


def main() -> None:
    """Runs all measurements and writes the figures."""
    parser = argparse.ArgumentParser(description="Measures the data stage.")
    parser.add_argument("--pairs", type=int, default=200_000)
    parser.add_argument("--workers", type=int, default=0, help="0: one per core")
    parser.add_argument("--json", type=Path, help="file for the figures; default: standard output only")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of preparation and SentencePiece alone")
    parser.add_argument("--seconds", type=float, default=10.0, help="duration of loading, for each figure")
    parser.add_argument("--folder", type=Path, help="parent of the working folder; default: the system's")
    arguments = parser.parse_args()
    log_to_stderr()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        workers = arguments.workers or available_cores()
        figures = measure(Path(folder), arguments.pairs, workers, arguments.rounds, arguments.seconds)
    text = json.dumps(figures, indent=1)
    print(text)
    if arguments.json:
        arguments.json.write_text(text + "\n")


def measure(folder: Path, num_pairs: int, workers: int, rounds: int, seconds: float) -> dict[str, Any]:
    """Returns all figures by name."""
    chunks = write_corpus(folder, num_pairs)
    config = DataConfig(
        name="benchmark",
        source_lang="xx",
        target_lang="yy",
        train=TrainSplitConfig(source=str(folder / "train.xx"), target=str(folder / "train.yy")),
        valid=SplitConfig(source=str(folder / "valid.xx"), target=str(folder / "valid.yy")),
        cleaning=CleaningConfig(),
        tokenizer=TokenizerConfig(vocab_size=VOCABULARY),
        cache_dir=str(folder / "cache"),
        workers=workers,
    )
    _, tokenizer_peak = in_process(partial(prepare_all, config))
    prepared = {
        path.name.split("-")[0]: path for path in (folder / "cache" / "prepared").iterdir() if path.is_dir()
    }
    bare = partial(encode_all, folder, prepared["tokenizer"], chunks, workers)
    turns = [in_turn(config, [prepared["text"], prepared["ids"]], bare) for _ in range(rounds)]
    cached_seconds, _ = in_process(partial(prepare_all, config))
    first_updates = [first_update(config, folder / f"run{number}", number) for number in (1, workers)]
    loader, _ = in_process(partial(load, replace(config, loaders=0), seconds))
    sampled: dict[str, int] = {}
    for name, options in sampled_configs(config, folder).items():
        for key, loaders in ((name, 0), (f"{name}_workers", workers)):
            figures, _ = in_process(partial(load, replace(options, loaders=loaders), seconds))
            sampled[f"{_RATE}_{key}"] = figures[_RATE]
    return {
        "pairs": num_pairs,
        "workers": workers,
        "prepare_pairs_per_second": round(num_pairs / median(turn.ours for turn in turns)),
        "sentencepiece_pairs_per_second": round(num_pairs / median(turn.bare for turn in turns)),
        "prepare_ratio_to_sentencepiece": round(median(turn.ratio for turn in turns), 4),
        "prepare_ratios": [round(turn.ratio, 4) for turn in turns],
        "prepare_peak_bytes": max(turn.peak for turn in turns),
        "tokenizer_peak_bytes": tokenizer_peak,
        "cached_start_seconds": round(cached_seconds, 3),
        "first_update_seconds": round(first_updates[0], 3),
        "first_update_seconds_workers": round(first_updates[1], 3),
        **loader,
        **sampled,
        "epoch_order_seconds": round(epoch_order(), 3),
        "epoch_order_pairs": EPOCH_PAIRS,
    }


@dataclass(frozen=True)
class Turn:
    """The seconds of a preparation and of SentencePiece alone, and the peak memory of the preparation."""

    ours: float
    bare: float
    peak: int

    @property
    def ratio(self) -> float:
        """The speed of the preparation divided by that of SentencePiece."""
        return self.bare / self.ours


def in_turn(config: DataConfig, prepared: list[Path], bare: Callable[[], float]) -> Turn:
    """Deletes the folders `prepared`, prepares them again, then runs SentencePiece alone."""
    for folder in prepared:
        shutil.rmtree(folder)
    ours, peak = in_process(partial(prepare_all, config))
    return Turn(ours, in_process(bare)[0], peak)


def sampled_configs(config: DataConfig, folder: Path) -> dict[str, DataConfig]:
    """Returns the options for both kinds of subword regularisation, over fewer pairs."""
    bpe = replace(
        config,
        train=TrainSplitConfig(source=str(folder / "bpe.xx"), target=str(folder / "bpe.yy")),
        tokenizer=replace(config.tokenizer, segmentation=Segmentation.bpe),
        sampling=SamplingConfig(alpha=0.1),
    )
    unspaced = replace(
        config,
        train=TrainSplitConfig(source=str(folder / "unspaced.xx"), target=str(folder / "unspaced.yy")),
        valid=SplitConfig(source=str(folder / "unspaced_valid.xx"), target=str(folder / "unspaced_valid.yy")),
        sampling=SamplingConfig(alpha=0.2),
    )
    return {"sampled": bpe, "unspaced": unspaced}


def write_corpus(folder: Path, num_pairs: int) -> list[Chunk]:
    """Writes all text; returns chunks of `CHUNK_LINES` lines of the training pairs."""
    generator = np.random.default_rng(1)
    syllables = np.array([c + v for c in "bcdfghjklmnprstvwz" for v in "aeiou"])
    characters = np.array([chr(0x4E00 + i) for i in range(2000)])
    few = min(num_pairs, SAMPLED_PAIRS)
    spaced = [Words.random(generator, syllables, " ", 5) for _ in range(2)]
    unspaced = [Words.random(generator, characters, "", 2) for _ in range(2)]
    for name, words in (("valid", spaced), ("unspaced_valid", unspaced)):
        write_pairs(folder / name, words, 1000, generator)
    write_pairs(folder / "bpe", spaced, few, generator)
    write_pairs(folder / "unspaced", unspaced, few, generator)
    return write_pairs(folder / "train", spaced, num_pairs, generator)


@dataclass(frozen=True)
class Words:
    """The vocabulary of one side: common words, parts of rare words, and the separator of words."""

    common: list[str]
    parts: Any
    joint: str
    rare_parts: int

    @classmethod
    def random(cls, generator: np.random.Generator, parts: Any, joint: str, rare_parts: int) -> Words:
        """Returns random words of 1 to max(3, `rare_parts`) - 1 parts."""
        sizes = generator.integers(1, max(3, rare_parts), 50_000).tolist()
        drawn = parts[generator.integers(0, len(parts), (len(sizes), rare_parts))].tolist()
        common = ["".join(word[:size]) for word, size in zip(drawn, sizes, strict=True)]
        return cls(common, parts, joint, rare_parts)

    def lines(self, lengths: list[int], generator: np.random.Generator) -> Iterator[str]:
        """Returns lines with these numbers of words, by Zipf's law."""
        shares = 1.0 / np.arange(10, 10 + len(self.common))
        size = sum(lengths)
        places = generator.choice(len(self.common), size, p=shares / shares.sum()).tolist()
        picked = [self.common[place] for place in places]
        rare = np.flatnonzero(generator.random(size) < RARE_SHARE)
        drawn = self.parts[generator.integers(0, len(self.parts), (len(rare), self.rare_parts))]
        for place, word in zip(rare.tolist(), drawn.tolist(), strict=True):
            picked[place] = "".join(word)
        words = iter(picked)
        return (self.joint.join(islice(words, length)) for length in lengths)


def write_pairs(path: Path, sides: list[Words], count: int, generator: np.random.Generator) -> list[Chunk]:
    """Writes `count` pairs as `path`.xx and `path`.yy; returns their chunks."""
    chunks = []
    with open(f"{path}.xx", "wb") as source, open(f"{path}.yy", "wb") as target:
        for begin in range(0, count, CHUNK_LINES):
            starts = source.tell(), target.tell()
            sizes = generator.lognormal(2.9, 0.6, min(CHUNK_LINES, count - begin))
            lengths = np.clip(sizes, 1, 150).astype(int).tolist()
            for file, words in zip((source, target), sides, strict=True):
                for line in words.lines(lengths, generator):
                    file.write(line.encode() + b"\n")
            chunks.append(Chunk((starts[0], source.tell()), (starts[1], target.tell())))
    return chunks


def prepare_all(config: DataConfig) -> float:
    """Prepares the data and returns the seconds it took."""
    start = time.perf_counter()
    prepare(config)
    return time.perf_counter() - start


def first_update(config: DataConfig, run: Path, processes: int) -> float:
    """Returns the seconds from the start of the command to the end of the first update."""
    train, valid = config.train, config.valid
    options = [
        *("data=local", "data.source_lang=xx", "data.target_lang=yy", f"data.cache_dir={config.cache_dir}"),
        *(f"data.train.source={train.source}", f"data.train.target={train.target}"),
        *(f"data.valid.source={valid.source}", f"data.valid.target={valid.target}"),
        *(f"data.tokenizer.vocab_size={VOCABULARY}", "data.max_tokens=2048"),
        *(f"training.micro_batches={processes}", f"training.devices={processes}", "training.log_every=1"),
        *("model=tiny", f"run_dir={run}"),
    ]
    cache = Path(str(config.cache_dir), "prepared")
    there = {path.name for path in cache.iterdir()}
    start = time.time()
    process = subprocess.Popen([sys.executable, "-m", "nmt.cli.train", *options], stderr=subprocess.DEVNULL)
    figures = run / "metrics.jsonl"
    try:
        while not (figures.is_file() and figures.read_text().endswith("\n")):
            if process.poll() is not None:
                raise SystemExit(f"nmt-train {' '.join(options)}: ended before its first update")
            time.sleep(0.05)
    finally:
        process.terminate()
        process.wait()
    assert {path.name for path in cache.iterdir()} == there, "the run did not use the prepared data"
    first: dict[str, Any] = json.loads(figures.read_text().splitlines()[0])
    return float(first["time"]) - start


def encode_all(folder: Path, tokenizer: Path, chunks: list[Chunk], workers: int) -> float:
    """Returns the seconds of SentencePiece for the same text, in worker processes that already run."""
    setup = partial(encoder, folder, tokenizer)
    results = run_ordered(setup, [None, *chunks], workers, "a worker was killed", "Use fewer.")
    next(results)
    start = time.perf_counter()
    for _ in results:
        pass
    return time.perf_counter() - start


def encoder(folder: Path, tokenizer: Path) -> Callable[[Chunk | None], None]:
    """Returns the function with which a worker process encodes a chunk."""
    return partial(encode_chunk, folder, Tokenizer.load(tokenizer))


def encode_chunk(folder: Path, tokenizer: Tokenizer, chunk: Chunk | None) -> None:
    """Encodes a chunk and discards the result; None: only starts the process."""
    if chunk is None:
        return
    processors = (tokenizer.source.processor, tokenizer.target.processor)
    for name, (begin, end), processor in zip(
        ("train.xx", "train.yy"), (chunk.source, chunk.target), processors, strict=True
    ):
        with open(folder / name, "rb") as file:
            file.seek(begin)
            lines = file.read(end - begin).decode().split("\n")
        for at in range(0, len(lines), SLICE):
            processor.encode(lines[at : at + SLICE], num_threads=1)


def load(config: DataConfig, seconds: float) -> dict[str, Any]:
    """Returns the loader's figures, over whole blocks for at least `seconds`, from the second block on."""
    from nmt.data.batches.stream import BatchStream  # imports torch, which the other measurements do not need

    before = anonymous_bytes_of_family(os.getpid())
    prepared = prepare(config)
    stream = BatchStream(prepared.train, config, 1, prepared.tokenizer, workers=int(config.loaders))
    while next(stream)[1].batch:
        pass
    filling = Filling()
    batches = tokens = peak = 0
    start = time.perf_counter()
    while True:
        batch, cursor = next(stream)
        assert batch is not None
        tokens += batch.num_target_tokens
        batches += 1
        if cursor.batch or cursor.block:  # otherwise it was the last batch of an epoch
            filling.add(batch)
        if batches % 50 == 0 or not cursor.batch:
            peak = max(peak, anonymous_bytes_of_family(os.getpid()))
        spent = time.perf_counter() - start
        if spent > seconds and not cursor.batch:
            break
    stream.close()
    return {
        _RATE: round(tokens / spent),
        "loader_added_bytes": peak - before,
        "filling": round(1 - filling.padding / max(1, filling.capacity), 4),
        "filling_of_budget": round(filling.target / max(1, filling.batches * int(config.max_tokens)), 4),
        "mean_target_tokens": prepared.report["mean_target_tokens"],
    }


@dataclass
class Filling:
    """Sums of the tokens and the padding of batches."""

    batches: int = 0
    target: int = 0  # tokens
    padding: int = 0  # tokens of both sides
    capacity: int = 0  # of both sides

    def add(self, batch: Batch) -> None:
        """Adds a batch."""
        self.batches += 1
        self.target += batch.num_target_tokens
        self.padding += sum(batch.filling)
        self.capacity += len(batch.source_ids) + len(batch.target_out)


def epoch_order() -> float:
    """Returns the seconds to compute the order of an epoch, block by block like the stream."""
    start = time.perf_counter()
    shuffle = Shuffle(EPOCH_PAIRS, 1)
    for begin in range(0, EPOCH_PAIRS, 65_536):
        shuffle.rows(begin, min(begin + 65_536, EPOCH_PAIRS))
    return time.perf_counter() - start


def in_process(work: Callable[[], Any]) -> tuple[Any, int]:
    """Runs `work` in a new process; returns its result and the peak anonymous memory with its children."""
    context = multiprocessing.get_context("spawn")
    receiving, sending = context.Pipe(duplex=False)
    process = context.Process(target=_send, args=(sending, work))
    process.start()
    peak = [0]
    done = threading.Event()
    watcher = threading.Thread(target=_watch, args=(process.pid, peak, done))
    watcher.start()
    try:
        sending.close()
        result = receiving.recv()
    finally:
        done.set()
        watcher.join()
        process.join()
    return result, peak[0]


def _send(connection: Any, work: Callable[[], Any]) -> None:
    log_to_stderr()
    connection.send(work())


def _watch(pid: int, peak: list[int], done: threading.Event) -> None:
    while not done.wait(0.05):
        peak[0] = max(peak[0], anonymous_bytes_of_family(pid))


def _family(pid: int) -> Iterator[str]:
    yield str(pid)
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        for thread in Path(f"/proc/{pid}/task").iterdir():
            if thread.name != str(pid):
                children += (thread / "children").read_text().split()
    except OSError:
        return  # the process has just ended
    for child in children:
        yield from _family(int(child))


def anonymous_bytes_of_family(pid: int) -> int:
    """Returns the `anonymous_bytes` of a process and all its descendants."""
    return sum(map(anonymous_bytes, _family(pid)))


def anonymous_bytes(pid: str) -> int:
    """Returns the anonymous memory (`RssAnon`) of a process; 0 if it has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    line = next((line for line in status.splitlines() if line.startswith("RssAnon:")), "RssAnon: 0 kB")
    return int(line.split()[1]) * 1024


if __name__ == "__main__":
    main()
