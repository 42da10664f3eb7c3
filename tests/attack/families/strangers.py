"""What strangers tried: odd plugins, devices as files, outputs that are links, labels that control a terminal."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator

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

_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_PLUGIN = Machine(stdin=LINES, environment={"PYTHONPATH": "{room}"})


def _file(name: str, content: str | bytes) -> Callable[[Room], None]:
    content = content.encode() if isinstance(content, str) else content
    return lambda room: (room.work / name).write_bytes(content) and None


def _with_model(*setups: Callable[[Room], object]) -> Callable[[Room], None]:
    def put(room: Room) -> None:
        room.put_model()
        for setup in setups:
            setup(room)

    return put


def _no_controls(room: Room) -> str | None:
    found = _CONTROL.search(room.stdout.read_text(encoding="utf-8"))
    return f"standard output has the control character {found[0]!r}" if found else None


def _strict_json(room: Room) -> str | None:
    try:
        json.loads((room.work / "report.json").read_text(), parse_constant=int)
    except ValueError as error:
        return f"the report is not JSON: {error}"
    return None


_THREE = works(NUM_LINES)
_PLUGINS: dict[str, tuple[str, Expected]] = {
    "exits": ("import sys\nsys.exit()\n", refused("plugins=odd", "sys.exit")),
    "exits with 1": ("import sys\nsys.exit(1)\n", refused("plugins=odd", "sys.exit")),
    "exits with text": ("raise SystemExit('bye')\n", refused("plugins=odd", "sys.exit")),
    "quits": ("quit()\n", refused("plugins=odd", "sys.exit")),
    "prints": ("print('hello', flush=True)\n", _THREE),
    "prints at exit": ("import atexit\natexit.register(print, 'bye')\n", _THREE),
    "writes to descriptor 1": ("import os\nos.write(1, b'hello')\n", _THREE),
    "runs a child that prints": ("import os\nos.system('echo hello')\n", _THREE),
    "removes sys.stdout": ("import sys\nsys.stdout = None\n", _THREE),
    "removes sys.stderr": ("import sys\nsys.stderr = None\n", _THREE),
    "closes sys.stdout": ("import sys\nsys.stdout.close()\n", _THREE),
    "replaces sys.stdout": ("import io, sys\nsys.stdout = io.StringIO()\n", _THREE),
    "clears the environment": ("import os\nos.environ.clear()\n", _THREE),
    "has a daemon thread": (
        "import threading, time\nthreading.Thread(target=time.sleep, args=(99,), daemon=True).start()\n",
        _THREE,
    ),
    "has a thread": (
        "import threading, time\nthreading.Thread(target=time.sleep, args=(1,)).start()\n",
        _THREE,
    ),
    "configures logging": ("import logging\nlogging.basicConfig(level=0)\n", _THREE),
    "disables logging": ("import logging\nlogging.disable()\n", _THREE),
    "ignores signals": ("import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n", _THREE),
    "needs a missing package": ("import absent_package\n", refused("plugins=odd", "absent_package")),
    "is not UTF-8": ("x = '\xe9'\n", refused("plugins=odd", "UTF-8")),
    "is not Python": ("def (\n", refused("plugins=odd", "odd.py, line 1")),
    "has a NUL": ("x = 1\0\n", refused("plugins=odd")),
    "is empty": ("", _THREE),
}
_METRIC = """
from nmt.evaluation.metrics import METRICS, Metric
class Odd(Metric):
    key = name = "odd"
    def score(self, *texts):
        return {value}
