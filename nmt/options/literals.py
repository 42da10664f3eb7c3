"""Text values on a command line: taken literally, except for quotes, lists, `null` and sweeps."""

from __future__ import annotations

import re

from nmt.config.schema import TextOption
from nmt.errors import UserError

_QUOTED = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""", re.DOTALL)


def read_text(key: str, written: str, option: TextOption) -> str | list[str] | None:
    """Returns the value of an option that holds text.

    `null` is None if the option is optional, `[a,b]` is a list if the option takes several, and quotes around
    a whole value or item are removed. Anything else is taken literally.

    Args:
        key: the option's name, for errors.
        written: the value as on the command line.
        option: the kind of text that the option takes.

    Raises:
        UserError: the value is a list of several texts, and the option takes one.
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
                f"{key}={written}: must be one {one}, not a list. Put the name of a single {one} in quotes: "
                f"\"{key}='{written}'\"."
            )
    return unquoted(written)


def split(text: str) -> list[str]:
    """Splits text at commas outside quoted and bracketed items; strips spaces around items."""
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
    """Returns the end of the item at `start`: a comma, `closer` (a bracket or empty) or the end of text."""
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
    comma = text.find(",", start) if depth else -1  # an unclosed bracket groups nothing
    return len(text) if comma < 0 else comma


def _closing(text: str, start: int) -> int | None:
    """Returns the place of the bracket that closes the list opened at `start`; None if there is none."""
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
    """Removes the quotes around text; returns other text unchanged.

    As in Hydra's grammar, a backslash is an escape only before the quote character that encloses the text.
    """
    if not _QUOTED.fullmatch(text):
        return text
    quote, inside = text[0], text[1:-1]
    inside = re.sub(rf"(\\*)\\{quote}", lambda found: found[1][::2] + quote, inside)
    return re.sub(r"\\+$", lambda found: found[0][::2], inside)
