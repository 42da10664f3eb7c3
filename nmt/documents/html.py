"""HTML as lines to translate: the text between its blocks, with the tags inside a sentence as marks.

A block, such as a paragraph or a cell, is a line. The content of elements such as `code`, and of those with
`translate="no"`, is one mark. Everything else of the text is left as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from nmt.documents.marks import MarkedText, Piece

_TAG = re.compile(
    r"<(?:!--|!\[CDATA\[|[!?][^<>]*+>|(?P<end>/?)(?P<name>[A-Za-z][^\s<>/]*+)"
    r"(?P<rest>[^<>\"']*+(?:(?:\"[^\"<]*+\"|'[^'<]*+')[^<>\"']*+)*+)>)"
)
_UNTRANSLATED = re.compile(
    r"\btranslate\s*=\s*[\"']?no\b|\bclass\s*=\s*(?:[\"'][^\"']*\bnotranslate\b|notranslate\b)", re.IGNORECASE
)
_OPAQUE = frozenset("code kbd math pre samp script style svg textarea var".split())
_RAW = frozenset(("script", "style", "textarea"))  # their content has no tags
_VOID = frozenset("area base br col embed hr img input link meta source track wbr".split())
_BLOCKS = frozenset(
    "address article aside audio base blockquote body br button canvas caption center col colgroup dd "
    "details dialog div dl dt embed fieldset figcaption figure footer form frame frameset h1 h2 h3 h4 h5 h6 "
    "head header hr html iframe input legend li link main map menu meta nav noscript object ol optgroup "
    "option p pre script section select style summary table tbody td template textarea tfoot th thead title "
    "tr ul video".split()
)


def read_html(text: str, most_lines: int = 1 << 62) -> MarkedText:
    """Divides HTML into lines. Raises `TooManyLines` if they are more than `most_lines`."""
    result = MarkedText(most_lines=most_lines)
    segment: list[Piece] = []
    for piece in html_pieces(text):
        if piece.name in _BLOCKS:
            result.add(segment)
            segment = []
            result.add_frame(piece.source)
        else:
            segment.append(piece)
    result.add(segment)
    return result


def html_pieces(text: str) -> Iterator[Piece]:
    """Yields the parts of HTML, which are the whole text."""
    place = 0
    while match := _TAG.search(text, place):
        if match.start() > place:
            yield Piece("text", text[place : match.start()])
        place = match.start()
        if match["name"] is None:
            end = match.end()
            if close := {"<!--": "-->", "<![CDATA[": "]]>"}.get(match[0]):
                end = text.find(close, end)
                end = len(text) if end < 0 else end + 3
            yield Piece(
                "alone", text[place:end], "!doctype" if match[0][:3] == "<!D" else "!", match[0][:3] != "<!D"
            )
            place = end
            continue
        name = match["name"].lower()
        is_empty = name in _VOID or match["rest"].endswith("/")
        if match["end"]:
            yield Piece("close", match[0], name)
        elif not is_empty and (name in _OPAQUE or _UNTRANSLATED.search(match["rest"])):
            end = _end_of_element(text, match.end(), name)
            yield Piece("alone", text[place:end], name, name in _VOID)
            place = end
            continue
        else:
            yield Piece("alone" if is_empty else "open", match[0], name, name in _VOID)
        place = match.end()
    if place < len(text):
        yield Piece("text", text[place:])


def _end_of_element(text: str, place: int, name: str) -> int:
    """Returns the end of an element whose content begins at a place; that of the text if it is not closed."""
    pattern = rf"</{re.escape(name)}(?=[\s/>])[^<>]*+>"
    if name not in _RAW:
        pattern += rf"|<{re.escape(name)}(?=[\s/>])[^<>]*+>"
    depth = 1
    for match in re.compile(pattern, re.IGNORECASE).finditer(text, place):
        if match[0].startswith("</"):
            depth -= 1
        elif not match[0].endswith("/>"):
            depth += 1
        if not depth:
            return match.end()
    return len(text)
