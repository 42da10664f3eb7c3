"""Measures training against two padded implementations: target tokens per second, memory, MFU.

    pip install -e .[bench]
    python scripts/benchmark_training.py --json training.json

All systems train on the same sentences, with the same model shape, vocabulary, token budget, precision and
number of threads:

- `nmt`: this trainer, complete: flat batches from the loader, figures for the log, the progress bar.
- `torch`: `torch.nn.Transformer`, label-smoothed cross-entropy, fused Adam. Its batches hold sentences of
  similar length; they are padded in advance, so that making them costs no time.
- `transformers`: Hugging Face `MarianMTModel` in the same loop as `torch`.
- `nmt+half`: this trainer with `training.half_residual=true`, if `--systems` names it.
- `nmt+kernels`: this trainer with all `training.unmeasured_kernels`, if `--systems` names it.
- `nmt+graphs`: this trainer with `training.cuda_graphs=true`, if `--systems` names it.
- `nmt+muon`: this trainer with `training.optimizer.name=muon`, if `--systems` names it.

Each measurement runs in a separate process. Each round measures all systems in turn. The table shows the
median of the rounds, with the lowest and the highest value. Padding counts neither as tokens nor as work.

- `target_tokens_per_second`: with EOS, without padding.
- `peak_bytes`: peak memory (anonymous on a CPU, reserved on a GPU), minus the memory after the imports. All
  systems train on the largest batch, or one of its size, before they are timed.
- `mfu`: floating-point operations of the model's matrix products (`nmt.model.size`), divided by the speed of
  one large matrix product with the same precision and threads.

The corpus is synthetic, with words of syllables, unless `--source` and `--target` name files.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
from benchmark_data import anonymous_bytes, in_process, write_corpus

from nmt.config import Kernel, ModelConfig, Precision, TrainConfig
from nmt.config.storage import from_yaml, to_yaml
from nmt.data.preparation.prepare import Prepared, prepare
from nmt.options.arguments import Arguments
from nmt.options.compose import compose_jobs
from nmt.runtime.arrays import Side
from nmt.runtime.machine import available_cores, choose_device, set_threads
from nmt.runtime.streams import log_to_stderr

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

SYSTEMS = ("nmt", "torch", "transformers")
HALF = "nmt+half"
KERNELS = "nmt+kernels"
GRAPHS = "nmt+graphs"
MUON = "nmt+muon"
OWN = ("nmt", HALF, KERNELS, GRAPHS, MUON)
WARM_UP_UPDATES = 5
SMOOTHING = 0.1


@dataclass(frozen=True)
class Task:
    """One measurement: a system, and the options of a run as YAML, to be sent to its process."""

    system: str
    config: str
    threads: int
    seconds: float


@dataclass(frozen=True)
class Row:
    """The result of a system over all rounds."""

    system: str
    model: str
    precision: str
    max_tokens: int
    target_tokens_per_second: int
    lowest: int
    highest: int
    peak_bytes: int
    mfu: float


def main() -> None:
    """Measures all systems, prints the table, and writes the rows."""
    parser = argparse.ArgumentParser(description="Measures training.")
    parser.add_argument("--models", nargs="+", default=["tiny", "base"])
    parser.add_argument("--precisions", nargs="+", default=["fp32", "bf16"], choices=["fp32", "bf16", "fp16"])
    parser.add_argument("--systems", nargs="+", default=list(SYSTEMS), choices=(*SYSTEMS, *OWN[1:]))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--seconds", type=float, default=20.0, help="duration of each measurement, after the warm-up"
    )
    parser.add_argument("--threads", type=int, default=0, help="0: one per core")
    parser.add_argument(
        "--max-tokens",
        type=int,
        help="largest number of target tokens in a batch; default: 2,048, on a GPU 25,000",
    )
    parser.add_argument("--vocab-size", type=int, default=8000)
    parser.add_argument("--pairs", type=int, help="size of the synthetic corpus; default: 10 x --max-tokens")
    parser.add_argument("--source", type=Path, help="text to train on, instead of the synthetic corpus")
    parser.add_argument("--target", type=Path)
    parser.add_argument("--json", type=Path, help="file for the rows")
    arguments = parser.parse_args()
    if arguments.max_tokens is None:
        on_gpu, _ = in_process(has_gpu)
        arguments.max_tokens = 25_000 if on_gpu else 2048
    if arguments.pairs is None:
        arguments.pairs = 10 * arguments.max_tokens
    log_to_stderr()
    with tempfile.TemporaryDirectory() as folder:
        rows = list(measure(Path(folder), arguments))
    print(table(rows))
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")


def measure(folder: Path, arguments: argparse.Namespace) -> Iterator[Row]:
    """Yields all rows, for one model and one precision after the other."""
    source, target = arguments.source, arguments.target
    if source is None:
        write_corpus(folder, arguments.pairs)
        source, target = folder / "train.xx", folder / "train.yy"
    threads = arguments.threads or available_cores()
    for model in arguments.models:
        for precision in arguments.precisions:
            config = options(folder, arguments, source, target, model, precision)
            tasks = {
                system: Task(system, config_of(system, config), threads, arguments.seconds)
                for system in arguments.systems
            }
            rounds = [
                {system: in_process(partial(run, task)) for system, task in tasks.items()}
                for _ in range(arguments.rounds)
            ]
            flops, _ = in_process(partial(flops_per_target_token, to_yaml(config)))
            ceiling, _ = in_process(partial(matrix_product_flops, precision, threads))
            for system in tasks:
                of_system = [r[system] for r in rounds]
                row = summary(system, model, precision, of_system, flops / ceiling)
                yield replace(row, max_tokens=arguments.max_tokens)


def summary(
    system: str, model: str, precision: str, rounds: Sequence[tuple[Any, int]], share_a_token: float
) -> Row:
    """Returns the row of a system; `share_a_token`: seconds for one token at the peak speed."""
    speeds = [speed for (speed, _, _), _ in rounds]
    peaks = [on_device or peak - before for (_, before, on_device), peak in rounds]
    middle = median(speeds)
    return Row(
        system=system,
        model=model,
        precision=precision,
        max_tokens=0,
        target_tokens_per_second=round(middle),
        lowest=round(min(speeds)),
        highest=round(max(speeds)),
        peak_bytes=round(median(peaks)),
        mfu=round(middle * share_a_token, 4),
    )


def table(rows: Sequence[Row]) -> str:
    """Returns the rows as text with the speed-up of nmt; last, nmt's best against the others in fp32."""
    head = f"{'model':<7}{'precision':<11}{'system':<14}{'tokens/s':>9}{'lowest-highest':>18}"
    lines = [head + f"{'peak MB':>9}{'MFU':>7}{'nmt is faster by':>18}"]
    for row in rows:
        own = [r for r in rows if r.system == "nmt" and (r.model, r.precision) == (row.model, row.precision)]
        ratio = ""
        if own and row.system != "nmt":
            ratio = f"{own[0].target_tokens_per_second / row.target_tokens_per_second:.2f}x"
        spread = f"{row.lowest:,}-{row.highest:,}"
        lines.append(
            f"{row.model:<7}{row.precision:<11}{row.system:<14}{row.target_tokens_per_second:>9,}{spread:>18}"
            f"{row.peak_bytes / 1e6:>9,.0f}{row.mfu:>7.1%}{ratio:>18}"
        )
    for model in dict.fromkeys(row.model for row in rows):
        of_model = [row for row in rows if row.model == model]
        own = [row for row in of_model if row.system == "nmt" and row.precision != "fp32"]
        others = [row for row in of_model if row.system != "nmt" and row.precision == "fp32"]
        if own and others:
            best = max(own, key=lambda row: row.target_tokens_per_second)
            fastest = max(row.target_tokens_per_second for row in others)
            times = best.target_tokens_per_second / fastest
            lines.append(
                f"{model}: nmt in {best.precision} is {times:.2f}x as fast as the best other system in fp32"
            )
    return "\n".join(lines)


