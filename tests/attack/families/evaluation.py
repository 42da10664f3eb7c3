"""nmt-eval: texts of unequal length, odd texts, reports that cannot be written."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import replace

from attack.case import Case, Expected, either, evaluate, refused, works
from attack.room import Room

_N = 6  # lines of the test set


def _report(room: Room) -> str | None:
    report = json.loads((room.work / "report.json").read_text())
    return None if isinstance(report, dict) and report else f"the report is {report!r:.60}"


def _text(content: bytes, name: str = "hyp.txt") -> Callable[[Room], None]:
    return lambda room: (room.work / name).write_bytes(content) and None


TEXTS: dict[str, tuple[bytes, Expected]] = {
    "empty": (b"", refused("hyp.txt")),
    "one line": (b"a\n", refused("1", "6")),
    "too many": (b"a\n" * 7, refused("7", "6")),
    "blank lines": (b"\n" * _N, works()),
    "no last end": (b"a\n" * 5 + b"a", works()),
    "crlf": (b"a\r\n" * _N, works()),
    "cr": (b"a\r" * _N, refused("6")),
    "bom": (b"\xef\xbb\xbf" + b"a\n" * _N, works()),
    "nul": (b"a\0b\n" * _N, works()),
    "u+2028": ("a\u2028b\n".encode() * _N, works()),
    "latin-1": (b"a\n" * 5 + b"caf\xe9\n", refused("hyp.txt", "6", "UTF-8")),
    "utf-16": (("a\n" * _N).encode("utf-16"), works()),
    "surrogate": (b"\xed\xa0\x80\n" * _N, refused("hyp.txt")),
    "gzip cut": (b"\x1f\x8b\x08\0\0\0\0\0", refused("hyp.txt")),
    "a long line": (b"word " * 2_000 + b"\n" + b"a\n" * 5, works()),
    "a long word": (b"w" * 200_000 + b"\n" + b"a\n" * 5, works()),
    "one character": (b"." * 3_000 + b"\n" + b"a\n" * 5, works()),
    "controls": (b"\x1b[2J\n" * _N, works()),
    "tabs": (b"\t\ta\t\n" * _N, works()),
    "percent": (b"%s %d {} {0} \\n $x\n" * _N, works()),
    "emoji": ("\N{FAMILY}\u200d\N{FAMILY}\n".encode() * _N, works()),
    "digits": (b"1" * 5000 + b"\n" + b"a\n" * 5, works()),
}

_TER = b"alpha beta gamma delta " * 15_000 + b"\n"


def cases() -> Iterator[Case]:
    """All cases of this family."""
    for name, (content, expected) in TEXTS.items():
        yield evaluate(f"evaluation/hypotheses {name}", expected, setup=_text(content))
    for name in ("empty", "one line", "latin-1", "blank lines", "nul", "gzip cut"):
        content, expected = TEXTS[name]
        expected = Expected(expected.statuses, tuple(word.replace("hyp", "odd") for word in expected.words))
        for key in ("references", "baseline", "groups"):
            setup = _text(content, "odd.txt")
            yield evaluate(f"evaluation/{key} {name}", either(), f"{key}=odd.txt", setup=setup)
    for name, make in {
        "folder": os.mkdir,
        "fifo": os.mkfifo,
        "loop": lambda path: path.symlink_to(path.name),
        "null": lambda path: path.symlink_to("/dev/null"),
    }.items():
        for key in ("hypotheses", "references", "groups", "json"):
            if (key, name) == ("json", "fifo"):
                continue  # opening a fifo for writing waits for a reader in every program
            yield evaluate(
                f"evaluation/{key} {name}",
                either() if (key, name) == ("json", "null") else refused("odd"),
                f"{key}=odd",
                setup=lambda room, make=make: make(room.work / "odd"),
            )
    yield from _together()
    yield from _forced()


def _forced() -> Iterator[Case]:
    def score(name: str, expected: Expected, *arguments: str, content: bytes | None = None) -> Case:
        def setup(room: Room) -> None:
            room.put_model()
            if content is not None:
                (room.work / "odd.txt").write_bytes(content)

        options = ("model_dir=model", "score=true", "threads=1", *arguments)
        return evaluate(f"evaluation/score {name}", expected, *options, setup=setup)

    odd = ("source=odd.txt", "references=odd.txt")
    yield score("test set", works(_N, "report.json", check=_report), "json=report.json")
    yield score("output", works(0, "out"), "output=out")
    yield score("full disk", replace(refused("full"), silent=False), "output=/dev/full")
    yield score("without model", refused("model_dir"), "model_dir=null")
    whole = ("blank lines", "crlf", "nul", "u+2028", "controls", "tabs", "one character", "digits", "emoji")
    for name in whole:
        yield score(name, works(_N), *odd, content=TEXTS[name][0])
    for name in ("empty", "latin-1", "gzip cut"):
        yield score(name, refused("odd.txt"), *odd, content=TEXTS[name][0])


_REPORT = works(None, "report.json", check=_report)
_ESCAPES = b"\x1b[2J\n\n\t\na b\n|\n\xe2\x80\xae\n"

TOGETHER: tuple[tuple[str, Expected, tuple[str, ...], Callable[[Room], None] | None], ...] = (
    ("json", _REPORT, ("json=report.json",), None),
    ("json in a missing folder", refused("json"), ("json=none/report.json",), None),
    ("json below a file", refused("json"), ("json=hyp.txt/report.json",), None),
    ("json to stdout", either(), ("json=/dev/stdout",), None),
    ("json full", replace(refused("full"), silent=False), ("json=/dev/full",), None),
    ("json is hypotheses", refused("hyp.txt"), ("json=hyp.txt",), None),
    ("json link to hypotheses", refused("link"), ("json=link",), lambda room: (room.work / "link").symlink_to("hyp.txt")),
    ("baseline", works(), ("baseline=hyp.txt",), None),
    ("groups", _REPORT, ("groups=ref.txt", "json=report.json"), None),
    ("groups of escapes", works(), ("groups=g",), _text(_ESCAPES, "g")),
    ("groups all equal", works(), ("groups=g",), _text(b"x\n" * _N, "g")),
    ("nothing", refused(), ("hypotheses=null", "references=null"), None),
    ("split without model", refused("split"), ("split=nonsense",), None),
    ("references list", works(), ("references=[ref.txt,ref.txt]",), None),
    ("references unequal list", refused(), ("references=[ref.txt,train.tgt]",), None),
    ("target_lang zh", works(), ("target_lang=zh",), None),
    ("target_lang ja", either(), ("target_lang=ja",), None),
    ("target_lang odd", refused("not a language code"), ("target_lang=../../x",), None),
    ("TER of 60,000 words", works(), (), lambda room: _long(room)),
)  # fmt: skip

WITH_A_MODEL: tuple[tuple[str, Expected, tuple[str, ...]], ...] = (
    ("", works(), ()),
    ("valid", works(), ("split=valid",)),
    ("and hypotheses", refused("hypotheses"), ("hypotheses=hyp.txt",)),
    ("own files", works(None, "out"), ("source=test.src", "references=test.tgt", "output=out")),
    ("unequal files", refused("120"), ("source=train.src", "references=test.tgt", "output=out")),
    ("source alone", refused("references"), ("source=test.src",)),
    ("data=quickstart", refused(), ("data=quickstart", "data.test.source=nowhere")),
    ("output is source", refused("output"), ("source=test.src", "references=test.tgt", "output=test.src")),
    ("output is json", refused(), ("output=o", "json=o")),
    ("source empty", refused(), ("source=empty", "references=empty")),
)  # fmt: skip


def _together() -> Iterator[Case]:
    for name, expected, arguments, setup in TOGETHER:
        yield evaluate(f"evaluation/{name}", expected, *arguments, setup=setup)
    for name, expected, arguments in WITH_A_MODEL:
        yield evaluate(f"evaluation/model {name}", expected, "model_dir=model", *arguments, setup=_model)
    yield evaluate("evaluation/model data moved", refused("test.src"), "model_dir=model", setup=_moved)


def _model(room: Room) -> None:
    room.put_model()
    (room.work / "empty").touch()


def _long(room: Room) -> None:
    (room.work / "hyp.txt").write_bytes(_TER)
    (room.work / "ref.txt").write_bytes(b" ".join(reversed(_TER.split())) + b"\n")


def _moved(room: Room) -> None:
    room.put_model()
    (room.work / "test.src").unlink()
