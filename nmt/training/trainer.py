"""The training loop: updates, validations and checkpoints, until the end or a stop."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection
from contextlib import ExitStack, closing

from nmt.config import Average, TrainConfig
from nmt.data.batches.batching import Batch, Longest
from nmt.data.batches.blocks import budgets
from nmt.data.batches.stream import BatchStream, num_loaders
from nmt.data.cache import fingerprint
from nmt.data.cleaning.cleaner import shortened
from nmt.data.corpora.held_out import held_out_facts
from nmt.data.preparation.prepare import Prepared
from nmt.model.gpu.graphs import padding_steps
from nmt.runtime.energy import EnergyMeter, gpus_of_run
from nmt.runtime.hub import find_model_folder
from nmt.runtime.machine import available_cores
from nmt.runtime.seeds import mix
from nmt.runtime.streams import log, visible
from nmt.training.batch_size import logged_if_slow, probe_memory, training_parts
from nmt.training.ending import Ending
from nmt.training.figures.meter import meter_for
from nmt.training.figures.monitor import Monitor
from nmt.training.figures.profiling import profiling
from nmt.training.figures.validated import Validation, criterion_for
from nmt.training.forecast import Forecast
from nmt.training.loggers import Loggers
from nmt.training.page import write_current_page
from nmt.training.processes.ranks import Ranks
from nmt.training.selection import among_best, updates_to_retain
from nmt.training.state.checkpoint import HELD_OUT, START, Checkpoint, CheckpointFolder, saving
from nmt.training.state.progress import LIMITS, Progress, limit_in_words, value_of
from nmt.training.state.recovery import (
    batch_records,
    good_checkpoint,
    good_updates,
    in_words,
    load_resume_checkpoint,
    must_roll_back,
    note_skip,
    rolled_back,
)
from nmt.training.state.run_folder import RunFolder, fixed_options
from nmt.training.state.warm_start import in_numbers, initial_model, start_fingerprint
from nmt.training.update.ema import with_trained
from nmt.training.update.optimizer import build_optimizer
from nmt.training.update.parallel import State
from nmt.training.update.schedule import Decay, build_schedule, learning_rate
from nmt.training.update.training_step import Counters, uses_graphs
from nmt.training.validation import ValidationStopped, Validator

Judge = Callable[[int, float | None], bool]
"""Called in the main process with the update and the criterion of a validation; true stops the training."""

_SAMPLE_CHARACTERS = 100  # of each side of a sample in the log; complete in metrics.jsonl and loggers


class Trainer:
    """A model in training, and the counters of the run.

    Of the options, every `auto` is replaced except that of `data.loaders`. Only the main process writes to
    the folder. `stop` is polled between updates; once it returns true, the state is saved and training stops.
    `started` is the `time.perf_counter` of the start of this session, before the data were prepared; None:
    now. `loggers` get the figures; they are not closed. `judge` may stop the training after a validation.
    """

    def __init__(
        self,
        config: TrainConfig,
        prepared: Prepared,
        folder: RunFolder,
        ranks: Ranks,
        stop: Callable[[], bool],
        started: float | None = None,
        loggers: Loggers | None = None,
        judge: Judge | None = None,
    ) -> None:
        self._loggers, self._judge = loggers or Loggers(), judge
        self.config, self.options, self.prepared = config, config.training, prepared
        self.folder, self.ranks, self.stop = folder, ranks, stop
        self._stopping, self._started = False, started or time.perf_counter()
        self.training_step, self.mean = training_parts(config, prepared, ranks)
        self.parallel = self.training_step.parallel
        self.model = self.parallel.model
        if ranks.is_main and self.options.freeze:
            log.info("training.freeze: %s", in_numbers(self.parallel.whole))
        self.progress = Progress.start(self.options.precision)
        self.schedule = build_schedule(self.options.schedule, config.model.d_model, self.options.max_updates)
        self.checkpoints = open_checkpoints(config, prepared, folder, start_fingerprint(config))

    def train(self) -> bool:
        """Trains to the end or until a stop is requested, and saves the last state.

        Returns:
            Whether training is over.

        Raises:
            UserError: no checkpoint can be read or written, or the loss is repeatedly not finite.
        """
        self._restore()
        # The meter measures the speed of the device. It must do so before the memory probe, which shows the
        # memory that training takes, and before the loaders use some of the cores.
        self._meter = meter_for(self.config, self.ranks)
        self._forecast = Forecast(
            self.config, self.prepared, self.parallel.whole.num_parameters, self.progress
        )
        self._ending = Ending(self.options, self.schedule, self._forecast, self.folder.finish.exists)
        if self.progress.ended(self.options) is None:
            with logged_if_slow("memory probe: trying the largest batches that can occur"):
                probe_memory(self.training_step, self.prepared.train, self.config, self.progress.loss_scale)
            self.progress.prepared_seconds += time.perf_counter() - self._started
            if self.ranks.is_main:
                self._forecast.announce(self.progress, self.folder.path)
        self._start_time = time.perf_counter() - self.progress.total_seconds
        with ExitStack() as stack:
            self._open(stack)
            self._validate_and_save()
            while not self._stopping and self.progress.ended(self.options) is None:
                self._update()
                if must_roll_back(self.progress):
                    self._roll_back()
                self._validate_and_save()
            if self.progress.ended(self.options) is not None:
                if self.ranks.is_main:
                    self.folder.finish.unlink(missing_ok=True)
                self._record_updates()  # since the last record, so that short runs have curves too
            self._save_last()
        return not self._stopping

    def _update(self) -> None:
        """Runs one update on the micro-batches of all processes."""
        started = time.perf_counter()
        progress = self.progress
        self._update_start = progress.cursor
        self.training_step.set_dropout(self._dropout_rate())
        self.training_step.begin(progress.loss_scale, progress.update + 1)
        for number in range(self.options.micro_batches):
            batch, cursor = next(self._stream)
            if batch is not None:
                self._micro_batch(batch, number)
        stop = self.stop()
        seconds = time.perf_counter() - self._start_time if self.ranks.is_main else 0.0
        progress.advance()
        end = self._ending.decided(progress) if self.ranks.is_main else None
        noted = (end.last, LIMITS.index(end.limit)) if end else (0, 0)
        check = self.training_step.apply(self._learning_rate(), stop=stop, seconds=seconds, end=noted)
        sums, norm, finite = check.read()
        totals = Counters(*sums)
        progress.epoch_ended = cursor.epoch > progress.cursor.epoch
        progress.cursor, progress.settled = cursor, False
        progress.target_tokens += int(totals.tokens)
        progress.total_seconds = totals.seconds
        self._stopping = totals.stop > 0
        if totals.end:
            self._note_end(int(totals.end), LIMITS[int(totals.limit)])
        self._count(finite)
        spent = time.perf_counter() - started
        progress.seconds += spent
        self._log_update(totals, norm, spent)
        self._profiled()

    def _dropout_rate(self) -> float:
        """Returns the rate of dropout in the next update."""
        final = self.options.final_dropout
        return self.config.model.dropout if final is None or not self.progress.decays else final

    def _note_end(self, last: int, limit: str) -> None:
        """Notes the decided last update; a schedule that decays does so from here."""
        progress, value = self.progress, value_of(limit, self.options)
        if not progress.decays:
            progress.flat_seconds = progress.total_seconds
        progress.decays.append(Decay(progress.update, last, self._learning_rate(), limit, value))
        if self.ranks.is_main and last > progress.update:
            first = len(progress.decays) == 1
            log.info(
                "update %d: the %s update %d%s (%s)",
                *(progress.update, "learning rate falls until" if first else "last update is now"),
                *(last, ", the last one" if first else "", limit_in_words(limit, self.options)),
            )

    def _micro_batch(self, batch: Batch, number: int) -> None:
        """Adds a micro-batch to the update."""
        seed = mix(self.config.seed, self.progress.update, number)
        self.training_step.add(batch, number, seed=seed)

    def _count(self, finite: bool) -> None:
        """Counts the update as applied or skipped."""
        progress = self.progress
        if progress.adapt_loss_scale(self.options.precision, finite):
            progress.skipped_updates += 1
            log.info("update %d skipped: fp16 overflow; the loss scale is halved", progress.update)
            return
        if not finite:
            self._skip()
            return
        progress.skipped_in_a_row = 0
        progress.made += 1
        self.mean.update(progress.made)

    def _skip(self) -> None:
        progress = self.progress
        note_skip(progress, self._update_start)
        if self.ranks.is_main:
            batches = batch_records(self._stream, self.prepared, progress.skipped[-1:])
            self._monitor.record("skipped", progress.update, {"batches": batches})
            log.warning(
                "update %d skipped: its loss or gradient is not finite; its batches: %s",
                *(progress.update, "; ".join(map(in_words, batches))),
            )

    def _roll_back(self) -> None:
        """Rolls back to the last good checkpoint or the initial state; leaves out the batches since then."""
        now = self.progress
        if self.ranks.is_main:
            self._saver.wait()
            good = good_checkpoint(self.checkpoints, now)
            self._load(good or first_checkpoint(self.config, self.prepared))
        else:
            self._load(None)
        self.progress = rolled_back(now, self.progress)
        self._meter.clear()
        if not self.ranks.is_main:
            return
        self.checkpoints.remove_after(self.progress.update)
        self._monitor.go_back(self.progress)
        row = now.skipped[-now.skipped_in_a_row :]
        facts = {"after": now.update, "batches": batch_records(self._stream, self.prepared, row)}
        self._monitor.record("went_back", self.progress.update + 1, facts)
        log.warning(
            "%d updates in a row were skipped: rolled back to update %d, leaving out the batches since then",
            *(now.skipped_in_a_row, self.progress.update),
        )

    def _validate_and_save(self) -> None:
        """Runs the validation and saves the checkpoint that are due after the current update."""
        progress = self.progress
        if self.ranks.is_main:
            self._saver.check()
        if progress.settled:
            return
        validation, checkpoint = progress.validation_due(self.options), progress.checkpoint_due(self.options)
        if validation or checkpoint:
            # A validation among the best gets a checkpoint, whose state is gathered from all processes.
            extra = validation and self.options.averaging.kind is not Average.last
            state = self.mean.state(optimizer=checkpoint or extra)
            try:
                validated = self._validate() if validation else None
            except ValidationStopped:
                self._stopping = True  # still due; the resumed run begins with it
            else:
                if self.ranks.is_main:
                    self._note_and_save(validated, checkpoint, state)
            # Shares the outcome, so that all processes end at the same update.
            shared = self.ranks.share({"progress": progress.as_dict(), "stopping": self._stopping})
            if not self.ranks.is_main:
                self.progress, self._stopping = Progress.from_dict(shared["progress"]), shared["stopping"]
        else:
            progress.settled = True

    def _validate(self) -> Validation:
        started = time.perf_counter()
        with self.mean.in_place():
            validated = self._validator.validate(self.stop)
        if self.ranks.is_main:
            self._forecast.add_validation(time.perf_counter() - started, self.progress)
        return validated

    def _note_and_save(self, validated: Validation | None, checkpoint: bool, state: State) -> None:
        progress = self.progress
        if validated is not None:
            self._note(validated)
        progress.settled = True
        progress.total_seconds = time.perf_counter() - self._start_time
        if checkpoint:
            progress.note_checkpoint()
        elif among_best(progress, self.options.averaging):
            progress.note_extra()
        else:
            return
        keep = updates_to_retain(progress, self.options.averaging, self.options.keep_checkpoints)
        progress.extras = [saved for saved in progress.extras if saved.update in keep]
        self._save(state, {*keep, *good_updates(progress)[-1:]})

    def _note(self, validated: Validation) -> None:
        criterion = criterion_for(self.options.criterion)
        quality = criterion.quality(validated.criterion_value(self.options))
        is_best = self.progress.note_validation(quality, self.options)
        self._monitor.record("valid", self.progress.update, validated.as_dict())
        if self.options.report_every is not None:
            write_current_page(self.folder, self.options.report_every)
        figures, *of_sets = validated.in_words()
        log.info(
            "update %d: validation %s%s%s%s",
            *(self.progress.update, figures, " (best yet)" if is_best else ""),
            "".join(f"\n{line}" for line in of_sets),
            "".join(
                f"\n  {name:<10} {shortened(visible(text), _SAMPLE_CHARACTERS)}"
                for sample in validated.samples
                for name, text in sample.items()
            ),
        )
        if self._judge is not None and self.progress.ended(self.options) is None:
            if self._judge(self.progress.update, validated.criterion_value(self.options)):
                log.info("update %d: stopped early, other trials were better", self.progress.update)
                self._stopping = True

    def _restore(self) -> None:
        """Loads the newest checkpoint, or that of `resume_from`, if there is one."""
        self._stopping = False
        checkpoint = (
            load_resume_checkpoint(self.config, self.folder, self.checkpoints) if self.ranks.is_main else None
        )
        if self.ranks.is_main and checkpoint is None and self.config.start_from is not None:
            find_model_folder(self.config.start_from, "start_from")  # `training_parts` may have done without
        if self.ranks.is_main:
            # With the vocabulary and config.yaml, each checkpoint is a usable model before the run ends.
            self.prepared.tokenizer.save(self.folder.path)
        self._load(checkpoint, begun=self.ranks.share(checkpoint is not None))

    def _load(self, checkpoint: Checkpoint | None, *, begun: bool = True) -> None:
        """Loads a checkpoint in all processes, from the main one; `begun` is false if there is none."""
        if checkpoint:
            self.progress = checkpoint.progress
        self.progress = Progress.from_dict(self.ranks.share(self.progress.as_dict()))
        state = (checkpoint.model, checkpoint.optimizer) if checkpoint else None
        self.mean.restore(state, begun, self.checkpoints.folder)

    def _save(self, state: State, keep: Collection[int] | None = None) -> None:
        report = self.prepared.report
        # The held-out text, for nmt-eval on a checkpoint, and facts about the training text, for translation.
        texts = {part: report[part] for part in ("valid", "test", "text") if part in report}
        facts = {"learning_rate": self._learning_rate(), "data": texts}
        started = time.perf_counter()
        self._saver.save(Checkpoint(self.progress, *state), facts, keep)
        self._forecast.add_checkpoint(time.perf_counter() - started)

    def _save_last(self) -> None:
        """Saves the state with which a run ends or stops, unless a checkpoint has it.

        It is not noted in `Progress.checkpoints`. So a mean never contains the checkpoint of a stop, and the
        next rotation removes it.
        """
        progress, unsaved = self.progress, False
        if self.ranks.is_main:
            self._saver.wait()
            # A checkpoint of this update may lack the validation, if that was stopped and is done now.
            unsaved = progress.update > 0 and self.checkpoints.newest_progress() != progress
        if self.ranks.share(unsaved):
            state = self.mean.state(optimizer=True)
            if self.ranks.is_main:
                self._save(state)
                self._saver.wait()
        reason = progress.ended(self.options)
        if self.ranks.is_main and not self._stopping:
            log.info("training ended after update %d: %s", progress.update, reason)

    def _learning_rate(self) -> float:
        return learning_rate(self.schedule, max(1, self.progress.update), self.progress.decays)

    def _open(self, stack: ExitStack) -> None:
        """Opens everything that the loop reads from and writes to."""
        config, ranks = self.config, self.ranks
        stream = open_stream(config, self.prepared, self.progress, ranks, self.parallel.whole.longest)
        self._stream = stack.enter_context(closing(stream))
        if ranks.is_main:
            self._saver = stack.enter_context(saving(self.checkpoints))
            monitor = Monitor(self.folder, self.progress, self.options.max_updates, self._loggers)
            self._monitor = stack.enter_context(closing(monitor))
            self._energy = EnergyMeter(gpus_of_run())
        self._validator = Validator(self.parallel.whole, config, self.prepared, ranks)
        wanted = self.options.profile and ranks.is_main
        self._profiled = stack.enter_context(profiling(self.folder.profile, wanted=wanted))
        self.model.train()

    def _log_update(self, totals: Counters[float], norm: float, spent: float) -> None:
        if not self.ranks.is_main:
            return
        progress = self.progress
        self._meter.add(totals, norm, spent, self._stream.seconds_waited)
        self._monitor.advance(self._meter.figures())
        self._forecast.add(spent, progress)
        if progress.update % self.options.log_every == 0:
            self._record_updates()

    def _record_updates(self) -> None:
        """Records the figures of the updates since the last record, if there are any."""
        if not self.ranks.is_main or not self._meter.num_updates:
            return
        progress = self.progress
        self._monitor.expect(self._forecast.last_update(progress))
        figures = {
            **self._meter.figures(),
            "eta_minutes": self._forecast.seconds_left(progress) / 60,
            "epoch": progress.cursor.epoch + 1,
            "learning_rate": self._learning_rate(),
            "skipped_updates": progress.skipped_updates,
        }
        if (joules := self._energy.joules()) is not None:
            figures["joules"] = joules
        self._monitor.record("train", progress.update, figures)
        self._meter.clear()


def first_checkpoint(config: TrainConfig, prepared: Prepared) -> Checkpoint:
    """Returns the initial state of a run."""
    model = initial_model(config, prepared)
    progress = Progress.start(config.training.precision)
    state = model.state_dict(), build_optimizer(model, config.training.optimizer).tensors()
    if config.training.ema:
        state = state[0], with_trained(state)
    return Checkpoint(progress, *state)


def open_stream(
    config: TrainConfig,
    prepared: Prepared,
    progress: Progress,
    ranks: Ranks,
    longest: Longest = (None, None),
) -> BatchStream:
    """Returns the micro-batches from the current place of the run; None for those of other processes.

    `longest`: the limits of the model.
    """
    num, gpu = config.training.micro_batches, ranks.device.type == "cuda"
    cores = available_cores() // int(os.environ.get("LOCAL_WORLD_SIZE", ranks.world))
    return BatchStream(
        prepared.train,
        config.data,
        config.seed,
        prepared.tokenizer,
        start=progress.cursor,
        pin=gpu,
        padded_to=padding_steps(*budgets(config.data)) if uses_graphs(config.training, ranks) else None,
        pick=lambda number: ranks.owns(number % num),
        world=ranks.world,
        workers=num_loaders(config.data, gpu=gpu, world=ranks.world, cores=cores),
        longest=longest,
    )


def open_checkpoints(
    config: TrainConfig, prepared: Prepared, folder: RunFolder, start: str | None
) -> CheckpointFolder:
    """Returns the checkpoints of a run, bound to its options, data, vocabulary and `start_fingerprint`."""
    prints = {
        "data": prepared.fingerprint,
        "vocabulary": prepared.tokenizer.fingerprint,
        HELD_OUT: fingerprint([*map(held_out_facts, (prepared.valid, prepared.test))]),
    }
    if start is not None:
        prints[START] = start
    return CheckpointFolder(folder.checkpoints, prints, fixed_options(config))
