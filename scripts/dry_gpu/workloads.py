"""An update of training and steps of a search on FakeTensors of device "cuda".

Both call the code of nmt itself. Only the objects around it are built here, without data and without a run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from dry_gpu.ledger import Ledger, parts_of_weights
from nmt.config import DecodingConfig, ModelConfig, TrainConfig
from nmt.data.batches.batching import Batch
from nmt.data.batches.stream import FILLED_TO
from nmt.decoding.beams import Beams, Rules, extend
from nmt.decoding.ensemble import Ensemble
from nmt.decoding.scorers import LengthPenalty
from nmt.decoding.search import check_interval
from nmt.model import backend_of, build_model
from nmt.model.gpu import attention, layers, loss_kernels, relu_product, triton_attention
from nmt.options.arguments import Arguments
from nmt.options.compose import compose_jobs
from nmt.runtime.arrays import Side
from nmt.training.processes.ranks import Ranks
from nmt.training.state.progress import Progress
from nmt.training.update.ema import RunningMean
from nmt.training.update.training_step import TrainingStep

GPU = torch.device("cuda", 0)
# No kernel can be tried on the stand-in device.
attention.flash_runs = triton_attention.runs = lambda *arguments: True  # type: ignore[assignment]
layers.runs = lambda device: True  # type: ignore[assignment]
layers.sums_biases = lambda *arguments: True  # type: ignore[assignment, attr-defined]
loss_kernels.runs = lambda *arguments: True  # type: ignore[assignment]
relu_product.runs = lambda device, dtype: torch.cuda.get_device_capability(device) >= (8, 0)  # type: ignore[assignment]
BOS, EOS = 2, 3


def train_config(*overrides: str) -> TrainConfig:
    """Returns the options of `nmt-train data=local OVERRIDES`; only `model` and `training` are used."""
    files = ("data.train.source=a", "data.train.target=b", "data.source_lang=de", "data.target_lang=en")
    return compose_jobs(TrainConfig, "train", Arguments(("data=local", *files, *overrides)))[0]


def sentences(target_tokens: int, vocab_size: int, seed: int = 0) -> Batch:
    """Returns pairs of random ids whose lengths are distributed about as in WMT: 27 tokens on average.

    Args:
        target_tokens: the largest number of target tokens, EOS counted.
        vocab_size: ids are below this number.
        seed: of the random numbers.
    """
    rng = np.random.default_rng(seed)
    source, target, left = [], [], target_tokens
    while True:
        t = int(np.clip(rng.lognormal(3.15, 0.55), 1, 250))
        s = int(np.clip(t * rng.lognormal(0, 0.15), 1, 250))
        if t + 1 > left:
            break
        left -= t + 1
        source.append(rng.integers(4, vocab_size, s).tolist())
        target.append(rng.integers(4, vocab_size, t).tolist())
    order = sorted(range(len(source)), key=lambda i: len(source[i]))
    sides = (Side.of([side[i] for i in order]) for side in (source, target))
    return Batch.of_sides(*sides).filled(FILLED_TO)


@dataclass(frozen=True)
class Update:
    """A model in training on the stand-in device."""

    step: TrainingStep
    mean: RunningMean
    loss_scale: float

    @classmethod
    def of(cls, config: TrainConfig, vocab_size: int, processes: int = 1) -> Update:
        """Builds a model. Call it within `device.fake_tensors()`.

        Args:
            config: its sections `model` and `training`.
            vocab_size: of a joint vocabulary.
            processes: of which this is the first. If there are several, their process group exists.
        """
        training = config.training
        with GPU:
            network = build_model(config.model, vocab_size, vocab_size)
        network.to = lambda *args, **kwargs: network  # type: ignore[method-assign]  # it is there
        step = TrainingStep(network, training, Ranks(0, processes, GPU))
        step.model.train()
        mean = RunningMean(step.parallel, training.ema)
        return cls(step, mean, Progress.start(training.precision).loss_scale)

    def run(self, batch: Batch, micro_batches: int = 1, counted: Ledger | None = None) -> None:
        """Runs an update as a trainer does, up to the values that the host reads at its end.

        Args:
            batch: every micro-batch of the update.
            micro_batches: number of micro-batches.
            counted: counts what is launched.
        """
        step = self.step
        batch = (batch if step.captured is None else batch.padded((64, 256))).pin_memory()
        if counted is not None:
            counted.weights = parts_of_weights(dict(step.model.named_parameters()))
        with recording_runs(), counted or nullcontext():
            step.begin(self.loss_scale)
            for number in range(micro_batches):
                step.add(batch, number, seed=number)
            step.apply(1e-4, stop=False, seconds=1.0)
            self.mean.update(1)


class Calls(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Lists the operators that run: their arguments, with only number format and shape of tensors.

    A CUDA graph repeats all of it for other batches. So these lists must be equal.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found: list[str] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Runs an operator and lists it."""
        shown = tree_map(lambda x: (x.dtype, x.shape) if isinstance(x, Tensor) else x, (args, kwargs or {}))
        self.found.append(f"{func} {shown}")
        return func(*args, **(kwargs or {}))


