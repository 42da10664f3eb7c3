"""The prompt of `nmt-translate` on a terminal: typed lines are translated one by one."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from nmt.cli.formats import Lines, Request, TranslateRequests
from nmt.config import TranslateConfig
from nmt.runtime import cache_folder

if TYPE_CHECKING:
    from nmt.decoding.translation import Translation

HISTORY_LINES = 1000


def converse(
    translate_all: TranslateRequests,
    config: TranslateConfig,
    found: Callable[[Translation, int], object],
) -> None:
    """Translates typed lines until Ctrl-D; Ctrl-C cancels a line or its translation.

    Args:
        translate_all: translates requests.
        config: its `scores` and `decoding` are used.
        found: called with each translation and its number, before it is written.
    """
    print("Type a sentence and press Enter. Ctrl-C cancels a sentence, Ctrl-D exits.", file=sys.stderr)
    form, number = Lines(config), 0
    with _history():
        while True:
            try:
                lines = _ask()
                if not any(line.strip() for line in lines):
                    continue
                requests = [*map(Request, lines)]
                for request, translation in zip(requests, translate_all(requests), strict=True):
                    number += 1
                    found(translation, number)
                    sys.stdout.buffer.write(form.write(request, translation, number))
                sys.stdout.buffer.flush()
            except EOFError:
                print(file=sys.stderr)
                return
            except KeyboardInterrupt:
                print(file=sys.stderr)
            except UnicodeError:
                print("The line is not UTF-8. Set the terminal to UTF-8.", file=sys.stderr)


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
