"""nmt-translate with a model that returns upper-case text, for tests of pipes and terminals without torch.

The line `wait` is never translated; only Ctrl-C ends it. A terminal becomes the controlling one, so
that Ctrl-C reaches the process.
"""

from __future__ import annotations

import fcntl
import os
import signal
import sys
import termios
from collections.abc import Sequence
from dataclasses import dataclass

from nmt.cli import translate


@dataclass(frozen=True)
class Scored:
    text: str
    score: float


@dataclass(frozen=True)
class Shout:
    hypotheses: tuple[Scored, ...]
    num_tokens: int
    truncated: int
    cut_to: int = 1024
    unmet: tuple[str, ...] = ()
    appended: int = 0
    skipped: int = 0
    retried: bool = False


class Shouter:
    def translate(
        self,
        lines: Sequence[str],
        *,
        prefixes: Sequence[str] | None = None,
        constraints: Sequence[Sequence[str]] | None = None,
        alignments: bool = False,
    ) -> list[Shout]:
        if "wait" in lines:
            print("working", file=sys.stderr, flush=True)
            signal.pause()  # a wait of `threading` can fail with another error if it is interrupted early
        return [
            Shout((Scored(line.upper(), -0.5),), len(line.split()), 2345 if line.startswith("long") else 0)
            for line in lines
        ]


if __name__ == "__main__":
    if os.isatty(0):
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    translate.load_translator = lambda config: Shouter()
    translate.main()
