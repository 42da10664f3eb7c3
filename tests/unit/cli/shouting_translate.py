"""nmt-translate with a model that returns upper-case text, for tests of pipes and terminals without torch.

Its attention looks at the source word of the same number. The line `wait` is never translated; only
Ctrl-C ends it. A terminal becomes the controlling one, so that Ctrl-C reaches the process.
"""

from __future__ import annotations

import fcntl
import os
import signal
import sys
import termios
from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from nmt.cli import translate
from nmt.config import DecodingConfig
from nmt.errors import UserError


@dataclass(frozen=True)
class Scored:
    text: str
    score: float
    attention: Any = None
    pieces: tuple[str, ...] = ()
    alignment: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Shout:
    hypotheses: tuple[Scored, ...]
    num_tokens: int
    truncated: int
    cut_to: int = 1024
    cut_by: str = "decoding.max_source_tokens"
    unmet: tuple[str, ...] = ()
    appended: int = 0
    skipped: int = 0
    retried: bool = False
    source_pieces: tuple[str, ...] = ()
    parts: tuple[Any, ...] = ()
    too_long: int = 0
    lost: tuple[int, int] | None = None
    numbers: tuple[str, ...] = ()
    unknown_tags: tuple[str, ...] = ()


class Weights(list[list[float]]):
    def tolist(self) -> list[list[float]]:
        return list(self)


class Shouter:
    """A translation is the prefix and the line; further hypotheses have exclamation marks at their ends."""

    searcher = SimpleNamespace(sentences_per_batch=128)
    languages = ("en", "de")

    def __init__(self, config: DecodingConfig | None = None) -> None:
        self.config = config or DecodingConfig()

    def with_options(self, config: DecodingConfig) -> Shouter:
        return Shouter(config)

    def translate(
        self,
        lines: Sequence[str],
        *,
        prefixes: Sequence[str] | None = None,
        terms: Sequence[Sequence[str]] | None = None,
        terminology: Any = None,
        alignments: bool = False,
        attention: bool = False,
        scores: bool = True,
        markup: bool = False,
    ) -> list[Shout]:
        if "wait" in lines:
            print("working", file=sys.stderr, flush=True)
            signal.pause()  # a wait of `threading` can fail with another error if it is interrupted early
        if self.config.beam_size > 100:
            raise UserError(
                "decoding.max_tokens=4096: a batch does not fit into the memory of cpu. Lower it."
            )
        return [
            self._shout(line, prefix, attention)
            for line, prefix in zip(lines, prefixes or [""] * len(lines), strict=True)
        ]

    def _shout(self, line: str, prefix: str, attention: bool) -> Shout:
        words = line.split()
        text = " ".join(filter(None, [prefix, line.upper()]))
        pieces = (*words, "</s>") if attention and words else ()
        weights = Weights(
            [float(place == other) for other in range(len(pieces))] for place in range(len(pieces))
        )
        hypotheses = tuple(
            Scored(text + "!" * number, -0.5 - number, weights if pieces else None, pieces)
            for number in range(self.config.num_results)
        )
        truncated = 2345 if line.startswith("long") else 0
        numbers = ("7",) if line.startswith("number") else ()
        return Shout(hypotheses, len(words), truncated, source_pieces=pieces, numbers=numbers)


if __name__ == "__main__":
    if os.isatty(0):
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    translate.load_translator = lambda config: Shouter()
    translate.main()
