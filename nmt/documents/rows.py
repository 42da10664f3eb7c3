"""Formats with a row for each text: plain lines, JSON, and a column of tab-separated values or of CSV.

A format reads each input line into a `Request` and writes the translation of it.
"""

from __future__ import annotations

import csv
import json
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from nmt.config import TranslateConfig
from nmt.data.corpora.json_tables import MISSING, member_of, members_of_list
from nmt.data.corpora.opening import Place
from nmt.data.corpora.tables import MOST_LINES, csv_problem, csv_reader, delimiter_of
from nmt.data.corpora.text import one_line
from nmt.decoding.translation import problems
from nmt.errors import UserError

if TYPE_CHECKING:
    from nmt.decoding.alignment import Alignment
    from nmt.decoding.translation import Translation


@dataclass(frozen=True)
class Request:
    """An input line: the text to translate, and phrases that its translation must contain.

    Attributes:
        prefix: the beginning of its translation; may be empty.
        others: what the format copies to the output.
        tags: words before the text that the format has added: the member `tag`.
        error: the reason why the line can't be translated; `text` is then empty. None: it can.
    """

    text: str
    prefix: str = ""
    constraints: Sequence[str] = ()
    others: Mapping[str, Any] = field(default_factory=dict)
    tags: Sequence[str] = ()
    error: str | None = None


TranslateRequests: TypeAlias = "Callable[[Sequence[Request]], list[Translation]]"
"""Translates requests, in order."""


class Format(ABC):
    """A format of input and output, with `scores`, `column` and `decoding` of the options."""

    def __init__(self, config: TranslateConfig) -> None:
        self.config = config

    @property
    def has_scores(self) -> bool:
        """Whether the output has scores."""
        return self.config.scores or self.config.decoding.num_results > 1

    def look_at(self, first_lines: Sequence[str]) -> None:
        """Gets the first lines of a file before its rows are read; those of a stream are not known."""
        return None

    def rows(self, lines: Iterable[str]) -> Iterator[str]:
        """Yields the rows of the input, each of which `read` takes; a row is a line in most formats."""
        return iter(lines)

    @abstractmethod
    def read(self, line: str, number: int) -> Request:
        """Reads an input line without its line break; lines are numbered from 1.

        Raises:
            UserError: the line has no text to translate.
        """

    @abstractmethod
    def write(self, request: Request, translation: Translation, number: int) -> bytes:
        """Returns the output lines for the translation of a request from `read`, with their line breaks."""

    def end(self) -> bytes:
        """Returns the output after the last row."""
        return b""


class Lines(Format):
    """Plain text; scores and n-best lists are in front, separated by tabs."""

    def read(self, line: str, number: int) -> Request:
        """See `Format.read`."""
        return Request(line)

    def write(self, request: Request, translation: Translation, number: int) -> bytes:
        """See `Format.write`."""
        count = self.config.decoding.num_results
        scored = [(f"{hypothesis.score:.4f}", hypothesis.text) for hypothesis in translation.hypotheses]
        if count > 1:
            scored += [("-inf", "")] * (count - len(scored))
            return "".join(f"{number}\t{score}\t{text}\n" for score, text in scored).encode()
        [(score, text)] = scored
        return (f"{score}\t{text}\n" if self.config.scores else f"{text}\n").encode()


class Column(Format):
    """Tab-separated values: one column is translated, and the translation is appended as the last column.

    A column with a name makes the first line a header, which is copied with the name `translation` appended.
    """

    def __init__(self, config: TranslateConfig) -> None:
        super().__init__(config)
        self._place = config.column - 1 if isinstance(config.column, int) else None

    def read(self, line: str, number: int) -> Request:
        """See `Format.read`."""
        values, column = self._values(line, number), self.config.column
        if number == 1 and isinstance(column, str):
            names = [name.strip() for name in values]
            if names.count(column) != 1:
                which = "no" if column not in names else "several"
                raise UserError(f"column={column}: line 1 has {which} such columns, but {', '.join(names)}.")
            self._place = names.index(column)
            return Request("", others={"line": line, "header": True})
        assert self._place is not None
        if len(values) <= self._place:
            columns = f"{len(values)} column{'s' if len(values) != 1 else ''}"
            raise UserError(f"column={column}: line {number} has {columns}. Choose another column.")
        return Request(one_line(values[self._place]), others={"line": line})

    def write(self, request: Request, translation: Translation, number: int) -> bytes:
        """See `Format.write`."""
        best = translation.hypotheses[0]
        score, text = f"{best.score:.4f}", best.text
        if "header" in request.others:
            score, text = "score", "translation"
        values = [score, text] if self.config.scores else [text]
        return f"{request.others['line']}{self._appended(values)}\n".encode()

    def _values(self, line: str, number: int) -> list[str]:
        return line.split("\t")

    def _appended(self, values: list[str]) -> str:
        return "".join(f"\t{value}" for value in values)


