"""Formats of nmt-translate: plain lines, JSON Lines and columns."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shouting_translate import Scored, Shout, Shouter

from nmt.cli import translate as command
from nmt.config import DecodingConfig, TranslateConfig
from nmt.decoding.translation import ScoredText, TranslatedPart, Translation
from nmt.documents.files import format_of
from nmt.documents.rows import CsvColumn, JsonLines, Request
from nmt.errors import UserError


def shout(*scored: tuple[str, float], truncated: int = 0) -> Shout:
    return Shout(tuple(Scored(text, score) for text, score in scored), 1, truncated)


def config(**options: Any) -> TranslateConfig:
    return TranslateConfig("m", **options)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., str]:
    """Translates a file with a model that returns capitals; returns the output."""
    monkeypatch.setattr(command, "load_translator", lambda config: Shouter())

    def run(text: str, **options: Any) -> str:
        (tmp_path / "in").write_text(text)
        files = {"input": str(tmp_path / "in"), "output": str(tmp_path / "out")}
        command.translate(config(**files, **options))
        return (tmp_path / "out").read_text()

    return run


@pytest.mark.parametrize(
    ("options", "translation", "written"),
    [
        ({}, shout(("Grüße", -0.25)), "Grüße\n"),
        ({"scores": True}, shout(("Grüße", -0.25)), "-0.2500\tGrüße\n"),
        (
            {"decoding": DecodingConfig(nbest=2)},
            shout(("a", -1.0), ("b", -2.0)),
            "7\t-1.0000\ta\n7\t-2.0000\tb\n",
        ),
        ({"decoding": DecodingConfig(nbest=3)}, shout(("", 0.0)), "7\t0.0000\t\n7\t-inf\t\n7\t-inf\t\n"),
        (
            {"decoding": DecodingConfig(samples=2)},
            shout(("a", -1.0), ("b", -2.0)),
            "7\t-1.0000\ta\n7\t-2.0000\tb\n",
        ),
    ],
)
def test_lines(options: dict[str, Any], translation: Shout, written: str) -> None:
    assert format_of(config(**options)).write(Request(""), translation, 7) == written.encode()


@pytest.mark.parametrize(
    ("line", "request_"),
    [
        ('{"text": "Grüße"}', Request("Grüße")),
        (
            '{"text": "a", "prefix": "b", "tag": "<2de>", "id": 7}',
            Request("<2de> a", "b", (), {"id": 7}, tags=("<2de>",)),
        ),
        ('{"text": "", "tag": ""}', Request("")),
        (
            '{"text": "a", "deep": {"b": [1, null, 2.5]}}',
            Request("a", others={"deep": {"b": [1, None, 2.5]}}),
        ),
    ],
)
def test_json_requests(line: str, request_: Request) -> None:
    found = JsonLines(config()).read(line, 3)
    assert replace(found, constraints=tuple(found.constraints)) == request_


def test_json_constraints() -> None:
    read = JsonLines(config()).read
    assert read('{"text": "a", "constraints": ["b c", "d"]}', 1).constraints == ["b c", "d"]
    assert JsonLines(config(decoding=DecodingConfig(samples=2))).read(
        '{"text": "a", "constraints": ["b"]}', 1
    ) == Request("", error="line 1: samples can't have constraints")


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("", "line 3: is not JSON"),
        ("{", "line 3: is not JSON"),
        ("[1]", "line 3: must be an object with the member text"),
        ('"text"', "line 3: must be an object with the member text"),
        ("{}", "line 3: has no member text"),
        ('{"text": 1}', "line 3: text must be a string"),
        ('{"text": null}', "line 3: text must be a string"),
        ('{"text": "a", "prefix": []}', "line 3: prefix must be a string"),
        ('{"text": "a", "tag": 2}', "line 3: tag must be a string"),
        ('{"text": "a", "constraints": "b"}', "line 3: constraints must be a list of strings"),
        ('{"text": "a", "constraints": ["b", 1]}', "line 3: constraints must be a list of strings"),
        ('{"text": "a\\nb"}', "line 3: text has a line break or half a character"),
        ('{"text": "a\\ud800"}', "line 3: text has a line break or half a character"),
        ('{"text": "a", "x": NaN}', "line 3: is not JSON"),
        ("[" * 100_000, "line 3: is nested too deeply"),
        ('{"text": "a", "x": ' + "[" * 100 + "]" * 100 + "}", "line 3: is nested too deeply"),
        ('{"text": "a", "x": [0, ' + '{"y": ' * 990 + "1" + "}" * 990 + "]}", "line 3: is nested too deeply"),
        ('{"text": "a", "x": ' + "1" * 5000 + "}", "line 3: is not JSON"),
    ],
)
def test_json_lines_with_errors(line: str, error: str) -> None:
    found = JsonLines(config()).read(line, 3)
    assert found.text == "" and found.error is not None and found.error.startswith(error)
    written = JsonLines(config()).write(found, shout(("", 0.0)), 3)
    assert json.loads(written) == {"error": found.error}


@pytest.mark.parametrize(
    "others", ["[" * 99 + "]" * 99, "[[], {}, " * 98 + "1" + "]" * 98, "[" + "[]," * 500 + "1]"]
)
def test_members_with_many_levels_or_lists_are_copied(others: str) -> None:
    found = JsonLines(config()).read(f'{{"text": "a", "x": {others}}}', 3)
    assert found.error is None
    assert json.loads(JsonLines(config()).write(found, shout(("A", 0.0)), 3))["x"] == json.loads(others)


def test_a_score_that_is_not_finite_is_null() -> None:
    found = JsonLines(config()).read('{"text": "a"}', 1)
    written = JsonLines(config()).write(found, shout(("A", float("-inf"))), 1)
    assert written == b'{"translation": "A", "score": null}\n'


def test_json_results() -> None:
    form = format_of(config(format="jsonl", decoding=DecodingConfig(nbest=2)))
    written = form.write(Request("a", others={"id": 7}), shout(("Ä", -1.0), ("B", -2.00006), truncated=9), 1)
    assert written.decode() == (
        '{"id": 7, "translation": "Ä", "score": -1.0, "nbest": [{"translation": "Ä", "score": -1.0}, '
        '{"translation": "B", "score": -2.0001}], "truncated": 9, "problems": '
        '["line 1: cut to 1,024 of 9 tokens (decoding.max_source_tokens)"]}\n'
    )


@given(st.text() | st.binary().map(lambda data: data.decode("latin1")))
def test_any_text_gives_one_line(text: str) -> None:
    form = JsonLines(config())
    written = form.write(form.read(text, 1), shout(("x", 0.0)), 1)
    assert written.endswith(b"\n") and written.count(b"\n") == 1
    assert isinstance(json.loads(written), dict)


def test_numbers_that_a_translation_lacks() -> None:
    found = Translation((ScoredText("A", 0.0),), numbers=("1985", "3.5"))
    assert json.loads(JsonLines(config(format="jsonl")).write(Request("a"), found, 4)) == {
        "translation": "A",
        "score": 0.0,
        "numbers": ["1985", "3.5"],
        "problems": ['line 4: the translation lacks or changes the numbers "1985", "3.5" (decoding.numbers)'],
    }


def test_the_parts_of_a_line() -> None:
    parts = TranslatedPart("a.", "A.", -1.0), TranslatedPart("b.", "B.", -1 / 3)
    found = Translation((ScoredText("A. B.", -2 / 3),), parts=parts)
    written = JsonLines(config(format="jsonl")).write(Request("a. b."), found, 1)
    assert json.loads(written) == {
        "translation": "A. B.",
        "score": -0.6667,
        "parts": [
            {"text": "a.", "translation": "A.", "score": -1.0},
            {"text": "b.", "translation": "B.", "score": -0.3333},
        ],
    }


@given(st.dictionaries(st.text(), st.recursive(st.none() | st.integers() | st.text(), st.lists), max_size=3))
def test_other_members_are_copied(others: dict[str, Any]) -> None:
    form = JsonLines(config())
    line = json.dumps({**others, "text": "a", "prefix": "", "tag": ""})
    found = json.loads(form.write(form.read(line, 1), shout(("x", -0.5)), 1))
    known = {"text", "prefix", "tag", "constraints"}
    expected = {key: value for key, value in others.items() if key not in known}
    assert found == {**expected, "translation": "x", "score": -0.5}


def test_a_file_of_json_lines(run: Callable[..., str], caplog: pytest.LogCaptureFixture) -> None:
    found = run('{"text": "ein Hund", "id": "a"}\nnonsense\n{"text": ""}\n', format="jsonl")
    first, second, third = map(json.loads, found.splitlines())
    assert first == {"id": "a", "translation": "EIN HUND", "score": -0.5}
    assert second["error"].startswith("line 2: is not JSON")
    assert third["translation"] == ""
    assert any(message.startswith("line 2: is not JSON") for message in caplog.messages)


def test_a_column_is_translated(run: Callable[..., str]) -> None:
    assert run("1\tein Hund\tx\n2\t\t\n", column=2) == "1\tein Hund\tx\tEIN HUND\n2\t\t\t\n"
    assert run("a\tb\n", column=1, scores=True) == "a\tb\t-0.5000\tA\n"


def test_a_column_with_a_name(run: Callable[..., str]) -> None:
    assert run("id\tde\n1\tein Hund\n", column="de") == "id\tde\ttranslation\n1\tein Hund\tEIN HUND\n"
    found = run("de\na\n", column="de", scores=True)
    assert found == "de\tscore\ttranslation\na\t-0.5000\tA\n"
    for content, which in (("x\ty\n", "no"), ("de\tde\n", "several")):
        with pytest.raises(UserError, match=f"column=de: line 1 has {which} such columns, but "):
            run(content, column="de")


@pytest.mark.parametrize("delimiter", [",", ";", "|"])
def test_a_column_of_csv(run: Callable[..., str], delimiter: str) -> None:
    rows = [["id", "de"], ["1", f'"ja{delimiter}', ""], ["2", "ein\nHund"], ["3", ""]]
    lines = [delimiter.join('"' + cell.replace('"', '""') + '"' for cell in row) for row in rows]
    content = "".join(f"{line}\n" for line in lines)
    found = run(content, column="de", format="csv")
    appended = ["translation", f'"""JA{delimiter}"', "EIN HUND", ""]
    assert found == "".join(f"{line}{delimiter}{new}\n" for line, new in zip(lines, appended, strict=True))
    assert list(csv.reader(io.StringIO(found), delimiter=delimiter))[1][-1] == f'"JA{delimiter}'
    assert run(content, column=2, format="csv").startswith(f"{lines[0]}{delimiter}DE\n")
    for broken, message in (
        (content + '"4', "line 6 has a quotation mark"),
        ('a,"b"c\n', "row 1: ',' expected"),
    ):
        with pytest.raises(UserError, match=f"format=csv: {message}"):
            run(broken, column=2, format="csv")


