"""`resume_from`: rewinds a run to one of its earlier checkpoints, once."""

from __future__ import annotations

from nmt.config import Resume, TrainConfig
from nmt.errors import UserError
from nmt.runtime import abbreviated, checkpoint_name, checkpoint_names, expanded, log, update_of
from nmt.training.state.checkpoint import Checkpoint, CheckpointFolder, DamagedCheckpoint
from nmt.training.state.run_folder import RunFolder

_KEY = "resume_from"


def rewind_target(config: TrainConfig, folder: RunFolder) -> int | None:
    """Returns the update to which the run must be rewound; None if it resumes at its newest checkpoint.

    The same command must not rewind twice, so each checkpoint after a rewind records it.

    Raises:
        UserError: `resume_from` does not name a checkpoint of the run.
    """
    if config.resume_from is None:
        return None
    given = f"{_KEY}={config.resume_from}"
    if config.resume is Resume.never:
        raise UserError(f"{given}: not allowed with resume=never. Leave out one of the two.")
    update = _parse_update(config.resume_from, folder)
    newest = CheckpointFolder(folder.checkpoints, {}).newest_progress()
    if newest is None:
        raise UserError(f"{given}: {folder.path} has no checkpoint. Check run_dir.")
    if newest.resumed_from == update and newest.update >= update:
        return None
    names = checkpoint_names(folder.checkpoints)
    if update not in map(update_of, names):
        raise UserError(
            f"{given}: there is no such checkpoint. {folder.checkpoints} has {abbreviated(names)}."
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
    found = checkpoints.load_newest()
    if found is None:
        return None
    checkpoints.remove_after(found.progress.update)  # the later ones are damaged
    log.info("resuming %s at update %d", folder.path, found.progress.update)
    if config.resume_from is None:
        found.progress.resumed_from = None  # a later rewind may name it again
    else:
        log.info(
            "%s=%s: the run was already rewound; to rewind again, remove the later checkpoints from %s",
            *(_KEY, config.resume_from, folder.checkpoints),
        )
    return found


def _rewind(config: TrainConfig, folder: RunFolder, checkpoints: CheckpointFolder, update: int) -> Checkpoint:
    try:
        found = checkpoints.load(update)
    except DamagedCheckpoint as damage:
        raise UserError(f"{_KEY}={config.resume_from}: {damage}. Name another checkpoint.") from damage
    later = [checkpoint_name(other) for other in checkpoints.updates() if other > update]
    log.info("rewinding %s to update %d", folder.path, update)
    if later:
        log.warning("%s=%s: removing the later checkpoints: %s", _KEY, config.resume_from, abbreviated(later))
    # The results are removed first: they would be wrong if the run ends at the same update again.
    folder.results.unlink(missing_ok=True)
    checkpoints.remove_after(update)
    found.progress.resumed_from = update
    return found


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
