"""The prompt of `nmt-translate` on a terminal: typed lines are translated one by one.

A line that begins with a colon is a command, such as `:beam 8`.
"""

from __future__ import annotations

import contextlib
import difflib
import os
import sys
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from nmt.config import TranslateConfig
from nmt.config.checks import shortened
from nmt.documents.rows import Lines, Request, TranslateRequests
from nmt.errors import UserError
from nmt.options.arguments import one_line
from nmt.runtime.files import cache_folder
from nmt.runtime.streams import printable, product

if TYPE_CHECKING:
    from nmt.decoding.translation import Translation

HISTORY_LINES = 1000
DEFAULT_WIDTH = 80
"""Columns of a terminal that does not report its width."""
MAX_TOKENS = 60
"""Tokens of each side that are shown."""

_MAX_LABEL = 14  # terminal columns of a token; longer tokens are cut
_MIN_CELL = 3  # terminal columns of "100"


@dataclass(frozen=True)
class Settings:
    """The settings that the commands change: `scores` and `decoding` of the options, and more.

    Attributes:
        prefix: each translation begins with it; may be empty.
        attention: whether to show the attention of each translation.
    """

    config: TranslateConfig
    prefix: str = ""
    attention: bool = False

    def with_decoding(self, **changes: Any) -> Settings:
        """Returns the settings with other options of decoding."""
        return replace(self, config=replace(self.config, decoding=replace(self.config.decoding, **changes)))


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
                    product().buffer.write(form.write(request, translation, number))
                    if settings.attention:
                        product().buffer.flush()
                        _show_attention(translation)
                product().buffer.flush()
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
    if product().isatty():
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
    with contextlib.suppress(OSError, UserError):  # UserError: the user has no home folder
        readline.read_history_file(cache_folder() / "history")
    readline.set_history_length(HISTORY_LINES)
    try:
        yield
    finally:
        with contextlib.suppress(OSError, UserError):  # the history is optional
            path = cache_folder() / "history"
            path.parent.mkdir(parents=True, exist_ok=True)
            readline.write_history_file(path)


# The commands


@dataclass(frozen=True)
class Command:
    """A command of the prompt: how it is typed, its help of one line, and its function.

    The function takes the text after the name, and the settings. It returns new settings and the answer.
    """

    usage: str
    help: str
    apply: Callable[[str, Settings], tuple[Settings, str]]


def is_command(line: str) -> bool:
    """Returns whether a typed line is a command, known or not. `::text` is not."""
    return line.startswith(":") and not line.startswith("::")


def without_escape(line: str) -> str:
    """Returns the text to translate: `::text` is the text `:text`."""
    return line[1:] if line.startswith("::") else line


def respond(line: str, settings: Settings) -> tuple[Settings, str]:
    """Returns the settings after a line for which `is_command` is true, and the answer.

    Raises:
        UserError: the command is unknown or has a wrong value. The settings remain.
        EOFError: the command is `:quit`.
    """
    name, _, value = line.replace("\t", " ").partition(" ")
    command = COMMANDS.get(name.removeprefix(":"))
    if command is None:
        near = difflib.get_close_matches(name.removeprefix(":").lower(), COMMANDS, 1, 0.6)
        meant = f"Did you mean {COMMANDS[near[0]].usage}?" if near else ":help lists the commands."
        raise UserError(f"{shortened(name)}: is not a command. {meant} ::TEXT translates :TEXT.")
    value = value.strip()
    if value and " " not in command.usage:
        raise UserError(f"{name}: has no value. Type {name} alone.")
    return command.apply(value, settings)


def _nbest(value: str, settings: Settings) -> tuple[Settings, str]:
    decoding = settings.config.decoding
    if not value:
        return settings, f"decoding.nbest={decoding.nbest}"
    number = _number("nbest", value, settings.with_decoding(samples=0, nbest=1, beam_size=1000, mbr=None))
    if decoding.samples:
        raise UserError(
            f"decoding.nbest={number}: with decoding.samples={decoding.samples} all samples are returned. "
            "Leave decoding.nbest at 1."
        )
    answer, beam = f"decoding.nbest={number}", decoding.beam_size
    if number > beam:
        answer = f"{answer} decoding.beam_size={number} (raised from {beam})"
    if decoding.mbr is not None:
        answer = f"{answer} (the candidates of decoding.mbr={decoding.mbr})"
    return settings.with_decoding(nbest=number, beam_size=max(beam, number)), answer


def _beam(value: str, settings: Settings) -> tuple[Settings, str]:
    decoding = settings.config.decoding
    unused = f" (has no effect with decoding.samples={decoding.samples})" if decoding.samples else ""
    if value:
        settings = settings.with_decoding(beam_size=_number("beam_size", value, settings))
    return settings, f"decoding.beam_size={settings.config.decoding.beam_size}{unused}"


def _number(key: str, value: str, settings: Settings) -> int:
    """Reads a value for an option of decoding as on the command line, with the same errors."""
    from nmt.options.compose import changed_decoding  # imports Hydra, for which --help does not wait

    number: int = getattr(changed_decoding(settings.config.decoding, {key: value}), key)
    return number


def _prefix(value: str, settings: Settings) -> tuple[Settings, str]:
    answer = f'Each translation begins with "{value}".' if value else "Translations have no prefix."
    return replace(settings, prefix=value), answer


def _score(value: str, settings: Settings) -> tuple[Settings, str]:
    config = replace(settings.config, scores=not settings.config.scores)
    several = config.decoding.num_results > 1 and not config.scores
    always = " (several translations always have scores)" if several else ""
    return replace(settings, config=config), f"scores={str(config.scores).lower()}{always}"


def _attention(value: str, settings: Settings) -> tuple[Settings, str]:
    alignments = settings.config.alignments
    if alignments is not None:
        raise UserError(
            f":attention: is not available with alignments={alignments}. Start nmt-translate without it."
        )
    if settings.config.backend != "nmt":
        raise UserError(f":attention: backend={settings.config.backend} has none. Use backend=nmt.")
    shown = not settings.attention
    answer = "The attention of the best translation is shown." if shown else "The attention is not shown."
    return replace(settings, attention=shown), answer


def _help(value: str, settings: Settings) -> tuple[Settings, str]:
    lines = [(command.usage, command.help) for command in COMMANDS.values()]
    lines.append(("::TEXT", "translate the line :TEXT, which begins with a colon"))
    return settings, "\n".join(f"{usage:<15} {words}" for usage, words in lines)


def _quit(value: str, settings: Settings) -> tuple[Settings, str]:
    raise EOFError


COMMANDS = {
    "nbest": Command(":nbest N", "write the N best translations; raises the beam if it is smaller", _nbest),
    "beam": Command(":beam N", "search with N hypotheses", _beam),
    "prefix": Command(":prefix TEXT", "begin each translation with TEXT; without TEXT: no prefix", _prefix),
    "score": Command(":score", "switch the scores on or off", _score),
    "attention": Command(":attention", "switch the table of attention weights on or off", _attention),
    "help": Command(":help", "list the commands", _help),
    "quit": Command(":quit", "exit, like Ctrl-D", _quit),
}
"""The commands by name, in the order of `:help`."""


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
            cells = [str(round(100 * weight) or ".") for weight in values[start:end]]
            lines.append(_row(row, label, cells, sizes[start:end]))
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


def _row(label: str, label_size: int, cells: Sequence[str], sizes: Sequence[int]) -> str:
    padded = (" " * (size - _width(cell)) + cell for cell, size in zip(cells, sizes, strict=True))
    return " ".join([label + " " * (label_size - _width(label)), *padded])


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
