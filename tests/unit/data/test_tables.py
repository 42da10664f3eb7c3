"""TSV, JSONL and Parquet: their columns, their rows, their mistakes."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nmt.config import DataConfig
from nmt.data.tables import read_table
from nmt.errors import UserError


def options(source: str = "source", target: str = "target") -> DataConfig:
    return DataConfig(name="t", source_lang="en", target_lang="de", source_key=source, target_key=target)


def read(path: Path, *keys: str) -> list[tuple[str, str]]:
    return [pair for block in read_table(path, options(*keys)) for pair in zip(*block, strict=True)]


@pytest.mark.parametrize(
    ("content", "keys", "expected"),
    [
        ("source\ttarget\na\tb\n", (), [("a", "b")]),
        ("de\tid\ten\nb\t1\ta\n\t2\t\n", (), [("a", "b"), ("", "")]),  # named like the languages
        ("x y\tz\na\tb\n", ("x y", "z"), [("a", "b")]),
        ("a\tb\nc\td\n", ("0", "1"), [("a", "b"), ("c", "d")]),
        ("i\ta\tb\n", ("2", "1"), [("b", "a")]),
        ('source\ttarget\n"a\t""b"\n', (), [('"a', '""b"')]),  # quotes mean nothing
        ("source\ttarget\r\n a \tb,c\r\n", (), [(" a ", "b,c")]),
        ("\ufeffsource\ttarget\na\tb\n", (), [("a", "b")]),
        ("source\ttarget\n", (), []),
    ],
)
def test_tsv(tmp_path: Path, content: str, keys: tuple[str, ...], expected: list[tuple[str, str]]) -> None:
    path = tmp_path / "a.tsv"
    path.write_bytes(content.encode())
    assert read(path, *keys) == expected


@pytest.mark.parametrize(
    ("content", "keys", "message"),
    [
        (
            "a\tb\nc\td\n",
            (),
            r"a.tsv:1: no column source or translation.en or en .* data.source_key to .*a, b",
        ),
        ("en\tfr\n", (), "a.tsv:1: no column target or translation.de or de for the target side"),
        ("en\tde\n", ("english", "de"), "no column english for the source side: .*en, de"),
        ("source\ttarget\na\tb\na\tb\tc\n", (), "a.tsv:3: has 3 columns where the first line has 2"),
        ("source\ttarget\na b\n", (), "a.tsv:2: has 1 columns"),
        ("a\tb\n\nc\td\n", ("0", "1"), "a.tsv:2: has 1 columns where the first line has 2"),
        ("a\tb\n", ("0", "2"), "a.tsv:1: has 2 columns, so column 2"),
        ("a\tb\n", ("0", "de"), "give two column names .* or two column numbers"),
        ("", (), "a.tsv:1: no column"),
    ],
)
def test_tsv_mistakes(tmp_path: Path, content: str, keys: tuple[str, ...], message: str) -> None:
    path = tmp_path / "a.tsv"
    path.write_text(content)
    with pytest.raises(UserError, match=message):
        read(path, *keys)


@pytest.mark.parametrize(
    ("records", "keys", "expected"),
    [
        ([{"source": "a", "target": "b"}], (), [("a", "b")]),
        ([{"en": "a", "de": "b"}], (), [("a", "b")]),
        ([{"translation": {"en": "a", "de": "b"}, "id": 1}], (), [("a", "b")]),
        ([{"x": {"y": {"z": "a"}}, "de": "b"}], ("x.y.z", "de"), [("a", "b")]),
        ([{"x.y": "a", "de": "b"}], ("x.y", "de"), [("a", "b")]),
        ([{"source": "a\nb\n", "target": "c\r\nd"}], (), [("a b", "c d")]),
        ([{"source": None, "target": "ü 你\u2028 \U0001f600"}], (), [("", "ü 你\u2028 \U0001f600")]),
        ([], (), []),
    ],
)
def test_jsonl(
    tmp_path: Path, records: list[Any], keys: tuple[str, ...], expected: list[tuple[str, str]]
) -> None:
    for ascii_only in (True, False):
        path = tmp_path / "a.jsonl"
        path.write_text(
            "".join(json.dumps(record, ensure_ascii=ascii_only) + "\n" for record in records), "utf-8"
        )
        assert read(path, *keys) == expected


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"source": "a", "target": "b"}\n{"source": \n', "a.jsonl:2: not valid JSON"),
        ('{"source": "a", "target": "b"}\n\n', "a.jsonl:2: not valid JSON"),
        ("[" * 200_000 + "\n", "a.jsonl:1: not valid JSON"),
        ('["a", "b"]\n', "a.jsonl:1: must be a JSON object"),
        ('{"a": {"b": 1}, "c": 2}\n', r"a.jsonl:1: no column source .* to one of a\.b, c"),
        (
            '{"source": "a", "target": "b"}\n{"source": "a"}\n',
            "a.jsonl:2: lacks the key 'target'; it has source",
        ),
        ('{"source": "a", "target": 3}\n', "a.jsonl:1: 'target' must be text, not 3"),
        ('{"source": "a", "target": "\\ud83d"}\n', "a.jsonl:1: 'target' holds half a surrogate pair"),
    ],
)
def test_jsonl_mistakes(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(content)
    with pytest.raises(UserError, match=message):
        read(path)


@pytest.mark.parametrize(
    ("columns", "keys"),
    [
        ({"source": ["a", None, "c\nc"], "target": ["x", "y", "z"], "n": [1, 2, 3]}, ()),
        ({"de": ["x", "y", "z"], "en": ["a", None, "c\nc"]}, ()),
        ({"translation": [{"de": "x", "en": "a"}, {"de": "y", "en": None}, {"de": "z", "en": "c\nc"}]}, ()),
        ({"q.r": ["a", None, "c\nc"], "q": [{"r": "no", "s": t} for t in "xyz"]}, ("q.r", "q.s")),
    ],
)
@pytest.mark.parametrize("row_group_size", [1, 10])
def test_parquet(tmp_path: Path, columns: dict[str, Any], keys: tuple[str, ...], row_group_size: int) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table(columns), path, row_group_size=row_group_size)
    assert read(path, *keys) == [("a", "x"), ("", "y"), ("c c", "z")]


def test_parquet_large_strings(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"en": pa.array(["a"], pa.large_string()), "de": ["b"]}), path)
    assert read(path) == [("a", "b")]


def test_parquet_with_text_that_is_not_utf8(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    broken = pa.StringArray.from_buffers(7, *pa.array([b"x"] * 5 + [b"Stra\xdfe", b"y"]).buffers()[1:])
    pq.write_table(pa.table({"en": ["a"] * 7, "de": broken}), path, row_group_size=3)
    with pytest.raises(UserError, match=r"a\.parquet: row 5 of column 'de' is not valid UTF-8"):
        read(path)


def test_parquet_mistakes(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"en": ["a"], "de": [1], "t": [{"fr": "c"}]}), path)
    with pytest.raises(UserError, match="column 'de' must hold text, not int64"):
        read(path)
    with pytest.raises(UserError, match=r"a.parquet: no column x for the source side: .*en, de, t\.fr"):
        read(path, "x", "de")
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(UserError, match="a.parquet: not a sound Parquet file"):
        read(path)


def test_compressed(tmp_path: Path) -> None:
    for name in ("a.tsv.gz", "A.TSV.GZ"):
        (tmp_path / name).write_bytes(gzip.compress(b"source\ttarget\na\tb\n"))
        assert read(tmp_path / name) == [("a", "b")]


@pytest.mark.parametrize("name", ["a.csv", "a", "a.gz", "a.txt.gz", "a.parquet.gz"])
def test_unknown_format(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError, match=f"{name}: a table must be named .tsv, .jsonl"):
        read(tmp_path / name)
