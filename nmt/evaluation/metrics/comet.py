"""COMET (Rei et al. 2020), computed by the command `comet-score` of a separate environment.

unbabel-comet 2.2 needs other versions of numpy, protobuf and transformers than nmt, so it can't be imported.
"""

from __future__ import annotations

import math
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from nmt.config import EvaluationConfig
from nmt.config.checks import shortened
from nmt.errors import UserError
from nmt.evaluation.metrics.base import Metric, ScoringStopped, Text
from nmt.runtime.commands import run_command
from nmt.runtime.files import expanded
from nmt.runtime.os_errors import write_errors

_OPTION = "evaluation.comet.command"
_PROCESS_VARIABLES = frozenset(
    "PYTHONPATH PYTHONHOME RANK LOCAL_RANK GROUP_RANK WORLD_SIZE LOCAL_WORLD_SIZE "
    "MASTER_ADDR MASTER_PORT".split()
)
_PROCESS_PREFIXES = ("TORCHELASTIC_", "SLURM_")
"""Environment variables that only this process uses: module paths, and its rank in a training."""

_SEGMENT = re.compile(r"Segment (\d{1,9})")

Segment = tuple[str, str, str]
"""Source, hypothesis, reference."""


class Comet(Metric):
    """COMET with the model that the command runs; the scores of most models are between 0 and 1.

    The command runs once for each different set of texts. A set whose segments all have scores, such as a
    part of an earlier set, needs no run: COMET scores each segment independently, and a corpus by their mean.
    With several references, the score is the mean of the scores against each of them.
    """

    key, name, digits, needs_sources, is_batched = "comet", "COMET", 4, True, True

    def __init__(self, target_lang: str, options: EvaluationConfig) -> None:
        super().__init__(target_lang, options)
        command = options.comet.command
        if command is None:
            raise UserError(
                f"{_OPTION}: not set, but the metric comet requires it. Install unbabel-comet in a "
                f"separate environment, and give its command: {_OPTION}=/path/to/comet-score"
            )
        self._command = _find_command([command] if isinstance(command, str) else list(command))
        self._segments: dict[Segment, float] = {}
        self._corpora: dict[tuple[Segment, ...], float] = {}

    def score(self, hypotheses: Text, references: Sequence[Text], sources: Text) -> float:
        """Returns the score that the command prints for the whole set."""
        return _mean([self._corpus(hypotheses, text, sources) for text in references])

    def sentence_scores(
        self, hypotheses: Text, references: Sequence[Text], sources: Text
    ) -> Sequence[float] | None:
        """Returns the scores that the command prints for the segments."""
        self.score(hypotheses, references, sources)
        rows = zip(sources, hypotheses, *references, strict=True)
        return [
            _mean([self._segments[source, hypothesis, text] for text in texts])
            for source, hypothesis, *texts in rows
        ]

    def signature(self, num_references: int) -> str:
        """Returns the number of references and the command without its folder; it may name the model."""
        program, *arguments = self._command
        return f"nrefs:{num_references}|command:{' '.join([Path(program).name, *arguments])}"

    def _corpus(self, hypotheses: Text, references: Text, sources: Text) -> float:
        rows = tuple(zip(sources, hypotheses, references, strict=True))
        if rows not in self._corpora:
            if all(row in self._segments for row in rows):
                self._corpora[rows] = _mean([self._segments[row] for row in rows])
            else:
                self._corpora[rows], segments = self._run(rows)
                self._segments |= zip(rows, segments, strict=True)
        return self._corpora[rows]

    def _run(self, rows: Sequence[Segment]) -> tuple[float, list[float]]:
        """Runs the command once and returns the scores of a corpus and of its segments."""
        with (
            write_errors(Path(tempfile.gettempdir())),
            tempfile.TemporaryDirectory(prefix="nmt-comet-") as name,
        ):
            folder = Path(name)
            arguments = []
            texts = {"-s": "sources", "-t": "hypotheses", "-r": "references"}
            for (flag, text), lines in zip(texts.items(), zip(*rows, strict=True), strict=True):
                _write(folder / text, lines)
                arguments += [flag, str(folder / text)]
            output = _output_of([*self._command, *arguments, "--quiet"], self.interrupted)
        try:
            return read_scores(output, len(rows))
        except ValueError as error:
            raise UserError(
                f"{_OPTION}={self._command[0]}: {error}. Give the comet-score of unbabel-comet 2.2, without "
                "--only_system."
            ) from error