def recorded_calls(update: Update, batch: Batch, seed: int) -> list[str]:
    """Returns what a CUDA graph of the passes of a batch records: see `Calls`.

    Args:
        update: of a training with `training.cuda_graphs`.
        batch: padded.
        seed: of dropout.
    """
    step, batch = update.step, batch.pin_memory()
    assert step.captured is not None
    step.begin()
    step.model.seed_dropout(seed)
    calls = Calls()
    with calls:
        step.captured.run_once(batch)
    return calls.found


@contextmanager
def recording_runs() -> Iterator[None]:
    """Makes CUDA graphs run what they record, and do nothing when they are launched."""
    with (
        patch("torch.cuda.CUDAGraph", lambda: SimpleNamespace(replay=bool)),
        patch("torch.cuda.graph", lambda *arguments, **options: nullcontext()),
        patch("torch.cuda.graph_pool_handle", object),
        patch("nmt.model.gpu.graphs._new_stream", lambda device: object()),
        patch("nmt.model.gpu.graphs._left_as_it_was", lambda *arguments: nullcontext()),
    ):
        yield


def search(
    model: ModelConfig,
    vocab_size: int,
    precision: torch.dtype | None,
    counted: Callable[[], Ledger],
    *,
    num_sentences: int = 64,
    longest: int = 30,
    steps: int = 16,
    beam_size: int = 4,
) -> tuple[Ledger, Ledger]:
    """Runs the start of a search and its first steps. Call it within `device.fake_tensors()`.

    Args:
        model: the `model` section.
        vocab_size: of a joint vocabulary.
        precision: of matrix products; None: fp32.
        counted: makes a ledger.
        num_sentences: sentences of the batch.
        longest: source tokens of the longest sentence; the shortest has half as many.
        steps: number of steps.
        beam_size: hypotheses per sentence.

    Returns:
        The ledgers of the start and of all steps.
    """
    with GPU:
        network = build_model(model, vocab_size, vocab_size).eval()
    network.backend = backend_of(GPU)
    rng = np.random.default_rng(1)
    lengths = sorted(rng.integers(longest // 2, longest, num_sentences).tolist())
    batch = Batch.of([rng.integers(4, vocab_size, n).tolist() for n in lengths], [()] * num_sentences)
    ensemble, scorer = Ensemble([network]), LengthPenalty(0.6)
    limits = tuple(n + 51 for n in lengths)
    autocast: AbstractContextManager[Any] = torch.autocast("cuda", precision, enabled=precision is not None)
    start, all_steps = counted(), counted()
    with torch.inference_mode(False), torch.no_grad(), autocast:
        forbidden = torch.zeros(3, dtype=torch.int64, device=GPU)
        rules = Rules(beam_size, DecodingConfig().nbest, scorer, BOS, EOS, forbidden, limits)
        with start:
            state = ensemble.start(batch.to(GPU))
            beams = Beams.start(rules, GPU)
        with all_steps:
            for step in range(1, steps + 1):
                output = ensemble.step(beams.ids[:, :, -1], state)
                extension = extend(beams, output.log_probs, step, rules)
                width, beams = beams.ids.shape[1], extension.beams
                if step % check_interval(GPU) == 0:
                    beams.flags(scorer, limits)
                    all_steps.host_syncs["flags of finished sentences"] += 1
                state = output.state.select(extension.rows(width))
    return start, all_steps
