"""The end of a sweep of `nmt-train`: a table of all runs. And its search with Optuna, trial by trial."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from nmt.cli.app import failure_in_words, load_plugins_of, put
from nmt.config import TrainConfig
from nmt.config.storage import flat_options, to_yaml
from nmt.errors import UserError
from nmt.options.arguments import Arguments
from nmt.options.compose import compose_jobs
from nmt.options.search import read_search
from nmt.runtime.files import expanded, locked, make_folder, write_text
from nmt.runtime.streams import log

if TYPE_CHECKING:
    from nmt.training.study import Study

Train = Callable[..., None]


def sweep_ended(jobs: Sequence[TrainConfig], failures: Mapping[int, str]) -> None:
    """Prints the table of the runs of a sweep; `failures` has the errors of jobs by their numbers from 0."""
    if not any(job.prepare_only or job.find_rate for job in jobs):
        from nmt.reports.comparison_runs import differing  # imports torch

        folders = [job.run_dir for job in jobs]
        parent = os.path.commonpath(
            [os.path.dirname(os.path.abspath(expanded(folder))) for folder in folders]
        )
        outcomes = {folders[number]: f"failed: {line}" for number, line in failures.items()}
        swept = differing([*map(flat_options, jobs)])
        _compare(folders, outcomes, Path(parent), swept)


def search(flags: Arguments, train: Train, check: Callable[[TrainConfig], None]) -> None:
    """Searches options with Optuna, and prints the table of all trials and the best options.

    Args:
        flags: the command line.
        train: trains a run, with a judge.
        check: checks the names of registered classes in options.

    Raises:
        UserError: the options are wrong, or trials have failed.
    """
    # These import torch.
    from nmt.reports.comparison_runs import higher_is_better
    from nmt.training.processes.environments import refuse_launchers
    from nmt.training.study import Study

    space = read_search(TrainConfig, flags)
    refuse_launchers("hydra/sweeper=optuna", os.environ)

    def composed(words: Sequence[str]) -> TrainConfig:
        arguments = replace(flags, overrides=tuple(words), sweep=False, sweeper=())
        (job,) = compose_jobs(TrainConfig, "train", arguments)
        return job

    corners = [*map(composed, space.corners())]
    for corner in corners:  # wrong values are refused before the first trial
        load_plugins_of(corner)
        check(corner)
    first, count = corners[0], space.options.n_trials
    if flags.show:
        put(to_yaml(first))
        return
    criterion = first.training.criterion
    direction = "maximize" if higher_is_better(criterion) else "minimize"
    if space.options.direction not in (None, direction):
        raise UserError(
            f"hydra.sweeper.direction={space.options.direction}: training.criterion={criterion} is to be "
            f"{direction}d. Leave it out."
        )
    folder = expanded(first.run_dir)
    study = Study(folder, space, direction, first.seed)
    study.check()
    make_folder(folder)
    with locked(folder / ".search.lock", lambda: _raise_locked(folder)):
        study.begin(sorted(flags.overrides))
        outcomes, waiting, failed = {}, study.unfinished(), 0
        while waiting or study.count() < count:
            number = waiting.pop(0) if waiting else study.ask()
            values, run_dir = study.values(number), str(folder / f"trial-{number}")
            job = replace(composed(space.words(values)), run_dir=run_dir)
            place = f"trial-{number} ({' '.join(f'{key}={value}' for key, value in values.items())})"
            log.info("%s, %d of %d", place, number + 1, count)
            try:
                _run_trial(study, number, job, train)
            except (UserError, OSError) as error:
                line, failed = failure_in_words(error), failed + 1
                log.error("%s: %s", place, line)
                outcomes[run_dir] = f"failed: {line}"
                if failed > (share := space.options.max_failure_rate) * count:
                    problem = f"{failed} of {count} trials failed, the last one by: {line}"
                    raise UserError(f"hydra.sweeper.max_failure_rate={share}: {problem}") from error
        for number in range(study.count()):
            if (end := study.pruned(number)) is not None:
                words = f"pruned after update {end[0]}: {criterion} {end[1]:.4g}"
                outcomes[str(folder / f"trial-{number}")] = words
        _end(study, outcomes)
    if failed:
        raise UserError(
            f"-m: {failed} of {count} trials failed. Their errors are above; the same command tries again."
        )


def _run_trial(study: Study, number: int, job: TrainConfig, train: Train) -> None:
    """Runs or resumes a trial to its end, or until it is pruned.

    Raises:
        UserError: the run failed; the trial stays unfinished.
    """
    from nmt.reports.comparison_runs import criterion_value
    from nmt.reports.run import RunRecord
    from nmt.training.processes.stopping import Stopped

    if study.pruned(number) is None:
        load_plugins_of(job)
        try:
            train(job, partial(study.judge, study.identity(number)))
        except Stopped:
            if study.pruned(number) is None:
                raise
        else:
            value = criterion_value(RunRecord.read(job.run_dir))
            if value is None:
                raise UserError(f"{job.run_dir}: no {job.training.criterion} of the validation set.")
            study.tell(number, value)
            return
    study.tell(number, None)


def _end(study: Study, outcomes: Mapping[str, str]) -> None:
    """Prints the table of all trials, and the command with the best options."""
    folders = [str(study.folder / f"trial-{number}") for number in range(study.count())]
    swept = [dimension.key for dimension in study.search.dimensions]
    best = _compare(folders, outcomes, study.folder, swept)
    if best is not None:
        words = study.search.words(study.values(int(best.removeprefix("trial-"))))
        given = [word for word in words if not word.startswith("run_dir=")]
        put(f"{shlex.join(['nmt-train', *given])}\n")


def _compare(
    folders: Sequence[str], outcomes: Mapping[str, str], parent: Path, swept: Sequence[str]
) -> str | None:
    """Prints the table of runs, if any has ended, and writes its page, `sweep.html` in the folder `parent`.

    `swept` has the options of the sweep.

    Returns:
        The name of the best run; None if it is not known.
    """
    # These import torch.
    from nmt.reports.comparison import compare_runs
    from nmt.reports.comparison_page import comparison_page

    try:
        compared = compare_runs(folders, split="valid", outcomes=outcomes, swept=swept)
    except UserError as error:
        log.warning("no table of the runs: %s", error)
        return None
    page = parent / "sweep.html"
    put(f"\n{compared.plain()}page: {page}\n")
    write_text(page, comparison_page(compared).html())
    return compared.best


def _raise_locked(folder: Path) -> NoReturn:
    raise UserError(f"{folder}: in use by another search. Give another run_dir.")
