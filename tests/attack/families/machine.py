"""The machine: full disks, limits, standard streams that are closed or odd, no working directory."""

from __future__ import annotations

import os
import random
import resource
from collections.abc import Callable, Iterator
from dataclasses import replace

from attack.case import (
    LINES,
    NUM_LINES,
    Case,
    Expected,
    Machine,
    either,
    evaluate,
    refused,
    train,
    translate,
    works,
)
from attack.room import Room

_LEFT = ("run", "run/*")
_PIPE = Machine(stdin=LINES, piped=True)


def _limit(kind: int, value: int) -> Machine:
    return Machine(stdin=LINES, limits={kind: value})


def _streams() -> Iterator[Case]:
    """Standard streams: closed, full, broken, of odd kinds."""
    closed: tuple[tuple[str, Machine], ...] = (
        ("stdin", Machine(stdin="closed")),
        ("stdout", Machine(stdin=LINES, stdout="closed")),
        ("stderr", Machine(stdin=LINES, stderr="closed")),
        ("all", Machine(stdin="closed", stdout="closed", stderr="closed")),
        ("stdin and stdout", Machine(stdin="closed", stdout="closed")),
        ("stdin and stderr", Machine(stdin="closed", stderr="closed")),
    )
    for fresh in (False, True):
        how = " fresh" if fresh else ""
        for name, machine in closed:
            machine = replace(machine, fresh=fresh)
            expected = refused("input") if "stdin" in name and "and" not in name else either()
            yield translate(f"streams/closed {name}{how}", expected, machine=machine)
            yield evaluate(f"streams/closed {name}{how}", works(), machine=machine)
            if not fresh:
                yield train(f"streams/closed {name}", works(None, "run/results.json"), machine=machine)
    for stream, path in (
        ("stdout", "/dev/full"),
        ("stderr", "/dev/full"),
        ("stdout", "broken"),
        ("stderr", "broken"),
    ):
        machine = Machine(stdin=LINES, **{stream: path})  # type: ignore[arg-type]
        word = path.rpartition("/")[2]
        statuses = {("stdout", "full"): {2}, ("stdout", "broken"): {141}}.get((stream, word), {0})
        expected = Expected(frozenset(statuses), leaves=_LEFT)
        for fresh in (False, True):
            how = " fresh" if fresh else ""
            machine = replace(machine, fresh=fresh)
            yield translate(f"streams/{stream} {word}{how}", expected, machine=machine)
            yield evaluate(f"streams/{stream} {word}{how}", expected, machine=machine)
        yield train(f"streams/{stream} {word}", expected, machine=replace(machine, fresh=False))
        help_ = Expected(frozenset(statuses))
        yield translate(f"streams/{stream} {word} --help", help_, "--help", machine=machine)
    odd: tuple[tuple[str, bytes | str, Expected], ...] = (
        ("folder", ".", refused("standard input")),
        ("null", "/dev/null", works(0)),
        ("fifo", "fifo", works(0)),
        ("empty", b"", works(0)),
        ("one end", b"\n", works(1)),
        ("no end", b"ba", works(1)),
        ("blank lines", b"\n\n \n\t\n", works(4)),
        ("crlf", b"ba\r\nbe\r\n", works(2)),
        ("cr", b"ba\rbe\r", works(1)),
        ("nul", b"ba\0be\n\0\n", works(2)),
        ("latin-1", b"ba\ncaf\xe9\n", Expected(frozenset({2}), ("2", "UTF-8"), silent=False)),
        ("utf-16", "ba\n".encode("utf-16"), refused("standard input")),
        ("bom", b"\xef\xbb\xbfba\n", works(1)),
        ("u+2028", "a\u2028b\u2029c\x85\x0b\x0c\x1c\n".encode(), works(1)),
        ("long line", b"ba " * 100_000 + b"\n", works(1)),
        ("long word", b"b" * 100_000 + b"\n", works(1)),
        ("special pieces", b"<s>\n</s>\n<unk>\n<pad>\n<0x0A>\n", works(5)),
        ("escapes", b"\x1b[2J\n\x07\n", works(2)),
        ("many blank lines", b"\n" * 5000, works(5000)),
        ("emoji", "\N{GRINNING FACE}\u200d\ufe0f\n".encode() * 3, works(3)),
    )
    for name, text, expected in odd:
        for piped in (False, True):
            if piped and (isinstance(text, str) or len(text) > 60_000):
                continue
            yield translate(
                f"streams/input {name}{' piped' if piped else ''}",
                expected,
                setup=_with_fifo,
                machine=Machine(stdin=text, piped=piped),
            )
    for size in (2, 64):
        yield translate(
            f"streams/a thousand odd lines in batches of {size}",
            works(1000, check=_each_in_its_place),
            *("input=thousand", f"decoding.max_sentences={size}", "decoding.max_source_tokens=16"),
            setup=_thousand_lines,
        )


