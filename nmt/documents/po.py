"""PO files of gettext: messages without a translation get one, with the flag `fuzzy`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from nmt.data.corpora.gettext import ESCAPES, LANGUAGE, Message, messages_of
from nmt.documents.pair import Pair, TooManyLines
from nmt.errors import UserError

_QUOTED = str.maketrans({character: f"\\{letter}" for letter, character in ESCAPES.items()})
_FORMS = re.compile(r"^Plural-Forms:.*?\bnplurals\s*=\s*([1-9])\b", re.MULTILINE)
_MOST_STRINGS = 12  # of a message: no language has more than six forms


@dataclass
class PoText:
    """A PO file as the lines of its messages without a translation.

    Attributes:
        lines: the lines.
        rows: the file, by its line ends.
        strings: by the place of a row, the strings of `msgstr` that replace it: the keyword, and the parts of
            the string, of which numbers are places of lines.
        removed: the places of rows that are left out.
        before: by the place of a row, the row to insert before it.
    """

    lines: list[str] = field(default_factory=list)
    rows: list[str] = field(default_factory=list)
    strings: dict[int, list[tuple[str, list[str | int]]]] = field(default_factory=dict)
    removed: set[int] = field(default_factory=set)
    before: dict[int, str] = field(default_factory=dict)

    def joined(self, lines: Sequence[str]) -> str:
        """Returns the file with translations."""
        rows: list[str] = []
        for place, row in enumerate(self.rows):
            end = "\r" * row.endswith("\r")
            if place in self.before:
                rows.append(self.before[place] + end)
            for keyword, parts in self.strings.get(place, ()):
                text = "".join(lines[part] if isinstance(part, int) else part for part in parts)
                rows += [f"{one}{end}" for one in _string_rows(keyword, text)]
            if place not in self.removed:
                rows.append(row)
        return "\n".join(rows)

    def add(self, text: str) -> list[str | int]:
        """Adds the lines of a string, and returns its parts."""
        parts: list[str | int] = []
        for line in text.split("\n"):
            core = line.strip()
            before, _, after = line.partition(core) if core else (line, "", "")
            is_text = any(map(str.isalpha, core))
            parts += [before, len(self.lines) if is_text else core, after, "\n"]
            if is_text:
                self.lines.append(core)
        return parts[:-1]


def read_po(text: str, name: str, languages: Pair) -> PoText:
    """Divides a PO file into the lines of its messages that have no translation.

    A message with plural forms has its singular as the first form, and its plural as the others. Messages
    with a translation, obsolete ones and the header are left as they are.

    Raises:
        UserError: a message is malformed, or the header names another language.
    """
    result = PoText(rows=text.split("\n"))
    num_forms = None
    for message in messages_of(row.removesuffix("\r") for row in result.rows):
        if message.problem:
            raise UserError(f"{name}:{message.number}: {message.problem}.")
        if not message.parts:
            continue
        if len(result.lines) > languages.most_lines:
            raise TooManyLines(f"has more than {languages.most_lines:,} lines.")
        strings = message.strings
        if problem := _problem(strings):
            raise UserError(f"{name}:{message.number}: {problem}.")
        if strings["msgid"] == "" and "msgctxt" not in strings:
            header = "".join(strings.values())
            forms, language = _FORMS.search(header), LANGUAGE.search(header)
            num_forms = int(forms[1]) if forms else None
            if problem := languages.mismatch("", language[1] if language else ""):
                raise UserError(f"{name}:{message.number}: {problem}.")
            continue
        _add(result, message, num_forms)
    return result


def _add(result: PoText, message: Message, num_forms: int | None) -> None:
    strings = message.strings
    places = {keyword: [number - 1 for number in numbers] for keyword, numbers in message.rows.items()}
    forms = [keyword for keyword in strings if keyword.startswith("msgstr")]
    empty = [keyword for keyword in forms if not strings[keyword]]
    if not empty or not strings["msgid"].strip():
        return
    removed = [place for keyword in empty for place in places[keyword]]
    place_of = {keyword: places[keyword][0] for keyword in empty}
    if "msgid_plural" in strings and len(empty) == len(forms):
        place_of = {}  # all are at the place of the first one
        empty = [f"msgstr[{number}]" for number in range(num_forms or len(forms))]
    sides = {side: result.add(strings[side]) for side in ("msgid", "msgid_plural") if side in strings}
    singular = ("msgstr",) if num_forms == 1 else ("msgstr", "msgstr[0]")
    for keyword in empty:
        parts = sides["msgid" if keyword in singular else [*sides][-1]]
        result.strings.setdefault(place_of.get(keyword, removed[0]), []).append((keyword, parts))
    result.removed |= {*removed}
    _set_fuzzy(result, message, places["msgid"][0] if "msgctxt" not in places else places["msgctxt"][0])


def _set_fuzzy(result: PoText, message: Message, first: int) -> None:
    """Sets the flag of a message whose first string is in row `first`."""
    begin, own = first, {number - 1 for number in message.numbers}
    while begin - 1 in own and not result.rows[begin - 1].startswith("#~"):
        begin -= 1
    for place in range(begin, first):
        row = result.rows[place]
        if row.startswith("#,"):
            if "fuzzy" not in row:
                result.rows[place] = row.replace("#,", "#, fuzzy,", 1)
            return
    previous = (place for place in range(begin, first) if result.rows[place].startswith("#|"))
    result.before[next(previous, first)] = "#, fuzzy"


def _problem(strings: Mapping[str, str]) -> str:
    """Returns what is wrong with the strings of a message; empty if nothing is."""
    if len(strings) > _MOST_STRINGS:
        return "has too many forms of the plural"
    if ("msgid_plural" in strings) == ("msgstr" in strings):
        return "needs a number for each msgstr, or has no msgid_plural"
    return ""


def _string_rows(keyword: str, text: str) -> list[str]:
    """Returns the rows of a string: one, or one for each of its lines."""
    lines = re.findall(r"[^\n]*\n|[^\n]+", text)
    quoted = [f'"{line.translate(_QUOTED)}"' for line in lines]
    return [f"{keyword} {quoted[0]}"] if len(quoted) == 1 else [f'{keyword} ""', *quoted]
