"""The forecast of a training: what it will do, its time on this machine, and the disk that it needs."""

from __future__ import annotations

import math
import shutil
from bisect import bisect_right
from contextlib import suppress
from pathlib import Path

from nmt.config import TrainConfig
from nmt.config.checks import MANY
from nmt.data.batches.blocks import budgets
from nmt.data.corpora.mixture import mean_draws
from nmt.data.preparation.prepare import Prepared
from nmt.data.store import Store
from nmt.runtime.streams import log
from nmt.training.figures.validated import criterion_sets
from nmt.training.length_penalty import SENTENCES, TIMES, measures
from nmt.training.page import seconds_of_page
from nmt.training.selection import candidates, most_retained
from nmt.training.state.progress import Progress, Saved
from nmt.training.update.objective import build_objective
from nmt.training.update.optimizer import check_optimizer

_MEASURED, _WARM = 10, 2  # updates; the first two allocate memory and compile kernels
_SLOW = 120.0  # seconds after which fewer updates are enough
_WEEK = 7 * 86400.0
_MANY_EPOCHS = 200
_CHANGED = 0.25  # a first validation that changes the remaining time by more is reported
_USED = 0.98  # the part of a budget that is planned
_COPIED = 1e9  # bytes a second, in which training waits for the copy of a checkpoint

# The time of a target token in validation, relative to one in an update: for the loss, and for each
# hypothesis of a beam. Measured on CPUs: with beam 4 and models of 1.6 to 45 million weights 1.5 to 3.2; with
# beam 5, width 128 and a faster training, 8 for captions and up to 20 for long lines and weak models. If the
# guess is too low, a budget leaves no time for the fall of the learning rate.
_LOSS, _SEARCH = 0.4, 1.5


