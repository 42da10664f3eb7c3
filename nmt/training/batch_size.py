"""Finds the largest batches that fit into memory, once for each run.

For `data.max_tokens=auto` and `training.fit_micro_batches`.
"""

from __future__ import annotations

from dataclasses import replace

from nmt.config import Precision, Sharding, TrainConfig
from nmt.data.preparation.prepare import Prepared
from nmt.errors import UserError
from nmt.runtime import choose_device, log
from nmt.training.figures.memory import MemoryMeter
from nmt.training.memory_probe import OutOfMemory, largest_batches, logged_if_slow
from nmt.training.processes.launcher import num_processes
from nmt.training.processes.ranks import Ranks
from nmt.training.state.run_folder import RunFolder, split_evenly, with_split
from nmt.training.trainer import Trainer

LARGEST = 25_000  # target tokens of an update in the paper; larger batches rarely help
SMALLEST = 16
_SHARE = 0.8  # of the free memory; the rest is for prefetched batches and fragmentation
_RESERVE = 64 * 2**20  # bytes, for validation, writing checkpoints and threads
_KERNEL_RESERVE = 256 * 2**20  # bytes; measured: 0.1 to 0.3 GB
_MULTIPLE = 8
_FIRST_PROBE = 512  # tokens; large enough to measure how memory grows, and fast


def require_number(config: TrainConfig) -> None:
    """Requires options with which `data.max_tokens=auto` can be resolved.

    The memory probe runs in one process, before the others start. A sharded model needs all of them, and the
    memory that it leaves free on each differs.

    Raises:
        UserError: `data.max_tokens=auto` is given and the model is sharded among several processes.
    """
    options = config.training
    if config.data.max_tokens == "auto" and options.sharding is Sharding.full and int(options.devices) > 1:
        raise UserError(
            "data.max_tokens=auto: not supported with training.sharding=full on several processes. "
            "Give a number, such as data.max_tokens=4096 (the largest batches are tried before training)."
        )


def with_max_tokens(
    config: TrainConfig, prepared: Prepared, folder: RunFolder, processes: int
) -> TrainConfig:
    """Returns the options with `data.max_tokens=auto` replaced by a number.

    Args:
        config: the options of the run, every other `auto` replaced.
        prepared: the data of the run.
        folder: the folder of the run.
        processes: how many processes share the memory of this machine.

    Raises:
        UserError: not even the smallest batch fits into memory.
    """
    if config.data.max_tokens != "auto":
        return config
    tokens = _found(config, prepared, folder, processes, "data.max_tokens=auto", LARGEST)
    log.info("data.max_tokens=auto: %d target tokens fit into a micro-batch", tokens)
    return replace(config, data=replace(config.data, max_tokens=tokens))


def with_former_split(config: TrainConfig, folder: RunFolder) -> TrainConfig:
    """Returns the options without `training.fit_micro_batches`, unless a split is still to be found.

    A run in the folder has its split already. `data.max_tokens=auto` has the largest micro-batches anyway,
    and on a CPU the micro-batches are as given.
    """
    if not config.training.fit_micro_batches:
        return config
    if config.data.max_tokens == "auto":
        return with_split(config)
    config = folder.with_found_split(config, num_processes(config.training))
    return config if choose_device("auto").type == "cuda" else with_split(config)


def with_fitted_split(
    config: TrainConfig, prepared: Prepared, folder: RunFolder, processes: int
) -> TrainConfig:
    """Returns the options with as few micro-batches per update as fit into memory, if they are to be found.

    Every process has the same number. With `training.sharding=full` on several processes the batches can't be
    tried (see `require_number`); the micro-batches are as given, but at least one per process.

    Args:
        config: the options of the run, every `auto` replaced.
        prepared: the data of the run.
        folder: the folder of the run.
        processes: how many processes share the memory of this machine.

    Raises:
        UserError: not even the smallest batch fits into memory.
    """
    options = config.training
    if not options.fit_micro_batches:
        return config
    world = int(options.devices)
    if options.sharding is Sharding.full and world > 1:
        parts = max(world, options.micro_batches)
    else:
        most = split_evenly(config, world)
        largest = _found(config, prepared, folder, processes, "training.fit_micro_batches=true", most)
        parts = world * -(-most // largest)
    tokens = split_evenly(config, parts)
    log.info(
        "training.fit_micro_batches=true: data.max_tokens=%d training.micro_batches=%d",
        *(tokens, parts),
    )
    return with_split(config, tokens, parts)


def _found(
    config: TrainConfig, prepared: Prepared, folder: RunFolder, processes: int, option: str, largest: int
) -> int:
    """Returns the largest `data.max_tokens` up to `largest` that fits; `option` is for the log."""
    ranks = Ranks.join(0, 1, 0, choose_device("auto"))
    trainer = Trainer(config, prepared, folder, ranks, bool)
    meter = MemoryMeter(ranks.device, processes)
    with logged_if_slow(f"{option}: searching for the largest batches that fit into memory"):
        tokens = largest_max_tokens(trainer, meter, largest)
    del trainer
    meter.release()
    return tokens


def largest_max_tokens(trainer: Trainer, meter: MemoryMeter, largest: int = LARGEST) -> int:
    """Returns the largest `data.max_tokens` up to `largest` with which the largest batches fit into memory.

    For given sentence lengths, the memory of a batch grows linearly with its tokens. Two small batches
    therefore predict the memory of large ones. The prediction is tried, and lowered until it fits.

    Raises:
        OutOfMemory: not even the smallest batch fits.
    """
    tokens = min(largest, _estimate(trainer, meter))
    while True:
        try:
            trainer.probe_memory(tokens)
            return tokens
        except OutOfMemory:
            if tokens == SMALLEST:
                raise
        meter.release()  # after `except`: the error holds references to the tensors of the failed batch
        tokens = _rounded(0.8 * tokens)


def _estimate(trainer: Trainer, meter: MemoryMeter) -> int:
    taken = []
    data = replace(trainer.config.data, max_tokens=LARGEST)
    longest = max(
        side.max_len for b in largest_batches(trainer.prepared.train, data) for side in (b.source, b.target)
    )
    first = max(_FIRST_PROBE, longest)  # room for the longest sentence, as attention is quadratic in it
    try:
        trainer.probe_memory(first)  # so that one-time allocations are not counted
        free = meter.free() - _reserve(trainer.config)
        for tokens in (first, 2 * first):
            meter.start()
            trainer.probe_memory(tokens)
            taken.append(meter.taken())
    except OutOfMemory:
        return first
    except OSError:
        log.warning("data.max_tokens=auto: this system does not report the memory of a process; using 4096")
        return 4096
    # Of a graph and of a pass without it, which have memory of their own, the meter sees one.
    copies = 1 if trainer.training_step.captured is None else 2
    a_token = max(1.0, copies * (taken[1] - taken[0]) / first)
    return min(LARGEST, _rounded(first + (_SHARE * free - copies * taken[0]) / a_token))


def _reserve(config: TrainConfig) -> int:
    """Returns the bytes to leave free: for other uses, and for kernels that oneDNN compiles later."""
    plain = config.training.precision is Precision.fp32 and not config.training.onednn_fp32
    return _RESERVE if plain or choose_device("auto").type == "cuda" else _RESERVE + _KERNEL_RESERVE


def _rounded(tokens: float) -> int:
    return max(SMALLEST, int(tokens) // _MULTIPLE * _MULTIPLE)
