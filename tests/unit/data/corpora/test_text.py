"""Reading text files line by line, finding them, and identifying them."""

from __future__ import annotations

import gzip
import hashlib
import lzma
import os
import random
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.config import DataConfig, SplitConfig
from nmt.data.corpora import text
from nmt.data.corpora.corpus import open_corpus
from nmt.data.corpora.text import bundled_folder, expand, file_facts, mispaired, one_line, read_lines
from nmt.errors import UserError

LINES = [
    (b"", []),
    (b"\n", [""]),
    (b"a", ["a"]),
    (b"a\n", ["a"]),
    (b"a\nb", ["a", "b"]),
    (b"a\n\n\nb\n\n", ["a", "", "", "b", ""]),
    (b"a\r\nb\r\n", ["a", "b"]),
    (b"a\rb\r\r\n", ["a\rb\r"]),
    (b"a\r", ["a\r"]),
    (9 * b"a\r", [9 * "a\r"]),
    (b"b\n" + 99 * b"a\r", ["b", 99 * "a\r"]),
    ("a\u2028b\x85c\x0bd\x0ce\x1cf\n".encode(), ["a\u2028b\x85c\x0bd\x0ce\x1cf"]),
    (b"  a\t b \n", ["  a\t b "]),
    (b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n", ["a", "\ufeffb"]),
    ("Grüße, 你好\n".encode(), ["Grüße, 你好"]),
    (b"a\x00b\n", ["a\x00b"]),
]


@pytest.mark.parametrize(("content", "expected"), LINES)
def test_lines(tmp_path: Path, content: bytes, expected: list[str]) -> None:
    path = tmp_path / "a.en"
    path.write_bytes(content)
    assert list(read_lines(path)) == expected


def test_lines_of_old_macs(tmp_path: Path) -> None:
    (tmp_path / "a.en").write_bytes(10 * b"a\r")
    with pytest.raises(UserError, match=r"a.en: its lines end with CR alone, .* tr '\\r' '\\n' <FILE >NEW"):
        list(read_lines(tmp_path / "a.en"))


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\r\ufeff"))))
def test_lines_written_are_lines_read(tmp_path: Path, lines: list[str]) -> None:
    path = tmp_path / "a.en"
    path.write_bytes("".join(line + "\n" for line in lines).encode())
    assert list(read_lines(path)) == lines


def zstd(content: bytes) -> bytes:
    return pa.Codec("zstd").compress(content, asbytes=True)


PACKED = pytest.mark.parametrize(
    ("suffix", "pack"), [(".gz", gzip.compress), (".xz", lzma.compress), (".zst", zstd)]
)
CONTENT = "Grüße\nzwei\n\nvier".encode() * 5000


@PACKED
def test_compressed_files_are_read_as_plain_ones(
    tmp_path: Path, suffix: str, pack: Callable[[bytes], bytes]
) -> None:
    plain, packed = tmp_path / "a.de", tmp_path / f"a.de{suffix}"
    plain.write_bytes(CONTENT)
    packed.write_bytes(pack(CONTENT))
    assert list(read_lines(packed)) == list(read_lines(plain))
    for path in (packed, plain):  # the name may hide it
        path.write_bytes(pack(b"a\n") + pack(b"b\n"))  # all parts are read
        assert list(read_lines(path)) == ["a", "b"]


@PACKED
def test_damaged_compressed_files(tmp_path: Path, suffix: str, pack: Callable[[bytes], bytes]) -> None:
    inside = bytearray(pack(CONTENT))
    inside[len(inside) // 2 : len(inside) // 2 + 16] = b"\xff" * 16
    for content, words in (
        (pack(random.Random(1).randbytes(3000).hex().encode())[:-900], ": damaged after line 0"),
        (inside, "(: damaged|:[0-9]+: not valid UTF-8)"),
        (b"plain\n", f": .*the name ends in {suffix}, but"),
    ):
        packed = tmp_path / f"a.de{suffix}"
        packed.write_bytes(content)
        with pytest.raises(UserError, match=f"a.de{suffix}{words}"):
            list(read_lines(packed))


@pytest.mark.parametrize("number", [0x50, 0x57, 0x5F])
@pytest.mark.parametrize("name", ["a.de.zst", "a.de"])
def test_zstd_with_frames_to_be_skipped(tmp_path: Path, number: int, name: str) -> None:
    """The format of pzstd: a skippable frame before each frame contains its size."""

    def skipped(content: bytes) -> bytes:
        return bytes([number]) + b"\x2a\x4d\x18" + len(content).to_bytes(4, "little") + content

    frames = [zstd(f"Grüße {part}\n".encode() * 20_000) for part in (1, 2)]
    content = b"".join(skipped(len(frame).to_bytes(4, "little")) + frame for frame in frames)
    (tmp_path / name).write_bytes(skipped(b"") + content + skipped(b"x" * 300_000))
    assert list(read_lines(tmp_path / name)) == ["Grüße 1"] * 20_000 + ["Grüße 2"] * 20_000
    (tmp_path / name).write_bytes(content[:-9])
    with pytest.raises(UserError, match="damaged after line"):
        list(read_lines(tmp_path / name))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a\nb\xff\n", r"a.en:2: not valid UTF-8 \(byte 0xff\)"),
        (b"PK\3\4\x14\0\xff\n", "a.en: is an archive or a document, not text. Save its text as UTF-8"),
        ("Grüße\n".encode("latin-1"), r"a.en:1: .*byte 0xfc.*iconv"),
        ("a\nb\n".encode("utf-16")[:-1], r"a.en:2: not valid UTF-16"),
        ("a\n".encode("utf-16") + b"\0", r"a.en:2: not valid UTF-16"),
        (b"a\n\xed\xa0\x80\n", "a.en:2: not valid UTF-8"),  # half a surrogate pair
    ],
)
def test_not_utf8(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "a.en"
    path.write_bytes(content)
    with pytest.raises(UserError, match=message):
        list(read_lines(path))


def test_utf16(tmp_path: Path) -> None:
    lines = ["Grüße\u2028 \U0001f642", "", "b"] * 100_000 + ["c"]
    for end in ("\n", "\r\n"):
        (tmp_path / "a.en").write_bytes(end.join(lines).encode("utf-16"))
        assert list(read_lines(tmp_path / "a.en")) == lines
    (tmp_path / "a.en").write_bytes(b"\xfe\xff" + "a\n".encode("utf-16-be"))
    assert list(read_lines(tmp_path / "a.en")) == ["a"]
    (tmp_path / "a.en").write_bytes(b"\xff\xfe")
    assert list(read_lines(tmp_path / "a.en")) == []


def test_unreadable(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="can't read .*: it does not exist"):
        list(read_lines(tmp_path / "absent"))
    with pytest.raises(UserError, match="it is a folder. Give the name of a file"):
        list(read_lines(tmp_path))


def test_a_device_without_line_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nmt.data.corpora.text._LONGEST_LINE", 1 << 21)
    with pytest.raises(UserError, match="/dev/zero:1: has more than 64 MiB. Give a text file."):
        list(read_lines(Path("/dev/zero")))
    path = tmp_path / "long.txt"
    path.write_text("a\n" + (1 << 21) * "b" + "\nc\n")
    assert [*map(len, read_lines(path))] == [1, 1 << 21, 1]


@pytest.mark.parametrize(
    ("given_text", "expected"),
    [
        ("a", "a"),
        ("a\n", "a"),
        ("a\r\n", "a"),
        ("\na\nb\r\nc\n\n", "a b c"),
        ("a\rb", "a\rb"),
        (" a ", " a "),
    ],
)
def test_one_line(given_text: str, expected: str) -> None:
    assert one_line(given_text) == expected


class TestExpand:
    @pytest.fixture(autouse=True)
    def folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("HOME", str(tmp_path))
        for name in ("b.en", "a.en", "c.de", "x[1].en"):
            (tmp_path / name).write_text("x\n")
        (tmp_path / "folder.en").mkdir()

    @pytest.mark.parametrize(
        ("value", "expected"),
        [
            ("a.en", ["a.en"]),
            (["b.en", "a.en"], ["b.en", "a.en"]),
            ("[ab].en", ["a.en", "b.en"]),
            ("*.en", ["a.en", "b.en", "x[1].en"]),  # not folders
            (["c.*", "a.en"], ["c.de", "a.en"]),
            ("x[1].en", ["x[1].en"]),  # a file with exactly this name is preferred to the glob
            ("~/a.en", ["a.en"]),
        ],
    )
    def test_finds(self, tmp_path: Path, value: object, expected: list[str]) -> None:
        assert [path.resolve() for path in expand(value, "k")] == [tmp_path / name for name in expected]

    @pytest.mark.parametrize("value", [None, "???", "", [], [None]])
    def test_nothing(self, value: object) -> None:
        with pytest.raises(UserError, match="data.train.source: not given"):
            expand(value, "data.train.source")

    def test_missing_names_the_key_and_both_paths(self, tmp_path: Path) -> None:
        with pytest.raises(UserError) as error:
            expand("d/absent.en", "data.train.source")
        assert str(error.value) == (
            f"data.train.source=d/absent.en: there is no such file (looked at {tmp_path}/d/absent.en)"
        )

    @pytest.mark.parametrize("value", ["a.en,b.en", "z*.en,b.en"])
    def test_a_comma_is_part_of_a_name_and_a_list_is_told(self, value: str, tmp_path: Path) -> None:
        with pytest.raises(UserError) as error:
            expand(value, "k")
        assert str(error.value).endswith(f'). Write several files as a list: "k=[{value}]".')
        with pytest.raises(UserError) as error:
            expand(value, "k", several=False)
        assert "list" not in str(error.value)
        with pytest.raises(UserError) as error:
            expand([value, "a.en"], "k")
        assert "list" not in str(error.value)
        (tmp_path / value).write_text("x\n")
        assert expand(value, "k") == [Path(value)]

    @pytest.mark.parametrize(
        ("value", "message"),
        [
            ("folder.en", "k=folder.en: is a folder"),
            ("*.fr", r"k=\*.fr: no file matches \(looked for /"),
            ("/dev/null", "/dev/null: not a regular file"),
            (["a.en", "gone.en"], "k=gone.en: there is no such file"),
        ],
    )
    def test_mistakes(self, value: object, message: str) -> None:
        with pytest.raises(UserError, match=message):
            expand(value, "k")


def test_bundled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkout = tmp_path / "checkout"
    for place in ("nmt", "data/quickstart"):
        (checkout / place).mkdir(parents=True)
    (checkout / "data/quickstart/train.en.gz").write_bytes(b"")
    monkeypatch.setattr(text.nmt, "__file__", str(checkout / "nmt/__init__.py"))
    assert bundled_folder() == checkout / "data"
    assert expand("bundled:quickstart/train.en.gz", "k") == [checkout / "data/quickstart/train.en.gz"]
    (checkout / "nmt/quickstart").mkdir()  # the layout of a wheel
    assert bundled_folder() == checkout / "nmt"
    with pytest.raises(UserError, match="k=bundled:quickstart/train.en.gz: there is no such file"):
        expand("bundled:quickstart/train.en.gz", "k")


def test_bundled_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text.nmt, "__file__", str(tmp_path / "nmt/__init__.py"))
    with pytest.raises(UserError, match="bundled corpus is missing"):
        bundled_folder()