class Forecast:
    """Counts what is left of a training, and estimates its time from the updates of this session.

    An update with two passes (R-Drop, SimCut) takes twice as long as one with one pass.

    A validation takes as long as the last one in this session: a model that has learnt more writes shorter
    translations. Before it, the time is that of earlier sessions, relative to an update. In the first session
    it is derived from the number of target tokens.

    `progress` is that of the start of the session.
    """

    def __init__(
        self, config: TrainConfig, prepared: Prepared, num_parameters: int, progress: Progress
    ) -> None:
        options, train = config.training, prepared.train
        self._config, self._options, self._num_parameters = config, options, num_parameters
        pairs = sum(map(float, mean_draws(train.sizes, config.data)))
        target, source = (
            pairs * (1 + pieces / train.num_pairs)  # with EOS
            for pieces in (train.num_target_tokens, train.num_source_tokens)
        )
        most_target, most_source = budgets(config.data)
        batches = max(1, math.ceil(max(target / most_target, source / most_source)))
        self._epoch_tokens, self._update_tokens = target, options.micro_batches * target / batches
        self._validated_tokens = sum(
            _tokens(store, options.validate_sentences) for store in prepared.valid_stores.values()
        )
        self._objective = build_objective(options)
        before = self._objective.passes_after(0, progress.update)
        self._pace_before = progress.seconds / before if before else 0.0
        self._relative = self._validation_of_earlier_sessions(progress)
        self._updates = self._session = self._timed = 0.0
        self._session_passes = self._timed_passes = 0
        self._validation: float | None = None
        self._checkpoints = self._saving = 0.0
        self._said = False
        self._final_tokens = _final_tokens(config, prepared, self._num_checkpoints(progress))
        self._page_seconds = seconds_of_page(config, prepared)

    def announce(self, progress: Progress, folder: Path) -> None:
        """Logs what the training will do, and warns of too many epochs and of a full disk."""
        options, last = self._options, self.last_update(progress)
        tokens, disk = self._tokens_per_update(progress), self._disk_bytes(progress)
        epochs = last * tokens / self._epoch_tokens
        first = f"updates {progress.update + 1:,} to" if progress.update else "updates:"
        limits = [f"{options.max_minutes:,g} minutes"] if options.max_minutes is not None else []
        limits += [f"{options.budget} in all"] if options.budget is not None else []
        limits += [f"{options.patience:,} validations that are not better"] if options.patience else []
        log.info(
            "training: %s, %s parameters; %s %s of about %s target tokens (%s)%s; next validation after "
            "update %s; up to %s on disk",
            *(self._config.model.architecture, f"{self._num_parameters:,}", first, f"{last:,}"),
            *(f"{tokens:,.0f}", _epochs(epochs), "".join(f", or {limit}" for limit in limits)),
            *(f"{self._next_validation(progress):,}", _bytes(disk)),
        )
        if epochs > _MANY_EPOCHS and not limits and options.max_epochs is None:
            log.warning(
                "training.max_updates=%d: %s of this corpus, but a model seldom improves after %d. Give "
                "training.max_epochs or fewer training.max_updates, or in another run_dir "
                "training.patience=10, which ends when validations are not better",
                *(options.max_updates, _epochs(epochs), _MANY_EPOCHS),
            )
        with suppress(OSError):  # a file system that reports no free space
            self._warn_of_full_disk(disk, folder)

    def add(self, seconds: float, progress: Progress) -> None:
        """Adds an update; logs the expected time once enough updates are measured."""
        passes = self._objective.passes_after(progress.update - 1, progress.update)
        self._updates += 1
        self._session += seconds
        self._session_passes += passes
        if self._updates > _WARM:
            self._timed += seconds
            self._timed_passes += passes
        enough = self._updates >= _MEASURED or self._timed > _SLOW
        if enough and not self._said and progress.ended(self._options) is None:
            self._say(progress)

    def add_validation(self, seconds: float, progress: Progress) -> None:
        """Adds a validation; logs the expected time again if the first one changes it much."""
        before, first, self._validation = self._seconds_to_end(progress), self._validation is None, seconds
        if first and self._said and progress.ended(self._options) is None:
            if abs(self._seconds_to_end(progress) - before) > _CHANGED * before:
                self._say(progress)

    def add_checkpoint(self, seconds: float) -> None:
        """Adds a checkpoint, by the time that training waited for it."""
        self._checkpoints += 1
        self._saving += seconds

    def seconds_left(self, progress: Progress) -> float:
        """Returns the expected time to the end of training, with its validations and checkpoints."""
        left = self._seconds_to(self.last_update(progress), progress) + self._seconds_of_stops(progress)
        if self._options.max_minutes is not None:
            left = min(left, 60 * self._options.max_minutes - progress.total_seconds)
        return max(0.0, left)

    def _warn_of_full_disk(self, needed: int, folder: Path) -> None:
        present = sum(file.stat().st_size for file in folder.glob("checkpoints/*/*") if file.is_file())
        free = shutil.disk_usage(folder).free
        if needed - present > free:
            log.warning(
                "run_dir=%s: up to %s will be written, but %s are free on the disk. Free some, or retain "
                "fewer checkpoints (training.keep_checkpoints=1 training.averaging.count=1)",
                *(folder, _bytes(needed - present), _bytes(free)),
            )

    def _say(self, progress: Progress) -> None:
        self._said = True
        training, whole = self.seconds_left(progress), self._seconds_to_end(progress)
        first = min(training, self._seconds_to(self._next_validation(progress), progress))
        stops = min(training, self._seconds_of_stops(progress))
        log.info(
            "update %d: %s an update; next validation in about %s; end of the run in about %s, of which "
            "%.0f %% are validations and checkpoints and %.0f %% choice and test of the final model",
            *(progress.update, in_words(self._seconds_to(progress.update + 1, progress))),
            *(in_words(first), in_words(whole)),
            *(100 * stops / whole, 100 * (whole - training) / whole),
        )
        if training > _WEEK:
            a_day = 86400 / training * (self.last_update(progress) - progress.update)
            log.warning(
                "training.max_updates=%d: the training takes about %s on this machine. Stop it and give "
                "training.max_minutes (1440 is a day) or fewer training.max_updates (%s take a day). A "
                "smaller model (model=small, model=tiny) and training.patience=10 need another run_dir",
                *(self._options.max_updates, in_words(training), f"{a_day:,.0f}"),
            )

    @property
    def _pace(self) -> float:
        """The seconds of one pass of an update."""
        if self._updates > _WARM:
            return self._timed / self._timed_passes
        return self._session / self._session_passes if self._updates else self._pace_before

    def _seconds_to(self, update: int, progress: Progress) -> float:
        """The time of the updates from now to `update`."""
        return self._objective.passes_after(progress.update, update) * self._pace

    def _seconds_to_end(self, progress: Progress) -> float:
        """The time to the end of the run."""
        return self.seconds_left(progress) + self._final_seconds(progress)

    def _final_seconds(self, progress: Progress) -> float:
        """The time after training: scores of the candidates, test of the best, and the page of the run."""
        return self._final_tokens * self._seconds_per_token(progress) + self._page_seconds

    def _seconds_of_stops(self, progress: Progress) -> float:
        """The time of all validations and checkpoints to the end of training."""
        validations, checkpoints = self._settling(progress)
        validation = self._validated_tokens * self._seconds_per_token(progress)
        return validations * validation + checkpoints * self._seconds_of_checkpoint

    def _seconds_per_token(self, progress: Progress) -> float:
        """The time of a validation for each target token of the references."""
        if self._validation is not None:
            return self._validation / self._validated_tokens
        if self._relative is not None:
            return self._relative * self._pace / self._validated_tokens
        relative = _LOSS + _SEARCH * self._config.decoding.beam_size
        return relative * self._pace / self._tokens_per_update(progress)

    @property
    def _seconds_of_checkpoint(self) -> float:
        if self._checkpoints:
            return self._saving / self._checkpoints
        return self._checkpoint_bytes / _COPIED

    def _validation_of_earlier_sessions(self, progress: Progress) -> float | None:
        """The time between updates for each validation so far, in passes; None: there was none.

        Seconds of another machine would be wrong here.
        """
        every = self._options.validate_every
        done = progress.update // every if every else progress.cursor.epoch
        if not done or progress.seconds <= 0.0:
            return None
        seconds = progress.total_seconds - progress.undone_seconds - progress.seconds
        return seconds / done / self._pace_before

    def _tokens_per_update(self, progress: Progress) -> float:
        return (
            progress.target_tokens / progress.update if progress.update >= _MEASURED else self._update_tokens
        )

    def _updates_per_epoch(self, progress: Progress) -> float:
        return self._epoch_tokens / self._tokens_per_update(progress)

    def last_update(self, progress: Progress) -> int:
        """Returns the last update, or what is known of it: some limits may end the training earlier."""
        if progress.decays:
            return progress.decays[-1].end
        return max(progress.update, math.floor(min(self.ends(progress).values())))

    def ends(self, progress: Progress) -> dict[str, float]:
        """Returns the last update by each of the limits that are set, except `patience`: name → update.

        A time is a limit once updates have been measured.
        """
        options, ends = self._options, {"max_updates": float(self._options.max_updates)}
        if options.max_epochs is not None:
            ends["max_epochs"] = float(math.ceil(options.max_epochs * self._updates_per_epoch(progress)))
        if self._updates >= _MEASURED or self._timed > _SLOW:
            if options.max_minutes is not None:
                seconds = 60 * options.max_minutes - progress.total_seconds
                ends["max_minutes"] = progress.update + self._updates_in(seconds, progress)
            if (minutes := options.budget_minutes) is not None:
                spent = progress.total_seconds + progress.prepared_seconds
                seconds = _USED * 60 * minutes - spent - self._final_seconds(progress)
                ends["budget"] = progress.update + self._updates_in(seconds, progress)
        return ends

    def _updates_in(self, seconds: float, progress: Progress) -> int:
        """Returns the updates that fit into a time, with validations and checkpoints; -1 if none does."""
        an_epoch, options = self._updates_per_epoch(progress), self._options
        validation = self._validated_tokens * self._seconds_per_token(progress)
        stops = validation / (options.validate_every or an_epoch)
        every = options.checkpoint_every or options.validate_every or an_epoch
        stops += self._seconds_of_checkpoint / every

        def taken(updates: int) -> float:
            return self._seconds_to(progress.update + updates, progress) + updates * stops + validation

        return bisect_right(range(MANY), seconds, key=taken) - 1

    def _next_validation(self, progress: Progress) -> int:
        every, last = self._options.validate_every, self.last_update(progress)
        if every:
            return min(last, (progress.update // every + 1) * every)
        return min(last, math.ceil((progress.cursor.epoch + 1) * self._updates_per_epoch(progress)))

    def _settling(self, progress: Progress) -> tuple[int, int]:
        """Returns the numbers of validations and of checkpoints to the end; the last update has both."""
        now, last = progress.update, self.last_update(progress)
        if now == last:
            return 0, 0

        def scheduled(every: int) -> int:
            """Those before the last update; `every` as in `training.validate_every`."""
            if every:
                return (last - 1) // every - now // every
            return max(0, math.ceil(last / self._updates_per_epoch(progress)) - 1 - progress.cursor.epoch)

        validations = scheduled(self._options.validate_every)
        every = self._options.checkpoint_every
        return validations + 1, (scheduled(every) if every else validations) + 1

    def _num_checkpoints(self, progress: Progress) -> int:
        """Returns the largest number of checkpoints to the end; the best validations have checkpoints too."""
        validations, checkpoints = self._settling(progress)
        return len(progress.checkpoints) + len(progress.extras) + max(validations, checkpoints)

    @property
    def _checkpoint_bytes(self) -> int:
        floats = 1 + check_optimizer(self._options).floats_per_weight + (self._options.ema > 0.0)
        return 4 * floats * self._num_parameters

    def _disk_bytes(self, progress: Progress) -> int:
        """Returns the bytes of the checkpoints, one of them not yet renamed, and of the final model."""
        retained = min(self._num_checkpoints(progress), most_retained(self._options) + 1)
        return retained * self._checkpoint_bytes + 4 * self._num_parameters


def in_words(seconds: float) -> str:
    """Returns a duration as text, in the unit that suits it."""
    for unit, size, most in _UNITS:
        if seconds < most:
            number = f"{seconds / size:{'.2g' if seconds < 10 * size else ',.0f'}}"
            return f"{number} {unit[:-1] if number == '1' else unit}"
    raise AssertionError("the last unit has no limit")


_UNITS = (
    ("seconds", 1.0, 90.0),
    ("minutes", 60.0, 5400.0),
    ("hours", 3600.0, 172_800.0),
    ("days", 86400.0, 2 * _WEEK),
    ("weeks", _WEEK, math.inf),
)


def _tokens(store: Store, count: int) -> int:
    """Returns the target tokens of the first `count` pairs of a store, EOS counted; 0: of all."""
    first = store.first(count)
    return first.num_target_tokens + first.num_pairs


def _final_tokens(config: TrainConfig, prepared: Prepared, num_checkpoints: int) -> float:
    """Returns the target tokens that are translated after the training, those of each candidate counted.

    It assumes that validations become better to the end; otherwise there are more candidates.
    """
    options, stores = config.training, prepared.valid_stores
    num = max(1, min(num_checkpoints, options.averaging.count))
    row = [Saved(update, float(update)) for update in range(num)]
    count = len(candidates(row, options.averaging, ema=options.ema > 0.0))
    judged: float = count * sum(_tokens(stores[name], 0) for name in criterion_sets(config))
    valid = sum(_tokens(store, 0) for store in stores.values())
    tunes = bool(measures(config))
    if options.criterion == "loss":
        judged *= _LOSS
    if options.criterion == "loss" or tunes:  # translated with the length penalty of the final model
        judged += valid
    pairs = sum(store.num_pairs for store in stores.values())
    test = valid / pairs * sum(len(text.sources) for text in prepared.test.values())
    tuned = sum(TIMES * _tokens(store, SENTENCES) for store in stores.values()) if tunes else 0.0
    return judged + tuned + test + (valid + test if config.start_from is not None else 0.0)


def _epochs(count: float) -> str:
    return f"{count:,.0f} epochs" if count >= 9.95 else f"{count:.1f} epochs"


def _bytes(count: float) -> str:
    return f"{count / 1e9:,.1f} GB" if count >= 1e9 else f"{count / 1e6:,.0f} MB"