def options(
    folder: Path, arguments: argparse.Namespace, source: Path, target: Path, model: str, precision: str
) -> TrainConfig:
    """Returns the options of a run: the paper's, except for the data and the requested sizes."""
    overrides = (
        "data=local",
        f"model={model}",
        f"run_dir={folder / 'run'}",
        f"data.train.source={source}",
        f"data.train.target={target}",
        f"data.valid.source={source}",
        f"data.valid.target={target}",
        "data.source_lang=xx",
        "data.target_lang=yy",
        "data.cleaning.drop_leaked=false",
        f"data.cache_dir={folder / 'cache'}",
        f"data.tokenizer.vocab_size={arguments.vocab_size}",
        f"data.max_tokens={arguments.max_tokens}",
        "data.max_source_ratio=1",  # padded batches have the same limit on both sides
        f"training.precision={precision}",
        "training.validate_every=1000000",
        "training.checkpoint_every=1000000",
    )
    return compose_jobs(TrainConfig, "train", Arguments(overrides))[0]


def config_of(system: str, config: TrainConfig) -> str:
    """Returns the options of a system as YAML."""
    training = replace(
        config.training,
        half_residual=system == HALF,
        unmeasured_kernels=[*Kernel] if system == KERNELS else [],
        cuda_graphs=system == GRAPHS,
        optimizer=replace(config.training.optimizer, name="muon" if system == MUON else "adam"),
    )
    return to_yaml(replace(config, training=training))