def test_the_delimiter_of_csv(run: Callable[..., str]) -> None:
    assert run("a,b;c\n1;2\n", column=2, format="csv") == "a,b;c;C\n1;2;2\n"  # the first lines show it
    assert run("a,b;c\n", column=2, format="csv", delimiter=";") == "a,b;c;C\n"
    assert run("a,b\tc\n", column=2, format="csv", delimiter="tab") == "a,b\tc\tC\n"


def test_csv_of_excel(run: Callable[..., str]) -> None:
    content = 'sep=;\nid;size\n1;5" pipe, "old"\n2;"6"" a\n;b"\n3;7"\n'
    expected = 'sep=;\nid;size;translation\n1;5" pipe, "old";"5"" PIPE, ""OLD"""\n'
    expected += '2;"6"" a\n;b";"6"" A ;B"\n3;7";"7"""\n'
    assert run(content, column="size", format="csv") == expected
    assert run(content, column=2, format="csv") == expected.replace("translation", "SIZE")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a,b\rc,d\r", "row 1: has a carriage return outside of quotation marks"),
        ('a,b\n1,"' + "x\n" * 1100, "line 2 has a quotation mark that is not closed"),
        ('a,b\n1,"' + 'x""\n' * 1100, "line 2 has a quotation mark that is not closed"),
    ],
)
def test_damaged_csv(run: Callable[..., str], content: str, message: str) -> None:
    with pytest.raises(UserError, match=f"format=csv: {message}"):
        run(content, column=2, format="csv")


