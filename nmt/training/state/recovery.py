"""The checkpoint to continue from: on a resume, on a rewind (`resume_from`), and after non-finite updates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from nmt.config import Resume, TrainConfig
from nmt.data.batches.stream import BatchStream, Cursor
from nmt.data.preparation.prepare import Prepared
from nmt.errors import UserError
from nmt.runtime.files import expanded
from nmt.runtime.model_files import abbreviated, checkpoint_name, checkpoint_names, update_of
from nmt.runtime.streams import log
from nmt.training.state.checkpoint import Checkpoint, CheckpointFolder, DamagedCheckpoint
from nmt.training.state.progress import Progress, SkippedBatches
from nmt.training.state.run_folder import RunFolder

MAX_SKIPPED_IN_A_ROW = 10


def note_skip(progress: Progress, start: Cursor) -> None:
    """Counts the current update, whose batches begin at `start`, as skipped."""
    progress.skipped_updates += 1
    progress.skipped_in_a_row += 1
    progress.skipped.append(SkippedBatches(progress.update, start, progress.cursor))


def must_roll_back(progress: Progress) -> bool:
    """Returns whether too many updates in a row were skipped, so that the run must roll back.

    Raises:
        UserError: the run has rolled back before, or there is no earlier state.
    """
    if progress.skipped_in_a_row < MAX_SKIPPED_IN_A_ROW:
        return False
    if progress.went_back is not None or last_applied_update(progress) < 1:
        again = "" if progress.went_back is None else ", and a rollback to a checkpoint did not help"
        raise UserError(
            f"the loss or its gradient was not finite for {MAX_SKIPPED_IN_A_ROW} updates in a row, up to "
            f"update {progress.update}{again}. Try a lower training.schedule.peak or scale, more "
            f"training.schedule.warmup_updates, training.clip_norm=1, or training.precision=fp32, "
            f"in a new run_dir."
        )
    return True


def last_applied_update(progress: Progress) -> int:
    """Returns the last update before the consecutive skipped ones up to the current update."""
    row = progress.skipped[len(progress.skipped) - progress.skipped_in_a_row :]
    return row[0].update - 1 if row else progress.update


def good_updates(progress: Progress) -> list[int]:
    """Returns the scheduled checkpoints that were followed by an applied update, oldest first.

    Their weights are known to work. A checkpoint written right before or among the skipped updates has the
    weights that fail.
    """
    return [saved.update for saved in progress.checkpoints if saved.update < last_applied_update(progress)]


def good_checkpoint(checkpoints: CheckpointFolder, progress: Progress) -> Checkpoint | None:
    """Loads the newest good checkpoint that can be read; None if there is none."""
    for update in reversed(good_updates(progress)):
        try:
            return checkpoints.load(update)
        except DamagedCheckpoint as damage:
            log.warning("%s; rolling back to the checkpoint before it", damage)
    return None


def rolled_back(now: Progress, then: Progress) -> Progress:
    """Returns the counters of a run after a rollback from `now` to the checkpoint of `then`.

    The run continues with the batches after `now`. All batches since the checkpoint are left out, not only
    the skipped ones: repeating their updates would reproduce, bit for bit, the weights that fail. PaLM was
    trained in the same way (Chowdhery et al. 2022, section 5.1).
    """
    return replace(
        then,
        cursor=now.cursor,
        seconds=now.seconds,
        total_seconds=now.total_seconds,
        prepared_seconds=now.prepared_seconds,
        skipped_updates=now.skipped_updates,
        skipped_in_a_row=0,
        skipped=now.skipped,
        resumed_from=now.resumed_from,
        went_back=SkippedBatches(then.update + 1, then.cursor, now.cursor),
    )


def batch_records(
    stream: BatchStream, prepared: Prepared, skipped: Sequence[SkippedBatches]
) -> list[dict[str, Any]]:
    """Returns the batches of skipped updates, for `metrics.jsonl`.

    Returns:
        For each batch: `epoch`, `block` and `batch`, counted from 0; `rows`, the row numbers of its pairs in
        the prepared data; and `target`, its first target sentence.
    """
    records = []
    for stretch in skipped:
        for place, rows in stream.rows(stretch.start, stretch.end):
            first = prepared.tokenizer.decode_target([prepared.train.pair(int(rows[0]))[1].tolist()])[0]
            where = {"epoch": place.epoch, "block": place.block, "batch": place.batch}
            records.append({**where, "rows": rows.tolist(), "target": first})
    return records


def in_words(record: Mapping[str, Any]) -> str:
    """Formats a record of `batch_records` for the log, which counts from 1."""
    place = ", ".join(f"{name} {record[name] + 1}" for name in ("epoch", "block", "batch"))
    return f"{place} ({len(record['rows'])} pairs, the first target: {record['target'][:80]})"


_KEY = "resume_from"


def rewind_target(config: TrainConfig, folder: RunFolder) -> int | None:
    """Returns the update to which the run must be rewound; None if it resumes at its newest checkpoint.

    The same command must not rewind twice, so each checkpoint after a rewind records it.

    Raises:
        UserError: `resume_from` does not name a checkpoint of the run.
    """
    if config.resume_from is None:
        return None
    name = f"{_KEY}={config.resume_from}"
    if config.resume is Resume.never:
        raise UserError(f"{name}: not allowed with resume=never. Leave out one of the two.")
    update = _parse_update(config.resume_from, folder)
    newest = CheckpointFolder(folder.checkpoints, {}).newest_progress()
    if newest is None:
        raise UserError(f"{name}: {folder.path} has no checkpoint. Check run_dir.")
    if newest.resumed_from == update and newest.update >= update:
        return None
    names = checkpoint_names(folder.checkpoints)
    if update not in map(update_of, names):
        raise UserError(
            f"{name}: there is no such checkpoint. {folder.checkpoints} has {abbreviated(names)}."
        )
    return update


def load_resume_checkpoint(
    config: TrainConfig, folder: RunFolder, checkpoints: CheckpointFolder
) -> Checkpoint | None:
    """Loads the checkpoint to resume from, and removes later ones; None if the run starts.

    Raises:
        UserError: it can't be read, or belongs to other options or data.
    """
    update = rewind_target(config, folder)
    if update is not None:
        return _rewind(config, folder, checkpoints, update)
    checkpoint = checkpoints.load_newest()
    if checkpoint is None:
        return None
    checkpoints.remove_after(checkpoint.progress.update)  # the later ones are damaged
    if checkpoint.progress.must_undo_decay(config.training):
        return _before_decay(folder, checkpoints, checkpoint)
    log.info("resuming %s at update %d", folder.path, checkpoint.progress.update)
    if config.resume_from is None:
        checkpoint.progress.resumed_from = None  # a later rewind may name it again
    else:
        log.info(
            "%s=%s: the run was already rewound; to rewind again, remove the later checkpoints from %s",
            *(_KEY, config.resume_from, folder.checkpoints),
        )
    return checkpoint


def _before_decay(folder: RunFolder, checkpoints: CheckpointFolder, newest: Checkpoint) -> Checkpoint:
    """Loads the checkpoint from before the learning rate fell, for a run that may now be longer.

    Its weights are then those of a run that was that long from the start.
    """
    begin = newest.progress.decays[0].begin
    try:
        checkpoint = newest if newest.progress.update == begin else checkpoints.load(begin)
    except DamagedCheckpoint as damage:
        log.warning("%s; the learning rate rises again from update %d", damage, newest.progress.update)
        checkpoint = newest
    else:
        log.info("resuming %s at update %d, before the learning rate fell", folder.path, begin)
    folder.results.unlink(missing_ok=True)
    checkpoints.remove_after(checkpoint.progress.update)
    progress, now = checkpoint.progress, newest.progress
    progress.decays, progress.flat_seconds = [], None
    # A budget counts all of the time.
    progress.undone_seconds += now.total_seconds - progress.total_seconds
    progress.total_seconds, progress.prepared_seconds = now.total_seconds, now.prepared_seconds
    return checkpoint


def _rewind(config: TrainConfig, folder: RunFolder, checkpoints: CheckpointFolder, update: int) -> Checkpoint:
    try:
        checkpoint = checkpoints.load(update)
    except DamagedCheckpoint as damage:
        raise UserError(f"{_KEY}={config.resume_from}: {damage}. Name another checkpoint.") from damage
    later = [checkpoint_name(other) for other in checkpoints.updates() if other > update]
    log.info("rewinding %s to update %d", folder.path, update)
    if later:
        log.warning("%s=%s: removing the later checkpoints: %s", _KEY, config.resume_from, abbreviated(later))
    # The results are removed first: they would be wrong if the run ends at the same update again.
    folder.results.unlink(missing_ok=True)
    checkpoints.remove_after(update)
    checkpoint.progress.resumed_from = update
    return checkpoint


def _parse_update(text: str, folder: RunFolder) -> int:
    """Returns the update named by `300`, `update-300`, `update-00000300` or the path of that folder."""
    path = expanded(text)
    name = path.name if path.name.startswith("update-") else f"update-{path.name}"
    update = update_of(name)
    elsewhere = len(path.parts) > 1 and path.parent.resolve() != folder.checkpoints.resolve()
    if update is None or elsewhere:
        raise UserError(
            f"{_KEY}={text}: not a checkpoint of {folder.path}. Name one as in {_KEY}=update-300."
        )
    return update
