"""Translates text with a trained model, line by line.

  nmt-translate model_dir=runs/quickstart                      on a terminal: translate typed sentences
  nmt-translate model_dir=DIR < a.txt > b.txt                  from standard input to standard output
  nmt-translate model_dir=DIR input=a.txt output=b.txt         from file to file; b.txt appears when complete
  nmt-translate "model_dir=[DIR,DIR]" < a.txt > b.txt          with an ensemble of models

Each input line gives one output line. With scores=true it is SCORE<TAB>TRANSLATION; the score is the
length-normalised log-probability. With decoding.nbest=N each input line gives N output lines, best first:
NUMBER<TAB>SCORE<TAB>TRANSLATION; the number is that of the input line, from 1. If there are fewer than N
translations, the remaining lines have the score -inf and no text.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from nmt.cli.app import run
from nmt.config import TranslateConfig
from nmt.decoding.loading import load_translator
from nmt.errors import UserError
from nmt.runtime import (
    cache_folder,
    expanded,
    log,
    progress,
    read_errors,
    require_writable,
    write_errors,
    written,
)

if TYPE_CHECKING:
    from nmt.decoding.translator import Translation, Translator

WINDOW = 16
"""Batches of `decoding.max_sentences` lines that are read before their translations are written."""
HISTORY_LINES = 1000


def translate(config: TranslateConfig) -> None:
    """Translates as `config` says.

    Raises:
        UserError: the model, the input or the output can't be used.
    """
    lines, total = _open_input(config)
    _check_output(config)
    translator = load_translator(config)
    if config.input is None and config.output is None and sys.stdin.isatty():
        converse(translator, config)
    else:
        with _open_output(config) as out:
            filter_lines(translator, config, lines, total, out)


def main() -> None:
    """Entry point of `nmt-translate`."""
    run(translate, TranslateConfig, "translate", __doc__ or "")


def filter_lines(
    translator: Translator, config: TranslateConfig, lines: Iterable[str], total: int | None, out: BinaryIO
) -> None:
    """Writes the translations of `lines` to `out`, and a summary to the log.

    Args:
        translator: the translator.
        config: its `scores`, `output` and `decoding` are used.
        lines: the input.
        total: the number of lines. None: unknown, because another program or the user is still writing them.
            Then each line is translated as soon as it arrives.
        out: the file for the translations.
    """
    start, num_lines, num_tokens = time.monotonic(), 0, 0
    window = WINDOW * config.decoding.max_sentences
    hide = total is None or (config.output is None and sys.stdout.isatty())
    with contextlib.ExitStack() as stack:
        bar = (
            None
            if hide
            else stack.enter_context(progress(total=total, unit="lines", description="Translating"))
        )
        for translation in translator.stream(lines, window, wait=total is not None):
            num_lines += 1
            num_tokens += translation.num_tokens
            out.write(formatted(translation, num_lines, config))
            if total is None:
                out.flush()
            if bar is not None:
                bar.update(1)
            _warn_of(translation, num_lines)
        out.flush()
    seconds = time.monotonic() - start
    rate = num_lines / max(seconds, 1e-9)
    log.info(f"{num_lines:,} lines, {num_tokens:,} tokens, {seconds:,.1f} s, {rate:,.0f} lines/s")


def formatted(translation: Translation, number: int, config: TranslateConfig) -> bytes:
    """Returns the output lines for input line `number`, from 1; the module's docstring has their format."""
    nbest = config.decoding.num_results
    scored = [(f"{hypothesis.score:.4f}", hypothesis.text) for hypothesis in translation.hypotheses]
    if nbest > 1:
        scored += [("-inf", "")] * (nbest - len(scored))
        return "".join(f"{number}\t{score}\t{text}\n" for score, text in scored).encode()
    [(score, text)] = scored
    return (f"{score}\t{text}\n" if config.scores else f"{text}\n").encode()