def test_a_long_cell_of_csv(run: Callable[..., str]) -> None:
    text = "x " * 100_000 + '"'
    quoted = text.replace('"', '""')
    assert run(f'a,"{quoted}"\n', column=2, format="csv") == f'a,"{quoted}","{quoted.upper()}"\n'


def test_a_file_named_csv(tmp_path: Path) -> None:
    for name in ("a.CSV", "a.csv.gz"):
        assert isinstance(format_of(config(column=2, input=str(tmp_path / name))), CsvColumn)
    assert not isinstance(format_of(config(column=2, input=str(tmp_path / "a.tsv"))), CsvColumn)


def test_another_key_of_json_lines(run: Callable[..., str]) -> None:
    content = '{"a": {"de": "ein Hund"}, "text": "no"}\n{"a": {"de": 1}}\n{"a": []}\n{"a.de": "x"}\n'
    first, second, third, fourth = map(json.loads, run(content, format="jsonl", key="a.de").splitlines())
    assert first == {"a": {"de": "ein Hund"}, "text": "no", "translation": "EIN HUND", "score": -0.5}
    assert second == {"error": "line 2: a.de must be a string"}
    assert third == {"error": "line 3: has no member a.de"}
    assert fourth == {"a.de": "x", "translation": "X", "score": -0.5}


