"""Odd training data: encodings, line ends, archives, tables in three formats, unequal line counts."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from attack.case import Case, Expected, either, refused, train, works
from attack.room import Room

Change = Callable[[bytes], bytes]
PREPARE = "prepare_only=true"
_PLENTY = "data.tokenizer.vocab_size=300"
_JAPANESE = (
    refused("target_lang=ja: BLEU needs the tokenizer ja-mecab", "sacrebleu[ja]")
    if find_spec("MeCab") is None
    else works()
)


def _lines(change: Callable[[list[bytes]], None]) -> Change:
    def changed(content: bytes) -> bytes:
        lines = content.splitlines(keepends=True)
        change(lines)
        return b"".join(lines)

    return changed


def _line(number: int, text: bytes) -> Change:
    return _lines(lambda lines: lines.__setitem__(number, text))


TEXTS: dict[str, tuple[Change, Expected]] = {
    "latin-1": (_line(16, b"caf\xe9\n"), refused("train.src", "17", "UTF-8")),
    "utf-16": (lambda text: text.decode().encode("utf-16"), works()),
    "utf-16-be": (lambda text: text.decode().encode("utf-16-be"), either()),
    "bom": (lambda text: b"\xef\xbb\xbf" + text, works()),
    "bom inside": (_line(3, b"\xef\xbb\xbfba\n"), works()),
    "crlf": (lambda text: text.replace(b"\n", b"\r\n"), works()),
    "cr": (lambda text: text.replace(b"\n", b"\r"), refused("train.src", "120")),
    "cr inside": (_line(3, b"ba\rbe\n"), works()),
    "nul": (_line(3, b"ba\0be\n"), works()),
    "u+2028": (_line(3, "ba\u2028be\u2029bi\u0085bo\x0b\x0c\x1c\n".encode()), works()),
    "blank last line": (lambda text: text + b"\n", refused("120", "121")),
    "one less": (_lines(lambda lines: lines.pop()), refused("119", "120")),
    "one more": (lambda text: text + b"ba\n", refused("train.src", "121", "120")),
    "empty": (lambda text: b"", refused("train.src has 0 lines", "120")),
    "blank lines": (lambda text: b"\n" * 120, refused()),
    "a huge line": (_line(3, b"ba " * 400_000 + b"\n"), works()),
    "a long word": (_line(3, b"b" * 300_000 + b"\n"), works()),
    "special pieces": (_line(3, b"<s> </s> <unk> <pad> <0x41> \xe2\x96\x81\n"), works()),
    "combining": (_line(3, ("a" + "\u0301" * 500 + "\n").encode()), works()),
    "controls": (_line(3, b"\x1b[2J\x07\x08\n"), works()),
    "bidi": (_line(3, "\u202e\u2066ba\u2069\n".encode()), works()),
    "all equal": (lambda text: b"ba be\n" * 120, either()),
    "gzip": (gzip.compress, works()),
    "xz": (lzma.compress, works()),
    "gzip cut": (lambda text: gzip.compress(text)[:-20], refused("train.src", "damaged")),
    "gzip with a tail": (lambda text: gzip.compress(text) + b"tail", refused("train.src")),
    "gzip flipped": (lambda text: _flip(gzip.compress(text), 40), refused("train.src")),
    "gzip of gzip": (lambda text: gzip.compress(gzip.compress(text)), refused("train.src")),
    "xz cut": (lambda text: lzma.compress(text)[:-20], refused("train.src", "damaged")),
    "bzip2": (bz2.compress, refused("train.src")),
    "zip": (lambda text: b"PK\x03\x04" + text, either()),
    "zstd": (lambda text: _zstd(text), works()),
    "zstd cut": (lambda text: _zstd(text)[:-20], refused("train.src", "damaged")),
    "png": (lambda text: b"\x89PNG\r\n\x1a\n" + bytes(500), refused("train.src")),
}


def _flip(content: bytes, at: int) -> bytes:
    return content[:at] + bytes([content[at] ^ 0x55]) + content[at + 1 :]


def _zstd(content: bytes) -> bytes:
    return bytes(pa.Codec("zstd").compress(content, asbytes=True))


def _changed(room: Room, name: str, change: Change) -> None:
    path = room.work / name
    path.write_bytes(change(path.read_bytes()))


def _pairs(room: Room) -> list[tuple[str, str]]:
    sides = [(room.work / f"train.{side}").read_text().splitlines() for side in ("src", "tgt")]
    return list(zip(*sides, strict=True))


Writer = Callable[[Path, list[tuple[str, str]]], object]


def _tsv(change: Callable[[list[str]], None], header: str = "source\ttarget") -> Writer:
    def write(path: Path, pairs: list[tuple[str, str]]) -> None:
        rows = [f"{source}\t{target}" for source, target in pairs]
        rows = [header, *rows] if header else rows
        change(rows)
        path.write_text("\n".join(rows) + "\n", newline="")

    return write


def _jsonl(change: Callable[[list[str]], None] = lambda rows: None) -> Writer:
    def write(path: Path, pairs: list[tuple[str, str]]) -> None:
        rows = [json.dumps({"source": source, "target": target}) for source, target in pairs]
        change(rows)
        path.write_bytes("\n".join(rows).encode(errors="surrogatepass") + b"\n")

    return write


def _row(number: int, text: str) -> Callable[[list[str]], None]:
    return lambda rows: rows.__setitem__(number, text)


def _parquet(make: Callable[[list[str], list[str]], pa.Table], **options: object) -> Writer:
    def write(path: Path, pairs: list[tuple[str, str]]) -> None:
        pq.write_table(make([pair[0] for pair in pairs], [pair[1] for pair in pairs]), path, **options)

    return write


def _table(kind: pa.DataType) -> Callable[[list[str], list[str]], pa.Table]:
    return lambda sources, targets: pa.table(
        {"source": pa.array(sources, kind), "target": pa.array(targets, kind)}
    )


_STRINGS = _table(pa.string())
_DIGITS = "1" * 5000

TABLES: dict[str, tuple[str, Writer, Expected]] = {
    "tsv": ("t.tsv", _tsv(lambda rows: None), works()),
    "tsv without header": ("t.tsv", _tsv(lambda rows: None, ""), refused("t.tsv")),
    "tsv blank line": ("t.tsv", _tsv(_row(5, "")), refused("t.tsv", "6")),
    "tsv blank end": ("t.tsv", _tsv(lambda rows: rows.append("")), either()),
    "tsv empty": ("t.tsv", lambda path, pairs: path.write_text(""), refused("t.tsv")),
    "csv": ("t.csv", _tsv(lambda rows: None), refused("t.csv")),
    "jsonl": ("t.jsonl", _jsonl(), works()),
    "jsonl broken": ("t.jsonl", _jsonl(_row(5, '{"source": ')), refused("t.jsonl", "6")),
    "jsonl blank end": ("t.jsonl", _jsonl(lambda rows: rows.extend(["", " ", ""])), works()),
    "jsonl 5000 digits": ("t.jsonl", _jsonl(_row(5, f'{{"source": {_DIGITS}, "target": "a"}}')), refused("t.jsonl", "6")),
    "jsonl deep": ("t.jsonl", _jsonl(_row(5, "[" * 100_000)), refused("t.jsonl", "6")),
    "jsonl deep but closed": ("t.jsonl", _jsonl(_row(0, '{"a":' * 900 + "1" + "}" * 900)), refused("t.jsonl", "1")),
    "jsonl lone surrogate": ("t.jsonl", _jsonl(_row(5, '{"source": "\\ud800", "target": "a"}')), refused("t.jsonl", "6")),
    "jsonl NaN": ("t.jsonl", _jsonl(_row(5, '{"source": NaN, "target": "a"}')), refused("t.jsonl", "6")),
    "jsonl key twice": ("t.jsonl", _jsonl(_row(5, '{"source": "a", "source": "b", "target": "c"}')), either()),
    "jsonl escapes": ("t.jsonl", _jsonl(_row(5, '{"source": "a\\nb\\u0000c", "target": "d\\u2028"}')), works()),
    "jsonl escape in a key": ("t.jsonl", _jsonl(_row(0, '{"\\u001b[2Jx": "a"}')), refused("t.jsonl")),
    "jsonl empty": ("t.jsonl", lambda path, pairs: path.write_text(""), refused("t.jsonl")),
    "json document": ("t.jsonl", lambda path, pairs: path.write_text(json.dumps([{"source": "a"}], indent=1)), refused("t.jsonl")),
    "parquet": ("t.parquet", _parquet(_STRINGS), works()),
    "parquet string views": ("t.parquet", _parquet(_table(pa.string_view())), either()),
    "parquet binary": ("t.parquet", _parquet(lambda a, b: pa.table({"source": [x.encode() for x in a], "target": b})), refused("t.parquet")),
    "parquet struct": ("t.parquet", _parquet(lambda a, b: pa.table({"translation": [{"xx": x, "yy": y} for x, y in zip(a, b, strict=True)]})), works()),
    "parquet struct null": ("t.parquet", _parquet(lambda a, b: pa.table({"translation": [None, *({"xx": x, "yy": y} for x, y in zip(a[1:], b, strict=False))]})), either()),
    "parquet no rows": ("t.parquet", _parquet(lambda a, b: _STRINGS([], [])), refused()),
    "parquet cut": ("t.parquet", lambda path, pairs: (_parquet(_STRINGS)(path, pairs), path.write_bytes(path.read_bytes()[:-30])), refused("t.parquet")),
    "parquet flipped": ("t.parquet", lambda path, pairs: (_parquet(_STRINGS, compression="zstd")(path, pairs), path.write_bytes(_flip(path.read_bytes(), 200))), refused("t.parquet")),
    "parquet text": ("t.parquet", _tsv(lambda rows: None), refused("t.parquet")),
    "parquet magic": ("t.parquet", lambda path, pairs: path.write_bytes(b"PAR1" + b"\xff" * 40 + b"PAR1"), refused("t.parquet")),
    "parquet brotli": ("t.parquet", _parquet(_STRINGS, compression="brotli"), works()),
    "parquet lone surrogate": ("t.parquet", _parquet(lambda a, b: pa.table({"source": pa.array([b"\xed\xa0\x80", *(x.encode() for x in a[1:])]).view(pa.string()), "target": b})), refused("t.parquet")),
}  # fmt: skip


def _write_table(room: Room, name: str, writer: Writer) -> None:
    writer(room.work / name, _pairs(room))


def cases() -> Iterator[Case]:
    """All cases of this family."""
    whole = ("gzip", "u+2028", "nul", "a huge line", "special pieces")  # trained on, not only prepared
    for name, (change, expected) in TEXTS.items():
        arguments = () if name in whole else (PREPARE,)
        setup = partial(_changed, name="train.src", change=change)
        yield train(f"data/text {name}", expected, *arguments, setup=setup)
    for name in ("latin-1", "one less", "empty", "gzip cut", "blank lines", "nul", "a huge line"):
        change, expected = TEXTS[name]
        for split in ("valid.tgt", "test.src"):
            yield train(
                f"data/{split} {name}",
                either(leaves=("run*",)),
                PREPARE,
                setup=partial(_changed, name=split, change=lambda text, change=change: change(text * 20)),
            )
    table = ("data.train.source=null", "data.train.target=null", PREPARE)
    for name, (file, writer, expected) in TABLES.items():
        setup = partial(_write_table, name=file, writer=writer)
        yield train(f"data/table {name}", expected, *table, f"data.train.path={file}", setup=setup)
    yield from _named()


def _named() -> Iterator[Case]:
    """Special files, lists and odd names as values of data options."""
    for name, make in {
        "folder": lambda path: path.mkdir(),
        "fifo": os.mkfifo,
        "loop": lambda path: path.symlink_to(path.name),
        "dangling": lambda path: path.symlink_to("nowhere"),
        "zeros": lambda path: path.symlink_to("/dev/zero"),
        "null": lambda path: path.symlink_to("/dev/null"),
        "mem": lambda path: path.symlink_to("/proc/self/mem"),
    }.items():
        for option, file in (
            ("data.train.source", "odd"),
            ("data.train.path", "odd.tsv"),
            ("data.valid.target", "odd"),
        ):
            yield train(
                f"data/{option} {name}",
                refused("odd"),
                f"{option}={file}",
                *(("data.train.source=null", "data.train.target=null") if file == "odd.tsv" else ()),
                setup=lambda room, make=make, file=file: make(room.work / file),
            )
    odd = {
        "both": (refused("data.train"), ("data.train.path=train.src",)),
        "no target": (refused("target"), ("data.train.target=null",)),
        "nothing": (refused("data.train"), ("data.train.source=null", "data.train.target=null")),
        "no valid": (refused("data.valid"), ("data.valid.source=null", "data.valid.target=null")),
        "no test": (works(), ("data.test.source=null", "data.test.target=null", PREPARE)),
        "list": (works(), ("data.train.source=[train.src,train.src]", "data.train.target=[train.tgt,train.tgt]", PREPARE)),
        "unequal lists": (refused("data.train"), ("data.train.source=[train.src,train.src]",)),
        "empty list": (refused("data.train"), ("data.train.source=[]",)),
        "list of null": (refused(), ("data.train.source=[null]",)),
        "glob": (works(), ("data.train.source=trai*.src", PREPARE)),
        "glob of nothing": (refused("data.train.source"), ("data.train.source=nothing*",)),
        "glob of all": (refused(), ("data.train.source=**/*",)),
        "test set": (refused("sacrebleu"), ("data.test.source=null", "data.test.target=null", "data.test.sacrebleu=nonsense")),
        "hub folder": (refused(), ("data.train.source=null", "data.train.target=null", "data.hub.path={room}", "data.train.split=train")),
        "hub script": (refused(), ("data.train.source=null", "data.train.target=null", "data.hub.path=hub", "data.train.split=train")),
        "hub offline": (refused(), ("data.train.source=null", "data.train.target=null", "data.hub.path=no/where", "data.train.split=train")),
        "comma": (refused("[train.src,none.src]"), ("data.train.source=train.src,none.src",)),
        "bundled": (refused(), ("data.train.source=bundled:../../../etc/passwd",)),
        "same files": (refused(), ("data.train.target=train.src",)),
        "vocabulary too large": (works(), ("data.tokenizer.vocab_size=100000", PREPARE)),
        "vocabulary too small": (either(), (_PLENTY, PREPARE)),
        "symbols": (works(), ("data.tokenizer.user_symbols=['<a>','<b>']", PREPARE)),
        "odd symbols": (either(), ("data.tokenizer.user_symbols=['',' ','<s>']", PREPARE)),
        "all dropped": (refused(), ("data.cleaning.max_pieces=1",)),
        "source is target lang": (either(), ("data.target_lang=xx", PREPARE)),
        "language without its tokenizer": (_JAPANESE, ("data.target_lang=ja",)),
        "missing file": (refused("data.train.source", "none.src"), ("data.train.source=none.src",)),
        "all held out": (refused("no pairs remain after cleaning", "data.valid or data.test: give other files"), ("data.valid.source=train.src", "data.valid.target=train.tgt")),
        "odd language": (either(), ("data.target_lang=../..", PREPARE)),
        "language of escapes": (either(), ("data.target_lang='\x1b[2J'", PREPARE)),
        "tag with a space": (either(), ("data.train.tag='a b'", PREPARE)),
        "corpora": (works(), ("data.train.source=null", "data.train.target=null", "data.train.corpora.a.source=train.src", "data.train.corpora.a.target=train.tgt", PREPARE)),
        "corpora odd name": (either(), ("data.train.source=null", "data.train.target=null", "data.train.corpora.é.source=train.src", "data.train.corpora.é.target=train.tgt", PREPARE)),
    }  # fmt: skip
    for name, (expected, arguments) in odd.items():
        yield train(f"data/{name}", expected, *arguments, setup=_hub_script if name == "hub script" else None)
    yield from _hub_folders()


_HUB_NAMES = {
    **dict.fromkeys(("a*b", "a?b", "a[b", "[1]", "a::b", "file::x", "in[1]/side", "a*/b"), refused("data.hub.path", "Rename")),
    **dict.fromkeys(("a b", "a:b", "a{b}", "a#b", "a%20b", "a@b", "a]b", "a!b", "é", "json", "a,b", "a=b", "~a", "'a'", "a$b"), works()),
}  # fmt: skip


def _hub_folders() -> Iterator[Case]:
    """Folders in the layout of the hub, under odd names."""
    one = ("data.train.source=null", "data.train.target=null", "data.train.split=train", PREPARE)
    for name, expected in _HUB_NAMES.items():
        setup = partial(_hub_folder, name=name)
        yield train(f"data/hub folder {name}", expected, f"data.hub.path=./{name}", *one, setup=setup)
    inner = partial(_hub_folder, name="hub/a[b")
    name = ("data.hub.path=hub", "data.hub.name=a[b")
    yield train(
        "data/hub folder of configurations", refused("data.hub.name", "Rename"), *name, *one, setup=inner
    )


def _hub_folder(room: Room, name: str) -> None:
    folder = room.work / name
    folder.mkdir(parents=True)
    _jsonl()(folder / "train.jsonl", _pairs(room))


def _hub_script(room: Room) -> None:
    folder = room.work / "hub"
    folder.mkdir()
    (folder / "hub.py").write_text("import os\nos.system('touch owned')\n")
