"""`data.max_tokens=auto`: the largest batches that fit into memory, found once and kept with the run."""

from __future__ import annotations

from dataclasses import replace

from nmt.config import Precision, Sharding, TrainConfig
from nmt.data.preparation.prepare import Prepared
from nmt.errors import UserError
from nmt.runtime import choose_device, log
from nmt.training.figures.memory import MemoryMeter
from nmt.training.memory_probe import OutOfMemory, largest_batches
from nmt.training.processes.ranks import Ranks
from nmt.training.state.run_folder import RunFolder
from nmt.training.trainer import Trainer

MOST = 25_000  # target tokens of an update in the paper: more is seldom of use
LEAST = 16
_SHARE = 0.8  # of what is free: the rest is for batches made ahead and for fragments
_ASIDE = 64 * 2**20  # for validation, writing checkpoints, threads
_KERNELS = 256 * 2**20  # seen: 0.1 to 0.3 GB
_STEP = 8
_FIRST = 512  # tokens at which the growth is measured: enough to show it, and quick


def require_number(config: TrainConfig) -> None:
    """Raises `UserError` where `data.max_tokens=auto` can't be found out.

    It is tried in one process, before the others are there; a model cut up among several needs all of them,
    and what it leaves of the memory of each is another matter.
    """
    options = config.training
    if config.data.max_tokens == "auto" and options.sharding is Sharding.full and int(options.devices) > 1:
        raise UserError(
            "data.max_tokens=auto: can't be found out with training.sharding=full on several processes; "
            "give a number, such as data.max_tokens=4096 (the largest batches are tried before training)"
        )


def with_max_tokens(
    config: TrainConfig, prepared: Prepared, folder: RunFolder, processes: int
) -> TrainConfig:
    """The options with `data.max_tokens=auto` replaced by a number.

    Args:
        config: of the run, every other `auto` replaced.
        prepared: its data.
        folder: of the run.
        processes: how many share the memory of this machine.

    Raises:
        UserError: not even the smallest batch fits.
    """
    if config.data.max_tokens != "auto":
        return config
    ranks = Ranks.join(0, 1, 0, choose_device("auto"))
    trainer = Trainer(config, prepared, folder, ranks, bool)
    meter = MemoryMeter(ranks.device, processes)
    tokens = largest_max_tokens(trainer, meter)
    del trainer
    meter.release()
    log.info("data.max_tokens=auto: %d target tokens fit into a micro-batch", tokens)
    return replace(config, data=replace(config.data, max_tokens=tokens))


def largest_max_tokens(trainer: Trainer, meter: MemoryMeter) -> int:
    """The largest `data.max_tokens` with which the largest batches fit.

    The lengths of sentences being what they are, the memory of a batch grows in proportion to its tokens; so
    two small ones tell of the large ones. What they tell is then tried, and lowered as long as it fails.

    Raises:
        OutOfMemory: not even the smallest fits.
    """
    tokens = _estimate(trainer, meter)
    while True:
        try:
            trainer.rehearse(tokens)
            return tokens
        except OutOfMemory:
            if tokens == LEAST:
                raise
        meter.release()  # not before the error is forgotten, which holds what the failed batch has made
        tokens = _rounded(0.8 * tokens)


def _estimate(trainer: Trainer, meter: MemoryMeter) -> int:
    taken = []
    data = replace(trainer.config.data, max_tokens=MOST)
    longest = max(
        side.max_len for b in largest_batches(trainer.prepared.train, data) for side in (b.source, b.target)
    )
    first = max(_FIRST, longest)  # where sentences have their full length: attention grows with its square
    try:
        trainer.rehearse(first)  # what only the first batch needs is not counted
        free = meter.free() - _aside(trainer.config)
        for tokens in (first, 2 * first):
            meter.start()
            trainer.rehearse(tokens)
            taken.append(meter.taken())
    except OutOfMemory:
        return first
    except OSError:
        log.warning("data.max_tokens=auto: this system does not tell how much memory a process takes")
        return 4096
    a_token = max(1.0, (taken[1] - taken[0]) / first)
    return min(MOST, _rounded(first + (_SHARE * free - taken[0]) / a_token))


def _aside(config: TrainConfig) -> int:
    """Room for what comes beside batches: all else, and what oneDNN compiles for shapes that come later."""
    plain = config.training.precision is Precision.fp32 and not config.training.onednn_fp32
    return _ASIDE if plain or choose_device("auto").type == "cuda" else _ASIDE + _KERNELS


def _rounded(tokens: float) -> int:
    return max(LEAST, int(tokens) // _STEP * _STEP)