def test_a_list_of_json(run: Callable[..., str]) -> None:
    found = run('[{"text": "a", "n": 1},\n {"n": 2}]', format="json")
    assert json.loads(found) == [
        {"n": 1, "translation": "A", "score": -0.5},
        {"error": "line 2: has no member text"},
    ]
    assert run("[]", format="json") == "[]\n"
    for content, message in (
        ('{"text": "a"}', "it must be a list"),
        ('[{"text": "a"}', "the list has no end"),
        ("[1] 2", "text follows the list"),
        ("[" * 9000, "nested too deeply"),
    ):
        with pytest.raises(UserError, match=rf"^format=json: line 1: not valid JSON \({message}\)"):
            run(content, format="json")


def test_numbers_that_are_not_json_are_refused() -> None:
    found = JsonLines(config()).read('{"text": "a", "x": 1e999}', 3)
    assert found.error == "line 3: is not JSON (the number 1e999 is too large)"
    assert JsonLines(config()).read('{"text": "a", "x": 1e300}', 3).others == {"x": 1e300}


def test_results_of_an_earlier_translation_are_not_copied() -> None:
    old = {"error": "old", "unmet": ["old"], "truncated": 3, "nbest": 3, "alignment": 5, "score": 1, "id": 7}
    form = JsonLines(config())
    request = form.read(json.dumps({"text": "a", "translation": "old", **old}), 1)
    assert json.loads(form.write(request, shout(("A", -0.5)), 1)) == {
        "id": 7,
        "translation": "A",
        "score": -0.5,
    }


