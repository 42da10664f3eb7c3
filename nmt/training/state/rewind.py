"""`resume_from`: a run goes back to one of its earlier checkpoints on purpose, once."""

from __future__ import annotations

from nmt.config import Resume, TrainConfig
from nmt.errors import UserError
from nmt.runtime import abbreviated, checkpoint_name, checkpoint_names, expanded, log, update_of
from nmt.training.state.checkpoint import Checkpoint, CheckpointFolder, DamagedCheckpoint
from nmt.training.state.run_folder import RunFolder

_KEY = "resume_from"


def goal(config: TrainConfig, folder: RunFolder) -> int | None:
    """The update that the run must go back to; None if it goes on from its newest checkpoint.

    The same command again must not go back again: every checkpoint after the way back says where that led.

    Raises:
        UserError: `resume_from` does not name a checkpoint of the run.
    """
    if config.resume_from is None:
        return None
    given = f"{_KEY}={config.resume_from}"
    if config.resume is Resume.never:
        raise UserError(f"{given}: resume=never forbids it; leave out one of the two")
    update = _named(config.resume_from, folder)
    newest = CheckpointFolder(folder.checkpoints, {}).newest_progress()
    if newest is None:
        raise UserError(f"{given}: {folder.path} has no checkpoint; check run_dir")
    if newest.resumed_from == update and newest.update >= update:
        return None
    names = checkpoint_names(folder.checkpoints)
    if update not in map(update_of, names):
        raise UserError(
            f"{given}: there is no such checkpoint; {folder.checkpoints} has {abbreviated(names)}"
        )
    return update


def resumed(config: TrainConfig, folder: RunFolder, checkpoints: CheckpointFolder) -> Checkpoint | None:
    """The checkpoint to go on from, after which there is none; None if the run begins.

    Raises:
        UserError: it can't be read, or belongs to other options or data.
    """
    update = goal(config, folder)
    if update is not None:
        return _gone_back(config, folder, checkpoints, update)
    found = checkpoints.load_newest()
    if found is None:
        return None
    checkpoints.forget_after(found.progress.update)  # those are damaged
    log.info("going on after update %d of %s", found.progress.update, folder.path)
    if config.resume_from is None:
        found.progress.resumed_from = None  # it may be named once more
    else:
        log.info(
            "%s=%s: done before; to go back once more, remove the later checkpoints from %s",
            *(_KEY, config.resume_from, folder.checkpoints),
        )
    return found


def _gone_back(
    config: TrainConfig, folder: RunFolder, checkpoints: CheckpointFolder, update: int
) -> Checkpoint:
    try:
        found = checkpoints.load(update)
    except DamagedCheckpoint as damage:
        raise UserError(f"{_KEY}={config.resume_from}: {damage}; name another checkpoint") from damage
    later = [checkpoint_name(other) for other in checkpoints.updates() if other > update]
    log.info("going back to update %d of %s", update, folder.path)
    if later:
        log.warning(
            "%s=%s: the later checkpoints are removed: %s", _KEY, config.resume_from, abbreviated(later)
        )
    # The results first: those of an end that the run may reach again are not those of its new model.
    folder.results.unlink(missing_ok=True)
    checkpoints.forget_after(update)
    found.progress.resumed_from = update
    return found


def _named(text: str, folder: RunFolder) -> int:
    """The update that `300`, `update-300`, `update-00000300` or the path of that folder names."""
    path = expanded(text)
    name = path.name if path.name.startswith("update-") else f"update-{path.name}"
    update = update_of(name)
    elsewhere = len(path.parts) > 1 and path.parent.resolve() != folder.checkpoints.resolve()
    if update is None or elsewhere:
        raise UserError(
            f"{_KEY}={text}: is not a checkpoint of {folder.path}; name one as in {_KEY}=update-300"
        )
    return update