class CsvColumn(Column):
    """Comma-separated values (RFC 4180), or such values with another delimiter.

    It is `delimiter`, or else the one that the first lines show; of a stream, the first line. A first line
    `sep=;`, as Excel reads it, names the delimiter. It is copied.
    """

    _delimiter, _has_separator = ",", False
    _first_lines: Sequence[str] = ()

    def look_at(self, first_lines: Sequence[str]) -> None:
        """See `Format.look_at`."""
        self._first_lines = first_lines

    def rows(self, lines: Iterable[str]) -> Iterator[str]:
        """See `Format.rows`. A row ends with a line in which no quoted cell is open."""
        begun: list[str] = []
        number = 0
        for number, line in enumerate(lines, 1):
            if number == 1:
                self._delimiter, is_row = delimiter_of(self._first_lines or [line])
                self._has_separator = not is_row
                self._delimiter = self.config.delimiter or self._delimiter
                cell = rf'(?:"(?:[^"]|"")*+"|(?!"))[^{self._delimiter}]*'
                opens = re.compile(rf'(?:{cell}{re.escape(self._delimiter)})*+"(?:[^"]|"")*+')
            line_of_row = f'"{line}' if begun else line  # a row that has begun is inside a cell
            begun.append(line)
            if not opens.fullmatch(line_of_row):
                yield "\n".join(begun)
                begun = []
            elif len(begun) > MOST_LINES:
                break
        if begun:
            first = number - len(begun) + 1
            raise UserError(f"format=csv: line {first} has a quotation mark that is not closed. Correct it.")

    def read(self, line: str, number: int) -> Request:
        """See `Format.read`."""
        if not self._has_separator:
            return super().read(line, number)
        return (
            Request("", others={"line": line, "copied": True})
            if number == 1
            else super().read(line, number - 1)
        )

    def write(self, request: Request, translation: Translation, number: int) -> bytes:
        """See `Format.write`."""
        if "copied" in request.others:
            return f"{request.others['line']}\n".encode()
        return super().write(request, translation, number)

    def _values(self, line: str, number: int) -> list[str]:
        try:
            return next(csv_reader([line], self._delimiter), [""])
        except csv.Error as error:
            raise UserError(f"format=csv: row {number}: {csv_problem(error)}. Correct it.") from None

    def _appended(self, values: list[str]) -> str:
        special = re.compile(f'["\r\n{re.escape(self._delimiter)}]')
        quoted = [
            '"' + value.replace('"', '""') + '"' if special.search(value) else value for value in values
        ]
        return "".join(f"{self._delimiter}{value}" for value in quoted)


_RESULTS = (
    "translation",
    "score",
    "nbest",
    "alignment",
    "parts",
    "unmet",
    "truncated",
    "numbers",
    "problems",
    "error",
)
"""The members of a result."""
MAX_NESTING = 100
"""Maximum levels of lists and objects in a line: what one thread can read, another may be unable to write."""