@pytest.mark.parametrize(
    ("options", "given"), [({"format": "jsonl"}, "format=jsonl"), ({"column": 2}, "column=2")]
)
def test_a_prompt_reads_plain_text(
    options: dict[str, Any], given: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command.sys, "stdin", SimpleNamespace(isatty=lambda: True))
    with pytest.raises(UserError) as error:
        command.translate(config(**options))
    assert str(error.value) == f"{given}: the prompt reads plain text. Give input=FILE, or a pipe."


def test_a_missing_column_names_its_line(
    run: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[TranslateConfig] = []
    monkeypatch.setattr(command, "load_translator", loaded.append)
    with pytest.raises(UserError, match=r"^column=2: line 2 has 1 column\. Choose another column\.$"):
        run("a\tb\nc\n", column=2)
    assert loaded == []  # noticed before anything is translated
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"column": 2, "format": "jsonl"}, r"column=2: format=jsonl has no columns"),
        ({"format": "csv"}, r"format=csv: needs column=N or column=NAME"),
        ({"input": "a.csv"}, r"format=csv: needs column=N or column=NAME"),
        ({"input": "a.po", "column": 1}, r"column=1: format=po has no columns"),
        ({"input": "a.po", "scores": True}, r"scores=True: format=po has no lines for it"),
        ({"format": "po", "decoding": DecodingConfig(nbest=2)}, r"format=po: takes one translation per line"),
        ({"delimiter": ";"}, r"delimiter=;: only format=csv has delimiters"),
        ({"format": "csv", "delimiter": ";;"}, r"delimiter=;;: must be one character, or tab"),
        ({"key": "x"}, r"key=x: only format=jsonl and format=json have keys"),
        ({"column": 2, "decoding": DecodingConfig(nbest=2)}, r"column=2: takes one translation per line"),
    ],
)
def test_contradictions(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        format_of(config(**options))


def test_wrong_values() -> None:
    with pytest.raises(UserError, match=r"format=xml: must be auto, text, .*, srt or vtt\."):
        config(format="xml")
    for column in (0, -1, True, "", 10_001, [2], 2.0):
        with pytest.raises(UserError, match=r"column=.*: must be a number from 1 to 10,000, or the name"):
            config(column=column)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, False),
        ({"column": 2}, False),
        ({"scores": True}, True),
        ({"format": "jsonl"}, True),
        ({"decoding": DecodingConfig(nbest=2)}, True),
        ({"decoding": DecodingConfig(samples=2)}, True),
    ],
)
def test_the_search_is_told_whether_the_output_has_scores(options: dict[str, Any], expected: bool) -> None:
    assert format_of(config(**options)).has_scores == expected


def test_alignments_are_of_the_words_without_the_tag() -> None:
    form = JsonLines(config(format="jsonl", alignments="links"))
    request = form.read('{"text": "a b", "tag": "<2de>"}', 1)
    translation = Translation((ScoredText("B A x", -1.0, alignment=((2, 0), (1, 1), (0, 2))),))
    assert json.loads(form.write(request, translation, 1))["alignment"] == [[1, 0], [0, 1]]
    assert command.formatted_alignments(translation, config(), request) == b"1-0 0-1\n"


@pytest.mark.parametrize(("tag", "problem"), [("<2de>", []), ("<2dx>", ["<2dx>"])])
def test_a_tag_that_the_model_lacks_is_a_problem(tag: str, problem: list[str]) -> None:
    model: Any = SimpleNamespace(
        tokenizer=SimpleNamespace(source_symbols={"<2de>": 4}),
        translate=lambda lines, **_: [Translation((ScoredText(line.upper(), -1.0),)) for line in lines],
    )
    form = JsonLines(config(format="jsonl"))
    request = form.read(json.dumps({"text": "a", "tag": tag}), 1)
    [translation] = command.translation_of_requests(model, None, alignments=False)([request])
    messages = [f'line 7: the model has no tag "{name}". It has read it as text' for name in problem]
    assert json.loads(form.write(request, translation, 7)).get("problems", []) == messages