def read_scores(output: str, num_segments: int) -> tuple[float, list[float]]:
    r"""Parses the output of `comet-score` of unbabel-comet 2.2.

    The line of a segment is `FILE\tSegment 0\tscore: 0.8123`, that of a system `FILE\tscore: 0.8123`. Other
    lines are ignored.

    Returns:
        The score of the system, and the scores of the segments in order.

    Raises:
        ValueError: a score is missing or not a number.
    """
    systems: set[float] = set()  # a set, because the process of each GPU may print the same line
    segments: dict[int, float] = {}
    for line in output.splitlines():
        match line.split("\t"):
            case [_, label, figure] if (match := _SEGMENT.fullmatch(label)) and figure.startswith("score: "):
                segments[int(match[1])] = _number(figure)
            case [_, figure] if figure.startswith("score: "):
                systems.add(_number(figure))
    if len(systems) != 1:
        count = f"{len(systems)} different system scores" if systems else "no system score"
        raise ValueError(f"it printed {count}")
    if segments.keys() != set(range(num_segments)):
        raise ValueError(f"it printed scores of {len(segments):,} segments, but there are {num_segments:,}")
    return systems.pop(), [segments[number] for number in range(num_segments)]


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _number(figure: str) -> float:
    text = figure.removeprefix("score: ").strip()
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"it printed the score {text[:40]!r}, which is not a number")
    return number


def _write(path: Path, lines: Sequence[str]) -> None:
    # comet-score also splits lines at carriage returns, and removes spaces around them.
    path.write_text(
        "".join(f"{line.replace(chr(13), ' ')}\n" for line in lines), encoding="utf-8", newline="\n"
    )


def _find_command(words: Sequence[str]) -> list[str]:
    """Returns a command with the full path of its program, which may begin with `~`.

    Raises:
        UserError: the program does not exist or is not executable.
    """
    name = str(expanded(words[0])) if words[0].startswith("~") else words[0]
    program = shutil.which(name)
    if program is None:
        reason = "not executable" if os.path.isfile(name) else "there is no such command"
        raise UserError(f"{_OPTION}={words[0]}: {reason}. Give the path of an executable file.")
    return [program, *words[1:]]


def _output_of(words: Sequence[str], interrupted: Callable[[], bool]) -> str:
    """Runs a command and returns its standard output.

    Raises:
        ScoringStopped: `interrupted`, which is called repeatedly, became true.
        UserError: the command can't be started, or fails; the message ends with the last line of its standard
            error.
    """

    def check() -> None:
        if interrupted():
            raise ScoringStopped

    try:
        process = run_command(words, _environment(), check=check)
    except OSError as error:
        raise UserError(f"{_OPTION}={words[0]}: can't be started: {error.strerror}") from error
    if status := process.returncode:
        end = f"ended by signal {-status}" if status < 0 else f"ended with exit status {status}"
        lines = [line.strip() for line in process.stderr.splitlines() if line.strip()]
        raise UserError(f"{_OPTION}={words[0]}: {end}: {shortened((lines or ['no message'])[-1], 300)}")
    return process.stdout


def _environment() -> dict[str, str]:
    return {
        name: value
        for name, value in os.environ.items()
        if name not in _PROCESS_VARIABLES and not name.startswith(_PROCESS_PREFIXES)
    }