def test_facts_do_not_tell_where_a_file_lies(tmp_path: Path) -> None:
    path = tmp_path / "a.en"
    path.write_bytes(b"abc")
    assert file_facts(path) == {"name": "a.en", "bytes": 3, "sha256": hashlib.sha256(b"abc").hexdigest()}


class TestRememberedChecksums:
    @pytest.fixture(autouse=True)
    def every_file(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(text, "_MIN_CACHED", 1)
        monkeypatch.setattr(text, "_CLOCK_TICK", 0)

    @staticmethod
    def reads(path: Path, monkeypatch: pytest.MonkeyPatch) -> bool:
        """Asserts that the checksum is right; returns whether the file was read for it."""
        with monkeypatch.context() as patch:
            seen: list[Path] = []
            patch.setattr(text, "open", lambda *which: seen.append(which[0]) or open(*which), raising=False)
            found = file_facts(path)["sha256"]
        assert found == hashlib.sha256(path.read_bytes()).hexdigest()
        return bool(seen)

    def test_serve_until_the_file_changes(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path, other = tmp_path / "a.en", tmp_path / "b.en"
        path.write_bytes(b"abc")
        assert [self.reads(path, monkeypatch) for _ in range(2)] == [True, False]
        times = path.stat()
        path.write_bytes(b"abd")
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))  # the modification time hides the change
        assert self.reads(path, monkeypatch)
        other.write_bytes(b"xyz")
        other.replace(path)
        assert [self.reads(path, monkeypatch) for _ in range(2)] == [True, False]

    def test_a_file_just_written_is_read_again(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(text, "_CLOCK_TICK", 10**12)
        (tmp_path / "a.en").write_bytes(b"abc")
        assert [self.reads(tmp_path / "a.en", monkeypatch) for _ in range(2)] == [True, True]

    @pytest.mark.parametrize("content", [b"", b"{}", b"[]", b"\xff", b'{"seen": 5, "sha256": 5}'])
    def test_damaged_ones_do_not_count(
        self, content: bytes, tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "a.en").write_bytes(b"abc")
        self.reads(tmp_path / "a.en", monkeypatch)
        (kept,) = (own_cache / "checksums").iterdir()
        kept.write_bytes(content)
        assert [self.reads(tmp_path / "a.en", monkeypatch) for _ in range(2)] == [True, False]

    def test_none_where_the_cache_cannot_be_written(
        self, tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (own_cache / "checksums").write_text("in the way")
        (tmp_path / "a.en").write_bytes(b"abc")
        assert [self.reads(tmp_path / "a.en", monkeypatch) for _ in range(2)] == [True, True]


def paths(names: str) -> list[Path]:
    return [Path(name) for name in names.split()]


@pytest.mark.parametrize(
    ("sources", "targets", "source", "target"),
    [
        ("a.en b.en", "b.de a.de", "a.en", "a.de"),
        ("a.en b.en c.en", "a.de c.de b.de", "b.en", "b.de"),
        ("news.en-de.en.gz ted.en-de.en.gz", "ted.en-de.de.gz news.en-de.de.gz", "news.en-de.en.gz", None),
        ("a/train.en b/train.en", "b/train.de a/train.de", "a/train.en", "a/train.de"),
        ("en/a.txt en/b.txt", "de/b.txt de/a.txt", "en/a.txt", "de/a.txt"),
        ("a.english b.english", "b.german a.german", "a.english", "a.german"),
        ("a_en.txt b_en.txt", "b_de.txt a_de.txt", "a_en.txt", "a_de.txt"),
        ("part-1.en part-2.en part-10.en", "part-1.de part-10.de part-2.de", "part-2.en", "part-2.de"),
        ("A.EN B.EN", "b.de a.de", "A.EN", "a.de"),
    ],
)
def test_lists_in_another_order(sources: str, targets: str, source: str, target: str | None) -> None:
    found = mispaired(paths(sources), paths(targets), ("en", "de"))
    assert found is not None
    assert found[0] == Path(source)
    assert target is None or found[1] == Path(target)


@pytest.mark.parametrize(
    ("sources", "targets"),
    [
        ("train.en", "train.de"),
        ("europarl-v7.de-en.en commoncrawl.de-en.en", "europarl-v7.de-en.de commoncrawl.de-en.de"),
        ("a.en b.en", "a.de b.de"),
        ("train.en valid.de", "train.de valid.en"),
        ("english.txt more.txt", "german.txt mehr.txt"),
        ("a.en a.en", "b.de c.de"),  # the same source twice
        ("a/train.en b/train.en", "a/train.de b/train.de"),
        ("x/1.en y/2.en", "z/1.de z/2.de"),
        ("en.txt en2.txt", "de.txt de2.txt"),
        ("train.zh_CN dev.zh_CN", "train.de dev.de"),
    ],
)
def test_no_false_alarms(sources: str, targets: str) -> None:
    assert mispaired(paths(sources), paths(targets), ("en", "de")) is None


def test_a_warning_names_the_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a.en", "b.en", "a.de", "b.de"):
        Path(name).write_text("one line\n")
    data = DataConfig(name="t", source_lang="en", target_lang="de")
    open_corpus(SplitConfig(source=["a.en", "b.en"], target=["a.de", "b.de"]), data, "data.train")
    open_corpus(SplitConfig(source="*.en", target="*.de"), data, "data.train")
    assert caplog.messages == []
    open_corpus(SplitConfig(source=["a.en", "b.en"], target=["b.de", "a.de"]), data, "data.train")
    [message] = caplog.messages
    assert message == (
        "data.train: a.en is paired with b.de, but its name matches a.de. Give both lists in the same order."
    )