def run(task: Task) -> tuple[float, int, int]:
    """Returns target tokens per second, anonymous bytes after the imports, and a GPU's peak (CPU: 0)."""
    import torch

    if task.system == "transformers":
        import transformers

        assert transformers
    config = from_yaml(TrainConfig, task.config, "the benchmark's options")
    device = choose_device("auto")
    set_threads(task.threads)
    torch.manual_seed(1)
    # It plans each new shape of a batch for about a second; PyTorch prefers it on an H100.
    torch.backends.cuda.enable_cudnn_sdp(False)
    before = anonymous_bytes("self")
    prepared = prepare(config.data)
    if task.system in OWN:
        speed = train_nmt(config, prepared, device, task)
    else:
        build = padded_transformer if task.system == "torch" else marian
        vocab_size = prepared.tokenizer.target.size
        speed = train_padded(build(config.model, vocab_size).to(device), config, prepared, device, task)
    return speed, before, torch.cuda.max_memory_reserved() if device.type == "cuda" else 0


class Clock:
    """Measures the speed from the end of the warm-up until the time is over."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._calls = 0

    def __call__(self, tokens: int) -> bool:
        """Returns whether the time is over; `tokens` is the number of target tokens so far."""
        now = time.perf_counter()
        self._calls += 1
        if self._calls <= WARM_UP_UPDATES + 1:
            self._start, self._before = now, tokens
        self.speed = (tokens - self._before) / max(now - self._start, 1e-9)
        return now - self._start >= self.seconds


def train_nmt(config: TrainConfig, prepared: Prepared, device: torch.device, task: Task) -> float:
    """Trains with this trainer, called as `nmt-train` calls it; returns the speed."""
    from nmt.training.processes.ranks import Ranks
    from nmt.training.run import set_up_machine
    from nmt.training.state.run_folder import RunFolder
    from nmt.training.trainer import Trainer

    clock = Clock(task.seconds)
    with tempfile.TemporaryDirectory() as folder:
        training = replace(config.training, threads=task.threads)
        config = replace(config, run_dir=folder, training=training)
        set_up_machine(config, 1)
        trainer = Trainer(
            config,
            prepared,
            RunFolder(Path(folder)),
            Ranks.join(0, 1, 0, device),
            stop=lambda: clock(trainer.progress.target_tokens),
        )
        trainer.train()
    return clock.speed


Step = Callable[["Tensor", "Tensor"], "Tensor"]


def train_padded(
    model: nn.Module, config: TrainConfig, prepared: Prepared, device: torch.device, task: Task
) -> float:
    """Trains over padded batches; `model` maps (B, S) and (B, T) ids to (B, T, V) logits."""
    import torch
    import torch.nn.functional as F

    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(config.training.precision.value)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9, fused=True)

    def pinned(side: Tensor) -> Tensor:
        return side.pin_memory() if device.type == "cuda" else side

    batches = [  # with their target tokens: counting them in the loop would synchronise with the GPU
        (tuple(map(pinned, batch)), int((batch[2] != 0).sum()))
        for batch in padded_batches(prepared, int(config.data.max_tokens))
    ]
    model.train()
    clock, tokens, number = Clock(task.seconds), 0, 0
    while not clock(tokens):
        batch, count = batches[number % len(batches)]
        source, target_in, target_out = (side.to(device, non_blocking=True) for side in batch)
        number += 1
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device.type, dtype or torch.bfloat16, enabled=dtype is not None):
            logits = model(source, target_in)
        loss = F.cross_entropy(
            logits.flatten(0, 1).float(),
            target_out.flatten(),
            ignore_index=0,
            label_smoothing=SMOOTHING,
            reduction="sum",
        )
        torch.autograd.backward(loss / count)
        optimizer.step()
        tokens += count
    return clock.speed


def padded_batches(prepared: Prepared, max_tokens: int) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Returns batches of similar lengths, padded with 0: sources (B, S), target inputs and outputs (B, T)."""
    import torch

    from nmt.data.subwords.vocabulary import BOS_ID, EOS_ID

    store = prepared.train
    source, target = store.take(np.arange(store.num_pairs))
    lengths = np.stack([source.lengths() + 1, target.lengths() + 1])
    order = np.lexsort((np.random.default_rng(1).random(store.num_pairs), lengths[0], lengths[1]))
    groups: list[list[int]] = [[]]
    for row in order.tolist():
        longest = lengths[:, [*groups[-1], row]].max(axis=1)
        if longest.max() * (len(groups[-1]) + 1) > max_tokens and groups[-1]:
            groups.append([])
        groups[-1].append(row)
    # The longest batch first, before the time is measured, so that its memory is allocated.
    shuffled = [len(groups) - 1, *np.random.default_rng(2).permutation(len(groups) - 1).tolist()]

    def padded(side: Side, rows: Sequence[int], before: list[int], after: list[int]) -> Tensor:
        sentences = [torch.tensor(before + side[row].tolist() + after) for row in rows]
        return torch.nn.utils.rnn.pad_sequence(sentences, batch_first=True)

    return [
        (
            padded(source, groups[i], [], [EOS_ID]),
            padded(target, groups[i], [BOS_ID], []),
            padded(target, groups[i], [], [EOS_ID]),
        )
        for i in shuffled
    ]


