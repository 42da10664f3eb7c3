"""Updates whose loss is no number: which batches they were, and the way back when they come in a row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from nmt.data.batches.stream import BatchStream, Cursor
from nmt.data.preparation.prepare import Prepared
from nmt.errors import UserError
from nmt.runtime import log
from nmt.training.state.checkpoint import Checkpoint, CheckpointFolder, DamagedCheckpoint
from nmt.training.state.progress import Progress, SkippedBatches

MAX_SKIPPED_IN_A_ROW = 10


def note_skip(progress: Progress, start: Cursor) -> None:
    """Counts the present update, whose batches began at `start`, as skipped."""
    progress.skipped_updates += 1
    progress.skipped_in_a_row += 1
    progress.skipped.append(SkippedBatches(progress.update, start, progress.cursor))


def stuck(progress: Progress) -> bool:
    """Whether the run can't go on from here.

    Raises:
        UserError: it has gone back once before, or there is nothing to go back to.
    """
    if progress.skipped_in_a_row < MAX_SKIPPED_IN_A_ROW:
        return False
    if progress.went_back is not None or last_made(progress) < 1:
        again = "" if progress.went_back is None else ", and going back to a checkpoint has not helped"
        raise UserError(
            f"the loss or its gradient was not finite for {MAX_SKIPPED_IN_A_ROW} updates in a row, up to "
            f"update {progress.update}{again}: try a lower training.schedule.peak or scale, more "
            f"training.schedule.warmup_updates, training.clip_norm=1, or training.precision=fp32, "
            f"in a new run_dir"
        )
    return True


def last_made(progress: Progress) -> int:
    """The last update before the skipped ones that the run ends with."""
    row = progress.skipped[len(progress.skipped) - progress.skipped_in_a_row :]
    return row[0].update - 1 if row else progress.update


def good_updates(progress: Progress) -> list[int]:
    """The scheduled checkpoints from which an update has been made, so that their weights work; oldest first.

    One written right before the skipped updates, or among them, holds the very weights that don't.
    """
    return [saved.update for saved in progress.checkpoints if saved.update < last_made(progress)]


def good_checkpoint(checkpoints: CheckpointFolder, progress: Progress) -> Checkpoint | None:
    """The newest good checkpoint that can be read; None if there is none but the beginning."""
    for update in reversed(good_updates(progress)):
        try:
            return checkpoints.load(update)
        except DamagedCheckpoint as damage:
            log.warning("%s; going back to the checkpoint before it", damage)
    return None


def rewound(now: Progress, then: Progress) -> Progress:
    """The counters of a run that goes back from `now` to the checkpoint of `then`.

    It goes on with the batches after `now`. Those since the checkpoint are all left out, not only the skipped
    ones: the updates made of them would lead, bit for bit, to the weights that don't work. (The same was done
    for PaLM, Chowdhery et al. 2022, section 5.1.)
    """
    return replace(
        then,
        cursor=now.cursor,
        seconds=now.seconds,
        total_seconds=now.total_seconds,
        skipped_updates=now.skipped_updates,
        skipped_in_a_row=0,
        skipped=now.skipped,
        resumed_from=now.resumed_from,
        went_back=SkippedBatches(then.update + 1, then.cursor, now.cursor),
    )


def batch_records(
    stream: BatchStream, prepared: Prepared, skipped: Sequence[SkippedBatches]
) -> list[dict[str, Any]]:
    """The batches of skipped updates, for `metrics.jsonl`.

    Returns:
        For each its `epoch`, `block` and `batch`, all from 0; `rows`, the numbers of its pairs among the
        prepared ones; and `target`, the first of its target sentences.
    """
    records = []
    for stretch in skipped:
        for place, rows in stream.rows(stretch.start, stretch.end):
            first = prepared.tokenizer.decode_target([prepared.train.target(int(rows[0])).tolist()])[0]
            where = {"epoch": place.epoch, "block": place.block, "batch": place.batch}
            records.append({**where, "rows": rows.tolist(), "target": first})
    return records


def in_words(record: Mapping[str, Any]) -> str:
    """One of the records above, for the log; counted from 1, as the log does it."""
    place = ", ".join(f"{name} {record[name] + 1}" for name in ("epoch", "block", "batch"))
    return f"{place} ({len(record['rows'])} pairs, the first target: {record['target'][:80]})"
