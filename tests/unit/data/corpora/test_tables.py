"""TSV, JSONL and Parquet files: columns, rows and errors."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nmt.config import DataConfig
from nmt.data.corpora.file_formats import reader_of
from nmt.data.corpora.malformed import Malformed
from nmt.errors import UserError


def options(source: str = "source", target: str = "target") -> DataConfig:
    return DataConfig(name="t", source_lang="en", target_lang="de", source_key=source, target_key=target)


def read(path: Path, *keys: str) -> list[tuple[str, str]]:
    return pairs_of(path, options(*keys))


def pairs_of(path: Path, data: DataConfig, malformed: Malformed | None = None) -> list[tuple[str, str]]:
    blocks = reader_of(path, data)(path, data, malformed or Malformed())
    return [pair for block in blocks for pair in zip(*block, strict=True)]


@pytest.mark.parametrize(
    ("content", "keys", "expected"),
    [
        ("source\ttarget\na\tb\n", (), [("a", "b")]),
        ("de\tid\ten\nb\t1\ta\n\t2\t\n", (), [("a", "b"), ("", "")]),  # named like the languages
        ("x y\tz\na\tb\n", ("x y", "z"), [("a", "b")]),
        ("a\tb\nc\td\n", ("0", "1"), [("a", "b"), ("c", "d")]),
        ("i\ta\tb\n", ("3", "2"), [("b", "a")]),
        ("i\ta\tb\n", ("2", "0"), [("b", "i")]),
        ('source\ttarget\n"a\t""b"\n', (), [('"a', '""b"')]),  # quotes have no special meaning
        ("source\ttarget\r\n a \tb,c\r\n", (), [(" a ", "b,c")]),
        ("\ufeffsource\ttarget\na\tb\n", (), [("a", "b")]),
        ("source\ttarget\n", (), []),
        ("source\ttarget\na\tb\n\t\n", (), [("a", "b"), ("", "")]),  # empty cells at the end are a row
    ],
)
def test_tsv(tmp_path: Path, content: str, keys: tuple[str, ...], expected: list[tuple[str, str]]) -> None:
    path = tmp_path / "a.tsv"
    path.write_bytes(content.encode())
    assert read(path, *keys) == expected


@pytest.mark.parametrize(
    ("langs", "columns", "expected"),
    [
        (("eng", "zho_Hans"), "en zh de", ("en", "zh")),
        (("EN", "pt-PT"), "pt-BR pt en", ("en", "pt")),
        (("iw", "en-GB"), "en en-GB he", ("he", "en-GB")),
        (("en", "zho_Hant"), "en zh", None),
        (("en-US", "en-GB"), "en de", None),  # not the same column twice
        (("xx", "yy"), "XX yy", ("XX", "yy")),
    ],
)
def test_columns_in_other_spellings(
    tmp_path: Path, langs: tuple[str, str], columns: str, expected: tuple[str, str] | None
) -> None:
    names, path = columns.split(), tmp_path / "a.tsv"
    path.write_text("\t".join(names) + "\n" + "\t".join(names) + "\n")
    data = DataConfig(name="t", source_lang=langs[0], target_lang=langs[1])
    if expected is None:
        with pytest.raises(UserError, match="no column target"):
            pairs_of(path, data)
    else:
        assert pairs_of(path, data) == [expected]


@pytest.mark.parametrize(
    ("content", "keys", "message"),
    [
        (
            "a\tb\nc\td\n",
            (),
            r"a.tsv:1: no column source or translation.en or en .* data.source_key to .*a, b\. If the file "
            r"has no header, give numbers, such as data.source_key=1 data.target_key=2\.$",
        ),
        ("en\tfr\n", (), "a.tsv:1: no column target or translation.de or de for the target side"),
        ("en\tde\n", ("english", "de"), "no column english for the source side. .*en, de"),
        (
            "source\ttarget\na\tb\na\tb\tc\n",
            (),
            "a.tsv:3: has 3 columns, but the first line has 2. Correct it.",
        ),
        ("source\ttarget\na b\n", (), "a.tsv:2: has 1 columns"),
        ("a\tb\n\nc\td\n", ("0", "1"), "a.tsv:2: is blank, but rows follow"),
        ("a\tb\n", ("0", "2"), r"a.tsv:1: has 2 columns, so there is no column 2 \(counted from 0\)"),
        ("a\tb\n", ("1", "3"), r"a.tsv:1: has 2 columns, so there is no column 3 \(counted from 1\)"),
        ("a\tb\n", ("0", "de"), "Give two column names .* or two column numbers"),
        ("", (), "a.tsv:1: no column"),
        ("a\tb\n", ("9" * 5000, "8" * 5000), "no column 9999"),
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
        ("[" * 200_000 + "\n", "a.jsonl:1: not valid JSON"),
        ('["a", "b"]\n', "a.jsonl:1: no column source .* to one of 1, 2"),
        ('{"a": {"b": 1}, "c": 2}\n', r"a.jsonl:1: no column source .* to one of a\.b, c"),
        (
            '{"source": "a", "target": "b"}\n{"source": "a"}\n',
            "a.jsonl:2: lacks the key 'target'. Its keys are source",
        ),
        ('{"source": "a", "target": 3}\n', "a.jsonl:1: 'target' must be text, not 3"),
        (
            '{"source": "a", "target": "\\ud83d"}\n',
            "a.jsonl:1: 'target' is not valid UTF-8, or contains half a surrogate",
        ),
        (f'{{"source": {"9" * 5000}, "target": "b"}}', "a.jsonl:1: 'source' must be text, not inf"),
        ('{"a":' * 5000 + "1" + "}" * 5000, "a.jsonl:1: "),
        ("\0\0", "a.jsonl:1: not valid JSON"),
        ("null", "a.jsonl:1: must be a JSON object"),
        ('{"source": "a", "target": "b"}\n\n\n{}\n', "a.jsonl:2: a blank line before lines with text"),
        (json.dumps(dict.fromkeys(map(str, range(5000)))), "0, 1, .*29 and 4970 more$"),
    ],
    ids=range(13),
)
def test_jsonl_mistakes(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(content)
    with pytest.raises(UserError, match=message) as raised:
        read(path)
    assert len(str(raised.value)) < 1000


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


def test_parquet_with_text_that_is_not_utf8(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    broken = pa.StringArray.from_buffers(7, *pa.array([b"x"] * 5 + [b"Stra\xdfe", b"y"]).buffers()[1:])
    pq.write_table(pa.table({"en": ["a"] * 7, "de": broken}), path, row_group_size=3)
    with pytest.raises(UserError, match=r"a\.parquet: row 5 of column 'de' is not valid UTF-8"):
        read(path)


def test_parquet_mistakes(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"en": ["a"], "de": [1], "t": [{"fr": "c"}]}), path)
    with pytest.raises(UserError, match="column 'de' must contain text, not int64"):
        read(path)
    with pytest.raises(UserError, match=r"a.parquet: no column x for the source side. .*en, de, t\.fr"):
        read(path, "x", "de")
    numbers = pa.array([1]).dictionary_encode()
    pairs = pa.array([{"en": "a", "de": "b"}])
    for columns, names, message in (
        ([numbers, ["a"]], ["source", "target"], "column 'source' must contain text, not "),
        ([pairs, pairs], ["translation"] * 2, "2 columns are named 'translation'. Rename"),
    ):
        pq.write_table(pa.Table.from_arrays(columns, names), path)
        with pytest.raises(UserError, match=message):
            read(path)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(UserError, match="a.parquet: not a valid Parquet file"):
        read(path)


def test_compressed(tmp_path: Path) -> None:
    for name in ("a.tsv.gz", "A.TSV.GZ"):
        (tmp_path / name).write_bytes(gzip.compress(b"source\ttarget\na\tb\n"))
        assert read(tmp_path / name) == [("a", "b")]


@pytest.mark.parametrize("name", ["a", "a.txt", "a.gz", "a.txt.gz"])
def test_unknown_format(tmp_path: Path, name: str) -> None:
    content = b"Two men, one woman.\nA dog\n"
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    with pytest.raises(
        UserError, match=f"{name}: is neither Parquet, TMX or XLIFF, PO, JSON, TSV, CSV, zip, by"
    ):
        read(tmp_path / name)


def test_compressed_parquet(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="a.parquet.gz: a Parquet file must be given as it is. Unpack it"):
        read(tmp_path / "a.parquet.gz")


@pytest.mark.parametrize(
    "kind",
    [
        pa.string(),
        pa.large_string(),
        pa.string_view(),
        pa.dictionary(pa.int32(), pa.string()),
        pa.dictionary(pa.int8(), pa.large_string()),
    ],
    ids=str,
)
def test_parquet_stores_text_in_many_ways(tmp_path: Path, kind: pa.DataType) -> None:
    column = pa.array(["a", None, "b", "a"]).cast(kind)
    nested = pa.StructArray.from_arrays([column, column], ["en", "de"])
    pq.write_table(pa.table({"source": column, "target": column}), tmp_path / "flat.parquet")
    pq.write_table(pa.table({"translation": nested}), tmp_path / "nested.parquet")
    for name in ("flat", "nested"):
        path = tmp_path / f"{name}.parquet"
        assert read(path) == [("a", "a"), ("", ""), ("b", "b"), ("a", "a")]


def test_a_parquet_column_without_any_value_is_empty_text(tmp_path: Path) -> None:
    table = pa.table({"source": pa.nulls(2), "target": ["a", "b"]})
    pq.write_table(table, tmp_path / "a.parquet")
    assert read(tmp_path / "a.parquet") == [("", "a"), ("", "b")]


@pytest.mark.parametrize("end", ["", "\n", "\n\n", "\n\n\n  \n\n", "\r\n\r\n"])
def test_blank_lines_at_the_end_are_no_rows(tmp_path: Path, end: str) -> None:
    (tmp_path / "a.jsonl").write_bytes(f'{{"source": "a", "target": "b"}}{end}'.encode())
    (tmp_path / "a.tsv").write_bytes(f"source\ttarget\na\tb{end}".encode())
    (tmp_path / "b.tsv").write_bytes(f"a\tb{end}".encode())
    assert read(tmp_path / "a.jsonl") == read(tmp_path / "a.tsv") == [("a", "b")]
    assert read(tmp_path / "b.tsv", "0", "1") == [("a", "b")]


def test_a_huge_number_beside_the_text_is_none_of_our_business(tmp_path: Path) -> None:
    record = f'{{"id": {"9" * 5000}, "x": -{"1" * 6000}, "source": "a", "target": "b", "y": NaN}}\n'
    (tmp_path / "a.jsonl").write_text(record)
    assert read(tmp_path / "a.jsonl") == [("a", "b")]


@pytest.mark.parametrize("names", [["source", "target", "target"], ["source", "source", "target"]])
def test_columns_of_one_name(tmp_path: Path, names: list[str]) -> None:
    twice = max(names, key=names.count)
    pq.write_table(pa.Table.from_arrays([["a"], ["b"], ["c"]], names), tmp_path / "t.parquet")
    (tmp_path / "t.tsv").write_text("\t".join(names) + "\na\tb\tc\n")
    for file in ("t.parquet", "t.tsv"):
        with pytest.raises(UserError, match=f"2 columns are named '{twice}'. Rename"):
            read(tmp_path / file)


def test_columns_that_are_not_read_may_share_a_name(tmp_path: Path) -> None:
    table = pa.Table.from_arrays([["a"], ["b"], [1], [2]], ["source", "target", "id", "id"])
    pq.write_table(table, tmp_path / "t.parquet")
    assert read(tmp_path / "t.parquet") == [("a", "b")]
