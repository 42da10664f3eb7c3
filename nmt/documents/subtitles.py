"""Subtitles, SubRip (`.srt`) and WebVTT (`.vtt`): the text of each subtitle is a line, its times remain.

The rows of a subtitle are translated together, and the translation is divided into as many rows. If a row
after the first begins with a dash, the rows are those of several speakers, and are translated one by one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from nmt.documents.html import html_pieces
from nmt.documents.marks import MarkedText, Piece, has_text
from nmt.documents.pair import Pair
from nmt.errors import UserError

TIMES = re.compile(r"[ \t]*(?:\d+:)?\d+:\d\d[,.]\d+[ \t]+-->[ \t]+(?:\d+:)?\d+:\d\d[,.]\d+(?:[ \t].*)?\r?")
"""Matches the row with the times of a subtitle."""
_CODES = re.compile(r"(\{\\[^{}\n]*\}|<\d[\d:.]*>)")  # of SubStation Alpha, and times inside a subtitle
_DASH = re.compile(r"[ \t]*[-–—‐−][ \t]*")
_MOST_ROWS = 8  # of a subtitle that is translated as a whole
_WORD = re.compile(r"(?:<[^<>\n]*>|[^\s<]|<)+")


def read_srt(text: str, name: str, languages: Pair) -> MarkedText:
    """Divides SubRip subtitles into their texts. Raises `UserError` if the text has no times."""
    return _read(text, name, languages.most_lines, is_vtt=False)


def read_vtt(text: str, name: str, languages: Pair) -> MarkedText:
    """Divides WebVTT subtitles into their texts. Raises `UserError` if the first word is not `WEBVTT`."""
    if not text.startswith("WEBVTT"):
        raise UserError(f"{name}:1: does not begin with WEBVTT.")
    return _read(text, name, languages.most_lines, is_vtt=True)


@dataclass
class _Subtitles(MarkedText):
    num_rows: list[int] = field(default_factory=list)
    """The number of the rows of each line."""
    line_end: str = "\n"

    def finished(self, number: int, text: str) -> str:
        return self.line_end.join(_rows(text, self.num_rows[number]))

    def add_rows(self, rows: Sequence[str]) -> None:
        """Adds the rows of a subtitle, without their line ends."""
        is_one = len(rows) <= _MOST_ROWS and not any(map(_DASH.match, rows[1:]))
        for place, group in enumerate([rows] if is_one else [[row] for row in rows]):
            if place:
                self.add_frame(self.line_end)
            before = len(self.lines)
            dash = _DASH.match(group[0])
            if dash is not None and len(group) == 1:
                self.add_frame(dash[0])
                group = [group[0][dash.end() :]]
            pieces = [*_pieces(" ".join(row.strip() for row in group))]
            if has_text(pieces):
                self.add(pieces)
            else:
                self.add_frame(self.line_end.join(group))
            added = len(self.lines) - before
            self.num_rows += [len(group)] if added == 1 else [1] * added


def _read(text: str, name: str, most_lines: int, *, is_vtt: bool) -> MarkedText:
    rows = text.split("\n")
    line_end = "\r\n" if rows[0].endswith("\r") else "\n"
    result = _Subtitles(has_entities=is_vtt, line_end=line_end, most_lines=most_lines)
    places = [place for place, row in enumerate(rows) if TIMES.fullmatch(row)]
    if not places and not is_vtt and text.strip():
        raise UserError(f"{name}:1: has no times, such as 00:00:01,000 --> 00:00:02,000.")
    result.add_frame("\n".join(rows[: places[0]] if places else rows))
    for place, following in zip(places, [*places[1:], len(rows)], strict=True):
        result.add_frame("\n" * bool(place) + rows[place])
        _add_subtitle(result, rows[place + 1 : following], is_last=following == len(rows), is_vtt=is_vtt)
    return result


def _add_subtitle(result: _Subtitles, rows: Sequence[str], *, is_last: bool, is_vtt: bool) -> None:
    """Adds the rows between two rows with times; the last one may be the number of the next subtitle."""
    is_text = [bool(row.strip()) for row in rows]
    if not is_last and is_text and is_text[-1] and (is_vtt or rows[-1].strip().isdecimal()):
        is_text[-1] = False
    place = 0
    has_ended = False
    while place < len(rows):
        end = place
        while end < len(rows) and is_text[end] and not (has_ended and is_vtt):
            end += 1
        result.add_frame("\n")
        if end == place:
            has_ended = has_ended or not rows[place].strip()
            result.add_frame(rows[place])
            place += 1
            continue
        result.add_rows([row.removesuffix("\r") for row in rows[place:end]])
        result.add_frame("\r" * rows[end - 1].endswith("\r"))
        place = end


def _pieces(text: str) -> Iterator[Piece]:
    for number, part in enumerate(_CODES.split(text)):
        if number % 2:
            yield Piece("alone", part, "x", is_loose=True)
        else:
            for piece in html_pieces(part):
                yield replace(piece, name=piece.name.partition(".")[0])  # a class, `<c.yellow>`


def _rows(text: str, count: int) -> list[str]:
    """Divides a text between words into rows of similar length, at most `count`."""
    words = _WORD.findall(text)
    if count == 1 or len(words) < 2:
        return [text]
    ends: list[int] = []  # the length of the text up to the end of each word
    for word in words:
        ends.append((ends[-1] + 1 if ends else 0) + len(re.sub(r"<[^<>\n]*>", "", word)))
    rows: list[str] = []
    begin = 0
    for row in range(1, min(count, len(words)) + 1):
        rest = min(count, len(words)) - row  # rows that follow, each with a word
        wanted = ends[-1] * row / count
        candidates = range(begin + 1, len(words) - rest + 1)
        stop = len(words) if not rest else min(candidates, key=lambda place: abs(ends[place - 1] - wanted))
        rows.append(" ".join(words[begin:stop]))
        begin = stop
    return rows