METRICS["odd"] = Odd
"""
_VALUES: dict[str, Expected] = {
    **dict.fromkeys(
        ("float('nan')", "float('inf')", "-float('inf')", "10**400", "-10**400", "-0.0", "True", "10**300"),
        works(None, "report.json", check=_strict_json),
    ),
    "None": refused("metric odd", "None"),
    "'12'": works(None, "report.json", check=_strict_json),
    "'many'": refused("metric odd", "many"),
    "[1.0]": refused("metric odd"),
    "1j": refused("metric odd"),
    "print": refused("metric odd"),
    "'\\x1b[31m'": refused("metric odd"),
}
_LABELS = {
    "escapes": "\x1b[2J\x1b]0;title\x07\n" * 6,
    "c1": "\x9b31m\n" * 6,
    "bidi": "\u202eabc\u2066\n" * 6,
    "tabs and backspaces": "a\tb\x08\x08\n" * 6,
    "line separators": "a\u2028b\x0bc\x0cd\x85\n" * 6,
    "deleted": "\x7f\n" * 6,
    "long": "x\x1b" * 5000 + "\n" + "y\n" * 5,
}
_TERMS: dict[str, Expected] = {
    "/dev/zero": refused("/dev/zero", "64 MiB"),
    "/dev/full": refused("/dev/full", "64 MiB"),
    "/dev/urandom": refused("/dev/urandom"),
    "/dev/null": works(NUM_LINES),
    "/proc/self/mem": refused("/proc/self/mem"),
    "/": refused("terminology=/"),
    "model": refused("terminology=model"),
    "/dev/stdin": either(),
}
_INPUTS: dict[str, Expected] = {
    "/dev/zero": refused("/dev/zero", "64 MiB"),
    "/dev/full": refused("/dev/full", "64 MiB"),
    "/dev/null": works(0),
    "/proc/self/mem": refused("/proc/self/mem"),
    "/proc/self/fd": refused("/proc/self/fd"),
    "/dev/mem/x": refused("/dev/mem/x"),
}


def _lines(*lines: str) -> Machine:
    return Machine(stdin="".join(f"{line}\n" for line in lines).encode("utf-8", "surrogatepass"))


_PLACEHOLDERS = "".join(f" {chr(0xF0000 + number)}" for number in range(70))
_TEXT: dict[str, tuple[Machine, int]] = {
    "placeholder": (_lines("\U000f0000", "ba \U000f003f be", "<\U000f0000>"), 3),
    "all placeholders": (_lines(_PLACEHOLDERS, _PLACEHOLDERS * 9), 2),
    "placeholder in a tag": (_lines('<a href="\U000f0001">ba</a> \U000f0001', "<\U000f0000/>"), 2),
    "private use": (_lines("\U000f0040 ba", "\U0010ffff \ue000 \ufffe"), 2),
}
_JSON: dict[str, tuple[str, Expected]] = {
    "100 lists": ('{"text": "ba", "x": ' + "[" * 99 + "]" * 99 + "}", works(1)),
    "101 lists": ('{"text": "ba", "x": ' + "[" * 101 + "]" * 101 + "}", works(1)),
    "objects": ('{"text": "ba", "x": ' + '{"a":' * 3000 + "1" + "}" * 3000 + "}", works(1)),
    "open lists": ("[" * 100_000, works(1)),
    "a number": ("1e999", works(1)),
    "a long integer": ('{"text": "ba", "x": ' + "9" * 5000 + "}", works(1)),
    "nan": ('{"text": "ba", "x": NaN, "y": -Infinity}', works(1)),
    "a lone surrogate": ('{"text": "ba \\ud800"}', works(1)),
    "equal keys": ('{"text": "ba", "text": "be"}', works(1)),
    "many members": (json.dumps({"text": "ba", **{str(n): n for n in range(50_000)}}), works(1)),
    "a placeholder as a constraint": ('{"text": "ba", "constraints": ["\U000f0000"]}', works(1)),
    "a placeholder as a prefix": ('{"text": "ba", "prefix": "\U000f0000"}', works(1)),
    "66 equal words": (json.dumps({"text": "ba", "constraints": ["ab " * 66]}), works(1)),
    "an empty constraint": ('{"text": "ba", "constraints": ["", " ", "\u200b"]}', works(1)),
}
_TAGS = ("\U000f0000", "<\U000f003f>", "<unk>", "</s>", "<0x41>", "\u2581", "a b", "\u3000", "\x1b[31m")


def _export(
    name: str, expected: Expected, *arguments: str, setup: Callable[[Room], object] = lambda room: None
) -> Case:
    options = ("model_dir=model", "format=marian", "check_sentences=4", "threads=1")
    return Case(
        f"strangers/export {name}", "nmt-export", (*options, *arguments), expected, _with_model(setup)
    )


def _link(target: str, *, folder: bool = False) -> Callable[[Room], None]:
    def put(room: Room) -> None:
        if folder:
            (room.work / target).mkdir()
        (room.work / "odd").symlink_to(target)

    return put


def cases() -> Iterator[Case]:
    """All cases of this family."""
    yield from _of_plugins()
    yield from _of_files()
    yield from _of_lines()
    yield from _of_exports()
    for tag in _TAGS:
        sides = (f"data.{split}.tag={tag!s}" for split in ("train", "valid", "test"))
        yield train(
            f"strangers/tag {tag!a}", refused("data.train.tag") if tag != "\x1b[31m" else either(), *sides
        )


def _of_plugins() -> Iterator[Case]:
    for name, (code, expected) in _PLUGINS.items():
        setup = _file("odd.py", code if name != "is not UTF-8" else code.encode("latin-1"))
        yield translate(
            f"strangers/plugin {name}", expected, "plugins=[odd]", setup=_with_model(setup), machine=_PLUGIN
        )
    for value, expected in {
        "odd": refused("plugins"),
        "[odd,odd]": works(NUM_LINES),
        "['']": refused("plugins="),
        "[odd.]": refused("plugins=odd."),
        "[.odd]": refused("plugins=.odd"),
        "[odd.absent]": refused("plugins=odd.absent"),
        "[json]": works(NUM_LINES),
        "[__main__]": either(NUM_LINES),
    }.items():
        setup = _with_model(_file("odd.py", ""))
        yield translate(
            f"strangers/plugins {value}", expected, f"plugins={value}", setup=setup, machine=_PLUGIN
        )
    for value, expected in _VALUES.items():
        options = ("plugins=[odd]", "evaluation.metrics=[odd]", "json=report.json", "baseline=ref.txt")
        setup = _file("odd.py", _METRIC.format(value=value))
        yield evaluate(f"strangers/metric {value}", expected, *options, setup=setup, machine=_PLUGIN)


def _of_files() -> Iterator[Case]:
    for name, labels in _LABELS.items():
        expected = works(check=_no_controls)
        yield evaluate(f"strangers/labels {name}", expected, "groups=g", setup=_file("g", labels))
    for name in ("\x1b[2J.txt", "\u202etxt", "a\tb"):
        setup = lambda room, name=name: os.rename(room.work / "hyp.txt", room.work / name)  # noqa: E731
        expected = refused("U+001B") if "\x1b" in name else works(check=_no_controls)
        yield evaluate(f"strangers/title {name!a}", expected, f"hypotheses={name}", setup=setup)
    for path, expected in _TERMS.items():
        yield translate(f"strangers/terminology {path}", expected, f"terminology={path}")
    for path, expected in _INPUTS.items():
        yield translate(f"strangers/input {path}", expected, f"input={path}")
    for name, expected, setup in (
        ("link to a folder", refused("output=odd", "folder"), _link("folder", folder=True)),
        ("broken link", works(0, "new"), _link("new")),
        ("link to itself", refused("odd"), _link("odd")),
        ("link to /dev/full", refused("odd"), _link("/dev/full")),
        ("link to /dev/null", works(0), _link("/dev/null")),
    ):
        yield translate(f"strangers/output {name}", expected, "output=odd", setup=_with_model(setup))
    for key in ("output", "alignments"):
        for name in ("model/model.safetensors", "model/config.yaml", "model/SHA256SUMS"):
            yield translate(f"strangers/{key} {name}", refused("file of a model"), f"{key}={name}")
    name = "json=model/results.json"
    yield evaluate(f"strangers/{name}", refused("file of a model"), name, setup=Room.put_model)
    for name in (".", "..", "/", "model/", "{room}"):
        yield translate(f"strangers/output {name}", refused("output="), f"output={name}")


def _of_lines() -> Iterator[Case]:
    for name, (machine, count) in _TEXT.items():
        yield translate(f"strangers/text {name}", works(count), machine=machine)
    for name, (line, expected) in _JSON.items():
        yield translate(f"strangers/json {name}", expected, "format=jsonl", machine=_lines(line))
    for value in ("1e-40", "1e-300", "1e300", "nan", "inf", "0", "-1"):
        options = ("decoding.samples=2", f"decoding.temperature={value}")
        yield translate(f"strangers/temperature {value}", either(2 * NUM_LINES), *options)


def _of_exports() -> Iterator[Case]:
    made = works(None, "odd/config.json", "odd/export.json")
    yield _export("to a link to an empty folder", made, "output=odd", setup=_link("empty", folder=True))
    yield _export("to a broken link", works(None, "new/config.json"), "output=odd", setup=_link("new"))
    yield _export("to a link to itself", refused("odd"), "output=odd", setup=_link("odd"))
    yield _export("to a link to /dev/null", refused("odd"), "output=odd", setup=_link("/dev/null"))
    for name in (".", "./", "..", "/", "model", "{room}", "test.src", "test.src/x", "/dev/null", "/proc/x"):
        yield _export(f"to {name}", refused(), f"output={name}")
    for option in (
        "max_length=1000000",
        "max_length=0",
        "check_sentences=-1",
        "format=.",
        "quantization=float33",
    ):
        yield _export(option, refused(option.partition("=")[0]), "output=odd", option)
    yield Case(
        "strangers/export in the current folder, which is empty",
        "nmt-export",
        ("model_dir=../model", "format=marian", "output=."),
        refused("output=.", "current folder"),
        _with_model(lambda room: (room.work / "empty").mkdir()),
        Machine(directory="empty"),
    )
    yield Case(
        "strangers/export in a removed folder",
        "nmt-export",
        ("model_dir={room}/model", "format=marian", "output={room}/new"),
        refused("current folder"),
        _with_model(),
        Machine(directory="deleted"),
    )
