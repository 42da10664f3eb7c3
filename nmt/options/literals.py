"""Text on a command line: taken as it stands, but for quotes around it, lists, `null` and sweeps."""

from __future__ import annotations

import re

from nmt.config.paths import TextOption
from nmt.errors import UserError

_QUOTED = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""", re.DOTALL)


def read_text(key: str, written: str, option: TextOption) -> str | list[str] | None:
    """The value of an option that holds text.

    `null` clears an option that may be null, `[a,b]` is a list where the option takes one, and quotes around
    a whole value or item are not part of it. Everything else is the value, character for character.

    Args:
        key: the option's name, for errors.
        written: the value as it stands on the command line.
        option: what the option takes.

    Raises:
        UserError: the value is a list of several, and the option takes one text.
    """
    if option.optional and written == "null":
        return None
    if _is_list(written):
        items = split(written[1:-1]) if written[1:-1].strip() else []
        if option.several:
            return [unquoted(item) for item in items]
        if len(items) > 1:
            one = option.names or "text"
            raise UserError(
                f"{key}={written}: takes one {one}, not a list. Give one; a {one} with this very name needs "
                f"quotes of its own: \"{key}='{written}'\""
            )
    return unquoted(written)


def split(text: str) -> list[str]:
    """Cuts text at its commas, except those in quoted or bracketed items; spaces around items go."""
    items, start = [], 0
    while True:
        end = _end(text, start)
        items.append(text[start:end].strip())
        if end == len(text):
            return items
        start = end + 1


def _is_list(text: str) -> bool:
    return text.startswith("[") and _closing(text, 0) == len(text) - 1


def _end(text: str, start: int, closer: str = "") -> int:
    """Where the item that begins at `start` ends: at a comma, at `closer` (a bracket or nothing), or last."""
    start = _behind_spaces(text, start)
    if quoted := _QUOTED.match(text, start):
        end = _behind_spaces(text, quoted.end())
        if _ends(text, end, closer):
            return end
    if text.startswith("[", start) and (bracket := _closing(text, start)) is not None:
        end = _behind_spaces(text, bracket + 1)
        if _ends(text, end, closer):
            return end
    depth = 0  # of brackets inside the item, as in the glob part[1,2].en
    for place in range(start, len(text)):
        if not depth and (text[place] == "," or text[place] == closer):
            return place
        depth += (text[place] == "[") - (text[place] == "]" and depth > 0)
    comma = text.find(",", start) if depth else -1  # a lone bracket holds nothing together
    return len(text) if comma < 0 else comma


def _closing(text: str, start: int) -> int | None:
    """The place of the bracket that closes the list that opens at `start`; None if nothing closes it."""
    place = start
    while True:
        place = _end(text, place + 1, "]")
        if place == len(text):
            return None
        if text[place] == "]":
            return place


def _ends(text: str, place: int, closer: str) -> bool:
    return place == len(text) or text[place] == "," or text[place] == closer


def _behind_spaces(text: str, place: int) -> int:
    while place < len(text) and text[place].isspace():
        place += 1
    return place


def unquoted(text: str) -> str:
    """The content of a quoted text; other text as it is.

    As in Hydra's grammar, a backslash counts only before the quote that is around the text.
    """
    if not _QUOTED.fullmatch(text):
        return text
    quote, inside = text[0], text[1:-1]
    inside = re.sub(rf"(\\*)\\{quote}", lambda found: found[1][::2] + quote, inside)
    return re.sub(r"\\+$", lambda found: found[0][::2], inside)
