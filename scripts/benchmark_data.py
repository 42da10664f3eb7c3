"""Measures the data stage: how fast and in how little memory pairs are prepared, opened and batched.

    python scripts/benchmark_data.py --pairs 1000000 --json data.json

The corpus is made up: words of syllables by Zipf's law, one in fifty of them never seen elsewhere, lengths
log-normal, about 25 pieces a side.

- `prepare_ratio_to_sentencepiece`: pairs a second of cleaning and encoding, over those of SentencePiece alone
  encoding the same text with as many processes. Learning the tokenizer is in neither.
- `prepare_peak_bytes`: most anonymous memory of all processes together while cleaning and encoding;
  `tokenizer_peak_bytes` the same of a preparation that learns the tokenizer too.
- `cached_start_seconds`: opening what is prepared, checksums included.
- `loader_target_tokens_per_second`, `loader_added_bytes`, `filling`: the stream of batches alone, the
  anonymous memory it adds, and the share of the budget of target tokens that is used;
  `loader_target_tokens_per_second_sampled` with subword regularisation (BPE-dropout 0.1, of a BPE model).
- `epoch_order_seconds`: the whole order of an epoch of 40 million pairs.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

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
from nmt.data.preparation import prepare
from nmt.data.shuffle import Shuffle
from nmt.data.tokenizer import Tokenizer
from nmt.data.workers import run_ordered
from nmt.runtime import available_cores, log_to_stderr

EPOCH_PAIRS = 40_000_000
CHUNK_LINES = 50_000
SAMPLED_PAIRS = 200_000  # prepared once more, with BPE
RARE_SHARE = 0.02  # of the words are made for their one place
SLICE = 4096  # lines encoded at a time, as the preparation does
LOADER_SECONDS = 10.0


@dataclass(frozen=True)
class Chunk:
    """A run of lines of the corpus, by its bytes in both files."""

    source: tuple[int, int]
    target: tuple[int, int]


def main() -> None:
    """Runs all measurements and writes them."""
    parser = argparse.ArgumentParser(description="Measures the data stage.")
    parser.add_argument("--pairs", type=int, default=200_000)
    parser.add_argument("--workers", type=int, default=0, help="0: one a core")
    parser.add_argument("--json", type=Path, help="file for the figures; default: standard output only")
    parser.add_argument("--folder", type=Path, help="where to work; default: a temporary folder")
    arguments = parser.parse_args()
    log_to_stderr()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        figures = measure(Path(folder), arguments.pairs, arguments.workers or available_cores())
    text = json.dumps(figures, indent=1)
    print(text)
    if arguments.json:
        arguments.json.write_text(text + "\n")


def measure(folder: Path, num_pairs: int, workers: int) -> dict[str, Any]:
    """All figures, by name."""
    chunks = write_corpus(folder, num_pairs)
    config = DataConfig(
        name="benchmark",
        source_lang="xx",
        target_lang="yy",
        train=TrainSplitConfig(source=str(folder / "train.xx"), target=str(folder / "train.yy")),
        valid=SplitConfig(source=str(folder / "valid.xx"), target=str(folder / "valid.yy")),
        cleaning=CleaningConfig(),
        tokenizer=TokenizerConfig(vocab_size=16_000),
        cache_dir=str(folder / "cache"),
        workers=workers,
    )
    _, tokenizer_peak = in_process(partial(prepare_all, config))
    kept = {
        path.name.split("-")[0]: path for path in (folder / "cache" / "prepared").iterdir() if path.is_dir()
    }
    for stage in ("text", "ids"):
        shutil.rmtree(kept[stage])
    prepare_seconds, prepare_peak = in_process(partial(prepare_all, config))
    bare_seconds, _ = in_process(partial(encode_all, folder, kept["tokenizer"], chunks, workers))
    cached_seconds, _ = in_process(partial(prepare_all, config))
    loader, _ = in_process(partial(load, config))
    sampled, _ = in_process(partial(load, sampled_config(config, folder)))
    return {
        "pairs": num_pairs,
        "workers": workers,
        "prepare_pairs_per_second": round(num_pairs / prepare_seconds),
        "sentencepiece_pairs_per_second": round(num_pairs / bare_seconds),
        "prepare_ratio_to_sentencepiece": round(bare_seconds / prepare_seconds, 4),
        "prepare_peak_bytes": prepare_peak,
        "tokenizer_peak_bytes": tokenizer_peak,
        "cached_start_seconds": round(cached_seconds, 3),
        **loader,
        "loader_target_tokens_per_second_sampled": sampled["loader_target_tokens_per_second"],
        "epoch_order_seconds": round(epoch_order(), 3),
        "epoch_order_pairs": EPOCH_PAIRS,
    }


def sampled_config(config: DataConfig, folder: Path) -> DataConfig:
    """The options for BPE-dropout, over fewer pairs."""
    return replace(
        config,
        train=TrainSplitConfig(source=str(folder / "sampled.xx"), target=str(folder / "sampled.yy")),
        tokenizer=replace(config.tokenizer, segmentation=Segmentation.bpe),
        sampling=SamplingConfig(alpha=0.1),
    )


def write_corpus(folder: Path, num_pairs: int) -> list[Chunk]:
    """Writes all text, and tells where every `CHUNK_LINES` lines of the training pairs begin and end."""
    generator = np.random.default_rng(1)
    syllables = np.array([c + v for c in "bcdfghjklmnprstvwz" for v in "aeiou"])
    sides = []
    for _ in range(2):
        sizes = generator.integers(1, 5, 50_000)
        sides.append(["".join(generator.choice(syllables, size)) for size in sizes])
    shares = 1.0 / np.arange(10, 50_010)
    shares /= shares.sum()
    chunks: list[Chunk] = []
    for name, count in (("valid", 1000), ("sampled", min(num_pairs, SAMPLED_PAIRS)), ("train", num_pairs)):
        chunks.clear()
        with open(folder / f"{name}.xx", "wb") as source, open(folder / f"{name}.yy", "wb") as target:
            for begin in range(0, count, CHUNK_LINES):
                lines = min(CHUNK_LINES, count - begin)
                starts = source.tell(), target.tell()
                lengths = np.clip(generator.lognormal(2.9, 0.6, lines), 1, 150).astype(int)
                for file, words in ((source, sides[0]), (target, sides[1])):
                    size = int(lengths.sum())
                    picked = [words[i] for i in generator.choice(len(words), size, p=shares).tolist()]
                    rare = np.flatnonzero(generator.random(size) < RARE_SHARE)
                    made = syllables[generator.integers(0, len(syllables), (len(rare), 5))]
                    for place, word in zip(rare.tolist(), made.tolist(), strict=True):
                        picked[place] = "".join(word)
                    line = iter(picked)
                    for length in lengths.tolist():
                        file.write(" ".join(islice(line, length)).encode() + b"\n")
                chunks.append(Chunk((starts[0], source.tell()), (starts[1], target.tell())))
    return chunks


def prepare_all(config: DataConfig) -> float:
    """Seconds of a preparation."""
    start = time.perf_counter()
    prepare(config)
    return time.perf_counter() - start


def encode_all(folder: Path, tokenizer: Path, chunks: list[Chunk], workers: int) -> float:
    """Seconds that SentencePiece takes for the same text, spread over processes that are running already."""
    results = run_ordered(encode_chunk, [None, *chunks], partial(opened, folder, tokenizer), workers)
    next(results)
    start = time.perf_counter()
    for _ in results:
        pass
    return time.perf_counter() - start


def opened(folder: Path, tokenizer: Path) -> tuple[Path, Tokenizer]:
    """What a process needs to encode."""
    return folder, Tokenizer.load(tokenizer)


def encode_chunk(state: tuple[Path, Tokenizer], chunk: Chunk | None) -> None:
    """Encodes some lines and drops the result."""
    if chunk is None:
        return
    folder, tokenizer = state
    processors = (tokenizer.source_processor, tokenizer.target_processor)
    for name, (begin, end), processor in zip(
        ("train.xx", "train.yy"), (chunk.source, chunk.target), processors, strict=True
    ):
        with open(folder / name, "rb") as file:
            file.seek(begin)
            lines = file.read(end - begin).decode().split("\n")
        for at in range(0, len(lines), SLICE):
            processor.encode(lines[at : at + SLICE], num_threads=1)


def load(config: DataConfig) -> dict[str, Any]:
    """The loader's figures: at least `LOADER_SECONDS` of batches."""
    from nmt.data.stream import BatchStream  # brings torch, which the other measurements do without

    before = anonymous_bytes("self")
    prepared = prepare(config)
    stream = BatchStream(prepared.train, config, 1, prepared.tokenizer)
    next(stream)
    tokens = batches = peak = 0
    start = time.perf_counter()
    while (seconds := time.perf_counter() - start) < LOADER_SECONDS:
        batch, _ = next(stream)
        assert batch is not None
        tokens += batch.num_target_tokens
        batches += 1
        if batches % 50 == 0:
            peak = max(peak, anonymous_bytes("self"))
    stream.close()
    return {
        "loader_target_tokens_per_second": round(tokens / seconds),
        "loader_added_bytes": peak - before,
        "filling": round(tokens / (batches * int(config.max_tokens)), 4),
        "mean_target_tokens": prepared.report["mean_target_tokens"],
    }


def epoch_order() -> float:
    """Seconds for the order of an epoch, block by block as the stream computes it."""
    start = time.perf_counter()
    shuffle = Shuffle(EPOCH_PAIRS, 1)
    for begin in range(0, EPOCH_PAIRS, 65_536):
        shuffle.rows(begin, min(begin + 65_536, EPOCH_PAIRS))
    return time.perf_counter() - start


def in_process(work: Callable[[], Any]) -> tuple[Any, int]:
    """The result of `work` in a fresh process, and the most anonymous memory of it and its children."""
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
        peak[0] = max(peak[0], sum(map(anonymous_bytes, _family(pid))))


def _family(pid: int) -> Iterator[str]:
    yield str(pid)
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        for thread in Path(f"/proc/{pid}/task").iterdir():
            if thread.name != str(pid):
                children += (thread / "children").read_text().split()
    except OSError:
        return  # it has just ended
    for child in children:
        yield from _family(int(child))


def anonymous_bytes(pid: str) -> int:
    """Memory of a process that no file backs (`RssAnon`), 0 if it has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    line = next((line for line in status.splitlines() if line.startswith("RssAnon:")), "RssAnon: 0 kB")
    return int(line.split()[1]) * 1024


if __name__ == "__main__":
    main()
