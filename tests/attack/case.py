"""A case: a command line, the state of the machine, and the expected outcome."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from attack.room import Room

USER_ERROR = 2


@dataclass(frozen=True)
class Expected:
    """An expected outcome.

    Attributes:
        statuses: correct exit statuses; -N is death by signal N.
        words: strings that the line of a refusal must contain; upper and lower case are equal.
        lines: number of lines on standard output if the command succeeds; None: any number.
        leaves: globs of paths in the working directory that may have changed after a refusal.
        files: files and folders that must exist if the command succeeds.
        check: inspects the room if the command succeeded; returns a complaint, or None.
        silent: whether standard output must be empty after a refusal. It need not be for a stream, which is
            translated line by line.
    """

    statuses: frozenset[int]
    words: tuple[str, ...] = ()
    lines: int | None = None
    leaves: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    check: Callable[[Room], str | None] | None = None
    silent: bool = True


def refused(*words: str, leaves: tuple[str, ...] = ()) -> Expected:
    """Expects exit status 2 and one line that contains `words`."""
    return Expected(frozenset({USER_ERROR}), words, leaves=leaves)


def works(
    lines: int | None = None, *files: str, check: Callable[[Room], str | None] | None = None
) -> Expected:
    """Expects exit status 0, this number of lines on standard output, and these files."""
    return Expected(frozenset({0}), lines=lines, files=files, check=check)


def either(lines: int | None = None, leaves: tuple[str, ...] = ()) -> Expected:
    """Expects success or a refusal, each without traces."""
    return Expected(frozenset({0, USER_ERROR}), lines=lines, leaves=leaves)


def stopped(*signals: signal.Signals) -> Expected:
    """Expects -N or 128 + N for one of the signals N, or exit status 0 if the command ended before it."""
    return Expected(frozenset({0, *(128 + number for number in signals), *(-number for number in signals)}))


@dataclass(frozen=True)
class Machine:
    """The environment of the process, apart from its arguments.

    Attributes:
        stdin: text for standard input; a path to open; None: no input; "closed".
        piped: standard input is a pipe instead of a file.
        stdout: None: a file that is judged; a path to open; "closed"; "broken": a pipe without a reader.
        stderr: the same values as `stdout`.
        limits: `resource.RLIMIT_*` → soft limit.
        environment: environment variables; None: not set.
        umask: the umask of the process.
        directory: the working directory, relative to that of the room; "deleted": a removed folder.
        signals: (signal, when): seconds after the start, or a text that must be on standard error first.
        seconds: a longer run is a hang.
        fresh: whether the case requires a fresh interpreter instead of a fork.
    """

    stdin: bytes | str | None = None
    piped: bool = False
    stdout: str | None = None
    stderr: str | None = None
    limits: Mapping[int, int] = field(default_factory=dict)
    environment: Mapping[str, str | None] = field(default_factory=dict)
    umask: int | None = None
    directory: str = "."
    signals: tuple[tuple[signal.Signals, float | str], ...] = ()
    seconds: float = 60.0
    fresh: bool = False


@dataclass(frozen=True)
class Case:
    """One attack.

    Attributes:
        name: `family/words`, unique.
        command: a command such as `nmt-train`.
        arguments: its arguments; `{room}` is replaced by the working directory.
        expected: the expected outcome.
        setup: prepares the room.
        machine: the environment of the process.
    """

    name: str
    command: str
    arguments: tuple[str, ...]
    expected: Expected
    setup: Callable[[Room], None] | None = None
    machine: Machine = Machine()

    @property
    def family(self) -> str:
        """The first part of the name."""
        return self.name.partition("/")[0]


def train(name: str, expected: Expected, *arguments: str, **others: object) -> Case:
    """A training of a few seconds on the toy corpus; `arguments` follow the options that make it small."""
    from attack.prepared import TRAINING

    return Case(_named(name, "train"), "nmt-train", (*TRAINING, *arguments), expected, **others)  # type: ignore[arg-type]


def translate(name: str, expected: Expected, *arguments: str, **others: object) -> Case:
    """A translation of a few lines by the model in `model`; `setup` may put something else there."""
    others.setdefault("setup", Room.put_model)
    machine = others.setdefault("machine", Machine(stdin=LINES))
    assert isinstance(machine, Machine)
    model = () if any(argument.startswith("model_dir") for argument in arguments) else ("model_dir=model",)
    return Case(
        _named(name, "translate"), "nmt-translate", (*model, "threads=1", *arguments), expected, **others
    )  # type: ignore[arg-type]


def evaluate(name: str, expected: Expected, *arguments: str, **others: object) -> Case:
    """A scoring of the files `hyp.txt` and `ref.txt`, unless the arguments name others."""
    texts = [key for key in ("hypotheses", "references") if not _given(key, arguments)]
    if _given("model_dir", arguments):
        texts = []
    files = {"hypotheses": "hyp.txt", "references": "ref.txt"}
    defaults = [f"{key}={files[key]}" for key in texts]
    if defaults and not _given("target_lang", arguments):
        defaults.append("target_lang=yy")
    return Case(_named(name, "eval"), "nmt-eval", (*defaults, *arguments), expected, **others)  # type: ignore[arg-type]


def _named(name: str, command: str) -> str:
    family, _, words = name.partition("/")
    return f"{family}/{command} {words}"


def _given(key: str, arguments: tuple[str, ...]) -> bool:
    return any(argument.startswith((f"{key}=", f"~{key}")) for argument in arguments)


LINES = b"ba be\nbi bo bu\nda\n"
"""Three lines to translate."""
NUM_LINES = LINES.count(b"\n")