class JsonLines(Format):
    """JSON Lines: an object with `text`, and optionally `prefix`, `constraints` and `tag`.

    Other members are copied, except those that the result may have. With `key`, another member is translated,
    and copied too.

    The result of a line that is not such an object has only the member `error`, so that the lines of input
    and output agree.
    """

    has_scores = True

    def read(self, line: str, number: int) -> Request:
        """See `Format.read`."""
        name = self.config.key
        try:
            members = json.loads(line, parse_constant=_refuse, parse_float=_finite)
        except ValueError as error:
            return Request("", error=f"line {number}: is not JSON ({error})")
        except RecursionError:
            return Request("", error=f"line {number}: is nested too deeply")
        if line.count("[") + line.count("{") > MAX_NESTING and _nesting(members) > MAX_NESTING:
            return Request("", error=f"line {number}: is nested too deeply")
        if not isinstance(members, dict):
            return Request("", error=f"line {number}: must be an object with the member {name}")
        text = members.pop(name, MISSING) if name == "text" else member_of(members, name)
        if text is MISSING:
            return Request("", error=f"line {number}: has no member {name}")
        prefix, tag = members.pop("prefix", ""), members.pop("tag", "")
        constraints = members.pop("constraints", [])
        if not isinstance(constraints, list):
            return Request("", error=f"line {number}: constraints must be a list of strings")
        values = [
            (name, text),
            ("prefix", prefix),
            ("tag", tag),
            *(("constraints", phrase) for phrase in constraints),
        ]
        for key, value in values:
            if not isinstance(value, str):
                kind = "a list of strings" if key == "constraints" else "a string"
                return Request("", error=f"line {number}: {key} must be {kind}")
            if "\n" in value or any(0xD800 <= ord(character) <= 0xDFFF for character in value):
                return Request("", error=f"line {number}: {key} has a line break or half a character")
        for key in _RESULTS:
            members.pop(key, None)
        if constraints and self.config.decoding.samples:
            return Request("", error=f"line {number}: samples can't have constraints")
        if constraints and self.config.backend == "ctranslate2":
            return Request("", error=f"line {number}: backend=ctranslate2 can't have constraints")
        text = f"{tag} {text}" if tag else text
        return Request(text, prefix, constraints, members, tags=tuple(tag.split()))

    def write(self, request: Request, translation: Translation, number: int) -> bytes:
        """See `Format.write`."""
        if request.error is not None:
            return _line({"error": request.error})
        best, *_ = translation.hypotheses
        result = {**request.others, "translation": best.text, "score": _score(best.score)}
        if self.config.decoding.num_results > 1:
            result["nbest"] = [
                {"translation": hypothesis.text, "score": _score(hypothesis.score)}
                for hypothesis in translation.hypotheses
            ]
        if self.config.alignments is not None:
            result["alignment"] = without_added_words(best.alignment, request)
        if translation.parts:
            result["parts"] = [
                {"text": part.source, "translation": part.text, "score": _score(part.score)}
                for part in translation.parts
            ]
        if translation.unmet:
            result["unmet"] = list(translation.unmet)
        if translation.truncated:
            result["truncated"] = translation.truncated
        if translation.numbers:
            result["numbers"] = list(translation.numbers)
        if messages := problems(translation, number):
            result["problems"] = messages
        return _line(result)


class JsonList(JsonLines):
    """One list of objects such as JSON Lines has; the results are a list too, with an object in each line."""

    _num_written = 0

    def rows(self, lines: Iterable[str]) -> Iterator[str]:
        """See `Format.rows`. A row is an object of the list."""
        place = Place()

        def damaged(problem: object) -> UserError:
            reason = "nested too deeply" if isinstance(problem, RecursionError) else problem
            return UserError(f"format=json: line {place.lines + 1}: not valid JSON ({reason}). Correct it.")

        text = "\n".join(lines)
        for row, _ in members_of_list([text], json.JSONDecoder(), place, damaged):
            yield row

    def write(self, request: Request, translation: Translation, number: int) -> bytes:
        """See `Format.write`."""
        self._num_written += 1
        return (b"[\n" if number == 1 else b",\n") + super().write(request, translation, number)[:-1]

    def end(self) -> bytes:
        """See `Format.end`."""
        return b"\n]\n" if self._num_written else b"[]\n"


def _score(value: float) -> float | None:
    """Returns a score as JSON can represent it: no infinity, which a metric of a plugin may return."""
    return round(value, 4) if math.isfinite(value) else None


def _line(value: Mapping[str, Any]) -> bytes:
    try:
        return f"{json.dumps(value, ensure_ascii=False)}\n".encode()
    except UnicodeEncodeError:  # half a character (a lone surrogate) in a copied member
        return f"{json.dumps(value)}\n".encode()


def _nesting(value: Any) -> int:
    """Returns the number of levels of lists and objects in a value."""
    levels, level = 0, [value]
    while level := [one for one in level if isinstance(one, list | dict)]:
        levels += 1
        level = [inner for one in level for inner in (one.values() if isinstance(one, dict) else one)]
    return levels


def _finite(number: str) -> float:
    if math.isinf(value := float(number)):
        raise ValueError(f"the number {number} is too large")
    return value


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def without_added_words(alignment: Alignment, request: Request) -> Alignment:
    """Returns the links of the words that were in the text of the input."""
    added = len(request.tags)
    return tuple((source - added, target) for source, target in alignment if source >= added)