def _warn_of(translation: Translation, number: int) -> None:
    if translation.truncated:
        log.warning(
            f"line {number}: cut to {translation.cut_to:,} of {translation.truncated:,} tokens "
            "(decoding.max_source_tokens)"
        )
    for problem in translation.placeholder_warnings():
        log.warning(f"line {number}: {problem}")


# Input and output


def _open_input(config: TranslateConfig) -> tuple[Iterable[str], int | None]:
    """Returns the lines and their number; the number is None if the input is not a regular file.

    A file is read twice, so that an error in its last line is found before hours of translating.
    """
    if config.input is None:
        if sys.stdin is None:
            raise UserError("standard input: is closed. Give input=FILE.")
        descriptor = sys.stdin.fileno()
        total = None
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise UserError("standard input: is a folder. Give input=FILE, or a file after <.")
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            start = os.lseek(descriptor, 0, os.SEEK_CUR)
            total = sum(1 for _ in standard_input(descriptor))
            os.lseek(descriptor, start, os.SEEK_SET)
        return standard_input(descriptor), total
    from nmt.data.corpora.text import read_lines

    path = expanded(config.input)
    with read_errors(path):
        if not path.exists():
            raise UserError(f"input={config.input}: there is no such file (looked at {path.absolute()}).")
        if path.is_dir():
            raise UserError(f"input={config.input}: is a folder. Give a file.")
        return read_lines(path), sum(1 for _ in read_lines(path)) if path.is_file() else None


def standard_input(descriptor: int) -> Iterator[str]:
    r"""Yields lines as they arrive. Only `\n` and `\r\n` end a line.

    Args:
        descriptor: the file descriptor. It is read without a buffered file object, whose lock would block the
            exit of the program while a thread waits for input.

    Raises:
        UserError: a line is not UTF-8.
    """
    number = 0
    for number, line in enumerate(_byte_lines(descriptor), start=1):
        if number == 1:
            line = line.removeprefix(b"\xef\xbb\xbf")
        try:
            yield line.removesuffix(b"\r").decode()
        except UnicodeDecodeError as error:
            raise UserError(
                f"standard input, line {number}: not valid UTF-8 (byte 0x{line[error.start]:02x}). "
                "Convert it first, for example with iconv."
            ) from None


def _read(descriptor: int) -> bytes:
    with read_errors(Path("standard input")):
        return os.read(descriptor, 1 << 16)


def _byte_lines(descriptor: int) -> Iterator[bytes]:
    begun: list[bytes] = []  # parts of a line whose end has not been read
    while chunk := _read(descriptor):
        first, *others = chunk.split(b"\n")
        begun.append(first)
        for other in others:
            yield b"".join(begun)
            begun = [other]
    if last := b"".join(begun):
        yield last


def _check_output(config: TranslateConfig) -> None:
    """Checks before hours of translating that the output can be written."""
    if config.output is None:
        return
    path = expanded(config.output)
    require_writable(path, f"output={config.output}")
    if not path.is_file():
        return
    source = os.fstat(sys.stdin.fileno()) if config.input is None else expanded(config.input).stat()
    if os.path.samestat(source, path.stat()):
        raise UserError(f"output={config.output}: is also the input. Give another name.")


@contextlib.contextmanager
def _open_output(config: TranslateConfig) -> Iterator[BinaryIO]:
    if config.output is None:
        with write_errors(Path("standard output")):
            yield sys.stdout.buffer
        return
    with written(Path(config.output)) as out:
        yield out


# On a terminal


def converse(translator: Translator, config: TranslateConfig) -> None:
    """Translates typed lines until Ctrl-D; Ctrl-C cancels a line or its translation."""
    print("Type a sentence and press Enter. Ctrl-C cancels a sentence, Ctrl-D exits.", file=sys.stderr)
    number = 0
    with _history():
        while True:
            try:
                lines = _ask()
                if not any(line.strip() for line in lines):
                    continue
                for translation in translator.translate(lines):
                    number += 1
                    _warn_of(translation, number)
                    sys.stdout.buffer.write(formatted(translation, number, config))
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


if __name__ == "__main__":
    main()
