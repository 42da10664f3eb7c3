"""Real commands in real processes, on a toy language pair that trains in seconds."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forking import MODULES, forked_command

SMALL = (
    "recipe=none",
    "data.tokenizer.vocab_size=320",
    "data.max_tokens=256",
    "model.encoder_layers=1",
    "model.decoder_layers=1",
    "model.d_model=32",
    "model.d_ff=64",
    "model.heads=2",
    "training.max_updates=6",
    "training.validate_every=3",
    "training.checkpoint_every=2",
    "training.precision=fp32",
    "training.threads=1",
    "training.report=false",
    "decoding.beam_size=2",
    "decoding.max_length_offset=10",
)
"""Options of a training of a few seconds: one layer in encoder and decoder, a few updates, and no page."""

LEARNING = (
    "training.max_updates=160",
    "training.validate_every=80",
    "training.schedule.warmup_updates=40",
)
"""More options, for a model that writes no bytes out of place: CTranslate2 has no rule against them."""


def environment(cache: Path) -> dict[str, str]:
    """Returns the environment variables of a command: this cache, one thread, no network."""
    kept = {key: value for key, value in os.environ.items() if key not in ("PYTHONUNBUFFERED", "COLUMNS")}
    return kept | {"NMT_CACHE": os.fspath(cache), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}


def command_line(name: str, *arguments: str) -> list[str]:
    """Returns the command line that runs a command in the same Python interpreter, started anew."""
    code = f"import sys; sys.argv[0] = {name!r}; from nmt.cli.{MODULES[name]} import main; main()"
    return [sys.executable, "-c", code, *arguments]


@dataclass(frozen=True)
class Toy:
    """The toy corpus of `toy.py` on disk, and commands that run in its folder."""

    folder: Path
    cache: Path

    def run(
        self, name: str, *arguments: str, text: str | bytes | None = None, fresh: bool = False
    ) -> subprocess.CompletedProcess[bytes]:
        """Runs a command in the folder of the corpus and returns its output as bytes.

        With `fresh` a new interpreter runs it, otherwise a fork of a process that has imported everything.
        """
        line = command_line if fresh else forked_command
        return subprocess.run(
            line(name, *arguments),
            cwd=self.folder,
            env=environment(self.cache),
            input=text.encode() if isinstance(text, str) else text or b"",
            capture_output=True,
            timeout=600,
        )

    def done(self, name: str, *arguments: str, **options: Any) -> subprocess.CompletedProcess[bytes]:
        """Runs a command that must succeed."""
        result = self.run(name, *arguments, **options)
        assert result.returncode == 0, result.stderr.decode()
        return result

    def refused(self, name: str, *arguments: str, **options: Any) -> str:
        """Runs a command that must end with a line of error; returns it without the name of the command."""
        result = self.run(name, *arguments, **options)
        errors = result.stderr.decode()
        assert (result.returncode, result.stdout) == (2, b"") and "Traceback" not in errors, errors
        *others, line = errors.splitlines()
        assert [one for one in others if one.startswith(f"{name}: ")] == [] and line.startswith(f"{name}: ")
        return line.removeprefix(f"{name}: ")

    def data(self) -> list[str]:
        """Returns the overrides that select the corpus."""
        splits = [
            f"data.{split}.{side}={split}.{ending}"
            for split in ("train", "valid", "test")
            for side, ending in (("source", "src"), ("target", "tgt"))
        ]
        return ["data=local", "data.source_lang=xx", "data.target_lang=yy", *splits]

    def small(self, *overrides: str) -> list[str]:
        """Returns the overrides of a training of a few seconds: the corpus, `SMALL`, then `overrides`."""
        return [*self.data(), *SMALL, *overrides]