_BLANK = ["", " ", "\t\t", "\r", "\x0b \x1c\x1d\x1e\x85", "\u2028", "\u2029\xa0", "\u3000"]
_ODD = [
    *("ba\r", "ba\rbe", "ba\x0cbe", "ba\u2028be\u2029bi\x85", "\x00", "a\x00ba", "\x01\x02\x7f", "</s>"),
    *(
        "<unk> <s> <pad> ba </s> be",
        "\u2581ba\u2581be",
        "🙂👩‍👩‍👧",
        "猫は木を見る",
        "кот и собака",
        "القط يرى الكلب",
    ),
    *("e\u0301 \u200b\u202e\ufeff", "\ufffd\ufffe\U0010ffff", "\"ba, \\n\" 'be' %s {} $x"),
    *("ba be " * 20, "bi " * 3000, "ba", "be bi", "bo bu da", "de di do du fa"),
]


def _thousand_lines(room: Room) -> None:
    room.put_model()
    chance = random.Random(3)
    lines = chance.choices(_BLANK, k=500) + chance.choices(_ODD, k=500)
    chance.shuffle(lines)
    (room.work / "thousand").write_text("".join(f"{line}\n" for line in lines), newline="")


def _each_in_its_place(room: Room) -> str | None:
    """Equal lines have equal translations, whatever lines share their batches; blank lines have none."""
    lines = (room.work / "thousand").read_bytes().decode().split("\n")
    found = room.stdout.read_bytes().decode().split("\n")
    by_line = dict(zip(lines, found, strict=True))
    if any(by_line[line] for line in _BLANK) or len(set(by_line.values())) < 8:
        return "blank lines have translations, or different lines have the same"
    return None if found == [by_line[line] for line in lines] else "equal lines have different translations"


def _with_fifo(room: Room) -> None:
    room.put_model()
    os.mkfifo(room.work / "fifo")


def _limits() -> Iterator[Case]:
    """Resource limits: file size, open files, memory, and others."""
    for size in (0, 1, 100, 5_000, 50_000, 200_000, 300_000):
        machine = _limit(resource.RLIMIT_FSIZE, size)
        expected = either(leaves=_LEFT) if size else refused(leaves=_LEFT)
        yield train(f"limits/fsize {size}", expected, machine=replace(machine, stderr="/dev/null"))
    for size in (0, 1, 10):
        machine = Machine(stdin=LINES, stderr="/dev/null", limits={resource.RLIMIT_FSIZE: size})
        yield translate(f"limits/fsize {size}", refused(), "output=out", machine=machine)
        yield evaluate(
            f"limits/fsize {size}", refused(), "json=out", machine=replace(machine, stdout="/dev/null")
        )
        yield evaluate(
            f"limits/fsize {size} stdout",
            either(leaves=("out.txt",)),
            machine=replace(machine, stderr="/dev/null", stdout="out.txt"),
        )
    for number in (4, 5, 6, 8, 10, 16, 24):
        machine = _limit(resource.RLIMIT_NOFILE, number)
        yield train(f"limits/nofile {number}", either(leaves=_LEFT), machine=machine)
        yield translate(f"limits/nofile {number}", either(), machine=machine)
        yield evaluate(f"limits/nofile {number}", either(), machine=machine)
    yield train("limits/core 0", works(), "prepare_only=true", machine=_limit(resource.RLIMIT_CORE, 0))


