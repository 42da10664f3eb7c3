"""The prompt of `nmt-translate` on a terminal: typed lines are translated one by one."""

from __future__ import annotations

import contextlib
import os
import sys
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from nmt.cli.formats import Lines, Request, TranslateRequests
from nmt.cli.prompt_commands import Settings, is_command, respond, without_escape
from nmt.config import TranslateConfig
from nmt.errors import UserError
from nmt.options.arguments import one_line
from nmt.runtime import cache_folder, printable

if TYPE_CHECKING:
    from nmt.decoding.translation import Translation

HISTORY_LINES = 1000
DEFAULT_WIDTH = 80
"""Columns of a terminal that does not report its width."""
MAX_TOKENS = 60
"""Tokens of each side that are shown."""

_MAX_LABEL = 14  # terminal columns of a token; longer tokens are cut
_MIN_CELL = 3  # terminal columns of "100"


def converse(
    translate_with: Callable[[Settings], TranslateRequests],
    config: TranslateConfig,
    report: Callable[[Translation, int, TranslateConfig], object],
) -> None:
    """Translates typed lines until Ctrl-D; Ctrl-C cancels a line or its translation.

    Args:
        translate_with: returns a function that translates requests with these settings.
        config: its `scores` and `decoding` are used until a command changes them.
        report: called with each translation, its number and the options, before the translation is written.
    """
    print(
        "Type a sentence and press Enter. Ctrl-C cancels a sentence, Ctrl-D exits. :help lists the commands.",
        file=sys.stderr,
    )
    settings, number = Settings(config), 0
    translate_all, form = translate_with(settings), Lines(config)
    with _history():
        while True:
            try:
                lines = _ask()
                if is_command(lines[0]):
                    settings = _responded(lines.pop(0), settings)
                    translate_all, form = translate_with(settings), Lines(settings.config)
                else:
                    lines[0] = without_escape(lines[0])
                if not any(line.strip() for line in lines):
                    continue
                requests = [Request(line, settings.prefix) for line in lines]
                for request, translation in zip(requests, translate_all(requests), strict=True):
                    number += 1
                    report(translation, number, settings.config)
                    sys.stdout.buffer.write(form.write(request, translation, number))
                    if settings.attention:
                        sys.stdout.buffer.flush()
                        _show_attention(translation)
                sys.stdout.buffer.flush()
            except EOFError:
                print(file=sys.stderr)
                return
            except KeyboardInterrupt:
                print(file=sys.stderr)
            except UnicodeError:
                print("The line is not UTF-8. Set the terminal to UTF-8.", file=sys.stderr)
            except UserError as error:  # such as a beam that does not fit into memory: a command lowers it
                print(one_line(str(error)), file=sys.stderr)


def _responded(line: str, settings: Settings) -> Settings:
    """Prints the answer to a command; returns the settings after it."""
    try:
        settings, answer = respond(line, settings)
    except UserError as error:
        answer = one_line(str(error))
    print(printable(answer), file=sys.stderr)
    return settings


def _show_attention(translation: Translation) -> None:
    """Prints the attention of the best translation, if it has any; a blank line has none."""
    best = translation.hypotheses[0]
    if best.attention is not None:
        weights = best.attention.tolist()
        table = attention_table(translation.source_pieces, best.pieces, weights, _terminal_width())
        print(table, end="", file=sys.stderr)


def _terminal_width() -> int:
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or DEFAULT_WIDTH
    except (OSError, ValueError):
        return DEFAULT_WIDTH


def _ask() -> list[str]:
    """Returns the typed line, or the lines of a pasted text."""
    if sys.stdout.isatty():
        text = input("> ")  # readline prints the prompt, so that it can redraw it
    else:
        print("> ", end="", file=sys.stderr, flush=True)
        text = input()
    text.encode()  # invalid bytes are lone surrogates, which can't be encoded
    return text.split("\n")


@contextlib.contextmanager
def _history() -> Iterator[None]:
    """Enables line editing, with the lines of earlier sessions under the arrow keys."""
    try:
        import readline
    except ImportError:
        yield  # not available on this machine
        return
    path = cache_folder() / "history"
    with contextlib.suppress(OSError):
        readline.read_history_file(path)
    readline.set_history_length(HISTORY_LINES)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):  # the history is optional
            path.parent.mkdir(parents=True, exist_ok=True)
            readline.write_history_file(path)


# The table of attention weights


def attention_table(
    source: Sequence[str], target: Sequence[str], weights: Sequence[Sequence[float]], width: int
) -> str:
    """Returns the weights in percent; a dot is less than half a percent.

    Columns that exceed the width of the terminal continue in further blocks, each with all rows. A very
    narrow terminal gets one source token per block. `weights` has for each target token the weight of each
    source token, from 0 to 1.
    """
    columns = [_cut(_visible(token)) for token in source[:MAX_TOKENS]]
    rows = [_cut(_visible(token)) for token in target[:MAX_TOKENS]]
    label = max(map(_width, rows), default=0)
    sizes = [max(_MIN_CELL, _width(column)) for column in columns]
    lines = ["attention in percent: translation in rows, source in columns"]
    for number, (start, end) in enumerate(_blocks(sizes, width - label)):
        lines += [""] if number else []
        lines.append(_row("", label, columns[start:end], sizes[start:end]))
        for row, values in zip(rows, weights, strict=False):
            lines.append(_row(row, label, map(_percent, values[start:end]), sizes[start:end]))
    for name, tokens in (("source", source), ("target", target)):
        if len(tokens) > MAX_TOKENS:
            lines.append(f"The first {MAX_TOKENS} of {len(tokens):,} {name} tokens are shown.")
    return "".join(f"{line}\n" for line in lines)


def _blocks(sizes: Sequence[int], width: int) -> Iterator[tuple[int, int]]:
    """Yields the start and the end of each block of columns that fits the width, one column at least."""
    start, used = 0, 0
    for place, size in enumerate(sizes):
        if place > start and used + 1 + size > width:
            yield start, place
            start, used = place, 0
        used += 1 + size
    if start < len(sizes):
        yield start, len(sizes)


def _row(label: str, label_size: int, cells: Sequence[str] | Iterator[str], sizes: Sequence[int]) -> str:
    padded = (" " * (size - _width(cell)) + cell for cell, size in zip(cells, sizes, strict=True))
    return " ".join([label + " " * (label_size - _width(label)), *padded])


def _percent(weight: float) -> str:
    number = round(100 * weight)
    return str(number) if number else "."


def _visible(token: str) -> str:
    """Returns a token without control characters, tabs and line breaks."""
    return printable(token).replace("\t", r"\t").replace("\n", r"\n")


def _cut(token: str) -> str:
    if _width(token) <= _MAX_LABEL:
        return token
    while _width(token) > _MAX_LABEL - 1:
        token = token[:-1]
    return f"{token}…"


def _width(text: str) -> int:
    """Returns the number of terminal columns: two for a wide character of East Asia, none for an accent."""
    return sum(
        0 if unicodedata.combining(one) else 2 if unicodedata.east_asian_width(one) in "WF" else 1
        for one in text
    )