def padded_transformer(config: ModelConfig, vocab_size: int) -> nn.Module:
    """Returns a `torch.nn.Transformer` with one shared embedding matrix, as in the paper."""
    import torch
    import torch.nn.functional as F
    from torch import nn

    device = choose_device("auto")

    class Padded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(vocab_size, config.d_model)
            nn.init.normal_(self.embedding.weight, std=config.d_model**-0.5)
            self.dropout = nn.Dropout(config.dropout)
            self.transformer = nn.Transformer(
                *(config.d_model, config.heads, config.encoder_layers, config.decoder_layers, config.d_ff),
                dropout=config.dropout,
                batch_first=True,
            )
            places = torch.arange(1024)[:, None] * torch.exp(
                torch.arange(0, config.d_model, 2) * (-math.log(10_000.0) / config.d_model)
            )
            self.positions = torch.stack([places.sin(), places.cos()], dim=-1).flatten(1).to(device)

        def embed(self, ids: Tensor) -> Tensor:
            x = self.embedding(ids) * math.sqrt(config.d_model) + self.positions[: ids.shape[1]]
            dropped: Tensor = self.dropout(x)
            return dropped

        def forward(self, source: Tensor, target: Tensor) -> Tensor:
            size = target.shape[1]
            causal = torch.ones(size, size, dtype=torch.bool, device=target.device).triu(1)
            hidden = self.transformer(
                self.embed(source),
                self.embed(target),
                tgt_mask=causal,
                src_key_padding_mask=source == 0,
                memory_key_padding_mask=source == 0,
                tgt_is_causal=True,
            )
            return F.linear(hidden, self.embedding.weight)

    return Padded()


def marian(config: ModelConfig, vocab_size: int) -> nn.Module:
    """Returns Hugging Face's Marian of the same shape; each step reads its mask and so waits for the GPU."""
    from torch import nn
    from transformers import MarianMTModel

    from nmt.interop.marian_export import marian_config

    shape = marian_config(config, vocab_size, vocab_size, max_length=1024)
    shape.use_cache = False

    class Marian(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = MarianMTModel(shape)

        def forward(self, source: Tensor, target: Tensor) -> Tensor:
            logits: Tensor = self.model(
                input_ids=source, attention_mask=(source != 0).long(), decoder_input_ids=target
            ).logits
            return logits

    return Marian()


def flops_per_target_token(config_text: str) -> float:
    """Returns the floating-point operations of training per target token, over the whole corpus."""
    from nmt.data.batches.batching import Batch
    from nmt.model.size import training_flops

    config = from_yaml(TrainConfig, config_text, "the benchmark's options")
    prepared = prepare(config.data)
    corpus = Batch.of_sides(*prepared.train.take(np.arange(prepared.train.num_pairs)))
    flops = training_flops(config.model, prepared.tokenizer.target.size, corpus)
    return flops / corpus.num_target_tokens


def has_gpu() -> bool:
    """Returns whether the benchmark runs on a GPU."""
    return choose_device("auto").type == "cuda"


def matrix_product_flops(precision: str, threads: int) -> float:
    """Returns the operations per second of a large matrix product, in the fastest mode of equal accuracy."""
    from nmt.runtime.fp32_products import speed_up_fp32_products
    from nmt.training.figures.meter import measured_ceiling

    set_threads(threads)
    speed_up_fp32_products(True)
    return measured_ceiling(choose_device("auto"), Precision(precision))


if __name__ == "__main__":
    main()
