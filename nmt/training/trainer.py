"""The training loop: updates, and after each what is due, until the end or a stop."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import ExitStack, closing

import torch

from nmt.config import TrainConfig
from nmt.data.batching import Batch
from nmt.data.preparation import Prepared
from nmt.data.stream import BatchStream
from nmt.errors import UserError
from nmt.model.transformer import Transformer
from nmt.runtime import log, mix
from nmt.training.averaging import needed
from nmt.training.checkpoint import Checkpoint, CheckpointFolder
from nmt.training.monitor import Monitor, perplexity
from nmt.training.objective import label_smoothed_loss
from nmt.training.optimizer import set_learning_rate
from nmt.training.parallel import State, spread
from nmt.training.precision import adapt_loss_scale, autocast, first_loss_scale
from nmt.training.progress import Progress, Saved
from nmt.training.ranks import Ranks
from nmt.training.run_folder import RunFolder, fingerprint
from nmt.training.schedule import learning_rate
from nmt.training.validation import ValidationStopped, validator_for

MAX_SKIPPED_IN_A_ROW = 10
_TOKENS, _LOSS, _NLL, _STOP, _SECONDS = range(5)  # what travels at the end of the gradients


class Trainer:
    """A model, its optimizer, and the counters of the run.

    Args:
        config: of the run, every `auto` replaced.
        prepared: its data.
        folder: where it keeps its state; the main process alone writes there.
        ranks: the processes it shares the work with.
        stop: asked between updates; once true, the state is saved and training stops.
    """

    def __init__(
        self,
        config: TrainConfig,
        prepared: Prepared,
        folder: RunFolder,
        ranks: Ranks,
        stop: Callable[[], bool],
    ) -> None:
        self.config, self.options, self.prepared = config, config.training, prepared
        self.folder, self.ranks, self.stop = folder, ranks, stop
        self.parallel = spread(build_model(config, prepared), self.options, ranks, num_extras=5)
        self.model, self.optimizer = self.parallel.model, self.parallel.optimizer
        self.progress = Progress(loss_scale=first_loss_scale(self.options.precision))
        self.checkpoints = open_checkpoints(config, prepared, folder)

    def train(self) -> bool:
        """Trains to the end, or until it is asked to stop; the last state is saved either way.

        Returns:
            Whether the training is over.

        Raises:
            UserError: no checkpoint can be read or written, or the loss is not finite again and again.
        """
        self._restore()
        self._begun = time.perf_counter() - self.progress.total_seconds
        with ExitStack() as stack:
            self._open(stack)
            self._settle()
            while not self._stopping and self.progress.ended(self.options) is None:
                self._update()
                self._settle()
            self._save_last()
        return not self._stopping

    def _update(self) -> None:
        """One step of the optimizer, on the micro-batches of all processes."""
        started = time.perf_counter()
        progress, sums = self.progress, self.parallel.extras
        self.parallel.zero()
        for number in range(self.options.micro_batches):
            batch, cursor = next(self._stream)
            if batch is not None:
                self._micro_batch(batch, number)
        sums[_STOP] = float(self.stop())
        sums[_SECONDS] = time.perf_counter() - self._begun if self.ranks.is_main else 0.0
        tokens, loss, nll, stopping, seconds, norm = self.parallel.sums().tolist()
        progress.update += 1
        progress.epoch_ended = cursor.epoch > progress.cursor.epoch
        progress.cursor, progress.settled = cursor, False
        progress.target_tokens += int(tokens)
        progress.total_seconds = seconds
        self._stopping = stopping > 0
        norm /= tokens * progress.loss_scale
        self._step(tokens, norm, finite=math.isfinite(loss) and math.isfinite(norm))
        spent = time.perf_counter() - started
        progress.seconds += spent
        self._log_update(tokens, loss, nll, norm, spent)

    def _micro_batch(self, batch: Batch, number: int) -> None:
        """Adds a micro-batch's gradient, loss and tokens to the sums of the update."""
        batch = batch.to(self.ranks.device, non_blocking=True)
        self.model.seed_dropout(mix(self.config.seed, self.progress.update, number))
        with autocast(self.ranks.device, self.options.precision):
            logits = self.model.logits(self.model(batch))
        loss, nll = label_smoothed_loss(logits, batch.target_out, self.options.label_smoothing)
        scaled = loss if self.progress.loss_scale == 1.0 else loss * self.progress.loss_scale
        self.parallel.backward(scaled, last=number + self.ranks.world >= self.options.micro_batches)
        sums = self.parallel.extras
        sums[_TOKENS] += batch.num_target_tokens
        sums[_LOSS] += loss.detach()
        sums[_NLL] += nll

    def _step(self, tokens: float, norm: float, finite: bool) -> None:
        """Moves the weights along the mean gradient, unless it is no number."""
        progress = self.progress
        scale = tokens * progress.loss_scale
        if adapt_loss_scale(progress, self.options.precision, finite):
            progress.skipped_updates += 1
            log.info("update %d skipped: fp16 overflowed at this loss scale; halved", progress.update)
            return
        if not finite:
            self._skip()
            return
        progress.skipped_in_a_row = 0
        clip = self.options.clip_norm
        self.parallel.scale((clip / norm if 0 < clip < norm else 1.0) / scale)
        set_learning_rate(self.optimizer, self._learning_rate())
        self.optimizer.step()

    def _skip(self) -> None:
        progress = self.progress
        progress.skipped_updates += 1
        progress.skipped_in_a_row += 1
        log.warning("update %d skipped: its loss or gradient is not finite", progress.update)
        if progress.skipped_in_a_row >= MAX_SKIPPED_IN_A_ROW:
            raise UserError(
                f"the loss or its gradient was not finite for {MAX_SKIPPED_IN_A_ROW} updates in a row, up to "
                f"update {progress.update}: try a lower training.schedule.peak or scale, more "
                f"training.schedule.warmup_updates, training.clip_norm=1, or training.precision=fp32, "
                f"in a new run_dir"
            )

    def _settle(self) -> None:
        """Does the validation and the checkpoint that are due after the present update."""
        progress = self.progress
        if progress.settled:
            return
        validation, checkpoint = progress.validation_due(self.options), progress.checkpoint_due(self.options)
        if validation or checkpoint:
            state = self.parallel.state(optimizer=checkpoint)
            if self.ranks.is_main:
                self._settle_main(validation, checkpoint, state)
            # The others need to know what came of it: they end together.
            shared = self.ranks.share({"progress": progress.as_dict(), "stopping": self._stopping})
            if not self.ranks.is_main:
                self.progress, self._stopping = Progress.from_dict(shared["progress"]), shared["stopping"]
        else:
            progress.settled = True

    def _settle_main(self, validation: bool, checkpoint: bool, state: State) -> None:
        progress, quality = self.progress, None
        try:
            if validation:
                quality = self._validate()
        except ValidationStopped:
            self._stopping = True  # what is due stays due: whoever goes on from here begins with it
            return
        progress.settled = True
        progress.total_seconds = time.perf_counter() - self._begun
        if checkpoint:
            progress.checkpoints.append(Saved(progress.update, quality))
            self._save(state)
            keep = needed(progress.checkpoints, self.options.averaging, self.options.keep_checkpoints)
            self.checkpoints.keep(keep)

    def _validate(self) -> float:
        found = self._validator.validate(self.stop)
        quality = found.quality(self.options.criterion)
        is_best = self.progress.note_validation(quality)
        figures = {"loss": found.loss, "ppl": perplexity(found.nll), "bleu": found.bleu, "chrf": found.chrf}
        self._monitor.record("valid", self.progress.update, {**figures, "samples": found.samples})
        log.info(
            "update %d: validation loss %.3f, perplexity %.2f, BLEU %.2f, chrF %.2f%s%s",
            *(self.progress.update, found.loss, figures["ppl"] or math.inf, found.bleu, found.chrf),
            " (best yet)" if is_best else "",
            "".join(f"\n  {name:<10} {text}" for sample in found.samples for name, text in sample.items()),
        )
        return quality

    def _restore(self) -> None:
        """Takes up the newest checkpoint, if there is one; all processes take it from the main one."""
        self._stopping = False
        found = self.checkpoints.load_newest() if self.ranks.is_main else None
        if found:
            self.progress = found.progress
            self.checkpoints.forget_after(found.progress.update)
            log.info("going on after update %d of %s", self.progress.update, self.folder.path)
        self.progress = Progress.from_dict(self.ranks.share(self.progress.as_dict()))
        state = (found.model, found.optimizer) if found else None
        self.parallel.restore(state, self.progress.update, self.checkpoints.folder)

    def _save(self, state: State) -> None:
        self.checkpoints.save(Checkpoint(self.progress, *state), {"learning_rate": self._learning_rate()})

    def _save_last(self) -> None:
        """Saves the state a run ends or stops with, if no scheduled checkpoint holds it."""
        progress = self.progress
        # One of this update is this very state: those after the one restored are gone.
        if self.ranks.share(progress.update > 0 and progress.update not in self.checkpoints.updates()):
            state = self.parallel.state(optimizer=True)
            if self.ranks.is_main:
                self._save(state)
        reason = progress.ended(self.options)
        if self.ranks.is_main and not self._stopping:
            log.info("training ended after update %d: %s", progress.update, reason)

    def _learning_rate(self) -> float:
        options = self.options
        update = max(1, self.progress.update)
        return learning_rate(update, options.schedule, self.config.model.d_model, options.max_updates)

    def _open(self, stack: ExitStack) -> None:
        """Opens what the loop reads from and writes to."""
        config, ranks = self.config, self.ranks
        self._stream = stack.enter_context(closing(open_stream(config, self.prepared, self.progress, ranks)))
        if ranks.is_main:
            monitor = Monitor(self.folder, self.progress.update, self.options.max_updates)
            self._monitor = stack.enter_context(closing(monitor))
            self._validator = validator_for(self.parallel.whole, config, self.prepared, ranks.device)
        self.model.train()
        self._interval = torch.zeros(4, dtype=torch.float64)

    def _log_update(self, tokens: float, loss: float, nll: float, norm: float, spent: float) -> None:
        if not self.ranks.is_main:
            return
        self._monitor.advance(loss / tokens, tokens / spent)
        self._interval += torch.tensor([tokens, loss, nll, spent], dtype=torch.float64)
        if self.progress.update % self.options.log_every == 0:
            tokens, loss, nll, spent = self._interval.tolist()
            figures = {
                "epoch": self.progress.cursor.epoch + 1,
                "loss": loss / tokens,
                "ppl": perplexity(nll / tokens),
                "learning_rate": self._learning_rate(),
                "gradient_norm": norm,
                "tokens_per_second": tokens / spent,
                "skipped_updates": self.progress.skipped_updates,
            }
            self._monitor.record("train", self.progress.update, figures)
            self._interval.zero_()


def build_model(config: TrainConfig, prepared: Prepared) -> Transformer:
    """The model with its first weights, a pure function of the seed."""
    torch.manual_seed(mix(config.seed))
    tokenizer = prepared.tokenizer
    return Transformer(config.model, tokenizer.source_vocab_size, tokenizer.target_vocab_size)


def open_stream(config: TrainConfig, prepared: Prepared, progress: Progress, ranks: Ranks) -> BatchStream:
    """The micro-batches from where the run stands; those of other processes come as None."""
    num = config.training.micro_batches
    return BatchStream(
        prepared.train,
        config.data,
        config.seed,
        prepared.tokenizer,
        start=progress.cursor,
        pin=ranks.device.type == "cuda",
        pick=lambda number: ranks.owns(number % num),
    )


def open_checkpoints(config: TrainConfig, prepared: Prepared, folder: RunFolder) -> CheckpointFolder:
    """The run's checkpoints, bound to its options, data and vocabulary."""
    prints = {
        "configuration": fingerprint(config),
        "data": prepared.fingerprint,
        "vocabulary": prepared.tokenizer.fingerprint,
    }
    return CheckpointFolder(folder.checkpoints, prints)