def _directories() -> Iterator[Case]:
    """Removed working directories and odd environments."""
    gone = Machine(stdin=LINES, directory="deleted")
    for fresh in (False, True):
        how = " fresh" if fresh else ""
        machine = replace(gone, fresh=fresh)
        yield translate(f"machine/no directory{how}", refused(), machine=machine)
        yield translate(
            f"machine/no directory, whole paths{how}", either(), "model_dir={room}/model", machine=machine
        )
        yield evaluate(f"machine/no directory{how}", refused(), machine=machine)
        yield train(f"machine/no directory{how}", refused(), machine=machine)
        yield train(f"machine/no directory --help{how}", either(), "--help", machine=machine)
    environments: dict[str, dict[str, str | None]] = {
        "no HOME": {"HOME": None},
        "HOME a file": {"HOME": "{room}/train.src", "NMT_CACHE": None},
        "HOME missing": {"HOME": "/nowhere/at/all", "NMT_CACHE": None},
        "cache a file": {"NMT_CACHE": "{room}/train.src"},
        "cache below a file": {"NMT_CACHE": "{room}/train.src/cache"},
        "cache null": {"NMT_CACHE": "/dev/null"},
        "cache in proc": {"NMT_CACHE": "/proc/nowhere"},
        "cache long": {"NMT_CACHE": "/tmp/" + "x" * 300},
        "cache relative": {"NMT_CACHE": "own cache"},
        "cache a loop": {"NMT_CACHE": "{room}/loop"},
        "LANG C": {"LANG": "C", "LC_ALL": "C"},
        "LANG odd": {"LANG": "xx_YY.nonsense", "LC_ALL": "nonsense"},
        "TZ odd": {"TZ": "Nowhere/Nothing"},
        "TMPDIR missing": {"TMPDIR": "/nowhere"},
        "PYTHONIOENCODING": {"PYTHONIOENCODING": "ascii"},
        "COLUMNS": {"COLUMNS": "0", "LINES": "-1"},
        "PATH empty": {"PATH": ""},
        "RANK": {"RANK": "x", "WORLD_SIZE": "many"},
        "TERM": {"TERM": "nonsense"},
        "OMP_NUM_THREADS": {"OMP_NUM_THREADS": "1000"},
    }
    for name, environment in environments.items():
        machine = Machine(stdin=LINES, environment=environment)
        yield train(
            f"machine/{name}", either(leaves=_LEFT), "prepare_only=true", machine=machine, setup=_looped
        )
        if name in ("LANG C", "PYTHONIOENCODING", "no HOME", "LANG odd"):
            fresh = replace(machine, fresh=True, stdin="é\n".encode())
            yield translate(f"machine/{name}", works(1), machine=fresh)
            yield evaluate(f"machine/{name}", works(), machine=fresh)
    for mask in (0o077, 0o000, 0o777, 0o222):
        machine = Machine(stdin=LINES, umask=mask)
        yield train(f"machine/umask {mask:03o}", either(leaves=_LEFT), machine=machine)
        yield translate(f"machine/umask {mask:03o}", works(0, "out"), "output=out", machine=machine)


def _looped(room: Room) -> None:
    (room.work / "loop").symlink_to("loop")


def _outputs() -> Iterator[Case]:
    """Outputs of nmt-translate and nmt-eval."""
    outputs: tuple[tuple[str, Expected, Callable[[Room], object] | None], ...] = (
        ("out", works(0, "out"), None),
        ("none/out", refused("output"), None),
        ("train.src/out", refused("output"), None),
        ("folder", refused("output"), lambda room: (room.work / "folder").mkdir()),
        ("folder/", refused("output"), lambda room: (room.work / "folder").mkdir()),
        ("loop", refused("output"), _looped),
        ("dangling", either(), lambda room: (room.work / "dangling").symlink_to("aim")),
        ("far", refused("output"), lambda room: (room.work / "far").symlink_to("none/aim")),
        ("link", works(0, "link"), lambda room: (room.work / "link").symlink_to("hyp.txt")),
        ("/dev/full", refused("/dev/full"), None),
        ("/dev/null", works(0), None),
        ("/dev/stdout", works(NUM_LINES), None),
        ("/proc/out", refused(), None),
        ("/sys/out", refused(), None),
        (".", refused("output"), None),
        ("..", refused("output"), None),
        ("/", refused("output"), None),
        ("model", refused("output"), None),
        ("model/model.safetensors", either(), None),
    )
    for name, expected, setup in outputs:

        def both(room: Room, setup: Callable[[Room], object] | None = setup) -> None:
            room.put_model()
            if setup is not None:
                setup(room)

        yield translate(f"outputs/{name}", expected, f"output={name}", setup=both)
    yield translate("outputs/is the input", refused("input"), "input=test.src", "output=test.src")
    yield translate(
        "outputs/is a link to the input", refused("input"), "input=test.src", "output=link", setup=_hard
    )
    yield translate(
        "outputs/is standard input", refused("input"), "output=test.src", machine=Machine(stdin="test.src")
    )
    yield translate("outputs/scores", works(NUM_LINES), "scores=true")
    yield translate("outputs/nbest", works(2 * NUM_LINES), "decoding.nbest=2")
    yield translate("outputs/one token", works(NUM_LINES), "decoding.max_length_offset=1")
    yield translate("outputs/factor 0", works(NUM_LINES), "decoding.max_length_factor=0")
    yield translate("outputs/beam of all pieces", either(NUM_LINES), "decoding.beam_size=400")
    yield translate("outputs/one source token", works(NUM_LINES), "decoding.max_source_tokens=1")
    yield translate(
        "outputs/small batches", works(NUM_LINES), "decoding.max_tokens=1", "decoding.max_sentences=1"
    )


def _hard(room: Room) -> None:
    room.put_model()
    os.link(room.work / "test.src", room.work / "link")


cases_of = (_streams, _limits, _directories, _outputs)


def cases() -> Iterator[Case]:
    """All cases of this family."""
    for make in cases_of:
        yield from make()
