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
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from nmt.cli import translate
from nmt.decoding.windows import full_windows, ready_windows


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

    def placeholder_warnings(self) -> list[str]:
        return []


class Shouter:
    def translate(self, lines: Sequence[str]) -> list[Shout]:
        if "wait" in lines:
            print("working", file=sys.stderr, flush=True)
            signal.pause()  # a wait of `threading` can fail with another error if it is interrupted early
        return [
            Shout((Scored(line.upper(), -0.5),), len(line.split()), 2345 if line.startswith("long") else 0)
            for line in lines
        ]

    def stream(self, lines: Iterable[str], window: int, *, wait: bool = True) -> Iterator[Shout]:
        for part in full_windows(lines, window) if wait else ready_windows(lines, window):
            yield from self.translate(part)


if __name__ == "__main__":
    if os.isatty(0):
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    translate.load_translator = lambda config: Shouter()
    translate.main()
