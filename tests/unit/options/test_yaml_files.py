"""Strict reading of a user's YAML file: every error is one line with file and line."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nmt.errors import UserError
from nmt.options.yaml_files import Default, read_yaml


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", ": contains no options"),
        ("# only a comment\n", ": contains no options"),
        ("- a\n- b\n", ":1: contains a list. Write options as `key: value`"),
        ("\njust words\n", ":2: contains a single value. Write options as `key: value`"),
        ("a: 1\nb: 2\na: 3\n", ":3: a: occurs twice, first in line 1"),
        ("a:\n  b: 1\n  b: 2\n", ":3: b: occurs twice, first in line 2"),
        ("a: [{b: 1, b: 2}]\n", ":1: b: occurs twice, first in line 1"),
        (
            "x: 1\na: !!python/object/apply:os.system [ls]\n",
            ":2: !!python/object/apply:os.system: tags are not",
        ),
        ("a: !foo 1\n", ":1: !foo: tags are not allowed. Write plain values, and text in quotes"),
        ("a: &x 1\nb: *x\n", ":1: &x: anchors and aliases are not allowed. Repeat the value"),
        (
            "a: &a [x, x, x, x]\nb: &b [*a, *a, *a, *a]\nc: &c [*b, *b, *b, *b]\n",
            ":1: &a: anchors and aliases are not allowed",
        ),
        ("<<: {a: 1}\n", ":1: <<: merge keys are not allowed. Repeat the options"),
        ("a: 1\non: 1\n", ":2: on: YAML reads this key as a truth value. A key must be text"),
        ("1: 2\n", ":1: 1: YAML reads this key as a number. A key must be text"),
        ("2026-11-23: 2\n", ":1: 2026-11-23: YAML reads this key as a timestamp. A key must be text"),
        ("? [a]\n: 1\n", ":1: a key is a list or a mapping"),
        ("a.b: 1\n", ":1: a.b: a key is one name. Indent the options of a section under it"),
        ("a:\n\tb: 1\n", ":2: the indentation has a tab. Indent with spaces"),
        ("a:\n  b: 1\n\tc: 1\n", ":3: the indentation has a tab"),
        ("a: b: c\n", ":1: a line has a second `: `"),
        ("a: 1\nb: [1, 2\n", ":3: a bracket or quote of line 2 is not closed"),
        ("a: 'x\n", ":2: a bracket or quote of line 1 is not closed"),
        ("a: 1\nb\nc: 2\n", ":3: "),
        ("a: 1\n---\nb: 1\n", ":2: a second document begins. Write one document"),
        ("a: 1\nb: x\0y\n", ":2: contains the character U+0000, which YAML does not allow"),
        ("a: " + "[" * 3000, ":1: is nested more than 20 levels deep"),
        ("b: 1\na: " + "9" * 5000 + "\n", ":2: a number of 5,000 digits is too long"),
        ("a: =\n", ":1: =: is not plain text in YAML. Put it in quotes"),
        ("%YAML 2.0\n---\na: 1\n", ":1: is not valid YAML: found incompatible YAML document"),
        ("a: 1\nb:\n  c: ${d\n", ":3: b.c: the interpolation ${...} can't be parsed"),
        ("defaults: x\n", ":1: defaults: must be a list"),
        ("a: 1\ndefaults:\n  - 5\n", ":3: defaults: an entry must be `- NAME` or `- override /GROUP: NAME`"),
        ("defaults:\n  - a: b\n    c: d\n", ":2: defaults: an entry must be"),
        ("defaults:\n  - override /data: no\n", ":2: defaults: no is not text. Put it in quotes"),
        ("# @package\na: 1\n", ":1: the line must be `# @package _global_`"),
        ("# mine\n# @package a b\na: 1\n", ":2: the line must be `# @package _global_`"),
    ],
)
def test_faults(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(UserError) as caught:
        read_yaml(path)
    assert str(caught.value).startswith(f"{path}{message}")
    assert "\n" not in str(caught.value) and len(str(caught.value)) < len(str(path)) + 300


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("a: 1\n".encode("utf-16"), ": is UTF-16 text. Save it as UTF-8."),
        (b"a: 1\nb: caf\xe9\n", ":2: is not UTF-8 text. Save the file as UTF-8."),
        (b"a: 1\n" * 100_000, ": is larger than 256 KiB, the limit for files of options."),
    ],
)
def test_faulty_bytes(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_bytes(data)
    with pytest.raises(UserError) as caught:
        read_yaml(path)
    assert str(caught.value) == f"{path}{message}"


def test_not_a_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.symlink_to("nowhere")
    with pytest.raises(UserError, match="mine.yaml"):
        read_yaml(path)
    path.unlink()
    path.mkdir()
    with pytest.raises(UserError, match="mine.yaml: is a folder, not a file"):
        read_yaml(path)
    path.rmdir()
    os.mkfifo(path)
    with pytest.raises(UserError, match="mine.yaml: is not a regular file"):
        read_yaml(path)


def test_a_file_is_read_with_its_lines(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_bytes(
        b"\xef\xbb\xbf# mine\r\n# @package _global_\r\ndefaults:\r\n  - base\r\n  - override /data: local\r\n"
        b"  - _self_\r\n  - /model: null\r\nseed: 3\r\n"
        b"training:\r\n  schedule: {peak: 1e-3}\r\nlist: [a, 1, 'b']\r\n"
    )
    file = read_yaml(path)
    assert file.package == "_global_"
    assert file.content == {"seed": 3, "training": {"schedule": {"peak": 1e-3}}, "list": ["a", 1, "b"]}
    assert [(entry.key, entry.line) for entry in file.entries] == [
        ("seed", 8),
        ("training", 9),
        ("training.schedule", 10),
        ("training.schedule.peak", 10),
        ("list", 11),
    ]
    assert (file.entries[3].written, file.entries[3].read) == (("1e-3",), (1e-3,))
    assert (file.entries[4].written, file.entries[4].read) == (("a", "1"), ("a", 1))
    assert file.defaults == (
        Default(4, "", ("base",), False),
        Default(5, "/data", ("local",), True),
        Default(6, "", ("_self_",), False),
        Default(7, "/model", (), False),
    )
