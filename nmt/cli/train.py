"""Trains a translation model: data, training, averaging and test in one command.

  nmt-train                                     the quickstart: bundled corpus, small model, minutes
  nmt-train experiment=wmt14_en_de_base         the paper's base system
  nmt-train data=local data.train.source=a.en data.train.target=a.de ...     your own files

The same command again goes on where the run stopped.
"""

from __future__ import annotations

from nmt.cli.app import put, run
from nmt.config import TrainConfig


def train(config: TrainConfig) -> None:
    """Trains as `config` says and prints the table of results on standard output."""
    from nmt.training.processes.fork_server import start_ahead

    start_ahead(config)
    from nmt.training.run import train as run_training

    text = run_training(config)
    if text:  # under torchrun the first process speaks for all
        put(f"{text}\n")


def main() -> None:
    """Entry point of `nmt-train`."""
    run(train, TrainConfig, "train", __doc__ or "")


if __name__ == "__main__":
    main()
