"""Trains a translation model: data preparation, training, averaging and test in one command.

  nmt-train                                     the quickstart: bundled corpus, small model; minutes
  nmt-train experiment=wmt14_en_de_base         the base model of the paper
  nmt-train data=local data.train.source=a.en data.train.target=a.de ...     your files

Running the same command again resumes the run. A sweep (-m) ends in a table of all runs.
nmt-train -m hydra/sweeper=optuna hydra.sweeper.n_trials=8 'model.dropout=interval(0.1,0.3)' ... searches
options with Optuna: docs/training.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from nmt.cli.app import put, run
from nmt.config import TrainConfig
from nmt.runtime.streams import log, reserve_stdout
from nmt.training.processes.environments import adopt_launcher

if TYPE_CHECKING:
    from nmt.options.arguments import Arguments
    from nmt.training.trainer import Judge


def train(config: TrainConfig, judge: Judge | None = None) -> None:
    """Trains as `config` says and prints the table of results to standard output.

    `judge` may stop the training after a validation.
    """
    if (launch := adopt_launcher()) is not None:
        log.info("%s", launch)
    if set(config.training.loggers) - {"tensorboard"}:
        reserve_stdout()  # some packages print to standard output
    # The rest imports torch, for which --help does not wait, while the fork server imports it, too.
    from nmt.training.processes.fork_server import start_ahead

    start_ahead(config)
    from nmt.training.run import train as run_training

    text = run_training(config, judge)
    if text:  # under torchrun only rank 0 returns the table
        put(f"{text}\n")


def check(config: TrainConfig) -> None:
    """Checks names of registered classes and languages, for `--show`; a training checks them itself."""
    from nmt.training.run import check_languages, check_names  # imports torch

    check_names(config)
    check_languages(config.data)


def main() -> None:
    """Entry point of `nmt-train`."""
    run(train, TrainConfig, "train", __doc__ or "", check, _sweep_ended, _search)


def _sweep_ended(jobs: Sequence[TrainConfig], failures: Mapping[int, str]) -> None:
    from nmt.cli.sweep import sweep_ended  # a single run does not need it

    sweep_ended(jobs, failures)


def _search(flags: Arguments) -> None:
    from nmt.cli.sweep import search

    search(flags, train, check)


if __name__ == "__main__":
    main()
