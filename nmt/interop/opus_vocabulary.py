"""Marian's vocabularies: YAML files that give each piece its id, one a line."""

from __future__ import annotations

import re

_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))")
_LETTERS = dict(zip("0abefnrtvN_LP", "\0\a\b\x1b\f\n\r\t\v\x85\xa0\u2028\u2029", strict=True))
_ID = re.compile("[0-9]{1,9}", re.ASCII)


def parse_vocabulary(text: str) -> dict[str, int]:
    """Returns the id of each piece.

    A YAML reader would take some pieces for other values: `no`, `~`, `1.0`, or control characters.

    Raises:
        ValueError: a line has another form, or two lines have the same piece or the same id.
    """
    ids: dict[str, int] = {}
    begun = ""  # of an entry on two lines: "? piece" and ": id"
    for number, line in enumerate(re.split("\r?\n", text), 1):
        if line.startswith("? ") and not begun:
            begun = line[2:]
            continue
        entry, begun = (f"{begun}{line}" if begun else line), ""
        if not entry.strip() or entry in ("---", "...") or entry.startswith("# "):
            continue
        quoted, _, id = entry.rpartition(":")
        if not quoted.strip() or not _ID.fullmatch(id.strip()):
            raise ValueError(f"line {number}: must be a piece and its id")
        piece = _unquoted(quoted.strip(" "))
        if piece in ids:
            raise ValueError(f"line {number}: the piece occurs twice")
        ids[piece] = int(id)
    if len({*ids.values()}) < len(ids):
        raise ValueError("two pieces have the same id")
    return ids


def _unquoted(piece: str) -> str:
    if len(piece) > 1 and piece[0] == piece[-1] == "'":
        return piece[1:-1].replace("''", "'")
    if len(piece) > 1 and piece[0] == piece[-1] == '"':
        return _ESCAPE.sub(_character, piece[1:-1])
    return piece


def _character(match: re.Match[str]) -> str:
    code = match[1] or match[2] or match[3]
    if code is None:
        return _LETTERS.get(match[4], match[4])
    number = int(code, 16)
    return chr(number) if number < 0x110000 and not 0xD800 <= number < 0xE000 else "\ufffd"
